"""Fusion: `inline` copies pointwise values into their users, `merge` makes one kernel of two.

`align_kernels` brings two kernels onto the same axes, `fuse` decides the order of merges. Spec:
`specs/fusion.md`.
"""
