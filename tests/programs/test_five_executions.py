"""PRG-2, PRG-9, PYX-8, PYX-10, ICH-8: five executions of drawn programs and the demo agree.

`python -m tests.programs.five_executions` runs as many as one likes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from aotlite.testing.generate.bodies import LIBRARY
from aotlite.testing.observe.observe_call import observe_call
from aotlite.testing.programs.program import Program
from aotlite.testing.programs.steps import Call
from tests.interchange.random_programs import BACKENDS
from tests.programs import five_executions
from tests.programs.demo_in_five import trained
from tests.programs.five_executions import compared, drawn_for_all, results_of, second_results
from tests.programs.gradients_of_gradients import derivative_differences

PACKAGES = {"onnxruntime": ("onnx", "onnxruntime"), "xla": ("jax",)}
GOOD = {"agrees", "sign of zero", "raises as eager", "refused"}


def needs(way: str) -> None:
    for package in PACKAGES.get(way, ()):
        pytest.importorskip(package)


def kinds(seeds: range, *ways: str) -> list[str]:
    """What became of the calls of programs, and of their second derivatives."""
    found = []
    for seed in seeds:
        drawn = drawn_for_all(seed)
        each = [*results_of(drawn, ways), *second_results(drawn, ways)]
        found += [f"{way}: {r.why}" if r.kind == "differs" else r.kind for way, _, r in each]
    return found


@pytest.mark.rules("PRG-2", "PRG-9", "PYX-8", "PYX-10", "ICH-8")
@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("way", "seeds"),
    [
        ("in place", range(5)),
        ("file", range(2, 4)),
        ("numpy", range(5, 8)),
        ("onnxruntime", range(7, 8)),
        ("xla", range(9, 10)),
    ],
)
def test_drawn_programs_agree_with_eager_in_each_way(way: str, seeds: range) -> None:
    """Those of odd seeds have sines behind their results, which are not exact."""
    needs(way)
    found = kinds(seeds, way)
    assert set() == set(found) - GOOD
    assert found.count("agrees") > len(found) // 2


@pytest.mark.rules("ICH-8")
def test_way_with_wrong_numbers_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    needs("onnxruntime")
    right = BACKENDS["onnx"]

    def wrong(graph: Any) -> Callable[..., Any]:
        run = right(graph)

        def changed(arrays: list[Any]) -> list[Any]:
            return [each if each is None else each + 1 for each in run(arrays)]

        changed._boxed_call = True  # type: ignore[attr-defined]
        return changed

    monkeypatch.setitem(five_executions.BACKENDS, "onnx", wrong)
    found = kinds(range(2, 3), "onnxruntime")
    assert set(found) - GOOD


@pytest.mark.parametrize(
    ("sines", "error", "expected"),
    [(False, 1e-9, "differs"), (True, 1e-9, "agrees"), (True, 1e-3, "differs")],
)
def test_numbers_are_rounded_where_arithmetic_is_not_exact(
    sines: bool, error: float, expected: str
) -> None:
    call = Call([["make", [0, [2, 2], "float64", False]]], ["$0"])
    drawn = Program([["mul", ["$0", 2]]], ["$1"], [call])
    if sines:
        drawn = five_executions.with_sines(drawn)
    right = drawn.function_of(LIBRARY)

    def last(x: Any) -> list[Any]:
        return right(x)[-1:]

    def changed(x: Any) -> list[Any]:
        return [each + error for each in last(x)]

    mine, its = [observe_call(LIBRARY, drawn, 0, body) for body in (changed, last)]
    assert expected == compared(drawn, 0, mine, its).kind


@pytest.mark.rules("PRG-9")
@pytest.mark.parametrize(("factor", "differs"), [(1.0, False), (1.001, True)])
def test_other_derivatives_differ(factor: float, differs: bool) -> None:
    def setup() -> tuple[list[Any], list[Any]]:
        leaf = al.tensor([0.5, -1.25], dtype=al.float64).requires_grad_()
        return [leaf], [leaf]

    found = derivative_differences(setup, lambda x: [x.sin() * factor], lambda x: [x.sin()])
    assert differs is bool(found)


@pytest.mark.rules("PRG-2", "ICH-7", "ICH-8")
@pytest.mark.parametrize("way", ["numpy", "onnxruntime"])
def test_step_of_the_demo_trains_alike(way: str) -> None:
    """Two steps: the second one runs with what the first one has updated, masks of dropout too."""
    needs(way)
    losses, model = trained(2, [way], batch=4)[way]
    assert losses < 1e-5
    assert model < 1e-5
