"""Stage 9, lower: a backend compiles a pure graph into a `Run`.

Input: a verified pure graph and a backend. Output: a `Run`, whose `call` takes and returns arrays
and windows (`backends.calling_convention`, LOW-9). A backend of a user's may give a function on
windows, which is put into one, and whose results are checked at each call (LOW-6). Errors of a
backend name it.
Spec: `specs/s9_lower.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from aotlite.backends.calling_convention import Run, Value
from aotlite.backends.protocol import Backend, as_run
from aotlite.eager.base.modes import STATE, modes_kept
from aotlite.ir.collector import collector_paused
from aotlite.ir.errors import AotliteError, BackendError, noted, out_of_memory
from aotlite.ir.graph import Graph
from aotlite.ir.graph.effect_chains import watched


def lower(graph: Graph, backend: Backend) -> Run:
    """The compiled graph.
    Raises BackendError if the backend raises or returns no callable; OutOfMemoryError if memory
    runs out meanwhile."""
    try:
        with modes_kept(), collector_paused():  # a backward is lowered long after its forward
            made = backend.compile(graph)
    except AotliteError as error:
        error.add_note(f"raised by backend {backend.name!r} on graph {graph.name}")
        raise
    except MemoryError as error:  # no fault of the backend's
        missing = out_of_memory(f"lower: graph {graph.name}", error)
        raise noted(missing, f"raised by backend {backend.name!r}", str(error)) from error
    except Exception as error:
        raise noted(
            BackendError(
                f"lower: backend {backend.name!r} raised {type(error).__name__} on graph "
                f"{graph.name}, expected a callable"
            ),
            str(error),
        ) from error
    if not callable(made):
        raise BackendError(
            f"lower: backend {backend.name!r} gave {made!r} for graph {graph.name}, expected a "
            "callable"
        )
    run = as_run(backend.name, graph, made, trusted=getattr(backend, "trusted", False))
    if not run.runs_user_code:
        return run  # it computes on arrays only: grad mode does not matter
    guarded = copy(run)
    of = f"backend: {backend.name!r} on graph {graph.name}"
    guarded.call = _with_grad_off(watched(of, graph, run.call))
    return guarded


def _with_grad_off(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function in grad mode off: a backend that computes on tensors builds no tape (GEN-6)."""

    def called(values: list[Value]) -> list[Value]:
        mode = STATE.grad_mode
        if not mode:
            found: list[Value] = call(values)
            return found
        STATE.grad_mode = False
        try:
            found = call(values)
            return found
        finally:
            STATE.grad_mode = mode

    return called
