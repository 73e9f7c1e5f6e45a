"""A C compiler of the machine: found, tried out, run. Spec: `specs/cpu_toolchain.md`."""
