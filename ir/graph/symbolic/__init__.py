"""Graphs whose sizes are symbols.

    binding   where the symbols' values are found: in the sizes of the inputs
    numbers   puts numbers, or other sizes, in the place of symbols

Ground floor. Spec: `specs/graph.md`.
"""
