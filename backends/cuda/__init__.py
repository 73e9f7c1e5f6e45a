"""CUDA: kernels of the loop IR as CUDA C++, and what runs that text on a CPU.

Spec: `specs/cuda_printer.md`.
"""
