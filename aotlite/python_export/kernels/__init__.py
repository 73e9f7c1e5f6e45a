"""Kernels as lines of NumPy: traced arrays, their notes, and forms of ops that depend on values."""
