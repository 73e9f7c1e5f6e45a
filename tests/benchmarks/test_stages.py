"""The profile of every stage: what it prints, and that it measures what it says."""

import pytest

from benchmarks import stages
from benchmarks.programs import program


def test_every_stage_is_timed_and_its_graph_counted():
    found = stages.seconds(program("mlp:2"))
    assert {*stages.STAGES, "rest", "freeing"} == set(found.stages)
    assert found.nodes > program("mlp:2").ops
    assert all(seconds >= 0 for seconds in found.stages.values())


def test_memory_grows_from_stage_to_stage_and_the_peak_is_the_most():
    found = stages.memory(program("chain:40")).stages
    assert 0 < found["capture"] < found["joint"] < found["peak"]
    assert max(found.values()) == found["peak"]


def test_best_takes_the_least_of_each_stage():
    runs = [
        stages.Profile(5, {"joint": 2.0, "rest": 1.0}),
        stages.Profile(5, {"joint": 1.0, "rest": 3.0}),
    ]
    assert stages.Profile(5, {"joint": 1.0, "rest": 1.0}) == stages.best(runs)


@pytest.mark.parametrize("memory", [[], ["--memory"]])
def test_a_row_of_numbers_is_printed_for_each_program(capsys, memory):
    stages.main(["--rows", "chain:4,mlp:1", "--rounds", "1", *memory])
    printed = capsys.readouterr().out
    assert 1 + bool(memory) == printed.count("| chain:4 ") == printed.count("| mlp:1 ")
    assert "nan" not in printed
