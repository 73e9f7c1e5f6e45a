"""Ops by their samples as ONNX models whose sizes are symbols, run at other sizes (ICH-9).

    python -m tests.interchange.sized_samples --most 3 sum softmax

prints each op with a difference, and how many ops and samples agree, are refused, or have
conditions that exclude all other sizes that were tried.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import optree

import aotlite as al
from aotlite.eager.creation.from_data import call as call_op
from aotlite.interchange import OnnxProgram, to_onnx
from aotlite.ir.errors import AotliteError, ArgumentError, UnsupportedError
from aotlite.ir.graph.role import Primal
from aotlite.ir.op import Op
from aotlite.ir.run.interpreter import run_graph
from aotlite.testing.laws.ops.runs import tensors_in
from aotlite.testing.laws.samples.sample import Sample
from tests.interchange.op_samples import exported_ops, same
from tests.laws.helpers.size_entries import arguments_at, is_taken, of_tensors_alone, sizes_in
from tests.samples import samples_of

EXCLUDED = {"restride": "its strides are numbers: at other sizes elements share memory"}
Outcome = tuple[str, str]
"""(agrees, differs, refused or excluded, in words)."""


def sized_ops() -> list[Op]:
    """The ops that are tried."""
    return [op for op in exported_ops() if op.name not in EXCLUDED]


def outcomes(op: Op, most: int) -> Iterator[Outcome]:
    """What becomes of some samples of an op, of each size in each."""
    sized = [each for each in samples_of(op.name) if sizes_in(each)]
    for sample in sized[:: max(1, -(-len(sized) // most))]:
        for size in sorted(sizes_in(sample)):
            with al.no_grad(), np.errstate(all="ignore"):
                found = _outcome(op, sample, size)
            if found is not None:
                yield found


def _outcome(op: Op, sample: Sample, size: int) -> Outcome | None:
    def function(args: Any, kwargs: Any) -> Any:
        return call_op(op.name, *args, **kwargs)

    if not is_taken(function, sample, {size: size}):
        return None
    body = of_tensors_alone(function, sample)
    try:
        graph, _ = _graph_at(body, sample, {}, dynamic=True)
        if not all(isinstance(node.role, Primal) for node in graph.placeholders):
            return None
        program = OnnxProgram(to_onnx(graph))
    except UnsupportedError as error:
        return "refused", str(error).splitlines()[0]
    except AotliteError:
        return None
    if not program.convention["sizes"]["bindings"] or not any(program.convention["outputs"]):
        return None
    ran = set()
    for other in (size, size + 1, 2 * size, size + 5, 3 * size):
        if other in sizes_in(sample) - {size} or not is_taken(function, sample, {size: other}):
            continue
        fixed, leaves = _graph_at(body, sample, {size: other}, dynamic=False)
        if [n.role for n in fixed.placeholders] != [n.role for n in graph.placeholders]:
            continue
        arrays = [leaves[node.role.index].detach().numpy() for node in graph.placeholders]
        try:
            got = program(dict(zip(program.convention["inputs"], arrays, strict=True)))
        except ArgumentError:  # a condition
            continue
        found = _differences(got, fixed, [each.copy() for each in arrays])
        if found:
            return "differs", f"{op.name}, {size} -> {other}: {found}"
        ran.add(other)
    return ("agrees", "") if ran - {size} else ("excluded", f"{op.name} at {size}")


def _graph_at(
    body: Any, sample: Sample, change: Mapping[int, int], *, dynamic: bool
) -> tuple[Any, list[Any]]:
    """The graph of a call with other sizes in the place of these, and the leaves of arguments."""
    args, kwargs = arguments_at(sample, change)
    tensors = [value for value in args if tensors_in(value)]
    named = {name: value for name, value in kwargs.items() if tensors_in(value)}
    compiled: Any = al.compile(body, dynamic=dynamic, backend="reference")
    compiled(*tensors, **named)
    whole: Any = tensors, named
    return compiled.forward_graph, optree.tree_leaves(whole, none_is_leaf=True)


def _differences(got: dict[str, Any], graph: Any, arrays: list[Any]) -> list[str]:
    """The results that are not the interpreter's."""
    results: Any = run_graph(graph, *arrays)
    results = results if isinstance(results, tuple) else (results,)
    return [
        f"{role} is {got[str(role)]!r}, expected {value!r}"[:200]
        for role, value in zip(graph.output_roles, results, strict=True)
        if isinstance(value, np.ndarray) and not same(value, got[str(role)])
    ]


def main() -> int:
    """Prints what became of the ops; the status is 1 if one differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.interchange.sized_samples")
    parser.add_argument("ops", nargs="*")
    parser.add_argument("--most", type=int, default=2)
    given = parser.parse_args()
    total: Counter[str] = Counter()
    ops: Counter[str] = Counter()
    for op in sized_ops():
        if given.ops and op.name not in given.ops:
            continue
        found = list(outcomes(op, given.most))
        kinds = Counter([kind for kind, _ in found])
        total += kinds
        names = ("differs", "agrees", "excluded", "refused")
        ops[next((kind for kind in names if kinds[kind]), "without sizes")] += 1
        for kind, words in found:
            if kind == "differs" or given.ops and words:
                print(words, flush=True)
    print(f"ops {dict(ops)}, samples {dict(total)}")
    return int(total["differs"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
