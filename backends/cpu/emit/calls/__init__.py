"""Calls of kernels and matrix products from the function of a program. Spec: `specs/c_printer.md`,
`specs/equal_regions.md`.
"""
