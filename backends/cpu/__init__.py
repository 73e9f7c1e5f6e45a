"""The backend `cpu`: graphs become C, compiled by the machine's compiler, loaded and launched.

`emit` prints C, `compiled_program` compiles and launches it, `graph_cache` keeps the text of graphs
between processes, `runtime` is the C library that all programs call. Compilers, caches and loading
are `backends/native`. Spec: `specs/cpu_backend.md`.
"""
