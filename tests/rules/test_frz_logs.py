"""FRZ-3, FRZ-6, LOG-1: what is folded, what is not and why, and what is refolded are events."""

from __future__ import annotations

from typing import Any

import pytest

import aotlite as al
from tests.rules.helpers.logs import logged, records

OF_ALL = {"event", "compile_id", "time", "process", "thread"}


def scaled(w: Any, scale: Any, calls: Any, x: Any) -> Any:
    calls.add_(1.0)
    return x * (w * scale.exp()) + scale.expand(100_000, 3).clone()[:2]


def run(start: float, **options: Any) -> Any:
    """Two calls, a write of the first tensor, and a third. No value of another test is shared
    (FRZ-7) if none starts with this number."""
    w, scale, calls = al.ones(2, 3), al.full((3,), start), al.zeros(())
    frozen = al.freeze(scaled, w, scale, calls, backend="reference", **options)
    for _ in range(2):
        frozen(al.ones(2, 3))
    w.mul_(3.0)
    frozen(al.ones(2, 3))
    return frozen


@pytest.mark.rules("FRZ-3", "FRZ-6", "LOG-2")
def test_folds_and_refolds_are_events(tmp_path):
    path = tmp_path / "run.jsonl"
    with logged(trace=path):
        frozen = run(0.0625)
    found = [each for each in records(path) if each["event"] in ("fold", "refold")]
    number = str(frozen.compiled.entries[0].number)
    fold, first, second = found
    assert {number} == {each["compile_id"] for each in found}
    assert ["fold", "refold", "refold"] == [each["event"] for each in found]
    assert {
        "graph": "scaled",
        "ops": 2,
        "bytes": 24,
        "folded": ["mul f32[2, 3] of argument 0, argument 1"],
        "not_folded": {"argument 2": "the function writes it"},
        "refused": ["clone: its result has 1200000 bytes, made of 12 bytes"],
    } == {name: fold[name] for name in fold.keys() - OF_ALL}
    assert (["argument 0", "argument 1"], 2, 0, 24) == facts(first)
    assert (["argument 0"], 1, 0, 24) == facts(second)
    assert 0.0 < second["seconds"]


def facts(event: dict[str, Any]) -> tuple[Any, ...]:
    return event["changed"], event["ran"], event["shared"], event["bytes"]


@pytest.mark.rules("FRZ-6", "LOG-1")
def test_the_logger_of_partitions_says_what_is_folded():
    with logged(partition=True) as on:
        number = run(0.1875).compiled.entries[0].number
    texts = [text.replace(f"[{number}] ", "") for text in on.of("partition") if "folded" in text]
    assert texts[0].splitlines() == [
        "folded of scaled: 2 ops, 24 bytes",
        "  folded: mul f32[2, 3] of argument 0, argument 1",
        "  not folded: argument 2: the function writes it",
        "  runs at each call: clone: its result has 1200000 bytes, made of 12 bytes",
    ]
    start = "folded values of scaled for other argument 0: 1 ops ran, 0 values were held, 24 bytes"
    assert texts[2].startswith(start)
    assert 3 == len(texts)


@pytest.mark.rules("FRZ-6", "LOG-2")
def test_a_function_without_logs_folds_in_silence(tmp_path):
    with logged(partition=True, trace=tmp_path / "run.jsonl") as on:
        run(0.3125, enable_log=False)
    assert [] == on.lines
    assert ["trace"] == [each["event"] for each in records(tmp_path / "run.jsonl")]


@pytest.mark.rules("FRZ-1")
def test_modules_in_containers_have_places_of_their_own():
    a, b = al.nn.Linear(2, 2), al.nn.Linear(2, 2)
    frozen = al.freeze(
        lambda nets, *, last, x: last(nets[0](x)), [a], kwargs={"last": b}, backend="reference"
    )
    with al.no_grad():
        frozen(x=al.ones(1, 2))
    assert {"argument 0[0].weight", "argument 0[0].bias", "argument 'last'.weight"} < {
        *frozen.report().not_folded
    }
