"""The CUDA C++ printer of loop programs. Spec: `specs/cuda_printer.md`."""
