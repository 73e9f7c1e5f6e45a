"""Shared libraries of this process, and who compiles them. Spec: `specs/cpu_toolchain.md`."""
