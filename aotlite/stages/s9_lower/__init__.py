"""Stage 9, lower: a backend compiles a pure graph into a callable.

Input: a verified pure graph and a backend. Output: a callable on a list of windows, (buffer, start)
pairs; it may empty the list (`backends.protocol`). That of aotlite's own backends has a second
form, `compact`, which takes arrays and which entries call (LOW-9). Errors of a backend name it.
The outputs of a backend that is not aotlite's own are checked at each call (LOW-6).
Spec: `specs/s9_lower.md`.
"""

from __future__ import annotations

from typing import Any

from aotlite.backends.protocol import Backend, Run, Window, checked_run
from aotlite.backends.reference import ReferenceBackend
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
            run = backend.compile(graph)
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
    if not callable(run):
        raise BackendError(
            f"lower: backend {backend.name!r} gave {run!r} for graph {graph.name}, expected a "
            "callable"
        )
    if isinstance(backend, ReferenceBackend) or hasattr(run, "compact"):
        return run  # these compute on arrays only: grad mode does not matter
    trusted = getattr(backend, "trusted", False)
    checked = run if trusted else checked_run(backend.name, graph, run)
    of = f"backend: {backend.name!r} on graph {graph.name}"
    called: Any = _with_grad_off(watched(of, graph, checked))
    called.output_strides = getattr(run, "output_strides", None)  # SAV-6
    return called


def _with_grad_off(run: Run) -> Run:
    """The callable in grad mode off: a backend that computes on tensors builds no tape (GEN-6)."""

    def call(windows: list[Window]) -> list[Window | None]:
        mode = STATE.grad_mode
        if not mode:
            return run(windows)
        STATE.grad_mode = False
        try:
            return run(windows)
        finally:
            STATE.grad_mode = mode

    return call
