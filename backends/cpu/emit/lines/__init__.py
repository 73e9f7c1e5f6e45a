"""Loops that call many functions: C functions of a line of points. Spec: `specs/c_printer.md`."""
