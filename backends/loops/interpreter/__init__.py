"""The NumPy interpreter of the loop IR, the oracle of both emitters. Spec: `specs/loops.md`."""
