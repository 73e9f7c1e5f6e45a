"""The disk cache of what is compiled. Spec: `specs/cpu_toolchain.md`."""
