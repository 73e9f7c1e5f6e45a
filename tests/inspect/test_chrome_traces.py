"""Chrome traces: files that viewers load, with spans that nest, of compilations and calls."""

import json
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aotlite as al
from aotlite.inspect import chrome_trace
from aotlite.ir.logs import is_heard
from aotlite.pipeline.logs.chrome_traces import chrome_events, records_in
from tests.rules.helpers.logs import logged, unnested

NANOSECONDS = 1e3
"""A microsecond, in which viewers count."""


def loss(x, w):
    x[0].mul_(2.0)
    return (x @ w).exp().sum()


def arguments(rows=4):
    return al.ones(rows, 3), al.ones(3, 2).requires_grad_()


def checked(path):
    """The events of a file that Perfetto loads: complete, instant, or metadata."""
    found = json.loads(path.read_text("utf-8"))
    assert isinstance(found, list)
    spans = defaultdict(list)
    for each in found:
        assert isinstance(each["name"], str)
        assert isinstance(each["args"], dict)
        assert each["ts"] >= 0
        assert {"pid", "tid", "ph"} <= set(each)
        if each["ph"] == "X":
            begin = round(each["ts"] * NANOSECONDS)
            spans[each["pid"], each["tid"]].append((begin, begin + round(each["dur"] * 1e3)))
        else:
            assert each["ph"] in ("M", "i")
    for of in spans.values():
        assert [] == unnested(of)
    return found


def test_a_block_writes_compilations_calls_and_backwards(tmp_path):
    path = tmp_path / "chrome.json"
    with chrome_trace(path):
        compiled = al.compile(loss, backend="reference")
        compiled(*arguments()).backward()
    found = checked(path)
    names = [each["name"] for each in found]
    expected = ["process_name", "thread_name", "call loss", "prologue", "compile loss", "capture"]
    assert expected == [name for name in dict.fromkeys(names) if name in expected]
    assert {"joint", "lower", "loss_forward", "epilogue", "loss_backward"} <= set(names)
    compilation = next(each for each in found if each["name"] == "compile loss")
    assert str(compiled.entries[0].number) == compilation["args"]["compile_id"]
    assert not any("text" in each["args"] for each in found)
    assert not is_heard()


def test_calls_may_be_left_out_and_the_file_is_written_where_the_block_raises(tmp_path):
    path = tmp_path / "chrome.json"

    def work():
        with chrome_trace(path, calls=False):
            al.compile(loss, backend="reference")(*arguments())
            return 1 / 0

    with pytest.raises(ZeroDivisionError):
        work()
    categories = {each.get("cat") for each in checked(path)}
    assert "compile" in categories
    assert not {"call", "run", "prologue"} & categories


def test_blocks_nest_and_stand_beside_a_trace(tmp_path):
    paths = [tmp_path / f"{name}.json" for name in ("outer", "inner")]
    with logged(trace=tmp_path / "run.jsonl"), chrome_trace(paths[0]):
        al.compile(loss, backend="reference")(*arguments())
        with chrome_trace(paths[1]):
            al.compile(loss, backend="reference")(*arguments(5))
    counts = [sum(e.get("cat") == "compile" for e in checked(path)) for path in paths]
    assert [2, 1] == counts
    records, wrong = records_in(tmp_path / "run.jsonl")
    assert (2, 0) == (sum(each["event"] == "compile" for each in records), wrong)


def test_a_file_that_cannot_be_written_is_an_error_before_the_block(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(al.ArgumentError, match="chrome_trace: the file is .*, expected one that"),
        chrome_trace(tmp_path / "file" / "chrome.json"),
    ):
        pytest.fail("the block ran")
    assert not is_heard()


def test_an_empty_block_is_an_empty_list(tmp_path):
    with chrome_trace(tmp_path / "chrome.json"):
        pass
    assert [] == checked(tmp_path / "chrome.json")


@st.composite
def nested(draw, begin=10**18, end=10**18 + 10**12, depth=0):
    """Spans (begin, end) in nanoseconds, inside of one another or apart."""
    found = []
    while begin < end and len(found) < 3 and draw(st.booleans()):
        first = draw(st.integers(begin, end))
        last = draw(st.integers(first, end))
        found.append((first, last))
        if depth < 4:
            found += draw(nested(first, last, depth + 1))
        begin = last
    return found


@given(nested())
def test_spans_that_nest_do_so_in_microseconds(spans):
    records = [
        {
            "event": "stage",
            "stage": "x",
            "compile_id": "1",
            "time": begin,
            "seconds": round((end - begin) * 1e-9, 9),
            "process": 1,
            "thread": 1,
        }
        for begin, end in spans
    ]
    found = [each for each in chrome_events(records) if each["ph"] == "X"]
    begins = [round(each["ts"] * NANOSECONDS) for each in found]
    ends = [begin + round(e["dur"] * NANOSECONDS) for begin, e in zip(begins, found, strict=True)]
    assert len(spans) == len(found)
    assert [] == unnested(list(zip(begins, ends, strict=True)))
