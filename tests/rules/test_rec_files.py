"""REC-1 to REC-8: records in files are data, and what is read is what was written."""

from __future__ import annotations

import json
import random
import signal
from typing import Any

import pytest

import aotlite as al
from aotlite import nn
from aotlite.ir.errors import AutogradError, FormatError, UnsupportedError
from aotlite.pipeline.record_files import VERSION, Document, decoded, encoded
from aotlite.subclasses import TwoTensor
from tests.rules.helpers.record_programs import changed, cut_of, drawn, faults, read_changed


@pytest.mark.rules("REC-1", "REC-5")
@pytest.mark.thinned(2)
@pytest.mark.parametrize("first", range(0, 40, 10))
def test_records_read_back_have_no_differences(first: int) -> None:
    """1,000 programs: `python -m tests.rules.helpers.record_programs --count 1000`."""
    cuts = [cut for seed in range(first, first + 10) if (cut := drawn(seed)) is not None]
    assert len(cuts) > 5
    for cut in cuts:
        assert [] == faults(cut)


def scaled(x: Any, n: int) -> Any:
    x.mul_(2)
    return {"a": x.view(-1)[1:], "b": [x.sum() * n, x.t()], 3: n + x.shape[0]}


def halves(x: Any) -> Any:
    top, bottom = x.split(3)
    return top * bottom, top.view(-1), x.shape[0] * 2


def rows(x: Any) -> Any:
    return x.reshape(2, -1).sum(1)


def drawn_numbers(x: Any) -> Any:
    return nn.functional.dropout(x, 0.5) + al.rand(3)


def stale(x: Any) -> Any:
    y = x.exp()
    z = y * y
    y.add_(1)
    return z, x.sin()


@pytest.mark.rules("REC-1", "REC-8")
@pytest.mark.parametrize(
    "function, args",
    [(scaled, (5, 7)), (halves, (6,)), (rows, (6,))],
    ids=["writes and an int", "several views", "a guard"],
)
def test_records_with_symbols_get_the_same_numbers(function: Any, args: Any) -> None:
    x = al.randn(args[0], 3, requires_grad=function is not scaled)
    cut = cut_of(function, x, *args[1:], dynamic=True)
    assert '"symbols"' in cut.document.text
    assert [] == faults(cut)


@pytest.mark.rules("REC-1", "REC-4")
def test_errors_and_states_of_the_generator_are_read_back() -> None:
    cut = cut_of(stale, al.ones(3, requires_grad=True))
    (error,) = cut.records.joint.backward.errors.values()
    assert isinstance(error, AutogradError)
    assert [] == faults(cut)
    assert [] == faults(cut_of(drawn_numbers, al.ones(3, requires_grad=True)))


@pytest.mark.rules("REC-1")
def test_order_of_keys_is_kept_and_that_of_sets_does_not_count() -> None:
    first, second = {"b": 1, "a": 2}, {"a": 2, "b": 1}
    assert list(first) == list(decoded(encoded(first)).root)
    assert encoded(first) != encoded(second)
    names = [f"name {i}" for i in range(30)]
    assert encoded(frozenset(names)) == encoded(frozenset(reversed(names)))


NOT_DATA = {
    "a function": (lambda: encoded([print]), "which is no data"),
    "an object": (lambda: encoded([object()]), "which is no data"),
    "an own error": (lambda: encoded([Own("x")]), "which is no data"),
    "a wrapper": (
        lambda: cut_of(lambda x: x * 2, TwoTensor(al.ones(2), al.ones(2))).document,
        "a wrapper subclass is no data",
    ),
    "a hook": (lambda: cut_of(hooked, al.ones(2, requires_grad=True)).document, "hooks"),
    "a float": (
        lambda: cut_of(lambda x, by: x * by, al.ones(2), 0.5, dynamic_shapes={"by": True}).document,
        "float argument",
    ),
}


class Own(Exception):
    pass


def hooked(x: Any) -> Any:
    x.register_hook(lambda grad: grad * 2)
    return x.sin()


@pytest.mark.rules("REC-4", "REC-5")
@pytest.mark.parametrize("make, words", NOT_DATA.values(), ids=NOT_DATA)
def test_what_is_no_data_is_refused_with_advice(make: Any, words: str) -> None:
    with pytest.raises(UnsupportedError, match="records: ") as caught:
        make()
    assert words in f"{caught.value}{caught.value.__notes__}"


@pytest.mark.rules("REC-4")
def test_object_from_outside_is_given_again() -> None:
    document = encoded((print, Own, 3), outside={"first": print, "second": Own})
    assert (len, Own, 3) == decoded(document, outside={"first": len, "second": Own}).root
    with pytest.raises(FormatError, match="the name of an object that the caller gives"):
        decoded(document, outside={"first": len})


CUTS = [cut_of(function, al.ones(6, 3, requires_grad=True)) for function in (halves, stale)]
SYMBOLIC = cut_of(scaled, al.ones(5, 3), 7, dynamic=True)


@pytest.mark.rules("REC-2", "REC-3", "REC-6")
@pytest.mark.parametrize("seed", range(3))
def test_document_with_values_changed_is_refused_or_read(seed: int) -> None:
    """Nothing but FormatError is raised, and nothing takes long. 100,000 changes: the command of
    `test_records_read_back_have_no_differences` with `--changes`."""
    cut = [*CUTS, SYMBOLIC][seed]
    document, rng = cut.document, random.Random(seed)
    signal.alarm(60)
    try:
        found = [read_changed(cut, changed(document, rng)) for _ in range(150)]
    finally:
        signal.alarm(0)
    assert any(each is None for each in found)
    assert any(each is not None for each in found)


TEXT = CUTS[0].document.text
WRONG = {
    "an unknown record": ('"record":"ViewFacts"', '"record":"Popen"', "the name of a record"),
    "an unknown op": ('"op":"split"', '"op":"system"', "an op: "),
    "an op that is no view": ('"op":"split"', '"op":"mul"', "an op that makes views"),
    "a later record": ('"ref":0', '"ref":10000', "the position of one of the"),
    "a view of itself": ('Chain","op"', 'Chain","before":4,"op"', "one of the 4 entries before it"),
    "an unknown field": ('"record":"ViewFacts"', '"record":"ViewFacts","x":1', "the key 'x'"),
    "a missing field": ('"stale":false,', "", "is missing"),
    "another type": ('"stale":false', '"stale":0', "expected true or false"),
    "another role": ('"role":"primals_0"', '"role":"seed"', "expected"),
    "an unknown enum": ('"reads":{"enum":"FORMULAS"}', '"reads":{"enum":"__doc__"}', "one of"),
    "a number of results": ('"args":[3,0]', '"args":[1,0]', "the number of a result"),
    "many results": ('"args":[3,0]', f'"args":[{1 << 40},0]', "with many results"),
    "a huge meta": ('"shape":[6,3]', f'"shape":[{1 << 62},3]', "less than 2**63 bytes"),
    "no such graph": ('{"graph":0}', '{"graph":7}', "one of the"),
    "a key twice": ('"version":1', '"version":1,"version":1', "twice"),
    "deep nesting": ('"root":', '"root":' + "[" * 100, "nested too deeply"),
    "a long number": ('"final_start":0', '"final_start":' + "9" * 5000, "5000 digits"),
}


@pytest.mark.rules("REC-2", "REC-3", "REC-6")
@pytest.mark.parametrize("old, new, words", WRONG.values(), ids=WRONG)
def test_wrong_value_is_refused_with_its_place(old: str, new: str, words: str) -> None:
    assert old in TEXT
    document = Document(TEXT.replace(old, new), CUTS[0].document.graphs)
    with pytest.raises(FormatError) as caught:
        decoded(document, outside=CUTS[0].outside)
    assert words in str(caught.value)


@pytest.mark.rules("REC-6")
def test_texts_longer_than_the_limit_are_refused() -> None:
    with pytest.raises(FormatError, match="longer than 100 bytes"):
        decoded(CUTS[0].document, max_bytes=100)
    graphs = CUTS[0].document.graphs * 2
    with pytest.raises(FormatError, match="graphs, expected"):
        decoded(Document(TEXT, graphs), outside=CUTS[0].outside)


@pytest.mark.rules("REC-7")
def test_newer_version_of_records_is_refused() -> None:
    root = json.loads(TEXT) | {"version": VERSION + 1, "new": 1}
    with pytest.raises(FormatError, match=f"version is {VERSION + 1}") as caught:
        decoded(Document(json.dumps(root)))
    assert "a newer aotlite wrote this" in caught.value.__notes__[0]


def placed_on_itself(x: Any) -> Any:
    x.set_(x)
    bits = x.view(al.int32)
    return bits, bits.alias()


@pytest.mark.rules("REC-1")
def test_a_step_of_two_chains_is_one_object_again() -> None:
    """A call replays a step that cuts the history once, by its identity: eager has one tensor.

    After `set_` the chains of views begin anew, with the steps that they had.
    """
    compiled = al.compile(placed_on_itself, backend="reference")
    compiled(al.ones(2))
    for outputs in (made := compiled.entries[0].meta.outputs, decoded(encoded(made)).root):
        pair: Any = outputs
        bits, alias = (each.view.chain for each in pair)
        assert alias[0] is bits[0]
