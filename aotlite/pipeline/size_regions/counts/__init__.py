"""Sizes that depend on values: how a call finds its counts.

    assertion  `al.check` and `al.size_hint`: what the user says about a count
    segments   a forward, cut at its counts
    calls      calls of a region that has counts: segments, guards, instance

Spec: `specs/data_sizes.md`.
"""
