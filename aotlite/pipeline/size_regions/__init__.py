"""Regions of sizes: one capture serves many sizes.

    choice              which sizes of a call become symbols
    named_dimensions    `Dim`, and what `dynamic_shapes=` speaks of
    region              the calls of one capture, and its instances by sizes
    region_entries      the entry of a region, new or kept
    proof               what is proved of the conditions
    report              regions and recompilations in words
    counts              sizes that depend on values

Spec: `specs/size_regions.md`.
"""
