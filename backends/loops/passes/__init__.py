"""Rewritings of loop programs: `pass_order` runs them in order. Spec: `specs/fusion.md`."""
