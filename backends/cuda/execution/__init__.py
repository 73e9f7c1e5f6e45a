"""Launches: planned, written as Python, recorded as CUDA graphs. Spec: `specs/cuda_backend.md`."""
