"""Templates: what equal kernels of a program share, so that each is worked on once. Spec:
`specs/equal_regions.md`.
"""
