"""Graphs whose sizes are symbols.

    numbers   puts numbers, or other sizes, in the place of symbols

Ground floor. Spec: `specs/graph.md`.
"""
