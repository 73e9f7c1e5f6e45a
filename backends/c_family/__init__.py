"""What printers of C and of CUDA C++ share: expressions, points, passes over the inner axes.

Knows no compiler, no thread and no memory but that of a kernel. Spec: `specs/c_printer.md`.
"""
