"""The caller's containers: `argument_writes` does again what a function does to them (GEN-14)."""
