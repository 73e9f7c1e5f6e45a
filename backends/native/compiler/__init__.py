"""The machine's C compiler: found, probed, run. Spec: `specs/cpu_toolchain.md`."""
