"""Rewritings of a loop program for a GPU, and of its checks. Spec: `specs/cuda_printer.md`."""
