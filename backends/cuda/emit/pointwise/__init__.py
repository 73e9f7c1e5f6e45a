"""The template of kernels whose points are independent. Spec: `specs/cuda_printer.md`."""
