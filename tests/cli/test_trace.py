"""`aotlite trace`: sums by compilation, Chrome traces, and what it says of wrong files."""

import json
import re

import pytest

import aotlite as al
from aotlite.cli import main
from tests.rules.helpers.logs import logged


def loss(x, w):
    x[0].mul_(2.0)
    return (x @ w).exp().sum()


@pytest.fixture
def trace(tmp_path):
    """A trace of two compilations, and their numbers."""
    path = tmp_path / "run.jsonl"
    with logged(trace=path, calls=True):
        compiled = al.compile(loss, backend="reference", dynamic=False)
        w = al.ones(3, 2, requires_grad=True)
        for rows in (4, 4, 5):
            compiled(al.ones(rows, 3), w).backward()
    return path, [each.number for each in compiled.entries]


@pytest.fixture
def run(capsys):
    def call(*words):
        status = main(["trace", *map(str, words)])
        printed = capsys.readouterr()
        return status, printed.out.splitlines(), printed.err

    return call


def test_compilations_are_summed_up_in_order(trace, run):
    path, numbers = trace
    status, lines, _ = run(path)
    assert 0 == status
    heads = [line for line in lines if not line.startswith(" ")]
    assert [f"compilation {n} of loss: T" for n in numbers] == [
        re.sub(r"[\d.]+ ms", "T", line) for line in heads
    ]
    (stages, again) = [line for line in lines if line.startswith("  stages: ")]
    for name in ("capture", "joint", "partition", "lower", "runtime"):
        assert f" {name} " in stages
        assert f" {name} " in again
    assert 2 == sum(line.startswith("  saved for the backward: ") for line in lines)
    assert "  because entry 0: argument 0 is f32[5, 3], expected f32[4, 3]" in lines
    calls = [int(line.split()[1]) for line in lines if line.startswith("  call: ")]
    assert [2, 1] == calls


def test_a_chrome_trace_is_written(trace, run, tmp_path):
    path, _ = trace
    out = tmp_path / "new" / "chrome.json"
    status, lines, _ = run(path, "-o", out)
    found = json.loads(out.read_text("utf-8"))
    assert (0, [f"{out}: {len(path.read_text('utf-8').splitlines())} events"]) == (status, lines)
    assert {"X", "i", "M"} == {each["ph"] for each in found}


def test_one_compilation_can_be_asked_for(trace, run):
    path, numbers = trace
    _, lines, _ = run(path, "--compilation", numbers[1])
    assert [f"compilation {numbers[1]} of loss"] == [
        line.partition(":")[0] for line in lines if not line.startswith(" ")
    ]
    status, _, said = run(path, "--compilation", "x")
    assert 2 == status
    assert f"no event is of compilation 'x', expected -, {numbers[0]}, {numbers[1]}" in said


def test_a_compilation_that_failed_says_so(run, tmp_path):
    path = tmp_path / "run.jsonl"
    with logged(trace=path), pytest.raises(ZeroDivisionError):
        al.compile(lambda x: 1 / 0)(al.ones(2))
    _, lines, _ = run(path)
    assert lines[0].endswith(" ms, failed: ZeroDivisionError: division by zero")


def test_lines_that_are_no_events_are_left_out_and_counted(trace, run):
    path, _ = trace
    lines = path.read_text("utf-8").splitlines()
    wrong = [
        '{"event": "stage", "comp',
        "[" * 100_000,
        "[]",
        '{"event": 1}',
        '{"event": "a", "compile_id": "1", "time": 1, "process": 1, "thread": 1, "seconds": "x"}',
        "\udcff",
    ]
    path.write_bytes("\n".join([*wrong, *lines]).encode("utf-8", "surrogateescape"))
    status, printed, _ = run(path)
    assert (0, f"{len(wrong)} lines are no events and were left out") == (status, printed[-1])


def test_facts_that_are_missing_or_of_another_type_are_no_failure(tmp_path, run):
    base = {"compile_id": "1", "time": 1, "process": 1, "thread": 1}
    events = ["compile", "stage", "artifact", "recompile", "compiler", "cache", "call", "new"]
    path = tmp_path / "run.jsonl"
    path.write_text("".join([json.dumps({**base, "event": each}) + "\n" for each in events]))
    assert 0 == run(path)[0]
    assert 0 == run(path, "-o", tmp_path / "chrome.json")[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no trace\n", "has no line of a trace, expected a file of AOTLITE_LOG's"),
        (
            '{"event": "trace", "compile_id": "-", "time": 1, "process": 1, "thread": 1, '
            '"version": 9}\n',
            "has version 9, expected at most 1",
        ),
    ],
)
def test_other_files_are_refused(text, said, tmp_path, run):
    path = tmp_path / "run.jsonl"
    path.write_text(text)
    status, _, error = run(path)
    assert 2 == status
    assert said in error


def test_files_that_cannot_be_read_or_written_are_refused(trace, run, tmp_path):
    status, _, error = run(tmp_path / "none.jsonl")
    assert 2 == status
    assert "cannot be read (No such file or directory), expected a trace file" in error
    status, _, error = run(trace[0], "-o", trace[0] / "chrome.json")
    assert 2 == status
    assert "expected a file that can be written" in error


def test_an_empty_trace_has_no_compilation(tmp_path, run):
    (tmp_path / "run.jsonl").write_text("")
    assert (0, ["no compilation"], "") == run(tmp_path / "run.jsonl")
