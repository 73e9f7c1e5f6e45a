"""Kernels merged with kernels. Spec: `specs/fusion.md`."""
