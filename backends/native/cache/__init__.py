"""The disk cache of compiled libraries and their records. Spec: `specs/cpu_toolchain.md`."""
