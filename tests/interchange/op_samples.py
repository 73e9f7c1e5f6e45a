"""Ops by their samples in onnxruntime and XLA, against the reference interpreter (ICH-1).

    python -m tests.interchange.op_samples onnx --most 40
    python -m tests.interchange.op_samples stablehlo add sum conv2d

prints each op with a difference, and how many ops and samples agree, or are refused.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np

import aotlite.ir.ops  # noqa: F401  (fills the op table)
from aotlite.interchange import OnnxProgram, StableHloProgram, to_onnx, to_stablehlo
from aotlite.ir.errors import AotliteError, UnsupportedError
from aotlite.ir.graph import Graph
from aotlite.ir.op import OPS, MultiViewOp, Op, PureOp, ViewOp
from aotlite.testing.laws.graphs import runs
from aotlite.testing.laws.graphs.corpus import GraphCase
from aotlite.testing.laws.graphs.op_graphs import graphs_of
from aotlite.testing.laws.graphs.runs import Given
from tests.samples import samples_of

PROGRAMS: dict[str, Callable[[Graph], Any]] = {
    "onnx": lambda graph: OnnxProgram(to_onnx(graph)),
    "stablehlo": lambda graph: StableHloProgram(to_stablehlo(graph)),
}
"""Runtime -> the program of a graph."""
TOLERANCES = {"float16": 2e-3, "bfloat16": 1.6e-2, "float8_e4m3fn": 0.13, "float8_e5m2": 0.26}
"""Rounding of narrow dtypes; 1e-5 of others."""


def exported_ops() -> list[Op]:
    """The ops that pure graphs have, and that have samples."""
    kinds = (PureOp, ViewOp, MultiViewOp)
    return [op for op in OPS.values() if type(op) in kinds and samples_of(op.name)]


def cases_of(op: Op, most: int) -> Iterator[GraphCase]:
    """The graphs of at most so many samples, spread over all of them."""
    samples = samples_of(op.name)
    step = max(1, -(-len(samples) // most))
    for sample in samples[step // 2 :: step]:
        try:
            yield from graphs_of(op, [sample])
        except AotliteError:  # a sample of what the op refuses
            continue


@attrs.define
class Result:
    """What became of an op's samples."""

    counts: Counter[str] = attrs.field(factory=Counter)
    found: list[str] = attrs.field(factory=list)
    refusals: list[str] = attrs.field(factory=list)


def result_of(op: Op, runtime: str, most: int) -> Result:
    """Runs an op's samples in a runtime."""
    result = Result()
    for case in cases_of(op, most):
        try:
            found = differences(case, runtime)
        except UnsupportedError as error:
            result.counts["refused"] += 1
            result.refusals.append(str(error))
            continue
        result.counts["differ" if found else "agree"] += 1
        result.found += [f"{case.name}: {each}" for each in found]
    return result


def differences(case: GraphCase, runtime: str) -> list[str]:
    """The differences of a graph's results in a runtime from the reference interpreter's."""
    graph, arrays = case.graph, case.arrays or ()
    program = PROGRAMS[runtime](graph)
    metas: Any = tuple(node.meta for node in graph.placeholders)
    with np.errstate(all="ignore"):
        expected = runs.run(graph, Given(metas, arrays).fresh()).results
    names = [str(node.role) for node in graph.placeholders]
    got = program(dict(zip(names, arrays, strict=True)))
    found = []
    for role, value in zip(graph.output_roles, expected, strict=True):
        if hasattr(value, "array") and not same(np.asarray(value.array), got[str(role)]):
            found.append(f"{role} is {got[str(role)]!r}, expected {value.array!r}")
    return found


def same(expected: np.ndarray, got: np.ndarray) -> bool:
    """Whether arrays are equal: exactly for integers and bools, else up to rounding."""
    if (expected.dtype, expected.shape) != (got.dtype, got.shape):
        return False
    if expected.dtype.kind in "biu":
        return np.array_equal(expected, got)
    near = TOLERANCES.get(expected.dtype.name, 1e-5)
    wanted = expected.astype("f8")
    largest = np.max(np.abs(wanted[np.isfinite(wanted)]), initial=1.0)
    return np.allclose(wanted, got.astype("f8"), near, near * largest, equal_nan=True)


def main() -> int:
    """Prints what became of the ops; the status is 1 if one differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.interchange.op_samples")
    parser.add_argument("runtime", choices=[*PROGRAMS])
    parser.add_argument("ops", nargs="*")
    parser.add_argument("--most", type=int, default=20)
    given = parser.parse_args()
    total: Counter[str] = Counter()
    ways: Counter[str] = Counter()
    for op in exported_ops():
        if given.ops and op.name not in given.ops:
            continue
        result = result_of(op, given.runtime, given.most)
        total += result.counts
        ways["printed" if result.counts["agree"] or result.found else "refused"] += 1
        for line in [*result.found[:3], *(result.refusals[:1] if given.ops else [])]:
            print(f"{op.name}: {line}", flush=True)
    print(f"{given.runtime}: ops {dict(ways)}, samples {dict(total)}")
    return int(total["differ"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
