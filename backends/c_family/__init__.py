"""The parts of the C and CUDA C++ printers that are common: expressions, points, inner axes.

Knows no compiler, no thread and no memory but that of a kernel. Spec: `specs/c_printer.md`.
"""
