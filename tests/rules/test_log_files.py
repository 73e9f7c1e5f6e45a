"""LOG-2: a trace has a line of JSON for each event, from several processes, and harms nothing."""

import json
import os
import re
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

import aotlite as al
from aotlite.backends.native import warn_once
from aotlite.backends.native.compiler.toolchain import find_compiler
from aotlite.ir.forks import lock
from aotlite.ir.graph.text.source import graph_from_source
from aotlite.ir.logs import LogEvent, is_heard, listen
from aotlite.pipeline.logs import trace_files
from aotlite.pipeline.logs.chrome_traces import records_in
from tests.backends.cpu.helpers.compilers import warns_once
from tests.rules.helpers.logs import logged, records, unnested

FULL = Path("/dev/full")
SPEC = (Path(__file__).parents[2] / "specs" / "logs.md").read_text("utf-8")


def loss(x, w):
    x[0].mul_(2.0)
    return (x @ w).exp().sum()


def arguments(rows=4):
    return al.ones(rows, 3), al.ones(3, 2).requires_grad_()


def step(rows=(4,), **options):
    compiled = al.compile(loss, **{"backend": "reference", **options})
    for each in rows:
        compiled(*arguments(each)).backward()
    return compiled


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.jsonl"


def named(found, event):
    return [each for each in found if each["event"] == event]


# ------------------------------------------------------------------------------------ the lines
@pytest.mark.rules("LOG-2", "GEN-9")
def test_every_line_has_the_fields_of_the_schema(path):
    with logged(trace=path, calls=True):
        compiled = step((4, 5, 6), dynamic=None)
    found = records(path)
    assert "trace" == found[0]["event"]
    for each in found:
        assert isinstance(each["compile_id"], str)
        assert all(isinstance(each[name], int) for name in ("time", "process", "thread"))
        assert each.get("seconds", 0.0) >= 0.0
        assert f"`{each['event']}`" in SPEC, "an event that the spec lists"
    ids = {each["compile_id"].partition(".")[0] for each in found}
    assert {"-", *[str(each.number) for each in compiled.entries]} == ids


@pytest.mark.rules("LOG-2")
def test_artifacts_are_those_of_observers_with_their_texts(path):
    shown = []
    with logged(trace=path):
        step(observer=lambda stage, made: shown.append((stage, made)))
    found = named(records(path), "artifact")
    assert [stage for stage, _ in shown] == [each["stage"] for each in found]
    graphs = [(made, each) for (_, made), each in zip(shown, found, strict=True) if "graph" in each]
    assert len(graphs) >= 6
    for graph, each in graphs:
        assert len(graph.calls) == each["nodes"] == len(graph_from_source(each["text"]).calls)
        assert graph.name == each["graph"]


@pytest.mark.rules("LOG-2")
def test_a_compilation_begins_with_its_options_and_arguments_and_ends(path):
    with logged(trace=path):
        step(partition="min_cut")
    (begin,), (end,) = (named(records(path), name) for name in ("compile_start", "compile"))
    assert ("loss", ["f32[4, 3]", "f32[3, 2], requires grad"]) == (
        begin["function"],
        begin["arguments"],
    )
    assert ("min_cut", 32, True) == tuple(
        begin["options"][name] for name in ("partition", "recompile_limit", "enable_log")
    )
    assert begin["time"] <= end["time"] < end["time"] + end["seconds"] * 1e9


@pytest.mark.rules("LOG-2")
@pytest.mark.parametrize("rows", [(4,), (4, 5, 6)])
def test_stages_nest_in_their_compilation(path, rows):
    with logged(trace=path, calls=True):
        step(rows)
    found = [each for each in records(path) if "seconds" in each]
    spans = [(each["time"], each["time"] + round(each["seconds"] * 1e9)) for each in found]
    assert [] == unnested(spans)
    stages = {each["stage"] for each in named(found, "stage")}
    assert {"capture", "joint", "functionalize", "simplify", "partition", "lower"} <= stages


def test_spans_that_cross_are_not_nested():
    assert [((0, 4), (2, 6))] == unnested([(0, 4), (2, 6), (7, 8)])
    assert [] == unnested([(0, 4), (0, 2), (2, 4), (5, 6)])


@pytest.mark.rules("LOG-2")
def test_partitions_guards_and_reasons_are_data(path):
    with logged(trace=path):
        compiled = step((4, 5), dynamic=False)
    found = records(path)
    partition = next(each for each in found if each.get("stage") == "8 partition")
    assert al.inspect.saved_bytes(compiled.entries[0].partition) == partition["saved_bytes"]
    assert len(compiled.partition.saved) == len(partition["saved"])
    guards = named(found, "guards")[0]["guards"]
    assert ("argument 0", "f32[4, 3]") in [(each["subject"], each["expected"]) for each in guards]
    assert all(set(each) == {"subject", "expected", "test"} for each in guards)
    (again,) = named(found, "recompile")
    assert str(compiled.entries[1].number) == again["compile_id"]
    assert ["entry 0: argument 0 is f32[5, 3], expected f32[4, 3]"] == again["reasons"]


@pytest.mark.rules("LOG-2")
def test_conditions_on_sizes_and_instances_are_data(path):
    with logged(trace=path):
        step((4, 7, 9), dynamic=True)
    found = records(path)
    (conditions,) = [each for each in found if each.get("stage") == "8 partition, conditions"]
    assert {"s0": "size 0 of argument 0"}.items() <= conditions["symbols"].items()
    assert [4, 7, 9] == [each["sizes"]["s0"] for each in named(found, "instance")]


@pytest.mark.rules("LOG-2")
def test_graphs_with_saved_tensor_hooks_are_artifacts(path):
    hooks = (lambda x: x * 2, lambda x: x / 2)
    with logged(trace=path):
        step(saved_hooks=hooks)
    stages = [each.get("stage") for each in named(records(path), "artifact")]
    assert 3 == stages.count("8 partition, packed")


@pytest.mark.rules("LOG-2")
def test_kernels_and_the_cache_are_events(path, tmp_path, monkeypatch, c_compiler):
    monkeypatch.setenv("AOTLITE_CACHE", str(tmp_path / "cache"))
    code = (
        "import aotlite as al\n"
        "w = al.ones(3, 2, requires_grad=True)\n"
        "al.compile(lambda x: (x @ w).exp().sum(), backend='cpu')(al.ones(4, 3)).backward()\n"
    )
    found = []
    for name in ("one", "two"):
        file = tmp_path / f"{name}.jsonl"
        environment = {**os.environ, "AOTLITE_LOG": f"trace={file}"}
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)
        found.append(records(file))
    cold, warm = found
    assert len(named(cold, "kernel")) >= 2 <= len(named(cold, "compiler"))
    assert [] == named(warm, "compiler")
    outcomes = [
        {each["outcome"] for each in named(of, "cache") if each["of"] in ("graph", "library")}
        for of in found
    ]
    assert [{"miss"}, {"hit"}] == outcomes
    kernels = [each for each in named(cold, "compiler") if "lambda" in each["name"]]
    assert {"1"} == {each["compile_id"] for each in kernels}


@pytest.mark.rules("LOG-2", "GEN-9")
def test_kernels_of_the_background_belong_to_their_compilation(
    path, tmp_path, monkeypatch, c_compiler
):
    monkeypatch.setenv("AOTLITE_CACHE", str(tmp_path / "cache"))
    with logged(trace=path):
        compiled = al.compile(lambda x: x.exp() * 3.25, backend="cpu", wait=False)
        compiled(al.ones(5))
        deadline, kernels = time.monotonic() + 60, []
        while not kernels and time.monotonic() < deadline:
            time.sleep(0.01)
            found, _ = records_in(path)  # the last line may be half written
            kernels = [each for each in named(found, "kernel") if "lambda" in each["name"]]
    assert [str(compiled.entries[0].number)] == [each["compile_id"] for each in kernels]
    assert threading.get_ident() not in {each["thread"] for each in kernels}


@pytest.fixture
def c_compiler():
    if find_compiler() is None:
        pytest.skip("no C compiler works here")


@pytest.mark.rules("LOG-2")
def test_what_fails_is_an_event_with_its_error(path):
    def wrong(x):
        raise ValueError("no such thing")

    def broken(graph, inputs):
        raise ValueError("no backward for you")

    with logged(trace=path):
        with pytest.raises(ValueError, match="no such thing"):
            al.compile(wrong)(al.ones(2))
        result = al.compile(loss, backend="reference", bw_compiler=broken)(*arguments())
        with pytest.raises(al.BackendError):
            result.backward()
    found = records(path)
    capture, compiled = (named(found, name)[0] for name in ("stage", "compile"))
    assert "ValueError: no such thing" == capture["error"] == compiled["error"]
    assert "BackendError" in named(found, "backward")[-1]["error"]


@pytest.mark.rules("LOG-2")
def test_enable_log_silences_a_function(path):
    with logged(all="debug", trace=path, calls=True) as on:
        step((4, 5, 6), enable_log=False)
        assert [] == on.lines
        assert 1 == len(records(path))
        with pytest.raises(al.ArgumentError, match="enable_log is 1, expected True or False"):
            al.compile(loss, enable_log=1)


@pytest.mark.rules("LOG-2")
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1 << 70, hex(1 << 70)),
        (float("nan"), "nan"),
        ((1, True, None), [1, True, None]),
        ({1: {"a": 2.5}}, {"1": {"a": 2.5}}),
        ("\ud800", "\ud800"),
        (range(3), "range(0, 3)"),
    ],
)
def test_facts_have_a_form_of_their_own(value, expected):
    assert expected == json.loads(json.dumps(trace_files._plain(value)))


@pytest.mark.rules("LOG-2")
def test_facts_of_users_may_be_anything():
    class Hostile:
        def __str__(self):
            raise RuntimeError("never")

    nested = value = []
    for _ in range(50):
        value.append([])
        value = value[0]
    assert "no text: RuntimeError" == trace_files._plain(Hostile())
    assert isinstance(trace_files._plain(nested), list)
    assert 503 == len(trace_files._plain(Path("a" * 600)))


# ------------------------------------------------------------------------------------ the file
APPEND = """
import threading
import aotlite as al
def work():
    for _ in range(8):
        al.compile(lambda x: (x @ x).exp(), backend="reference")(al.ones(3, 3))
threads = [threading.Thread(target=work) for _ in range(2)]
for each in threads: each.start()
for each in threads: each.join()
"""


@pytest.mark.rules("LOG-2")
def test_lines_of_several_processes_and_threads_do_not_mix(path):
    environment = {**os.environ, "AOTLITE_LOG": f"trace={path}"}
    started = [subprocess.Popen([sys.executable, "-c", APPEND], env=environment) for _ in range(3)]
    assert [0, 0, 0] == [each.wait() for each in started]
    found = records(path)  # each line is whole
    for process in {each["process"] for each in found}:
        of = [each for each in found if each["process"] == process]
        ids = [each["compile_id"] for each in named(of, "compile")]
        assert list(map(str, range(1, 17))) == sorted(ids, key=int)
    assert 3 == len(named(found, "trace"))


@pytest.mark.rules("LOG-2")
def test_a_forked_child_goes_on_in_the_same_file(path):
    with logged(trace=path):
        child = os.fork() if hasattr(os, "fork") else pytest.skip("no fork")
        if child == 0:
            step()
            os._exit(0)
        assert 0 == os.waitpid(child, 0)[1]
        step()
    found = records(path)
    assert {child, os.getpid()} == {each["process"] for each in named(found, "compile")}
    for process in (child, os.getpid()):
        assert ["trace"] == [e["event"] for e in found if e["process"] == process][:1]
    assert 2 == len(named(found, "trace"))


SLOW = """
import threading, time
import aotlite as al
from aotlite.pipeline.logs import log_options
start, openings, opened = threading.Barrier(8), [], log_options.opened
def slow(path):
    openings.append(path)
    time.sleep(0.2)
    return opened(path)
log_options.opened = slow
def work():
    start.wait()
    al.compile(lambda x: x * 2, backend="reference")(al.ones(3))
threads = [threading.Thread(target=work) for _ in range(8)]
for each in threads: each.start()
for each in threads: each.join()
assert 1 == len(openings), openings
"""


@pytest.mark.rules("LOG-1", "LOG-2")
def test_no_compilation_is_lost_while_another_thread_reads_the_setting(path):
    """The setting holds for who sees it: it is noted when its file listens, not before."""
    environment = {**os.environ, "AOTLITE_LOG": f"trace={path}"}
    subprocess.run([sys.executable, "-c", SLOW], env=environment, check=True)
    found = records(path)
    assert [8, 8, 1] == [len(named(found, e)) for e in ("compile_start", "compile", "trace")]


@pytest.mark.rules("LOG-2")
@pytest.mark.skipif(not FULL.exists(), reason="Linux has a device that is always full")
def test_a_file_that_cannot_be_written_is_one_warning():
    """A full disk ends the trace, and no compilation."""
    warn_once._shown.forget()
    trace = trace_files.TraceFile.__new__(trace_files.TraceFile)
    trace.path, trace._clock = str(FULL), trace_files.Clock()
    trace._file, trace._lock, trace._process = os.open(FULL, os.O_WRONLY), lock(), os.getpid()
    listen(trace)
    with warns_once("aotlite: the trace ends: /dev/full gives No space left on device"):
        step()
        step()
    assert not is_heard()
    trace.close()


@pytest.mark.rules("LOG-2")
def test_a_closed_trace_takes_no_event(path):
    """Another thread may be about to call it, and the file's number may be another's by then."""
    trace = trace_files.TraceFile(str(path))
    trace.close()
    trace(LogEvent("cache", "-", {}, 0))
    trace.close()
    assert 1 == len(records(path))


@pytest.mark.rules("LOG-2")
def test_a_file_that_cannot_be_made_is_a_warning_or_an_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    wrong = tmp_path / "file" / "run.jsonl"
    warn_once._shown.forget()
    with pytest.raises(al.ArgumentError, match="expected a file that can be written"):
        al.set_logs(trace=wrong)
    monkeypatch.setenv("AOTLITE_LOG", f"trace={wrong}")
    with warns_once("aotlite: no trace: .* gives Not a directory"):
        step()
        step()
    monkeypatch.setenv("AOTLITE_LOG", "")
    step()
    with pytest.raises(al.ArgumentError):
        al.set_logs(trace=tmp_path)  # a folder


@pytest.mark.rules("LOG-2")
def test_the_environment_names_a_trace_alone(path, monkeypatch):
    """AOTLITE_TRACE is a file's name as it is, with commas, and `set_logs` replaces it."""
    path = path.with_name("a,b.jsonl")
    monkeypatch.setenv("AOTLITE_TRACE", str(path))
    step()
    assert named(records(path), "compile")
    count = len(records(path))
    al.set_logs()
    step()
    assert count == len(records(path))
    monkeypatch.setenv("AOTLITE_LOG", "trace=another.jsonl")
    with pytest.raises(al.ArgumentError, match="trace=another.jsonl and AOTLITE_TRACE is .* one"):
        step()
    monkeypatch.setenv("AOTLITE_LOG", f"trace={path.with_name('c.jsonl')}")
    monkeypatch.setenv("AOTLITE_TRACE", "")
    step()
    assert records(path.with_name("c.jsonl"))
    monkeypatch.delenv("AOTLITE_LOG")
    step()


@pytest.mark.rules("LOG-2")
def test_a_trace_of_the_environment_that_cannot_be_opened_is_a_warning(tmp_path, monkeypatch):
    warn_once._shown.forget()
    monkeypatch.setenv("AOTLITE_TRACE", str(tmp_path))
    with warns_once("aotlite: no trace: .* gives Is a directory"):
        step()
        step()
    monkeypatch.delenv("AOTLITE_TRACE")
    step()


@pytest.mark.rules("LOG-2")
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no pipes with names")
def test_a_pipe_is_refused_and_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(al.ArgumentError, match="expected a file that can be written"):
        al.set_logs(trace=tmp_path / "pipe")


@pytest.mark.rules("LOG-2")
def test_folders_are_made_and_an_old_file_is_continued(tmp_path):
    path = tmp_path / "a" / "b" / "run.jsonl"
    for _ in range(2):
        with logged(trace=path), warnings.catch_warnings():
            warnings.simplefilter("error")
            step()
    assert 2 == len(named(records(path), "compile"))


@pytest.mark.rules("LOG-2")
def test_compilations_of_threads_have_ids_of_their_own(path):
    with logged(trace=path):
        threads = [threading.Thread(target=step) for _ in range(3)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    found = named(records(path), "compile")
    assert 3 == len({each["compile_id"] for each in found})
    for each in found:
        own = [of for of in records(path) if of["compile_id"] == each["compile_id"]]
        assert 1 == len({of["thread"] for of in own})
        assert all(re.fullmatch(r"\d+", of["compile_id"]) for of in own)
