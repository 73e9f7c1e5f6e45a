"""What is proved of a region's guards.

    warning      facts that are open when the time for a proof is over
    witnesses    why each guard is needed: sizes that violate it alone
    dead_guards  guards of branches that change nothing
    python_effects    what a branch does to Python's objects

Spec: `specs/guards_proved.md`.
"""
