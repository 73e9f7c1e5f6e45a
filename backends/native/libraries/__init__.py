"""Shared libraries: loading, unloading, and compilation in the background. Spec:
`specs/cpu_toolchain.md`."""
