"""From texts to loaded libraries, for any backend: compilers, processes, caches on disk.

Knows nothing of graphs and kernels. `cpu` and `cuda` are built on it. Spec:
`specs/cpu_toolchain.md`.
"""
