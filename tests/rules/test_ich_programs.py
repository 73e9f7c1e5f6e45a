"""ICH-5, ICH-8: random programs with aliases and writes; runtimes as backends of `compile`.

`python -m tests.interchange.random_programs` runs as many as one likes.
"""

import pytest

from tests.interchange import random_programs
from tests.rules.test_ich_ops import needs

RUNTIMES = {"onnx": "onnx", "xla": "stablehlo"}
SEEDS = [*[("onnx", seed) for seed in range(6)], ("xla", 2), ("xla", 3)]


@pytest.mark.rules("ICH-5", "ICH-8")
@pytest.mark.parametrize(("runtime", "seed"), SEEDS)
def test_a_random_program_in_a_runtime_is_the_eager_one(runtime, seed):
    needs(RUNTIMES[runtime])
    found = random_programs.outcome_of(seed, runtime)
    assert [] == found.found
    assert [] == found.refused


@pytest.mark.rules("ICH-5", "ICH-8")
def test_a_wrong_runtime_is_found(monkeypatch):
    """A backend that gives other numbers differs in the observation of the program."""
    needs("onnx")
    right = random_programs.BACKENDS["onnx"]

    def wrong(graph):
        run = right(graph)

        def changed(arrays):
            return [each if each is None else each + 1 for each in run(arrays)]

        changed._boxed_call = True
        return changed

    monkeypatch.setitem(random_programs.BACKENDS, "onnx", wrong)
    assert any(random_programs.outcome_of(seed, "onnx").found for seed in range(4))
