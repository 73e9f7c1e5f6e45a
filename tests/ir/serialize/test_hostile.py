"""Files that nobody should have written: each is refused with a sentence, in bounded time.

What is accepted has been verified, and can be written again.
"""

from __future__ import annotations

import copy
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given, settings

from aotlite.ir import dtypes, serialize
from aotlite.ir.errors import FormatError, UnsupportedError
from aotlite.ir.graph import Graph, Node, Phase, files
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.role import Hidden, MutatedInput, Output, Primal, Role, Saved, Tangent
from aotlite.ir.graph.verify import verify
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS
from aotlite.ir.provenance.location import Place


class TooSlow(BaseException):
    """Not an Exception: the reader takes those for what a meta rule says."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Interrupts what takes longer; a rule without bounds would run for ever."""

    def stop(*_: object) -> None:
        raise TooSlow(f"it took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def sample() -> Graph:
    """A graph with everything in it that a file can hold."""
    build = Builder("sample")
    x = build.placeholder(tensor_meta((4, 3), (1, 4)), Primal(0))
    hidden = build.placeholder(tensor_meta((3,)), Hidden(0, "model.bias"))
    grad = build.placeholder(tensor_meta((2, 3)), Tangent(Output(0)))
    bias = build.constant("bias", np.array([1, -0.0, 3], np.float32), tensor_meta((3,)))
    truth = tensor_meta((3,), dtype=dtypes.bool_)
    mask = build.constant("mask", np.array([True, False, True]), truth)
    place = Place("model.py", 12, "loss", "y = x * 2")
    build.source = Node("call", None, phase=Phase.BACKWARD, sequence=3, location=place)
    top, bottom = (x * float("inf")).split(2)
    build.source = Node("call", None, grad_mode=False, recompute=True)
    joined = build.call(OPS["cat"], ((top, bottom, grad), 0)).sum((0,), dtype=dtypes.float64)
    chosen = mask.where(bias, hidden) * 2j
    hidden.mul_(3).view(1, -1)
    drawn = build.call(OPS["rand"], ((2, 2), None, x.device))
    updated = MutatedInput(Hidden(0, "model.bias"))
    roles: list[Role] = [Output(0), Saved(0, "where"), updated, Output(1), Output(2)]
    return build.finish([joined, chosen, hidden, drawn, None], roles)


TEXT = serialize.dumps(sample())
DOCUMENT = json.loads(TEXT)


def check(text: str | bytes) -> Graph | None:
    """The graph, which must be sound; None if the text was refused with a sentence."""
    with within(20):
        try:
            graph = serialize.loads(text)
        except FormatError as error:
            assert str(error).startswith("serialize: ")
            assert ", expected " in str(error)
            assert len(str(error)) < 2_000
            return None
        verify(graph)
        again = serialize.dumps(graph)
        assert again == serialize.dumps(serialize.loads(again))
        str(graph)
        return graph


def refusal(text: str | bytes, **options: Any) -> FormatError:
    with within(20), pytest.raises(FormatError) as caught:
        serialize.loads(text, **options)
    return caught.value


def test_sample_is_sound() -> None:
    graph = check(TEXT)
    assert graph is not None
    assert str(sample()) == str(graph)


# ---------------------------------------------------------------------------------- no JSON at all
MEBIBYTE = 1 << 20
NO_JSON: list[tuple[str, str | bytes, str]] = [
    ("nothing", "", "line 1 column 1: Expecting value, expected JSON as dumps writes it"),
    ("a word", "graph", "line 1 column 1: Expecting value, expected JSON as dumps writes it"),
    ("a pickle", b"\x80\x04\x95", "byte 0 is 0x80, expected text in UTF-8"),
    ("UTF-16", TEXT.encode("utf-16"), "byte 0 is 0xff, expected text in UTF-8"),
    ("a zero byte", b"\0", "line 1 column 1: Expecting value, expected JSON as dumps writes it"),
    ("a surrogate", '"\udc80"', "character 1 is a surrogate, expected text that UTF-8 can spell"),
    ("more behind", TEXT + "{}", "Extra data, expected JSON as dumps writes it"),
    ("brackets", "[" * 100_000, "the brackets are nested too deeply or do not match, expected at"),
    ("deep", "[" * 50_000 + "]" * 50_000, "the brackets are nested too deeply or do not match"),
    ("deep keys", '{"a":' * 50_000, "the brackets are nested too deeply or do not match, expected"),
    ("deep and a string", '"\\"[",' + "[1," * 50_000, "the brackets are nested too deeply"),
    ("closing", "]" * 100, "the brackets are nested too deeply or do not match, expected at most "),
    ("a list", "[1]", 'the text is a list of 1, expected an object whose "format" is "aotlite gra'),
    ("a number", "7", 'the text is 7, expected an object whose "format" is "aotlite graph"'),
    ("a long number", "7" * MEBIBYTE, "the text is an integer of 1048576 digits, expected an"),
    ("NaN", "NaN", "the text is the word NaN, which is no JSON, expected an object whose"),
    ("another format", '{"a":1}', "the text is an object with the keys 'a', expected an object wh"),
]


@pytest.mark.parametrize(("what", "text", "message"), NO_JSON, ids=[case[0] for case in NO_JSON])
def test_text_that_is_no_graph_is_refused(what: str, text: str | bytes, message: str) -> None:
    assert message in str(refusal(text))


def test_recursion_limit_does_not_matter() -> None:
    """With a high limit, JSON's parser would use up the machine's stack."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(10**6)
    try:
        assert "nested too deeply" in str(refusal("[" * 5_000_000))
    finally:
        sys.setrecursionlimit(before)


@pytest.mark.parametrize("length", range(0, len(TEXT) - 2, 61))
def test_text_that_was_cut_off_is_refused(length: int) -> None:
    error = refusal(TEXT[:length])
    assert ", expected JSON as dumps writes it" in str(error)
    assert ["the text ends there: it may have been cut off"] == error.__notes__


def test_text_beyond_the_limit_is_refused() -> None:
    size = len(TEXT)
    assert check(TEXT) is not None
    error = refusal(TEXT, max_bytes=size - 1)
    assert f"serialize: the text is longer than {size - 1} bytes, expected no more" == str(error)
    assert ["a longer one is read with a larger max_bytes"] == error.__notes__


def test_more_marks_than_memory_is_refused() -> None:
    """Two bytes of text make an object of fifty: `[[],[],...`."""
    text = "[" + "[]," * MEBIBYTE + "[]]"
    error = refusal(text, max_bytes=4 * MEBIBYTE)
    expected = "2097154 quotes, commas, colons and brackets, expected at most 524288"
    assert f"serialize: the text has {expected}" == str(error)
    assert ["more are read with a larger max_bytes"] == error.__notes__


def test_file_beyond_the_limit_is_not_read(tmp_path: Any) -> None:
    with pytest.raises(FormatError, match="the text is longer than 1000 bytes"):
        serialize.load("/dev/zero", max_bytes=1_000)


def test_newer_version_is_refused_with_advice() -> None:
    error = refusal('{"format":"aotlite graph","version":4,"what":"ever"}')
    assert "serialize: version is 4, expected at most 3" == str(error)
    advice = "a newer aotlite wrote this: read it with that one, or make the graph again with this"
    assert [advice] == error.__notes__


# ---------------------------------------------------------------------- one value that is not right
def changed(path: str, value: Any) -> str:
    """The sample's text with the value at a path (`nodes.3.args.0`) replaced, or without it."""
    document = copy.deepcopy(DOCUMENT)
    *parents, last = [int(key) if key.lstrip("-").isdecimal() else key for key in path.split(".")]
    at: Any = document
    for key in parents:
        at = at[key]
    if value is GONE:
        del at[last]
    else:
        at[last] = value
    return json.dumps(document)


GONE = type("Gone", (), {"__str__": lambda self: "nothing there"})()
KINDS = "placeholder, get_attr, call or output"
CHANGES: list[tuple[str, Any, str]] = [
    ("version", 0, "version is 0, expected an integer of 1 to 3"),
    ("version", True, "version is true, expected an integer of 1 to 3"),
    ("version", GONE, "version is null, expected an integer of 1 to 3"),
    ("extra", 1, "the text is an object with the key 'extra', expected constants, format, metas,"),
    ("name", GONE, "name is missing, expected a value"),
    ("name", 1, "name is 1, expected a text of at most 1000 characters"),
    ("name", "\ud800", 'name is "\\ud800", expected text without surrogates'),
    ("name", "x" * 1_001, "name is a text of 1001 characters, expected a text of at most 1000 cha"),
    ("nodes", [], "nodes is a list of 0, expected a list of at least one node"),
    ("nodes", {}, "nodes is an object with the keys , expected a list of at least one node"),
    ("nodes.0", 3, "nodes[0] is 3, expected an object"),
    ("nodes.0.op", "call_function", f'nodes[0].op is "call_function", expected {KINDS}'),
    ("nodes.0.op", [], f"nodes[0].op is a list of 0, expected {KINDS}"),
    ("nodes.0.op", GONE, f"nodes[0].op is missing, expected {KINDS}"),
    ("nodes.0.eval", "1", "nodes[0] is an object with the key 'eval', expected meta, op, role"),
    ("nodes.0.meta", GONE, "nodes[0].meta is missing, expected a value"),
    ("nodes.0.meta", -1, "nodes[0].meta is -1, expected the position of one of the"),
    ("nodes.0.meta", 10**400, "nodes[0].meta is 1000000000000000000000000000000000000000000000000"),
    ("nodes.0.role", "primals_x", 'nodes[0].role is "primals_x", expected the text of a role, suc'),
    ("nodes.0.role", "primals_" + "9" * 30, "expected the text of a role, such as primals_0"),
    ("nodes.0.role", "grad_seed", 'nodes[0].role is "grad_seed", expected the text of a role, suc'),
    ("nodes.0.role", "tangents_" * 10**5, "expected the text of a role, such as primals_0"),
    ("nodes.0.role", {"role": "seed", "place": "x"}, 'nodes[0].role.role is "seed", expected a ro'),
    ("nodes.0.role", {"role": "saved_0"}, "nodes[0].role.place is missing, expected a value"),
    ("nodes.1.role", "primals_0", "the role primals_0 is that of two inputs, expected one"),
    ("nodes.3.target", 7, "nodes[3].target is 7, expected the position of one of the 2 constants"),
    ("nodes.3.meta", 0, "nodes[3].meta is of shape (4, 3), expected (3,), that of its constant"),
    ("nodes.5.target", "os.system", 'nodes[5].target is "os.system", expected the name of an op'),
    ("nodes.5.target", "__reduce__", 'nodes[5].target is "__reduce__", expected the name of an op'),
    ("nodes.5.target", None, "nodes[5].target is null, expected the name of an op"),
    ("nodes.5.args", ["%0"], "nodes[5].args is a list of 1, expected 2 arguments: mul(Tensor self"),
    ("nodes.5.args.0", "%5", 'nodes[5].args[0] is "%5", expected an earlier node with one result'),
    ("nodes.5.args.0", "%99", 'nodes[5].args[0] is "%99", expected an earlier node with one resul'),
    ("nodes.5.args.0", "%-1", 'nodes[5].args[0] is "%-1", expected an earlier node with one resul'),
    ("nodes.5.args.0", "%00", 'nodes[5].args[0] is "%00", expected an earlier node with one resul'),
    ("nodes.5.args.0", 2.0, "nodes[5].args[0] is 2.0, expected an earlier node with one result"),
    ("nodes.5.args.1", "%9", 'nodes[5].args[1] is "%9", expected a number'),
    ("nodes.5.args.1", [], "nodes[5].args[1] is a list of 0, expected a number"),
    ("nodes.5.args.1", {"complex": [1, 2]}, "nodes[5].args[1].complex[0] is 1, expected a number"),
    ("nodes.5.args.1", {"complex": [1.0]}, "nodes[5].args[1] is an object with the keys 'complex'"),
    ("nodes.5.args.1", 2j, "nodes[5].meta is f32[4, 3][1, 4], expected c64[4, 3][1, 4]"),
    ("nodes.6.args.0", "%6", 'nodes[6].args[0] is "%6", expected an earlier node with one result'),
    ("nodes.6.args.1", 2.0, "nodes[6].args[1] is 2.0, expected an integer of less than 2**63"),
    ("nodes.6.args.1", True, "nodes[6].args[1] is true, expected an integer of less than 2**63"),
    ("nodes.6.args.1", 2**63, "nodes[6].args[1] is 9223372036854775808, expected an integer of"),
    ("nodes.6.args.1", 1, "nodes[6] is a call of split with 2 results, expected 4 results"),
    ("nodes.6.args.1", 0, "nodes[6] is a call that split refuses, expected one it takes: split: a"),
    ("nodes.6.meta", 0, "nodes[6] is a call of split with one result, expected 2 results"),
    ("nodes.7.args.0", "%0", 'nodes[7].args[0] is "%0", expected an earlier node with several res'),
    ("nodes.7.args.1", 2, "nodes[7] is a call of getitem with result 2, expected 0 to 1"),
    ("nodes.7.args.1", -1, "nodes[7] is a call of getitem with result -1, expected 0 to 1"),
    ("nodes.7.phase", "sideways", 'nodes[7].phase is "sideways", expected a phase: forward, backw'),
    ("nodes.7.sequence", 1.5, "nodes[7].sequence is 1.5, expected an integer of less than 2**63"),
    ("nodes.7.recompute", 1, "nodes[7].recompute is 1, expected true or false"),
    ("nodes.7.place", 1, "nodes[7].place is 1, expected the position of one of the 1 places"),
    ("nodes.9.args.0", ["%0", 1], "nodes[9].args[0][1] is 1, expected an earlier node with one re"),
    ("nodes.10.args.1", [0] * 65, "nodes[10].args[1] is a list of 65, expected at most 64 integer"),
    ("nodes.10.args.2", 0, "nodes[10].args[2] is 0, expected true or false"),
    ("nodes.10.args.3", "float65", 'nodes[10].args[3] is "float65", expected a dtype: bool, uint8'),
    ("nodes.4", {"op": "output", "args": [], "role": []}, "nodes[5] is an object with the keys 'o"),
    ("nodes.-1", GONE, "is an object with the keys 'op', 'target', 'args', 'meta', 'grad_mode', '"),
    ("nodes.-1.role", ["output_0"], ".role is a list of 1, expected as many roles as values, 5"),
    ("nodes.-1.args.0", "%6", '.args[0] is "%6", expected a number'),
    ("metas.0.shape", [-1], "metas[0].shape[0] is -1, expected an integer of 0 to 2**63 - 1"),
    ("metas.0.shape", [2**62, 2], "metas[0] is a meta with 2 dimensions of 9223372036854775808 el"),
    ("metas.0.shape", [10**400], "metas[0].shape[0] is 10000000"),
    ("metas.0.shape", [1] * 65, "metas[0].shape is a list of 65, expected at most 64 numbers"),
    ("metas.0.shape", [4, 3, 1], "metas[0] is a meta with 3 sizes and 2 strides, expected a strid"),
    ("metas.0.stride", [2**62, 1], "metas[0] is a meta with strides that reach over 1844674407370"),
    ("metas.0.stride", [1.0, 4], "metas[0].stride[0] is 1.0, expected an integer of 0 to 2**63 - "),
    ("metas.0.dtype", "f32", 'metas[0].dtype is "f32", expected a dtype: bool, uint8'),
    ("metas.0.device", "cuda", 'metas[0].device is "cuda", expected one of the devices given: cpu'),
    ("metas.0", [], "metas[0] is a list of 0, expected an object with the keys device, dtype, sha"),
    ("places.0.line", -1, "places[0].line is -1, expected an integer of 0 to 2**63 - 1"),
    ("places.0.file", None, "places[0].file is null, expected a text of at most 1000 characters"),
    ("constants.0.data", "AAAA", "constants[0].data is 4 characters, expected 16 of base64, for 1"),
    ("constants.0.data", "!" * 16, "constants[0].data is no base64, expected 12 bytes in base64"),
    ("constants.0.data", "é" * 16, "constants[0].data is no base64, expected 12 bytes in base64"),
    ("constants.0.data", "A" * 14 + "==", "constants[0].data is 10 bytes, expected 12 bytes"),
    ("constants.0.data", 5, "constants[0].data is 5, expected 16 of base64, for 12 bytes"),
    ("constants.0.shape", [10**9], "constants[0].data is 16 characters, expected 5333333336 of ba"),
    ("constants.0.shape", [2**62], "constants[0].shape is 1 dimensions of 4611686018427387904 ele"),
    ("constants.0.shape", [0, 2**62], "constants[0].shape is 2 dimensions of 461168601842738790"),
    ("constants.1.data", "AgEA", "constants[1].data is bytes of other values, expected 0 or 1 for"),
    ("constants.1.name", "bias", 'constants[1].name is "bias", expected a name that no other cons'),
]


@pytest.mark.parametrize(("path", "value", "message"), CHANGES, ids=str)
def test_wrong_value_is_refused_with_its_place(path: str, value: Any, message: str) -> None:
    if isinstance(value, complex):
        value = {"complex": [value.real, value.imag]}
    assert message in str(refusal(changed(path, value)))


RAW = [
    ('"sequence":3', '"sequence":3,"sequence":3', "an object with the key 'sequence' twice"),
    ('"sequence":3', '"sequence":NaN', "the word NaN, which is no JSON"),
    ('"sequence":3', '"sequence":-Infinity', "the word -Infinity, which is no JSON"),
    ('"sequence":3', '"sequence":' + "1" * 10_000, "an integer of 10000 digits"),
    ('"sequence":3', '"sequence":1.' + "0" * 700, "a number of 702 characters"),
]


@pytest.mark.parametrize(("old", "new", "message"), RAW, ids=[case[2] for case in RAW])
def test_what_json_would_let_through_is_refused(old: str, new: str, message: str) -> None:
    text = str(refusal(TEXT.replace(old, new, 1)))
    assert f" is {message}, expected " in text
    assert "nodes[5]" in text


@pytest.mark.parametrize("number", ["1e999", "-1e999", '{"complex":[0.0,1e999]}'])
def test_number_that_no_float_holds_is_refused(number: str) -> None:
    """Python would read an infinity, which is spelled "inf"."""
    text = TEXT.replace('"args":["%0","inf"]', f'"args":["%0",{number}]', 1)
    assert "is a number of more than 1e308, expected one that a float holds" in str(refusal(text))


def test_constant_whose_meta_spans_more_than_a_file_is_refused() -> None:
    document = copy.deepcopy(DOCUMENT)
    document["metas"].append({**document["metas"][1], "stride": [10**12]})
    document["nodes"][3]["meta"] = len(document["metas"]) - 1
    expected = "nodes[3].meta is a meta that spans 8000000000004 bytes, expected at most 268435456"
    assert expected in str(refusal(json.dumps(document)))


def test_error_of_the_verifier_names_its_rule() -> None:
    error = refusal(changed("nodes.1.role", "primals_0"))
    assert "rule: VER-3 (specs/verify.md)" == error.__notes__[-1]


# ------------------------------------------------------------------------------------------ windows
def windows(*calls: tuple[str, list[Any]]) -> Graph:
    """A graph of an input of six elements and these calls, each on the result of the one before."""
    build = Builder()
    x: Any = build.placeholder(tensor_meta((2, 3)))
    for name, args in calls:
        op = OPS[name]
        x = build.call(op, op.bind((x, *args), {}))
        x = x[1] if type(x) is tuple else x
    return build.finish([x])


STRAYS: list[tuple[list[tuple[str, list[Any]]], str]] = [
    ([("as_strided", [(7,), (1,)])], "elements 0 to 6 of 6"),
    ([("as_strided", [(2,), (1,), -1])], "elements -1 to 0 of 6"),
    ([("as_strided_", [(2,), (1,), 5])], "elements 5 to 6 of 6"),
    ([("select", [0, 1]), ("as_strided", [(2, 2), (2, 1), 0])], "elements 3 to 6 of 6"),
    ([("select", [0, 1]), ("as_strided", [(1,), (1,), -4])], "elements -1 to -1 of 6"),
    ([("split", [1]), ("as_strided", [(4,), (1,)])], "elements 3 to 6 of 6"),
    ([("unbind", [1]), ("mul_", [2.0]), ("as_strided", [(3,), (3,)])], "elements 1 to 7 of 6"),
    ([("t_", []), ("exp", []), ("as_strided", [(2,), (6,)])], "elements 0 to 6 of 6"),
    ([("max_dim", [1]), ("as_strided", [(3,), (1,)])], "elements 0 to 2 of 2"),
]


@pytest.mark.parametrize(("calls", "shown"), STRAYS)
def test_window_outside_its_storage_is_refused(
    calls: list[tuple[str, list[Any]]], shown: str
) -> None:
    """Compiled code would read, or write, memory that is somebody else's."""
    graph = windows(*calls)
    expected = f"is a window on {shown}, expected one inside its operand's storage"
    with pytest.raises(UnsupportedError) as caught:
        serialize.dumps(graph)
    index = len(graph) - 2
    assert f"serialize: node {index} {expected}" == str(caught.value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "stray_window", lambda nodes: None)
        text = serialize.dumps(graph)
    assert f"serialize: nodes[{index}] {expected}" == str(refusal(text))


@pytest.mark.parametrize(
    "calls",
    [
        [("as_strided", [(6,), (1,)])],
        [("select", [0, 1]), ("as_strided", [(6,), (1,), -3])],
        [("split", [1]), ("as_strided", [(3, 2), (1, 0)])],
        [("as_strided", [(0,), (1,), 99])],
        [("as_strided_", [(2,), (1,), 4]), ("as_strided_", [(2,), (1,), -4])],
    ],
)
def test_window_inside_its_storage_is_read(calls: list[tuple[str, list[Any]]]) -> None:
    assert check(serialize.dumps(windows(*calls))) is not None


# ---------------------------------------------------------------------------------------- mutations
HOSTILE: list[Any] = [
    None, True, 0, -1, 1, 2**31, 2**63, -(2**63), 10**18, 10**400, 0.5, 1e308, "", "%0", "%1",
    "nan", "x" * 2_000, "\ud800", "\0", [], [[]], [0], ["%0"], [2**62] * 3, [0] * 100, {},
    {"op": "call"}, {"complex": [0.0, 1.0]}, "float64", "cpu", "output_0", "split", "__class__",
]  # fmt: skip


def values_of(document: Any) -> list[tuple[Any, Any]]:
    """(container, key) of every value in a document."""
    found, todo = [], [document]
    while todo:
        at = todo.pop()
        keys = list(at) if isinstance(at, dict) else range(len(at))
        for key in keys:
            found.append((at, key))
            if isinstance(at[key], (dict, list)):
                todo.append(at[key])
    return found


def mutate(document: Any, draw: Any) -> None:
    places = values_of(document)
    at, key = places[draw.randrange(len(places))]
    kind = draw.randrange(5)
    if kind == 0:
        at[key] = copy.deepcopy(draw.choice(HOSTILE))
    elif kind == 1:
        other, its = places[draw.randrange(len(places))]
        at[key] = copy.deepcopy(other[its])
    elif kind == 2 and isinstance(at[key], int):
        at[key] += draw.choice([-1, 1, 2**32])
    elif kind == 3:
        del at[key]
    elif isinstance(at, list):
        at.insert(key, copy.deepcopy(draw.choice([at[key], *HOSTILE])))
    else:
        at[draw.choice(["place", "meta", "extra"])] = copy.deepcopy(draw.choice(HOSTILE))


@settings(max_examples=200)
@given(st.randoms(use_true_random=False), st.integers(1, 3))
def test_document_with_values_changed_is_refused_or_sound(draw: Any, times: int) -> None:
    document = copy.deepcopy(DOCUMENT)
    for _ in range(times):
        mutate(document, draw)
    check(json.dumps(document))


TOKENS = st.sampled_from([b'"', b"[", b"\\", b"9" * 5_000, b"e9", b"%3"])


@settings(max_examples=200)
@given(st.integers(0, len(TEXT) - 1), st.integers(0, 40), st.binary(max_size=6) | TOKENS)
@example(0, 0, b"\xef\xbb\xbf")
def test_text_with_bytes_changed_is_refused_or_sound(at: int, dropped: int, added: bytes) -> None:
    data = TEXT.encode()
    check(data[:at] + added + data[at + dropped :])
