"""Stage 10, runtime: calls the compiled forward, puts every side effect back, hooks in the
backward.

Input: metadata, convention, partition and the lowered graphs. Output: `CompiledEntry`, called with
the tensors of one call. Order: check, run, hook the tape, write inputs (geometry, then data),
rebuild
aliased results, set grad mode. Rules: RT-1..RT-10, TAN-1..TAN-9, SAV-1, SAV-2, FUN-23.
Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from aotlite.backends.protocol import Run, Window
from aotlite.eager.autograd.chain import Chain, Step
from aotlite.eager.autograd.history import (
    CreationKind,
    change_geometry,
    edge_of,
    root_of,
    view_node,
)
from aotlite.eager.autograd.tape import Edge
from aotlite.eager.random import GENERATOR
from aotlite.eager.state import STATE
from aotlite.eager.storage import Storage
from aotlite.eager.tensor import Tensor
from aotlite.ir.errors import ArgumentError, noted
from aotlite.ir.graph import Graph
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import OPS
from aotlite.ir.ops.views import DETACH
from aotlite.ir.role import IntermediateBase, MutatedInput, Output, Saved
from aotlite.stages.compiled_backward import BackwardPlan, CompiledBackward
from aotlite.stages.facts import (
    AliasOfBase,
    AliasOfInput,
    AliasOfOutput,
    ArgumentLeaf,
    Fixed,
    FunctionMeta,
    InputMeta,
    InputRole,
    IsInput,
    OutputMeta,
    Plain,
    Repeated,
)


class CompiledEntry:
    """One compiled variant of a function: valid where its guards hold."""

    def __init__(
        self,
        meta: FunctionMeta,
        inputs: Sequence[Any],
        consumed: int,
        forward_graph: Graph,
        forward: Run,
        saved: Sequence[Any],
        backward: BackwardPlan | None,
    ) -> None:
        self.meta = meta
        self.roles = tuple(inputs)
        self.consumed = consumed
        self.forward = forward
        self.saved = tuple(saved)
        self.backward = backward
        self.results = tuple(
            (role, value.meta) if value is not None else (role, None)
            for role, value in zip(forward_graph.output_roles, forward_graph.outputs, strict=True)
            if not isinstance(role, Saved)
        )
        self.written = tuple(each for each in meta.inputs if each.writes)

    def __call__(self, tensors: dict[InputRole, Tensor], leaves: Sequence[Any]) -> list[Any]:
        """The flat results of one call; `tensors` by role, `leaves` the flat arguments as given."""
        for each in self.written:
            _check_writable(tensors[each.role], each)
        edges = self._edges(tensors)
        windows: list[Window] = [
            (t.storage.buffer, t.offset) for t in map(tensors.get, self.roles) if t is not None
        ]
        state = GENERATOR.offset
        if self.consumed:
            windows += self._draw()
        try:
            out = self.forward(windows)
        except BaseException:
            GENERATOR.offset = state
            raise
        count = len(self.results)
        values = {
            role: Tensor(Storage(window[0]), meta, window[1])
            for (role, meta), window in zip(self.results, out[:count], strict=True)
            if window is not None and meta is not None
        }
        node = self._hook(values, out[count:], edges)
        self._write_data(tensors, values)
        self._set_versions(values)
        if node is not None:
            node.link(tensors, values)
        results = self._results(tensors, values, leaves)
        self._change_geometries(tensors, results)
        if self.meta.grad_mode_after is not None:
            STATE.grad_mode = self.meta.grad_mode_after
        return results

    def _draw(self) -> list[Window]:
        seed, offset = GENERATOR.advance(self.consumed)
        return [(np.array([seed], np.uint64), 0), (np.array([offset], np.uint64), 0)]

    # --- the tape
    def _edges(self, tensors: dict[InputRole, Tensor]) -> tuple[Edge | None, ...]:
        """Where the inputs' gradients go; asked before anything runs, since asking may raise.

        Not asked where no gradient comes (RT-9).
        """
        if self.backward is None:
            return ()
        return tuple(
            [
                None if meta is None else edge_of(tensors[role])
                for role, meta in self.backward.gradients
            ]
        )

    def _hook(
        self, values: dict[Any, Tensor], saved: list[Any], edges: tuple[Edge | None, ...]
    ) -> CompiledBackward | None:
        """Makes the differentiable results' histories one tape node (RT-2)."""
        if self.backward is None:
            return None
        node = CompiledBackward(self.backward, edges, saved)
        for index, (role, _) in enumerate(self.backward.tangents):
            value = values[role]
            value._node, value._index, value.facts = node, index, None
        return node

    # --- inputs
    def _write_data(self, tensors: dict[InputRole, Tensor], values: dict[Any, Tensor]) -> None:
        """RT-1 step 6: updated inputs are written whole; counters move as eager's do (FUN-23)."""
        copies: dict[int, int] = {}
        for each in self.written:
            if each.changes_history:
                family = id(tensors[each.role].storage)
                copies[family] = copies.get(family, 0) + 1
        raised: set[int] = set()
        for each in self.meta.inputs:
            storage = tensors[each.role].storage
            if each.version_bumps and id(storage) not in raised:
                raised.add(id(storage))
                storage.version += each.version_bumps - copies.get(id(storage), 0)
        for each in self.written:
            if each.writes_data and not each.in_graph:
                _write_data(tensors[each.role], values[MutatedInput(each.role)], each)

    def _set_versions(self, values: dict[Any, Tensor]) -> None:
        """New storages count the writes that they went through in the function (TEN-10)."""
        for index, output in enumerate(self.meta.outputs):
            if isinstance(output, Plain):
                values[Output(index)].storage.version = output.version
        for index, base in enumerate(self.meta.bases):
            values[IntermediateBase(index)].storage.version = base.version

    def _change_geometries(self, tensors: dict[InputRole, Tensor], results: list[Any]) -> None:
        """RT-3, last: views of the objects are rebuilt from the geometry at entry (META-11)."""
        for each in self.written:
            if each.writes_metadata:
                _change_geometry(tensors[each.role], each.geometry_steps)
        for index, output in enumerate(self.meta.outputs):
            if isinstance(output, (Plain, AliasOfInput, AliasOfBase, AliasOfOutput)):
                _change_geometry(results[index], output.geometry_steps)

    # --- results
    def _results(
        self,
        tensors: dict[InputRole, Tensor],
        values: dict[Any, Tensor],
        leaves: Sequence[Any],
    ) -> list[Any]:
        outputs = self.meta.outputs
        results: list[Any] = [None] * len(outputs)
        detached: Detached = {}
        later: list[tuple[int, OutputMeta]] = []
        for index, output in enumerate(outputs):
            match output:
                case Plain(is_leaf=is_leaf):
                    results[index] = values[Output(index)]
                    results[index]._leaf = is_leaf
                    if is_leaf:
                        results[index].facts = None
                case IsInput(role):
                    results[index] = tensors[role]
                case AliasOfInput(role):
                    results[index] = _rebuilt(tensors[role], output, detached)
                case AliasOfBase(base):
                    source = values[IntermediateBase(base)]
                    results[index] = _rebuilt(source, output, detached)
                case Fixed(ArgumentLeaf(leaf)):
                    results[index] = leaves[leaf]
                case Fixed(value):
                    results[index] = value
                case _:
                    later.append((index, output))
        for index, output in later:
            if isinstance(output, AliasOfOutput):
                results[index] = _rebuilt(results[output.output], output, detached)
        for index, output in later:
            if isinstance(output, Repeated):
                results[index] = results[output.output]
        return results


def _check_writable(tensor: Tensor, each: InputMeta) -> None:
    if each.writes_data and not tensor.storage.writable:
        raise noted(
            ArgumentError(
                f"runtime: {each.place} is read-only memory and the function writes it, expected "
                "writable memory"
            ),
            "Pass a copy of the array.",
        )


def _change_geometry(target: Tensor, steps: Iterable[Step]) -> None:
    """RT-3: gives the caller's tensor the geometry that the function left."""
    for step in steps:
        root_of(target)
        operand = _Meta(target.meta)
        target.offset += step.op.start((operand, *step.args))
        target.meta = step.result
        target.facts = None
        target._array = None
        change_geometry(target, step)


class _Meta:
    __slots__ = ("meta",)

    def __init__(self, meta: TensorMeta) -> None:
        self.meta = meta


def _write_data(target: Tensor, value: Tensor, each: InputMeta) -> None:
    """RT-2, RT-4: a differentiable copy where the history changes, bytes alone elsewhere."""
    if each.changes_history:
        mode = STATE.grad_mode
        STATE.grad_mode = True
        try:
            target._apply(OPS["copy_"], (target, value))
        finally:
            STATE.grad_mode = mode
    elif value.storage.buffer is not target.storage.buffer or value.offset != target.offset:
        target.device.arrays.copy(target.array, value.array)


Detached = dict[int, Tensor]
"""The detached aliases made so far, by the step that made them: their views are one family."""


def _rebuilt(
    source: Tensor, view: AliasOfInput | AliasOfBase | AliasOfOutput, detached: Detached
) -> Tensor:
    """RT-6: the view of `source` that eager's result is."""
    kind = view.kind
    mode = STATE.grad_mode
    try:
        # A stale view may be viewed, but its history may not be asked for.
        STATE.grad_mode = False
        past = _last_detach(view.chain)
        out = _replayed(source, view.chain[:past], detached)
        STATE.grad_mode = view.under_grad and not view.is_dead_end and not view.stale
        out = _replayed(out, view.chain[past:], detached)
    finally:
        STATE.grad_mode = mode
    if kind is not None and kind is not CreationKind.LEAF_VIEW and out._root is not None:
        out._kind = kind
        if view.is_dead_end:
            out._node, out._index = view_node(view.chain[-1], None), 0
        if view.stale:
            out._seen = -1
    return out


def _last_detach(chain: Chain) -> int:
    """The number of steps up to the last detach: histories before it do not matter."""
    return max([i + 1 for i, step in enumerate(chain) if step.op is DETACH], default=0)


def _replayed(source: Tensor, chain: Iterable[Step], detached: Detached) -> Tensor:
    """`source` seen through the chain."""
    out = source
    for step in chain:
        if step.op is not DETACH:
            out = out._apply(step.op, (out, *step.args))
        elif id(step) in detached:
            out = detached[id(step)]
        else:
            out = detached[id(step)] = out.detach()
    return out
