"""Graphs as loops: one IR for C and CUDA, a NumPy interpreter, and what makes and fuses kernels.

Spec: `specs/loops.md`.
"""
