"""Kernels whose points are independent, as CUDA C++. Spec: `specs/cuda_printer.md`."""
