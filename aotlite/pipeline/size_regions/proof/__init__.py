"""What is proved of a region's guards.

    warning      facts that are open when the time for a proof is over
    witnesses    why each guard is needed: sizes that violate it alone
    dead_guards  guards of branches that change nothing
    python_effects    what a branch does to Python's objects
    python_writes     whether a function may write outside, before it runs again
    bytecode_writes   what bytecode writes

Spec: `specs/guards_proved.md`.
"""
