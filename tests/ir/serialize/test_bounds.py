"""Reading takes time and memory linear in the length of the file, whatever stands in it."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import numpy as np
import pytest

from aotlite.ir import dtypes, serialize
from aotlite.ir.arrays.device import CPU
from aotlite.ir.errors import FormatError
from aotlite.ir.graph import Graph
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.files.limits import _CHECKS, overlap_steps
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import OPS, MultiViewOp, ViewOp
from aotlite.ir.ops.views import scatters
from tests.ir.serialize.test_hostile import DOCUMENT, MEBIBYTE, TEXT, check, refusal, within


# ------------------------------------------------------------------------------ rules, well fed
def meta_json(shape: list[int], stride: list[int], dtype: str = "float32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "stride": stride, "device": "cpu"}


METAS = [
    meta_json([2, 3], [3, 1]),
    meta_json([2**54], [1]),
    meta_json([10**9, 10**9], [0, 0], "bool"),
    meta_json([], [], "int64"),
    meta_json([0, 5], [5, 1], "int64"),
    meta_json([999, 998, 997, 996], [10007, 10009, 10037, 10039]),
    meta_json([2] * 40, list(range(1, 41))),
    meta_json([1] * 64, [1] * 64),
    meta_json([1, 4, 5, 6], [120, 30, 6, 1], "complex64"),
]
INTEGERS = [0, 1, -1, 2, 3, 63, -64, 10**9, 10**12, 2**62, 2**63 - 1, 1 - 2**63]
TENSORS = [f"%{index}" for index in range(len(METAS))]


def hostile_argument(kind: str, draw: Random) -> Any:
    """A JSON value that the parameter's type allows, as bad as can be."""
    if kind.endswith("?") and draw.random() < 0.3:
        return None
    number = draw.choice([*INTEGERS, 0.0, "nan", True, 10**599, {"complex": ["inf", -0.0]}])
    match kind.removesuffix("?"):
        case "Tensor":
            return draw.choice(TENSORS)
        case "Tensor|Scalar":
            return draw.choice([number, *TENSORS])
        case "Tensor[]" | "Tensor?[]":
            return draw.choices(TENSORS, k=draw.randrange(40)) * draw.choice([1, 1, 50])
        case "Scalar":
            return number
        case "int":
            return draw.choice(INTEGERS)
        case "int[]":
            return draw.choices(INTEGERS, k=draw.choice([0, 1, 2, 4, 64, 1_000]))
        case "bool":
            return draw.random() < 0.5
        case "float":
            return draw.choice([0.0, -1e308, "nan"])
        case "dtype":
            return draw.choice([dtype.name for dtype in dtypes.DTYPES])
    return "cpu"


def call_text(target: str, args: list[Any], meta: Any, *more: Any) -> str:
    """A file with an input of each meta and one call."""
    inputs = [
        {"op": "placeholder", "role": f"arg_{index}", "meta": index} for index in range(len(METAS))
    ]
    call = {"op": "call", "target": target, "args": args, "meta": meta}
    document = {
        **DOCUMENT,
        "metas": METAS,
        "constants": [],
        "nodes": [*inputs, call, *more, {"op": "output", "args": [], "role": []}],
    }
    return json.dumps(document)


USUALLY_OR_LONG = pytest.mark.parametrize("times", [8, pytest.param(50, marks=pytest.mark.long)])


def of_every_op(feed: Callable[[str, Random], None], times: int) -> None:
    """Feeds each op so many times. By seeds: Hypothesis would take most of the time for itself."""
    for name in OPS:
        for seed in range(times):
            try:
                feed(name, Random(f"{name} {seed}"))
            except BaseException as error:
                error.add_note(f"{name} with seed {seed}")
                raise


@USUALLY_OR_LONG
def test_rule_of_every_op_takes_bounded_time(times: int) -> None:
    """The nastiest arguments of the right types: the reader lets a rule run only if it will end."""

    def feed(name: str, draw: Random) -> None:
        kinds = [parameter.type.text for parameter in OPS[name].schema.parameters]
        args = [hostile_argument(kind, draw) for kind in kinds]
        meta = draw.choice([0, 3, 5, 7, [0], [0] * 64])
        check(call_text(name, args, meta))

    of_every_op(feed, times)


SMALL = [0, 3, 4, 7, 8]
"""Metas on which no rule takes long, whatever its other arguments."""


@USUALLY_OR_LONG
def test_what_is_written_can_be_read_whatever_the_arguments(times: int) -> None:
    """A call that the op's rule takes is refused by the writer, or comes back the same."""
    written = set()

    def feed(name: str, draw: Random) -> None:
        op = OPS[name]
        build = Builder()
        metas = [METAS[index] for index in SMALL]
        inputs = [
            build.placeholder(tensor_meta(m["shape"], m["stride"], dtypes.by_name(m["dtype"])))
            for m in metas
        ]
        kinds = [parameter.type.text for parameter in op.schema.parameters]
        args = [in_memory(hostile_argument(kind, draw), kind, inputs) for kind in kinds]
        try:
            node = build.emit(op, op.bind(tuple(args), {}))
            text = serialize.dumps(build.finish([node] if type(node.meta) is TensorMeta else []))
        except Exception:  # the rule refuses in its own way, the writer with UnsupportedError
            return
        assert text == serialize.dumps(serialize.loads(text))
        written.add(name)

    of_every_op(feed, times)
    assert len(written) > len(OPS) / 4


def in_memory(value: Any, kind: str, inputs: list[Any]) -> Any:
    """The argument that a hostile JSON value stands for, with small inputs for its tensors."""
    if isinstance(value, list):
        return tuple([in_memory(item, kind, inputs) for item in value])
    if isinstance(value, dict):
        return complex(float("inf"), -0.0)
    if not isinstance(value, str):
        return value
    if value.startswith("%"):
        return inputs[int(value[1:]) % len(inputs)].node
    return {"nan": float("nan"), "cpu": CPU}.get(value) or dtypes.by_name(value)


SPLITS: list[tuple[str, list[Any], str]] = [
    ("split", ["%1", 1, 0], "2 results, expected 18014398509481984 results"),
    ("split", ["%2", 10, 1], "2 results, expected 100000000 results"),
    ("unbind", ["%2", -1], "2 results, expected 1000000000 results"),
    ("split_with_sizes", ["%0", [1] * 3, 1], "2 results, expected 3 results"),
]


@pytest.mark.parametrize(("name", "args", "message"), SPLITS)
def test_op_with_a_billion_results_is_refused(name: str, args: list[Any], message: str) -> None:
    expected = f"nodes[9] is a call of {name} with {message}"
    assert expected in str(refusal(call_text(name, args, [0, 0])))


def test_every_op_with_results_to_count_is_counted() -> None:
    several = {op for op in OPS.values() if isinstance(op, MultiViewOp)}
    assert several <= _CHECKS.keys()


def test_every_rule_that_searches_for_overlaps_is_paid_for() -> None:
    declared = {op for name, op in OPS.items() if _is_view(name.removesuffix("_scatter"), name)}
    assert {scatters.AS_STRIDED_SCATTER} < declared
    assert declared <= _CHECKS.keys()


def _is_view(name: str, scatter: str) -> bool:
    return name != scatter and isinstance(OPS.get(name), ViewOp)


def test_overlap_that_would_be_searched_for_ever_is_refused() -> None:
    text = call_text("select_scatter", ["%5", "%0", 0, 0], 5)
    expected = "nodes[9] is a call of select_scatter with a rule that takes long, expected at"
    assert expected in str(refusal(text))


def test_strides_without_a_search_cost_nothing() -> None:
    assert 0 == overlap_steps((99, 98, 97), (98 * 97, 97, 1))
    assert 0 == overlap_steps((9, 10**6), (1, 1))
    assert 0 == overlap_steps((9, 9, 9), (0, 1, 1))
    assert 0 < overlap_steps((9, 9, 9), (1, 2, 3))


def test_ranks_without_end_are_refused() -> None:
    """Each call orders 64 dimensions, which takes a millisecond, and none is like another."""
    rank = 64
    metas = [meta_json([1] * rank, [index] * rank) for index in range(60)]
    inputs = [{"op": "placeholder", "role": f"arg_{i}", "meta": i} for i in range(len(metas))]
    calls = [
        {"op": "call", "target": "detach", "args": [f"%{i % 60}"], "meta": i % 60}
        for i in range(2_000)
    ]
    nodes = [*inputs, *calls, {"op": "output", "args": [], "role": []}]
    text = json.dumps({**DOCUMENT, "metas": metas, "constants": [], "nodes": nodes})
    assert "with a rule that takes long, expected at most 5206100 steps" in str(refusal(text))


# ------------------------------------------------------------------------------------ large files
def chain(length: int) -> Graph:
    build = Builder("chain")
    x = build.placeholder(tensor_meta((4,)))
    for _ in range(length):
        x = x * 2.0
    return build.finish([x])


def test_reading_and_writing_take_linear_time() -> None:
    """Ten times the nodes take far less than a hundred times as long."""
    seconds = []
    for length in (2_000, 20_000):
        graph = chain(length)
        start = time.perf_counter()
        assert length + 2 == len(serialize.loads(serialize.dumps(graph)))
        seconds.append(time.perf_counter() - start)
    assert seconds[1] < 40 * seconds[0]


def large(unit: str, size: int) -> str:
    return unit * (size // len(unit))


LARGE: dict[str, Callable[[int], str]] = {
    "open brackets": lambda size: large("[", size),
    "nested pairs": lambda size: large("[", size // 2) + large("]", size // 2),
    "mixed brackets": lambda size: large('[{"a":', size),
    "quotes": lambda size: large('""', size),
    "backslashes": lambda size: '"' + large("\\\\", size) + '"',
    "digits": lambda size: large("7", size),
    "fractions": lambda size: "0." + large("7", size),
    "spaces": lambda size: large(" ", size),
    "one string": lambda size: '"' + large("x", size) + '"',
    "escapes": lambda size: '"' + large("\\ud83d", size) + '"',
    "empty lists": lambda size: "[" + large("[],", size) + "[]]",
    "keys": lambda size: "{" + ",".join(f'"{i}":0' for i in range(size // 12)) + "}",
    "one key": lambda size: "{" + large('"a":0,', size) + '"a":0}',
    "numbers": lambda size: TEXT.replace('"nodes":[', '"nodes":[' + large("1,", size), 1),
    "nodes": lambda size: TEXT.replace('"nodes":[', '"nodes":[' + large(DRAW, size), 1),
    "metas": lambda size: TEXT.replace('"metas":[', '"metas":[' + large(META, size), 1),
    "one size": lambda size: TEXT.replace('"shape":[', '"shape":[' + large("1,", size), 1),
    "results": lambda size: call_text("split", ["%1", 1, 0], [0] * (size // 3)),
    "sizes": lambda size: call_text(
        "split_with_sizes", ["%1", [1] * (size // 6), 0], [0] * (size // 6)
    ),
    "tensors": lambda size: call_text("cat", [["%0"] * (size // 6), 0], 0),
    "data": lambda size: json.dumps(
        {**DOCUMENT, "constants": [{**DOCUMENT["constants"][0], "data": large("AAAA", size)}]}
    ),
}
META = '{"dtype":"float32","shape":[2],"stride":[1],"device":"cpu"},'
DRAW = '{"op":"call","target":"rand","args":[[2,2],null,null],"meta":0},'


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", LARGE)
def test_large_file_is_refused_in_bounded_time(name: str) -> None:
    check(LARGE[name](MEBIBYTE))


@pytest.mark.long
@pytest.mark.parametrize("name", LARGE)
def test_very_large_file_is_refused_in_bounded_time(name: str) -> None:
    """50 MB of each kind."""
    text = LARGE[name](50_000_000)
    with within(150), suppress(FormatError):
        assert len(serialize.loads(text)) > 1


def test_a_constant_of_many_bytes_is_read() -> None:
    value = np.arange(MEBIBYTE, dtype=np.float32)
    build = Builder()
    text = serialize.dumps(build.finish([build.constant("w", value, tensor_meta((MEBIBYTE,)))]))
    assert base64.b64encode(value.tobytes()).decode() in text
    assert value.tobytes() == serialize.loads(text).nodes[0].target.value.tobytes()
