"""The runtime library that compiled graphs call, in C, and its Python side: thread pool, matrix
products, scratch memory, launches. Spec: `specs/cpu_runtime.md`."""
