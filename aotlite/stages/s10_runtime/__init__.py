"""Stage 10, runtime: one function per entry, written as straight-line Python.

Input: metadata, convention, partition, the lowered graphs, and the values of the first call.
Output: `GuardedFunction`, a function of flat arguments. It checks its guards, calls the compiled
forward, carries out every side effect, puts the backward on the tape, and returns the results in
their containers; MISS if a guard fails. Order: guards, run, tape node, writes of inputs, aliased
results, geometries, grad mode. The packages `guards`, `forward` and `backward` write the parts.
Rules: RT-1..RT-10, TAN-1..TAN-9, SAV-1, SAV-2, FUN-23. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from aotlite.stages.s10_runtime.forward.writer import EntryWriter
from aotlite.stages.s10_runtime.guarded_function import GuardedFunction
from aotlite.stages.s10_runtime.guards.writer import write_guards
from aotlite.stages.s10_runtime.plan import RuntimePlan
from aotlite.stages.s10_runtime.source import ORDER, FunctionSource


def runtime(plan: RuntimePlan) -> GuardedFunction:
    """The entry that runs a compiled function by this plan."""
    source = FunctionSource()
    source.scope[ORDER] = 0
    checks = write_guards(source, plan.guarded_values, marks=plan.fast_paths)
    EntryWriter(plan, source).write()
    call, text = source.function(plan.name, plan.number)
    return GuardedFunction(call, text, source.scope, checks)
