"""Graphs as C: kernels printed, compiled by a C compiler of the machine, loaded and launched.

What compiles and keeps libraries is `toolchain`, `cache`, `library` and `background`; spec:
`specs/cpu_toolchain.md`.
"""
