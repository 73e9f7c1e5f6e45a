"""Refuses effects that write tensors read by the running compiled code, or use its generator.

Used by stage 10, for forwards and backwards that have effects. The function that an effect calls
may reach all objects of the program. Compiled code reads its inputs in an order of its own, and
takes all its random numbers at once. If the function changed these meanwhile, results would differ
from eager's. So that is an error.
Rules: TOK-7, GEN-2. Spec: `specs/tokens.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from weakref import ref

from aotlite.backends.calling_convention import Run
from aotlite.backends.python_source import listed
from aotlite.eager.base.modes import STATE
from aotlite.eager.rng.generator import Refusing
from aotlite.ir.effects.execution_record import unwatched
from aotlite.ir.errors import TokenError, noted
from aotlite.ir.graph import Graph
from aotlite.ir.graph.effect_chains import first_effect
from aotlite.stages.s10_runtime.source import FunctionSource

_HINT = (
    "Compiled code reads what it needs in an order of its own. Let the callback give new values as "
    "its results, and write them in the function; or write after the call. (TOK-7)"
)


def run_call(
    source: FunctionSource,
    graph: Graph,
    run: Run,
    given: str,
    storages: Iterable[str],
    *,
    draws: bool,
) -> str:
    """The expression that runs a graph: by `run_isolated` if the graph has effects."""
    function, args = "run.call", given
    if first_effect(graph) is not None:
        source.use(run_isolated)
        source.scope["ref"] = ref
        refs = [f"ref({each})" for each in dict.fromkeys(storages)]
        args = f"{function}, {args}, {listed(refs) if refs else '()'}, {draws}, {graph.name!r}"
        function = "run_isolated"
    return f"{function}({args})" if run.runs_user_code else f"quiet_call({function}, {args})"


def run_isolated(
    run: Callable[[object], object], given: Any, storages: Sequence[Any], draws: bool, name: str
) -> object:
    """The results of `run`. Raises TokenError if an effect has written a tensor that it reads.

    `storages` are weak references, so that inputs can be freed during the run (BOX-1). `draws`: the
    run uses the generator, so effects may not.
    """
    before = [each().version for each in storages]
    outer = STATE.draws
    if draws:
        STATE.draws = Refusing(outer)
    try:
        with unwatched():
            found = run(given)
    finally:
        STATE.draws = outer
    for each, version in zip(storages, before, strict=True):
        storage = each()
        if storage is not None and storage.version != version:
            raise noted(
                TokenError(
                    f"{name}: a tensor that the compiled function reads was written while it ran, "
                    "expected effects that leave it alone"
                ),
                _HINT,
            )
    return found


__all__ = ["run_call"]
