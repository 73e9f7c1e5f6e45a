"""Functions as trees of primitives, a family a file. Spec: `specs/functions.md`."""
