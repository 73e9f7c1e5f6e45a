"""Passes on a loop program that only a GPU needs. Spec: `specs/cuda_printer.md`."""
