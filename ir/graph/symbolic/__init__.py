"""Graphs whose sizes are symbols.

    binding   where the symbols' values are found: in the sizes of the inputs
    numbers   puts numbers, or other sizes, in the place of symbols
    size_code generated code that computes what a text for many sizes needs

Ground floor. Spec: `specs/graph.md`.
"""
