"""From C text to a loaded library: compilers, child processes, caches on disk, loading.

It knows no graphs and no kernels; `cpu` and `cuda` are built on it. Spec: `specs/cpu_toolchain.md`.
"""
