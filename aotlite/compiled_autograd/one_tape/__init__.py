"""Compiled autograd with `hooks="call"`: a tape with hooks as one graph that calls them.

`steps` is the engine's step with pauses, `recording` makes the graph, `program` has its records,
`execution` runs it, and `cache` keeps the graphs. Spec: `specs/one_tape.md`.
"""
