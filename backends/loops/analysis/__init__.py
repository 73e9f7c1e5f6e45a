"""Facts about addresses, conditions and costs that passes ask for. Spec: `specs/fusion.md`."""
