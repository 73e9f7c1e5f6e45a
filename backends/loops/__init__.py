"""The loop IR: one form of kernels for C and CUDA, with lowering, fusion and a NumPy interpreter.

`program` and `expr` are the IR, `lowering` makes it of a graph, `passes` fuse and schedule it,
`analysis` answers their questions, `interpreter` runs it, `functions` has exp, erf, pow, ... as
trees of primitives. Spec: `specs/loops.md`.
"""
