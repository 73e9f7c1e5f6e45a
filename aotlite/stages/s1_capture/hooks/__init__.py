"""Hooks that a function registers while it is captured."""
