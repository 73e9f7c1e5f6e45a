"""`verify=True`: every stage's graph is also run, on random inputs, and compared with the stage
before.

A wrong stage or pass names itself: the first graph whose results differ is its own. Graphs run by
the reference interpreter, op by op. Spec: `specs/verify.md`.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from aotlite.ir.arrays import copied
from aotlite.ir.errors import ArgumentError, noted
from aotlite.ir.graph import Graph, Node
from aotlite.ir.interpreter import ArrayValue, Interpreter
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import RandomOp
from aotlite.ir.role import Gradient, Offset, Role, Saved, Seed
from aotlite.stages.facts import Partition

_RELATIVE = {2: 1e-2, 4: 1e-3, 8: 1e-9, 16: 1e-9}
"""Relative tolerance by item size: a pass may change the order of a sum, not its meaning."""


class StageRunner:
    """Runs graphs on the same random inputs, by role, and compares results by role."""

    def __init__(self) -> None:
        self.inputs: dict[Role, Any] = {}
        self.before: dict[Role, Any] = {}
        self.name = ""

    def compare(self, stage: str, graph: Graph) -> None:
        """Raises ArgumentError naming `stage` where its results differ from those of the stage
        before.
        """
        if stage.startswith(("1 ", "8 ")) or any(
            isinstance(n.target, RandomOp) for n in graph.nodes
        ):
            return
        results = self._run(graph)
        self._compare(stage, results)
        self.before, self.name = results, stage

    def compare_partition(self, partition: Partition) -> None:
        """The same for the two halves of a partition, run one after the other."""
        results = self._run(partition.forward)
        if partition.backward is not None:
            kept: dict[Role, Any] = {r: v for r, v in results.items() if isinstance(r, Saved)}
            results.update(self._run(partition.backward, kept))
        results = {r: v for r, v in results.items() if not isinstance(r, Saved)}
        self._compare("8 partition", results)

    def _run(self, graph: Graph, given: dict[Role, Any] | None = None) -> dict[Role, Any]:
        values = [self._input(node, given or {}) for node in graph.placeholders]
        with np.errstate(all="ignore"):
            outputs = Interpreter(graph).run(*values)
        pairs = zip(graph.output_roles, outputs, strict=True)
        return {role: _host(value) for role, value in pairs if value is not None}

    def _input(self, node: Node, given: dict[Role, Any]) -> Any:
        role: Any = node.role
        meta: Any = node.meta
        if role in given:
            source = given[role]
        else:
            if role not in self.inputs:
                self.inputs[role] = _random(role, meta)
            source = self.inputs[role]
        return ArrayValue(copied(meta.device.arrays, source, meta), meta)

    def _compare(self, stage: str, results: dict[Role, Any]) -> None:
        for role, value in self.before.items():
            if role not in results and isinstance(role, Gradient):
                continue
            if role not in results or not _close(value, results[role]):
                raise noted(
                    ArgumentError(
                        f"verify: {stage} changed the value of {role}, expected what "
                        f"{self.name} gives"
                    ),
                    f"before: {_shown(value)}",
                    f"after:  {_shown(results.get(role))}",
                )


def _random(role: Role, meta: TensorMeta) -> Any:
    """Values that depend on the role alone, away from 0 so that log and division behave."""
    if isinstance(role, (Seed, Offset)):
        return np.zeros((), meta.dtype.numpy)
    draw = np.random.default_rng(zlib.crc32(str(role).encode()))
    if meta.dtype.is_differentiable:
        return draw.uniform(0.5, 1.5, meta.shape).astype(meta.dtype.numpy)
    return draw.integers(0, 2, meta.shape).astype(meta.dtype.numpy)


def _host(value: Any) -> Any:
    return np.array(value)


def _close(a: Any, b: Any) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind in "biu":
        return bool(np.array_equal(a, b))
    limit = _RELATIVE.get(a.dtype.itemsize, 1e-3)
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    a, b = a.astype(wide), b.astype(wide)
    scale = np.max(np.abs(np.where(np.isfinite(a), a, 0)), initial=1.0)
    return bool(np.allclose(a, b, rtol=limit, atol=limit * scale, equal_nan=True))


def _shown(value: Any) -> str:
    if value is None:
        return "absent"
    return np.array2string(np.asarray(value), threshold=8, precision=6).replace("\n", " ")
