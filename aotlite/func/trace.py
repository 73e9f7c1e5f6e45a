"""`make_fx(f)`: traces a call of `f`, and returns the graph of its ops as a function.

Rules: FNT-15 to FNT-19. Spec: `specs/functionalize_transform.md`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

import optree

from aotlite.eager.base.modes import STATE
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.base.unsupported import raising_refusals
from aotlite.export.fake_mode import FakeTensorMode
from aotlite.func.trace_recorder import TraceRecorder
from aotlite.func.traced_module import tensors_of, traced_module
from aotlite.fx import GraphModule
from aotlite.ir.errors import ArgumentError
from aotlite.ir.graph import Constant, Node
from aotlite.ir.graph.role import Primal
from aotlite.ir.symbols.assumption import Texts
from aotlite.pipeline.arguments import flattened
from aotlite.stages.records.symbolic_sizes import (
    SizeRequest,
    SizeSource,
    SymbolicSizes,
    computing,
    running,
)
from aotlite.stages.s7_simplify.decompositions import decomposition_table as checked_table

MODES = ("real", "fake", "symbolic")


def make_fx(
    f: Callable[..., Any],
    decomposition_table: Mapping[Any, Callable[..., Any]] | None = None,
    tracing_mode: str = "real",
    *,
    pre_dispatch: bool = False,
) -> Callable[..., GraphModule]:
    """A function that traces `f` on its arguments, and returns the graph as a Module.

    `tracing_mode="real"` computes with the tensors themselves, whose writes happen; `"fake"` with
    tensors without data; `"symbolic"` with symbols for the sizes of the arguments, too.
    `decomposition_table` has functions for ops, by op or name. With `pre_dispatch`, the graph runs
    each op in the grad mode in which `f` ran it. Raises UnsupportedError for a value that Python
    asks for, as a graph has none.

    >>> import aotlite as al
    >>> def f(x):
    ...     y = x * 2
    ...     y[0].add_(1.0)
    ...     return y
    >>> print(al.func.make_fx(al.func.functionalize(f))(al.ones(2, 3)).code)
    def forward(self, x_1: "f32[2, 3]"):
        mul = ops.mul(x_1, 2);  x_1 = None
        select = ops.select(mul, 0, 0)
        add = ops.add(select, 1.0);  select = None
        select_scatter = ops.select_scatter(mul, add, 0, 0);  mul = add = None
        return select_scatter
    """
    if not callable(f):
        raise ArgumentError(f"make_fx: f is {f!r}, expected a function")
    if tracing_mode not in MODES:
        raise ArgumentError(
            f"make_fx: tracing_mode is {tracing_mode!r}, expected 'real', 'fake' or 'symbolic'"
        )
    table = checked_table(decomposition_table or {})

    @wraps(f)
    def traced(*args: Any) -> GraphModule:
        arguments = list(zip(_parameters(f, len(args)), args, strict=True))
        leaves, spec = flattened(args, "the arguments")
        sizes = _symbols_for(leaves) if tracing_mode == "symbolic" else None
        with _outside(leaves, tracing_mode, sizes) as (outer, convert):
            recorder = TraceRecorder(table, convert)
            try:
                results, found = _run(recorder, f, outer, spec, sizes)
                graph = recorder.graph(found, "forward", keeps_grad_modes=pre_dispatch)
            finally:
                recorder.closed = True
        return traced_module(graph, arguments, results, recorder.constants)

    return traced


def _run(
    recorder: TraceRecorder, f: Any, leaves: list[Any], spec: Any, sizes: SymbolicSizes | None
) -> tuple[Any, list[Tensor]]:
    """How the results are nested, and the stand-ins among them."""
    mine = [recorder.add_argument(x) if _is_tensor(x) else x for x in leaves]
    before = STATE.recorder, STATE.watch
    STATE.recorder, STATE.watch = recorder, None
    try:
        with raising_refusals(recorder), computing(sizes):
            results, tensors = tensors_of(f(*optree.tree_unflatten(spec, mine)))
        return results, [recorder.here(each) for each in tensors]
    finally:
        STATE.recorder, STATE.watch = before


def _is_tensor(value: object) -> bool:
    return isinstance(value, Tensor)


# --------------------------------------------------------------------------------------- outside
def _symbols_for(leaves: list[Any]) -> SymbolicSizes:
    """Symbols for all sizes of the tensors among the arguments."""
    asked: Any = {
        SizeSource(index, dim): SizeRequest()
        for index, leaf in enumerate(leaves)
        if _is_tensor(leaf)
        for dim in range(leaf.ndim)
    }
    return SymbolicSizes(asked)


@contextmanager
def _outside(
    leaves: list[Any], tracing_mode: str, sizes: SymbolicSizes | None
) -> Iterator[tuple[list[Any], Callable[[Tensor], Tensor]]]:
    """A block in which the trace runs; its arguments, and how it converts other tensors."""
    if STATE.recorder is not None and not getattr(STATE.recorder, "is_fake_mode", False):
        raise STATE.recorder.refuse("make_fx", "call it outside, and the traced Module inside")
    with ExitStack() as stack:
        if tracing_mode == "real":
            mode = _mode_of(leaves)
            if mode is not None and STATE.recorder is None:
                stack.enter_context(mode)
            yield leaves, lambda tensor: tensor
            return
        fakes = _mode_of(leaves) or FakeTensorMode()
        if STATE.recorder is None:
            stack.enter_context(fakes)
        stack.enter_context(running(sizes, Texts.HINTS))
        outer = [_fake(fakes, x, k, sizes) if _is_tensor(x) else x for k, x in enumerate(leaves)]
        again = dict(zip(map(id, leaves), outer, strict=True))
        outer = [again[id(leaf)] for leaf in leaves]
        yield outer, fakes.from_tensor


def _mode_of(leaves: list[Any]) -> FakeTensorMode | None:
    """The mode of the fakes among the arguments, or the active one."""
    captures = [leaf.storage.capture for leaf in leaves if _is_tensor(leaf)]
    for each in (*captures, STATE.recorder):
        if getattr(each, "is_fake_mode", False):
            mode: FakeTensorMode = each.mode
            return mode
    return None


def _fake(mode: FakeTensorMode, tensor: Tensor, index: int, sizes: SymbolicSizes | None) -> Tensor:
    if sizes is None:
        return mode.from_tensor(tensor)
    meta = sizes.meta(Primal(index), tensor.meta)
    made = Tensor(Storage(None, capture=mode.from_tensor(tensor).storage.capture), meta)
    made.value = Node("get_attr", Constant("fake", None), meta=meta)
    return made.requires_grad_() if tensor.requires_grad_outside() else made


# ----------------------------------------------------------------------------------------- names
def _parameters(f: Callable[..., Any], count: int) -> list[str]:
    try:
        found = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        found = []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [each.name for each in found if each.kind in kinds]
    if len(names) < count or any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in found):
        return [f"arg{k}" for k in range(count)]  # as PyTorch names them
    return names[:count]
