"""What compiled graphs call, in C, and its Python side. Spec: `specs/cpu_runtime.md`."""
