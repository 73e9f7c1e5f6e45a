"""Loop programs as CUDA C++. Spec: `specs/cuda_printer.md`."""
