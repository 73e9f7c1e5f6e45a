"""Artifacts: compiled functions kept on disk, which a later process calls without compiling.

    reads      all that a compilation read, in words that mean the same in another process
    records    the records of stages 2 to 8, from which stages 9 and 10 make the entry again

`api` asks `lookup` for an entry before it compiles, and hands it each new one to keep. A kept entry
serves a call iff each read gives the same words again. Rules: CACHE-1 to CACHE-20.
Spec: `specs/artifacts.md`.
"""
