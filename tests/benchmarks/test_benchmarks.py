"""The benchmarks run on tiny rows, time equal programs, and compute what they print."""

import json
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aotlite as al
from aotlite.backends.native.compiler.toolchain import find_compiler
from aotlite.backends.threads import get_num_threads, set_num_threads
from aotlite.eager.subclass.protocol import is_wrapper, leaves_of
from benchmarks import (
    calls,
    common,
    eager,
    effects,
    first_call,
    loops,
    overhead,
    pipeline,
    size_guards,
    size_libraries,
    sizes,
    symbols,
)
from benchmarks.first_call import Job
from benchmarks.pipeline import OURS, TORCH, VERIFIED, Measured
from benchmarks.programs import TorchLike, program

SMALL = ("chain:5", "mlp:2", "transformer:1")


# ------------------------------------------------------------------------------------- the programs
def test_ops_are_what_a_user_wrote():
    assert [program(row).ops for row in ("chain:1000", "mlp:16")] == [1001, 3 * 16 + 1]
    one, two, three = (program(f"transformer:{blocks}").ops for blocks in (1, 2, 3))
    assert one < two and two - one == three - two


def value_and_gradients(of, library, lib, tensor):
    """The program's result and the gradient of each argument that requires one, as lists."""
    args = [tensor(value) for value in first_call._values(of)]
    for arg, wanted in zip(args, of.with_grad, strict=True):
        arg.requires_grad_(wanted)
    result = of.body(lib, *args)
    wanted = [arg for arg in args if arg.requires_grad]
    return [each.tolist() for each in (result, *library.autograd.grad(result, wanted))]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("row", SMALL)
def test_both_libraries_run_the_same_program(row, torch):
    ours = TorchLike(import_module("aotlite.nn.functional"))
    theirs = TorchLike(torch.nn.functional)
    expected = value_and_gradients(program(row), torch, theirs, torch.tensor)
    found = value_and_gradients(program(row), al, ours, al.tensor)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=2e-4, atol=2e-5)  # float32, other sum orders


@pytest.mark.parametrize("text", ["chain", "chain:0", "chain:x", "lstm:2", "chain:1,,"])
def test_unknown_row_is_refused(text, capsys):
    with pytest.raises(SystemExit):
        pipeline.main(["--rows", text])
    assert "expected chain:SIZE or mlp:SIZE or transformer:SIZE" in capsys.readouterr().err


# ------------------------------------------------------------------------------------- the pipeline
@pytest.mark.slow("times three rows in processes of their own")
def test_pipeline_prints_ours_without_peers(capsys, tmp_path):
    file = tmp_path / "found.json"
    options = ["--rounds", "1", "--ours-only", "--cpu-time", "--json", str(file)]
    pipeline.main(["--rows", "chain:2,chain:4,mlp:1", *options])
    printed = capsys.readouterr().out
    fitted = "exponent of aotlite default over chains of 2, 4: "
    for text in ("processor time", "| chain:2", "| mlp:1", fitted):
        assert text in printed
    found = json.loads(file.read_text("utf-8"))["results"]
    default = [each for each in found if each["column"] == ["aotlite", "default", 0]]
    assert [each["row"] for each in default] == ["chain:2", "chain:4", "mlp:1"]
    assert all(each["seconds"] > 0 and each["failed"] is None for each in default)


def rows_of_sizes(capsys, *arguments):
    """The rows of the table that `benchmarks.sizes` prints, by name."""
    threads = get_num_threads()
    try:
        sizes.main([*arguments, "--blocks", "1", "--width", "16", "--rounds", "1"])
    finally:
        set_num_threads(threads)
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("|")
    ]
    return {name: rest for name, *rest in rows}


def test_size_guards_prints_what_the_guards_of_a_call_cost(capsys):
    size_guards.main(["--rounds", "3", "--calls", "20"])
    row = next(line for line in capsys.readouterr().out.splitlines() if "reference" in line)
    symbols, numbers = [float(cell) for cell in row.split("|")[2:4]]
    assert symbols > 0 < numbers


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")
def test_sizes_prints_what_one_compilation_for_all_lengths_costs(capsys):
    found = rows_of_sizes(capsys, "--lengths", "3")
    assert ["1", "3", ""] == found["compilations"]
    assert ["2", "6", ""] == found["libraries"]
    assert 0 < float(found["a later call, s"][2])


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")
def test_sizes_prints_what_ten_lengths_of_a_tape_cost(capsys):
    found = rows_of_sizes(capsys, "autograd", "--lengths", "10")
    assert ["2", "2", ""] == found["captures"]
    assert ["2", "10", ""] == found["compiled graphs"]
    assert ["2", "10", ""] == found["libraries"]
    assert 0 < float(found["a later call, s"][2])


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")
@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", size_libraries.PROGRAMS)
def test_further_sizes_of_a_program_make_no_library(name):
    found = size_libraries.counted(size_libraries.PROGRAMS[name](), size_libraries.SIZES)
    assert found == size_libraries.Counts(compilations=1, first=2, further=0)


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")
def test_the_demo_with_a_short_last_batch_is_compiled_twice():
    found = size_libraries.demo()
    assert found.compilations == 2 and found.further == 2


def test_missing_peer_is_a_line(monkeypatch, capsys):
    monkeypatch.setattr("benchmarks.common.is_installed", lambda peer: False)
    monkeypatch.setattr(pipeline, "run_job", lambda job, timeout: {"failed": "not run"})
    pipeline.main(["--rows", "chain:1", "--rounds", "1"])
    printed = capsys.readouterr().out
    assert "torch is not installed: its columns are left out" in printed
    assert "jax is not installed: its columns are left out" in printed


def test_a_run_that_fails_is_printed_with_its_reason():
    found = pipeline.run_job(Job("chain:1", "aotlite", "no such partition"), 60)
    assert set(found) == {"failed"} and "no such partition" in found["failed"]


def test_a_run_that_takes_too_long_is_printed_as_such():
    assert {"failed": "over 0.01 s"} == pipeline.run_job(Job("chain:1", "aotlite"), 0.01)


def test_a_run_that_crashes_is_printed_with_its_signal(monkeypatch, tmp_path):
    crash = tmp_path / "crash"
    crash.write_text("#!/bin/sh\nkill -SEGV $$\n")
    crash.chmod(0o755)
    monkeypatch.setattr(pipeline.sys, "executable", str(crash))
    assert {"failed": "ended by SIGSEGV"} == pipeline.run_job(Job("chain:1", "aotlite"), 60)


def test_what_fails_or_is_slow_is_not_measured_again(monkeypatch):
    runs = []

    def run_job(job, timeout):
        runs.append(job)
        slow = {"seconds": 61.0, "bytes": 1}
        return {"failed": "no"} if job.verify else slow

    monkeypatch.setattr(pipeline, "run_job", run_job)
    found = pipeline.measure(["chain:4"], [OURS, VERIFIED], 3, 1.0)
    assert found["chain:4", OURS] == Measured(1, 61.0, 1, None)
    assert found["chain:4", VERIFIED] == Measured(1, None, None, "no")
    assert len(runs) == 2


def test_the_best_round_counts_and_peers_sit_out_the_longest_chain(monkeypatch):
    taken = iter([3.0, 1.0, 2.0])
    monkeypatch.setattr(
        pipeline, "run_job", lambda *_: {"seconds": (s := next(taken)), "bytes": int(s)}
    )
    found = pipeline.measure(pipeline.OURS_ONLY, [OURS, TORCH], 3, 1.0)
    assert found == {(pipeline.OURS_ONLY[0], OURS): Measured(3, 1.0, 1, None)}


def test_processor_time_counts_where_it_is_asked_for(monkeypatch):
    run = {"seconds": 9.0, "cpu_seconds": 4.0, "bytes": 1}
    monkeypatch.setattr(pipeline, "run_job", lambda *_: run)
    found = pipeline.measure(["chain:4"], [OURS], 1, 1.0, "cpu_seconds")
    assert {("chain:4", OURS): Measured(1, 4.0, 1, None)} == found


def test_processor_time_is_that_of_the_measured_process():
    found = pipeline.run_job(Job("chain:200", "aotlite"), 60)
    assert 0 < found["cpu_seconds"] <= found["seconds"] * 1.5 + 0.1  # the clocks tick differently


@given(
    st.floats(0.5, 2.5),
    st.floats(1e-6, 1e3),
    st.lists(st.integers(1, 10**6), min_size=2, max_size=6, unique=True),
)
def test_exponent_is_that_of_a_power(power, factor, lengths):
    seconds = {length: factor * length**power for length in lengths}
    assert pipeline.exponent(seconds) == pytest.approx(power, abs=2e-3)


# ------------------------------------------------------------------------------------- the overhead
def as_lists(result):
    """What an action returned, whichever library's, as lists of float32 numbers or None."""
    parts = result if isinstance(result, (tuple, list)) else (result,)
    if any(map(is_wrapper, parts)):
        parts = [leaf for part in parts for leaf in leaves_of(part)]
    return [None if part is None else np.float32(part.tolist()).tolist() for part in parts]


@pytest.mark.parametrize("case", calls.CASES, ids=lambda case: case.name)
def test_compiled_call_computes_what_eager_computes(case):
    made = calls.actions(case, [])
    assert as_lists(made["aotlite eager"]()) == as_lists(made["aotlite"]())


@pytest.mark.parametrize("case", calls.CASES, ids=lambda case: case.name)
def test_bare_numpy_calls_compute_what_the_compiled_call_computes(case):
    """Where only some inputs are used, the others' gradients are None and cost NumPy nothing."""
    made = calls.actions(case, [])
    found = [each for each in as_lists(made["aotlite"]()) if each is not None]
    assert as_lists(made["bare NumPy"]()) == found


@pytest.mark.thinned(5)
@pytest.mark.parametrize("case", calls.CASES, ids=lambda case: case.name)
def test_peers_compute_the_same(case, torch):
    peers = [peer for peer in common.PEERS if common.is_installed(peer)]
    made = calls.actions(case, peers)
    ours, *others = [
        as_lists(made[column]())
        for column in overhead.COLUMNS
        if column in made and column not in ("bare NumPy", "aotlite eager")
    ]
    for theirs in others:
        for one, other in zip(ours, theirs, strict=False):  # JAX returns the mutated input too
            if one is None:
                one = np.zeros(calls.SIZE)
            if other is None:
                other = np.zeros(calls.SIZE)
            np.testing.assert_allclose(other, one, rtol=1e-5)  # each library has its own sine


def test_overhead_prints_every_column_that_is_here(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(loops, "LOOP_SECONDS", 1e-5)
    monkeypatch.setattr(common, "is_installed", lambda peer: False)
    file = tmp_path / "found.json"
    overhead.main(["--rows", "plain", "--rows", "1 input", "--rounds", "2", "--json", str(file)])
    printed = capsys.readouterr().out
    for text in ("jax is not installed", "torch is not installed", "| plain ", "| 1 input "):
        assert text in printed
    found = json.loads(file.read_text("utf-8"))["microseconds"]["plain"]
    assert set(found) == {"aotlite", "bare NumPy", "aotlite eager"}
    assert found["aotlite"] > found["bare NumPy"] > 0


@pytest.mark.parametrize("effect", effects.EFFECTS, ids=lambda effect: effect.name)
def test_plain_call_computes_what_the_call_with_the_effect_computes(effect):
    made = effects.actions(effect, [])
    mine, plain = as_lists(made["with"]()), as_lists(made["plain"]())
    assert plain[0] == mine[0]


def test_overhead_says_whether_an_effect_costs_what_is_asked(capsys, monkeypatch):
    monkeypatch.setattr(loops, "LOOP_SECONDS", 1e-5)
    overhead.main(["--rows", "+ aliased output", "--rounds", "2", "--ours-only"])
    printed = capsys.readouterr().out
    assert "microseconds a call" not in printed
    row = next(line for line in printed.splitlines() if "| + aliased output" in line)
    name, above, asked, met, mine, plain = (cell.strip() for cell in row.strip(" |").split("|"))
    assert ("+ aliased output", "1.5") == (name, asked)
    if abs(float(above) - 1.5) > 0.01:  # 1.50 may be more, or less
        assert ("yes" if float(above) < 1.5 else "no") == met
    assert abs(float(above) - (float(mine) - float(plain))) < 0.02  # each is rounded


# -------------------------------------------------------------------------------------------- eager
def values(result):
    """What an action returned, whichever library's, as lists."""
    first = result[0] if isinstance(result, tuple) else result
    return np.float32(first.detach().tolist() if hasattr(first, "detach") else first).tolist()


@pytest.mark.parametrize("case", eager.CASES, ids=lambda case: case.name)
def test_eager_cases_make_one_numpy_call_that_computes_the_same(case, torch):
    """The third case: with grad."""
    made = eager.actions(case, ["torch"])
    expected = values(made["NumPy"]())
    for column, action in made.items():
        if not case.writes:  # a write shows in the next action's operand
            np.testing.assert_allclose(
                expected, values(action()), rtol=1e-5, atol=1e-6, err_msg=column
            )


def test_eager_prints_what_is_asked(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(loops, "LOOP_SECONDS", 1e-5)
    monkeypatch.setattr(common, "is_installed", lambda peer: False)
    file = tmp_path / "found.json"
    eager.main(["--rows", "add", "--rows", "view", "--rounds", "2", "--json", str(file)])
    printed = capsys.readouterr().out
    for text in ("torch is not installed", "| add ", "| view ", "asked: at most 5 and 12"):
        assert text in printed
    found = json.loads(file.read_text("utf-8"))["microseconds"]["add"]
    assert {"aotlite", "aotlite with grad", "NumPy"} == set(found)


# ----------------------------------------------------------------------------------- symbolic sizes
def test_symbols_prints_what_is_asked(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(loops, "LOOP_SECONDS", 1e-5)
    file = tmp_path / "found.json"
    symbols.main(["--rounds", "1", "--json", str(file)])
    printed = capsys.readouterr().out
    for text in ("| a + b ", "| rule of matmul ", "again: at most ", "first time: at most "):
        assert text in printed
    found = json.loads(file.read_text("utf-8"))["microseconds"]
    assert set(symbols.CASES) == set(found)
    assert all(microseconds > 0 for of in found.values() for microseconds in of.values())
