"""The bodies of library functions as trees of primitives, one family a file. Spec:
`specs/functions.md`."""
