"""Launches: planned, written as Python, recorded. Spec: `specs/cuda_backend.md`."""
