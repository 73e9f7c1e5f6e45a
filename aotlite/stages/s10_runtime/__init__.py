"""Stage 10, runtime: one function per entry, written as straight-line Python.

Input: metadata, convention, partition, the lowered graphs, and what the first call showed of the
world. Output: `CompiledEntry`: a function of flat arguments that checks that it is valid for them,
calls the compiled forward, puts every side effect back, hooks in the backward, and returns the
results in their containers; MISS where it is not valid. Order: guards, run, hook the tape, write
inputs, rebuild aliased results, change geometries, set grad mode. Its source can be printed.
Rules: RT-1..RT-10, TAN-1..TAN-9, SAV-1, SAV-2, FUN-23. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from aotlite.stages.s10_runtime.entry import CompiledEntry
from aotlite.stages.s10_runtime.forward.writer import EntryWriter
from aotlite.stages.s10_runtime.guards.writer import write_guards
from aotlite.stages.s10_runtime.plan import RuntimePlan
from aotlite.stages.s10_runtime.source import ORDER, FunctionSource


def runtime(plan: RuntimePlan) -> CompiledEntry:
    """The entry of a compiled function."""
    source = FunctionSource()
    source.scope[ORDER] = 0
    checks = write_guards(source, plan.world, marks=plan.fast_paths)
    EntryWriter(plan, source).write()
    call, text = source.function(plan.name, str(plan.number))
    return CompiledEntry(call, text, source.scope, checks)
