"""Kernels of rows that groups of threads reduce, as CUDA C++. Spec: `specs/cuda_printer.md`."""
