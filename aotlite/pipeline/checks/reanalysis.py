"""`verify=True` for stage 2: captures the captured graph again, and compares both analyses.

The second capture runs no Python of the user's: an interpreter runs the graph under the tape, on
fakes of the same inputs. The metadata must follow from the graph alone, so both analyses must give
equal metadata. Rules: GEN-10, META-25. Spec: `specs/rules/gen.md`.
"""

from __future__ import annotations

from typing import Any

import attrs

from aotlite.eager.base.modes import STATE
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.dispatch import dispatch
from aotlite.ir.errors import ArgumentError, noted
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.role import MutatedInput, Primal
from aotlite.ir.meta import TensorMeta
from aotlite.ir.run.interpreter import Interpreter
from aotlite.stages.records.base import Record
from aotlite.stages.records.capture import Captured, Containers
from aotlite.stages.records.capture_inputs import InputRole
from aotlite.stages.records.metadata.function_facts import Fixed, InputMeta
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.s1_capture import capture
from aotlite.stages.s2_analyze import analyze
from aotlite.stages.shared.size_values import AtSizes

_MOST = 6
"""At most this many differences are named."""


def check_metadata(captured: Captured, meta: FunctionMeta) -> None:
    """Raises ArgumentError, with the differences, where a second analysis disagrees (GEN-10)."""
    sizes = captured.recorder.sizes
    if sizes is not None:  # the second capture is of the call's own sizes
        at = AtSizes(sizes.table.hints)
        changes = {"graph": at.graph(captured.graph), "results": at.put(captured.results)}
        captured, meta = attrs.evolve(captured, **changes), at.put(meta)
    again = reanalyzed(captured)
    if again is None:
        return
    if sizes is not None:
        meta, again = _without_caution(meta, again), _without_idle_families(again)
    found = meta.differences(again)
    if found:
        raise noted(
            ArgumentError(
                f"verify: 2 analyze says that {found[0]}, by the same analysis of the captured "
                "graph run again"
            ),
            *found[1:_MOST],
            *([f"and {len(found) - _MOST} more"] if len(found) > _MOST else []),
            "(GEN-10)",
        )


def _without_caution(meta: FunctionMeta, again: FunctionMeta) -> FunctionMeta:
    """The metadata without what holds for other sizes alone.

    With symbols, geometry that is equal for some sizes counts as written, and a window that ends
    in the input for some sizes as one that may reach beyond it. For these sizes both are idle. And
    the second capture computes no sizes: it has numbers.
    """

    def at_sizes(first: InputMeta, second: InputMeta) -> InputMeta:
        idle = first.meta == first.final_meta and first.final_start == 0
        writes = second.writes_metadata if idle else first.writes_metadata
        extent = None if second.extent is None else first.extent
        return attrs.evolve(first, writes_metadata=writes, extent=extent)

    meta = _without_idle_families(meta)
    inputs = zip(meta.inputs, again.inputs, strict=True)
    numbers = tuple([at_sizes(*each) for each in inputs])
    return attrs.evolve(meta, inputs=numbers, computed_sizes=())


def _without_idle_families(meta: FunctionMeta) -> FunctionMeta:
    """The metadata without view families that change nothing: with symbols there are none."""
    return attrs.evolve(meta, families=tuple([x for x in meta.families if x.reason]))


def reanalyzed(captured: Captured) -> FunctionMeta | None:
    """The metadata of a second capture and analysis; None where the graph alone cannot give it.

    Custom functions, `requires_grad_` and `detach_` change the tape and leave no node. The nodes of
    wrappers stand for ops of their parts, and cannot be run.
    """
    recorder = captured.recorder
    if recorder.unrecorded or recorder.wrapped:
        return None
    if any(len(each.members) < 2 for each in captured.families):
        return None  # the second capture sees no tensor that the function could have reached
    reals = [recorder.real_of(given.fake) for given in captured.inputs]

    def run(inputs: list[Any]) -> Any:
        states = [0] * (len(captured.graph.placeholders) - len(inputs))
        results = UnderTape(captured.graph).run(*inputs, *states)
        STATE.grad_mode = captured.grad_mode_after
        return results

    second = capture(None, run, reals, list(enumerate(reals)), _flat, captured.graph.name)  # type: ignore[arg-type]
    try:
        return _as_in(captured, analyze(second))
    finally:
        second.recorder.close()


def _flat(results: Any) -> tuple[list[object], Containers]:
    return list(results), Containers()


class UnderTape(Interpreter):
    """Runs a graph op by op through the dispatcher, in the grad mode recorded on each node."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph, dispatch, constant=_constant)

    def run_node(self, node: Node) -> object:
        """The value of a node; its operands are tensors."""
        if node.op != "call":
            return super().run_node(node)
        before = STATE.grad_mode
        STATE.grad_mode = node.grad_mode
        try:
            return super().run_node(node)
        finally:
            STATE.grad_mode = before


def _constant(value: object, meta: TensorMeta) -> object:
    recorder = STATE.recorder
    assert recorder is not None
    return recorder.constant(value, Tensor(Storage(None), meta))


def _as_in(captured: Captured, meta: FunctionMeta) -> FunctionMeta:
    """The second analysis under the roles and places of the first capture.

    In the second capture every input is an argument; in the first, some may have been hidden.
    """
    named: FunctionMeta = _renamed(meta, [given.role for given in captured.inputs])
    inputs = zip(named.inputs, captured.inputs, strict=True)
    outputs = zip(named.outputs, captured.results, strict=True)
    return attrs.evolve(
        named,
        inputs=tuple([attrs.evolve(each, place=given.place) for each, given in inputs]),
        outputs=tuple([Fixed(value) if isinstance(o, Fixed) else o for o, value in outputs]),
    )


def _renamed(value: object, roles: list[InputRole]) -> Any:
    """A record with every role of the second capture replaced by that of the first.

    Families keep their roles: both captures number them in the order of their members.
    """
    if isinstance(value, Primal):
        return roles[value.index]
    if isinstance(value, MutatedInput):
        return MutatedInput(_renamed(value.of, roles))
    if isinstance(value, tuple):
        return tuple([_renamed(item, roles) for item in value])
    if isinstance(value, Record) and not isinstance(value, Fixed):
        names = [field.name for field in attrs.fields(type(value))]  # type: ignore[arg-type]
        return type(value)(**{name: _renamed(getattr(value, name), roles) for name in names})
    return value
