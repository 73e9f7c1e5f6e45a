"""`aotlite fuzz`: what it runs, keeps, contains and prints.

Programs run in processes of their own, which take a second to start: most tests use few of them.
"""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import attrs
import pytest

import aotlite as al
from aotlite.cli import main
from aotlite.ir.errors import ArgumentError, FormatError
from aotlite.testing import Call, Program, fuzz
from aotlite.testing.coverage.cells import CELLS, NUMBER, POSSIBLE
from aotlite.testing.engines.eager import AotliteEngine
from aotlite.testing.fuzzing import campaign, oracles, shrink_failure
from aotlite.testing.fuzzing.outcomes import Failure, Outcome, Played
from aotlite.testing.fuzzing.plan import Plan
from aotlite.testing.fuzzing.processes import child
from aotlite.testing.fuzzing.processes.child import JudgeOrder, judged
from aotlite.testing.fuzzing.processes.fork import in_fork
from aotlite.testing.fuzzing.processes.workers import Worker
from aotlite.testing.fuzzing.reports import script_of
from aotlite.testing.fuzzing.run_file import Ledger, read
from aotlite.testing.fuzzing.shrink_failure import made_small
from aotlite.testing.fuzzing.statistics import Chunk, Tally
from tests.testing.helpers import planted_compilers

ROOT = Path(__file__).parents[2]

PLANTED = "tests.testing.helpers.planted_compilers"
LAST_LINE = r"[\d,]+ programs, [\d,]+ of 28,080 cells, \d+ failures? \([\d,]+ programs a .*\)"


def program(size, body=(), results=("$0",)):
    """A program of one argument of this size."""
    setup = [["make", [1, [size], "float64", False]]]
    return Program(body, results, [Call(setup, ["$0"])])


VIEW = program(4, [["alias", ["$0"]], ["neg", ["$0"]], ["mul_", ["$1", 2]]], ["$1", "$2"])


# ---------------------------------------------------------------------------------------- the run
def test_a_run_ends_at_its_count_and_goes_on_from_its_ledger(tmp_path):
    ledger = tmp_path / "ledger"
    first = fuzz(count=6, jobs=1, ledger=ledger, seed=100)
    assert (6, []) == (first.programs, first.failures)
    with ledger.open("ab") as file:
        file.write(b'{"first":6,"programs":50,"cel')
    again = fuzz(count=10, jobs=1, ledger=ledger, seed=100)
    assert 10 == again.programs
    assert ["its last line was cut off and is dropped: 29 bytes"] == [
        note.partition(": ")[2] for note in again.notes
    ]
    header, *chunks = map(json.loads, ledger.read_text().splitlines())
    assert 100 == header["seed"]
    assert [(0, 6), (6, 4)] == [(line["first"], line["programs"]) for line in chunks]
    assert again.coverage.hits.total() > first.coverage.hits.total() > 0
    kept = Tally(targets=again.targets, notes=again.notes)
    read(ledger, kept)
    assert kept == again


def test_ctrl_c_leaves_a_good_ledger(tmp_path):
    plan = Plan(jobs=1, ledger=tmp_path / "ledger")

    def interrupt(running):
        if running.tally.programs:
            raise KeyboardInterrupt

    tally = campaign.run(plan, interrupt)
    kept = Tally()
    read(plan.ledger, kept)
    assert tally.is_interrupted
    assert kept.programs == tally.programs > 0
    assert (kept.coverage, kept.notes, kept.failures) == (tally.coverage, [], [])
    with Ledger(plan, Tally()).file:  # the lock is free
        pass


def test_ctrl_c_ends_the_command_with_its_last_line(tmp_path, capsys, monkeypatch):
    def interrupted(plan, told):
        return Tally(targets=plan.targets(), is_interrupted=True)

    monkeypatch.setattr(campaign, "run", interrupted)
    assert 130 == main(["fuzz"])
    told = capsys.readouterr()
    assert "0 programs, 0 of 28,080 cells, 0 failures" in told.out.splitlines()[-1]
    assert "interrupted" in told.err


def test_programs_aim_at_the_rarest_cells_of_those_asked_for():
    plan = Plan(cell="any, fill, any, alone")
    tally = Tally(targets=plan.targets())
    assert {("fill", "alone")} == {CELLS[n][1::2] for n in tally.targets}
    tally.coverage.hits.update(dict.fromkeys(tally.targets[:-30], 3))
    assert set(tally.targets[-30:]) <= set(campaign.aims(tally, Random(0)))
    many = Tally(targets=POSSIBLE)
    many.coverage.hits.update(dict.fromkeys(POSSIBLE[5000:], 3))
    chosen = campaign.aims(many, Random(1))
    assert campaign.REFRESH == len(set(chosen))
    assert set(chosen) <= set(POSSIBLE[:5000])


def test_a_failure_counts_no_cell_and_is_kept():
    chunk = Chunk(0, ((5, 3), (6, 3)))
    wrong = Outcome(calls=1, cells=[3], found=["call 0: values: 1, eager 2"])
    failure = chunk.add(Played(5, 3, VIEW.to_json(), wrong, 0.25))
    assert chunk.add(Played(6, 3, None, Outcome(calls=2, cells=[3, 4, 4]), 0.25)) is None
    line = json.loads(json.dumps(chunk.line()))
    assert [[3, 1], [4, 1]] == line["cells"]
    tally = Tally(targets=(3, 4, 7))
    tally.add(line)
    assert [failure] == tally.failures == [Failure(5, 3, wrong.found, VIEW)]
    expected = "2 programs, 2 of 3 cells, 1 failure (240 programs a minute a core)"
    assert expected == tally.last_line()


# ------------------------------------------------------------------------------------ the ledger
def test_a_ledger_of_other_settings_is_refused(tmp_path):
    ledger = tmp_path / "ledger"
    Ledger(Plan(ledger=ledger, seed=1), Tally()).close()
    expected = r"is of seed 1, expected 2: give that seed, or another ledger$"
    with pytest.raises(FormatError, match=expected):
        Ledger(Plan(ledger=ledger, seed=2), Tally())
    with pytest.raises(FormatError, match="is of cell 'any,any,any,any', expected 'any,set,"):
        Ledger(Plan(ledger=ledger, seed=1, cell="any,set,any,any"), Tally())


@pytest.mark.parametrize(
    "name, value, text",
    [
        ("version", 0, "is of version 0, expected version 1: begin another ledger"),
        ("aotlite", "0.0.1", "is of aotlite '0.0.1', expected '0.1.0': counts of other"),
        ("table", "0", "is of table '0'"),
        ("format", "x", "is of another format, expected what `aotlite fuzz` wrote"),
    ],
)
def test_a_ledger_of_another_version_is_refused(tmp_path, name, value, text):
    ledger = tmp_path / "ledger"
    ledger.write_text(json.dumps({**Plan().identity(), name: value}) + "\n")
    with pytest.raises(FormatError, match=re.escape(text)):
        fuzz(ledger=ledger)


def test_a_ledger_that_is_damaged_in_the_middle_is_refused(tmp_path):
    ledger = tmp_path / "ledger"
    ledger.write_text(json.dumps(Plan().identity()) + '\n{"first": 0}\n{}\n')
    with pytest.raises(FormatError, match="is damaged in line 2, expected what a run wrote"):
        fuzz(ledger=ledger)
    with pytest.raises(FormatError, match="is no file"):
        read(tmp_path / "none", Tally())


def test_a_file_that_is_no_ledger_is_left_as_it_is(tmp_path):
    notes = tmp_path / "notes"
    notes.write_text("not a line")
    with pytest.raises(FormatError, match="is of another format"):
        fuzz(ledger=notes, count=1)
    assert "not a line" == notes.read_text()
    notes.write_text('{"format":"aot')  # the first line of a ledger, cut off
    tally = Tally()
    Ledger(Plan(ledger=notes), tally).close()
    assert ["its last line was cut off"] == [note.split(": ")[1][:25] for note in tally.notes]


def test_a_summary_is_of_this_table_and_of_a_whole_header(tmp_path):
    ledger = tmp_path / "ledger"
    ledger.write_text(json.dumps({**Plan().identity(), "table": "0"}) + "\n")
    with pytest.raises(FormatError, match="is of table '0'"):
        read(ledger, Tally())
    ledger.write_text('{"format": "aotlite fuzz", "version": 1}\n')
    with pytest.raises(FormatError, match="is without aotlite, expected what a run wrote"):
        read(ledger, Tally())


def test_a_folder_that_cannot_be_made_is_refused_first(tmp_path, capsys):
    taken = tmp_path / "taken"
    taken.write_text("")
    assert 2 == main(["fuzz", "--count", "1", "--out", str(taken)])
    assert "fuzz: --out gives [Errno 17] File exists" in capsys.readouterr().err


def test_two_runs_do_not_write_one_ledger(tmp_path):
    plan = Plan(ledger=tmp_path / "ledger")
    first = Ledger(plan, Tally())
    with pytest.raises(ArgumentError, match="is being written by another run, expected one for"):
        Ledger(plan, Tally())
    first.close()
    Ledger(plan, Tally()).close()


# ------------------------------------------------------------------------------- the containment
@pytest.mark.slow("waits for a program that hangs, and starts workers anew")
def test_programs_that_hang_or_crash_are_failures_and_say_where():
    worker = Worker(Plan(function=f"{PLANTED}:ending"))
    found = []
    # First one that ends: what is imported and compiled once takes longer on a busy machine.
    for size, seconds in ((4, 60.0), (5, 1.0), (6, 20.0), (4, 20.0)):
        found.append(worker.judged(JudgeOrder(program(size), 0), seconds).found)
    worker.stop()
    first, (hang, *where), (crash, *place), fine = found
    assert ([], "hang: no answer within 1 s", "crash: SIGABRT", []) == (first, hang, crash, fine)
    assert "planted_compilers.py" in where[0] and "planted_compilers.py" in place[0]


def test_a_capture_may_meet_another_error_than_values_give():
    """What is wrong with shapes is seen before any value is; either way the call raises."""
    setup = [["make", [0, [2], "float64", False]]]
    body = [["ints", [[5]]], ["index_fill_", ["$0", 0, "$1", 3]], ["view", ["$0", [3]]]]
    program = Program(body, [], [Call(setup, ["$0"])])
    found = oracles.Compiled(AotliteEngine()).outcome(program, {})
    assert ([], 1, 1) == (found.found, len(found.refused), found.raised)


def test_a_chunk_goes_on_behind_a_program_that_ends_its_process():
    worker = Worker(Plan(seconds=5.0))
    worker.start()
    seeds = [(seed, POSSIBLE[seed]) for seed in range(4)]
    played = []
    for each in worker.play(seeds):
        played.append(each)
        if each.seed == 1:
            worker.process.kill()
    worker.stop()
    assert [0, 1, 2, 3] == [each.seed for each in played]
    assert 1 == sum(bool(each.outcome.found) for each in played)
    killed = next(each for each in played if each.outcome.found)
    assert "crash: SIGKILL" == killed.outcome.found[0]


@pytest.mark.slow("starts a worker for each program that ends one")
def test_a_program_that_ends_its_process_is_shrunk(monkeypatch):
    monkeypatch.setattr(shrink_failure, "SECONDS", 20.0)
    found = "crash: exit status 3"
    body = [["alias", ["$0"]], ["neg", ["$1"]]]
    worker = Worker(Plan(function=f"{PLANTED}:ending"))
    failure = made_small(worker, Failure(0, 0, [found], program(7, body, ["$1", "$2"])))
    worker.stop()
    assert ((), True) == (failure.program.body, failure.is_small)
    assert (found,) == failure.found
    assert "argument 0" in failure.picture


def test_what_hangs_in_a_fork_is_an_outcome():
    assert ["hang: no answer within 0.1 s"] == in_fork(lambda: time.sleep(60), 0.1).found
    assert [3] == in_fork(lambda: Outcome(cells=[3]), 5.0).cells


def test_an_error_of_the_fuzzer_itself_is_a_failure():
    class Broken(AotliteEngine):
        def bytes_of(self, tensor):
            raise KeyError("no bytes")

    found = judged(oracles.Compiled(Broken()), VIEW, {}, 0).found
    assert "raised: KeyError while the program was played: 'no bytes'" == found[0]
    assert "in bytes_of: raise KeyError" in found[1]


# ------------------------------------------------------------------------------ the determinism
def test_a_compiled_function_that_is_not_deterministic_is_named(monkeypatch):
    turns = iter([True, False] * 20)
    monkeypatch.setattr(
        planted_compilers.random, "choice", lambda two: two[0] if next(turns) else two[1]
    )
    judge = oracles.Compiled(AotliteEngine(), planted_compilers.unsteady)
    found = judged(judge, VIEW, {}, 1).found
    assert found[0].startswith("call 0: nondeterministic: compiled gives version of object 1 after")
    assert re.search(r": 0, then 1$|: 1, then 0$", found[0])


def test_an_eager_function_that_is_not_deterministic_is_named():
    class Drifting(AotliteEngine):
        count = 0.0

        def make(self, values, shape, dtype, *, grad):
            Drifting.count += 1.0
            return super().make([Drifting.count] * len(values), shape, dtype, grad=grad)

    found = judged(oracles.Compiled(Drifting()), VIEW, {}, 0).found
    assert "call 0: nondeterministic: eager gives values of object 0 after the call: " in found[0]


def test_a_failure_that_is_not_seen_again_is_named():
    turns = iter([planted_compilers.copying, *[al.compile] * 20])
    judge = oracles.Compiled(AotliteEngine(), lambda function, **_: next(turns)(function))
    found = judged(judge, VIEW, {}, 0).found
    assert "nondeterministic: compiled differs from eager, then it does not" == found[0]
    assert "version of object 1" in found[1]


def test_some_programs_that_do_not_fail_are_played_again(monkeypatch):
    rounds = []
    monkeypatch.setattr(child, "judged", lambda *args: rounds.append(args[3]) or Outcome())
    monkeypatch.setattr(child, "draw", lambda *_: VIEW)

    class Connection:
        def send(self, told):
            pass

    for seed in range(2 * child.SAMPLE):
        child._play(seed, 0, (Plan(), None, Connection()))
    assert 2 == sum(rounds)


# ------------------------------------------------------------------------------------- the command
@pytest.mark.slow("shrinks a program in a worker")
def test_a_failure_is_printed_with_script_and_drawing_and_written(tmp_path, capsys):
    """A compiler that returns copies of views: shrunk to a view that is returned."""
    cell = "alias,fill,view of an input,alone"
    command = ["fuzz", "--count", "4", "--jobs", "1", "--function", f"{PLANTED}:copying"]
    with pytest.raises(SystemExit) as ended:
        main([*command, "--cell", cell, "--out", str(tmp_path), "--shrink", "1"])
    assert 1 == ended.value.code
    told = capsys.readouterr().out
    failures = [line for line in told.splitlines() if line.startswith("failure ")]
    cell_text = " x ".join(cell.split(","))
    assert f"towards {cell_text}:" in failures[0]
    assert "    assert_same_effects(f, copying(f), inputs" in told
    assert "    before:\n    memory 1: " in told
    assert re.search(r"^ +\w+  [\d. -]* argument 0", told, re.MULTILINE)
    assert re.match(r"4 programs, [01] of 1 cells, \d failures? ", told.splitlines()[-1])
    number = re.search(r"program (\d+)", failures[0])[1]
    script = tmp_path / f"program_{number}.py"
    # The root comes last on the path, as for these tests: an installed aotlite is what is tested.
    code = f"import runpy, sys; sys.path.append({str(ROOT)!r}); runpy.run_path({str(script)!r})"
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Difference: assert_same_effects: compiled differs from eager" in run.stderr, run.stderr


def test_the_summary_of_a_ledger_runs_nothing(tmp_path, capsys):
    plan = Plan(ledger=tmp_path / "ledger", seed=3)
    ledger = Ledger(plan, Tally())
    chunk = Chunk(0, ((3, 9), (4, 9)))
    chunk.add(Played(3, 9, VIEW.to_json(), Outcome(found=["crash: SIGSEGV"])))
    chunk.add(Played(4, 9, None, Outcome(cells=[9], refused=["AliasError: x"])))
    ledger.write(chunk.line())
    small = Failure(3, 9, ["crash: SIGSEGV"], VIEW, is_small=True, picture="memory 1")
    ledger.write({"failures": [small.to_dict()]})
    ledger.close()
    with pytest.raises(SystemExit):
        main(["fuzz", "--summary", "--cells", "--ledger", str(plan.ledger)])
    told = capsys.readouterr().out
    assert "\n1 x AliasError: x\n" in told
    assert f"failure 1 of 1: program 3 towards {' x '.join(CELLS[9])}" in told
    assert "    crash: SIGSEGV\n" in told and "    memory 1\n" in told
    assert "cells impossible: a view on an argument's memory is a view of an input" in told
    assert re.fullmatch(LAST_LINE, told.splitlines()[-1])
    assert 2 == main(["fuzz", "--summary"])


def test_a_failure_without_a_script_for_its_library_is_told_as_data():
    plan = Plan(against="numpy")
    grown = program(2, [["resize_", ["$0", [4]]]])
    text = script_of(plan, Failure(0, 0, ["call 0: x"], grown))
    assert text.startswith("# to_numpy: a step is 'resize_', expected one that arrays can do")
    given = {}
    exec(text, given)
    assert grown == given["program"]
    assert "import numpy" in script_of(plan, Failure(0, 0, ["call 0: x"], program(2)))
    torch = script_of(Plan(against="torch"), Failure(0, 0, ["call 0: x"], program(2)))
    assert "import torch" in torch


@pytest.mark.parametrize(
    "given, text",
    [
        ({"minutes": -1}, "fuzz: minutes is -1, expected a number above 0"),
        ({"count": 0}, "fuzz: count is 0, expected a whole number of at least 1"),
        ({"jobs": 1.5}, "fuzz: jobs is 1.5, expected a whole number"),
        ({"engine": "x"}, "fuzz: engine is 'x', expected one of 'aotlite', "),
        ({"engine": "json:B"}, "fuzz: function is None, expected what compiles functions of json:"),
        ({"engine": "no_such.a:B"}, "fuzz: engine is in module 'no_such.a', expected one that Py"),
        ({"engine": "a.py:B"}, "fuzz: engine is in file 'a.py', expected one that exists"),
        ({"against": "aotlite"}, "expected 'eager', or another library than the engine"),
        ({"against": "torch", "function": "a:b"}, "expected none where two libraries' eager are"),
        ({"function": "compile"}, "expected module:name or file.py:name"),
        ({"cell": "t"}, "cell: the names are ('t',), expected one each of view, write"),
        ({"cell": "t,fill,x,any"}, "cell: the output is 'x', expected any or one of"),
        ({"cell": "t,fill,input,made inside"}, "expected one that a program can hit"),
        ({"options": "verify"}, "fuzz: options is 'verify', expected name=value,name=value"),
    ],
)
def test_a_wrong_plan_is_refused(given, text):
    with pytest.raises(ArgumentError, match=re.escape(text)):
        Plan(**given)


@pytest.mark.parametrize(
    "function, text",
    [
        ("no_such_module:f", "function is in module 'no_such_module', expected one that"),
        (
            f"{PLANTED}:nothing",
            "expected a name that 'tests.testing.helpers.planted_compilers' has",
        ),
        ("nothing.py:f", "function is in file 'nothing.py', expected one that exists"),
        (f"{PLANTED}:__name__", "expected what compiles one"),
    ],
)
def test_a_function_that_is_not_there_is_refused(function, text):
    with pytest.raises(ArgumentError, match=re.escape(text)):
        child.judge_of(Plan(function=function))


def test_an_error_in_the_first_process_ends_the_run():
    with pytest.raises(ArgumentError, match="no_such_module"):
        fuzz(function="no_such_module:f", jobs=1)


def test_options_are_given_to_what_compiles():
    assert {"verify": 2, "partition": "min_cut"} == Plan(
        options="verify=2, partition=min_cut"
    ).fixed_options()
    assert Plan().fixed_options() is None
    assert {} == Plan(function="a:b").fixed_options() == Plan(options="").fixed_options()


# ----------------------------------------------------------------------------------- the libraries
class Other(AotliteEngine):
    """aotlite as a library of another name, in which `neg` adds 1."""

    name = "other"

    def call(self, op, args):
        return args[0].neg().add(1) if op == "neg" else super().call(op, args)


def test_two_libraries_are_compared_by_their_eager_functions():
    judge = child.judge_of(Plan(engine=f"{__name__}:Other", against="aotlite"))
    found = judged(judge, VIEW, {}, 0).found
    assert re.match(r"call 0: values of object 2 after the call: \[.*\], aotlite \[", found[0])
    same = judged(judge, program(4), {}, 0)
    assert ([], 1) == (same.found, same.calls)


def test_a_library_of_ones_own_is_fuzzed_with_its_compiler():
    plan = Plan(engine=f"{__name__}:Other", function=f"{PLANTED}:copying")
    found = judged(child.judge_of(plan), VIEW, {}, 0).found
    assert found[0].startswith("call 0: version of object 1 after the call")


def test_numpy_is_an_oracle_of_values_and_memory():
    judge = child.judge_of(Plan(against="numpy"))
    assert [] == judged(judge, VIEW, {}, 1).found
    wrong = attrs.evolve(judge, engine=Other())
    found = judged(wrong, VIEW, {}, 0).found
    assert found[0].startswith("call 0: numpy gives values of object 2 after the call: [")
    assert ", other [" in found[0]


@pytest.mark.slow("imports PyTorch in a worker")
@pytest.mark.torch
def test_a_run_against_pytorch_names_its_excuses(torch):
    tally = fuzz(count=25, jobs=1, against="torch", seed=3, cell="any,set,any,any")
    assert (25, []) == (tally.programs, tally.failures)
    assert tally.reasons and all(name.startswith("excused: ") for name in tally.reasons)


@pytest.mark.torch
def test_pytorchs_own_compiled_functions_are_compared_with_its_eager_ones(torch):
    judge = child.judge_of(Plan(engine="torch"))
    call = Call([["make", [1, [4], "float64", True]]], ["$0"])
    twice = Program([["mul", ["$0", 2]], ["view", ["$1", [2, 2]]]], ["$2", "$2"], [call])
    assert "objects" in judged(judge, twice, {}, 0).found[0]
    once = attrs.evolve(twice, results=["$1"])
    assert [] == judged(judge, once, {}, 0).found
    resized = program(4, [["resize_", ["$0", [6]]]])
    assert ["left out: new memory is undefined"] == judged(judge, resized, {}, 0).refused


def test_cells_of_a_library_are_those_of_its_programs():
    hit = judged(oracles.Compiled(AotliteEngine()), VIEW, {}, 0).cells
    assert NUMBER["alias", "pointwise", "view of an input", "alone"] in hit
