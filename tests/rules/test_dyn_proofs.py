"""DYN-11: facts that stay open are warned of; bounds and marks that a program contradicts."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from aotlite.ir.symbols.cases.results import forget_results


def folded(x: al.Tensor, y: al.Tensor) -> al.Tensor:
    rows = y.shape[0]
    if x.shape[0] % rows == 0:
        return x.reshape(rows, -1) * al.outer(x, x).reshape(rows, -1).sum()
    return x * 2


@pytest.mark.rules("DYN-11")
def test_facts_that_stay_open_are_warned_of_once_a_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aotlite.pipeline.size_regions.region.PROOF_SECONDS", 0.0)
    compiled = al.compile(folded, dynamic=True, backend="reference")
    with pytest.warns(RuntimeWarning, match="whether folded .* not proved in time") as seen:
        compiled(al.ones(6), al.ones(3))
    text = str(seen[0].message)
    assert "return x.reshape(rows, -1)" in text
    assert "more. At all sizes that were tried they hold" in text
    assert seen[0].filename == __file__
    region: Any = compiled.entries[0].guarded
    assert region.sizes.proof.unknown
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(al.ones(5), al.ones(3))
    assert len(compiled.entries) == 2


@pytest.mark.rules("DYN-11")
def test_what_is_proved_is_not_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aotlite.pipeline.size_regions.region.PROOF_SECONDS", 60.0)
    compiled = al.compile(folded, dynamic=True, backend="reference")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(al.ones(6), al.ones(3))
    region: Any = compiled.entries[0].guarded
    assert region.sizes.proof.counter is None and not region.sizes.proof.unknown


@pytest.mark.rules("DYN-11", "DYN-25")
def test_results_that_a_search_by_cases_found_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that drops what a result needs: the largest of no elements is an error."""

    def largest(x: al.Tensor) -> al.Tensor:
        return x.t().amax(1)

    compiled = al.compile(largest, dynamic=True, backend="reference")
    compiled(al.ones(3, 4))
    region: Any = compiled.entries[0].guarded
    assert [guard.text for guard in region.guards] == ["s0 != 0"]
    assert region.sizes.proof.counter is None

    def nothing(proof: Any, facts: Any, hints: Any) -> list[Any]:
        return []

    monkeypatch.setattr("aotlite.ir.symbols.cases._Proof.needed", nothing)
    forget_results()
    with pytest.raises(al.GuardError, match=r"is false at s0=0.* amax.*return x.t\(\).amax\(1\)"):
        al.compile(largest, dynamic=True, backend="reference")(al.ones(3, 4))


# -------------------------------------------------------------------------------- contradictions
def between(x: al.Tensor) -> al.Tensor:
    if x.shape[0] > 3:
        if x.shape[0] < 5:
            return x * 2
    return x


def as_many(x: al.Tensor) -> al.Tensor:
    return x * 2 if x.numel() == 8 else x


@pytest.mark.rules("DYN-3")
@pytest.mark.parametrize(
    ("function", "shape", "words"),
    [
        (between, (4,), r"s0 > 3 \(.*if x.shape\[0\] > 3:\), s0 < 5 \(.*if x.shape\[0\] < 5:\)"),
        (as_many, (4, 2), r"s0 == 4 \(.*x.numel\(\) == 8"),
    ],
)
def test_a_marked_size_that_some_lines_fix_together_is_refused(
    function: Callable[..., Any], shape: tuple[int, ...], words: str
) -> None:
    x = al.ones(*shape)
    al.mark_dynamic(x, 0)
    compiled = al.compile(function, backend="reference")
    with pytest.raises(al.GuardError, match=rf"dynamic, and the function fixes it: {words}"):
        compiled(x)
    assert compiled.entries == []


@pytest.mark.rules("DYN-3")
def test_bounds_that_leave_one_size_are_no_contradiction() -> None:
    x = al.ones(4)
    al.mark_dynamic(x, 0, min=4, max=4)
    compiled = al.compile(between, backend="reference")
    assert compiled(x).tolist() == [2.0] * 4


@pytest.mark.rules("DYN-3")
def test_bounds_of_one_name_are_those_of_all_its_places() -> None:
    def added(x: al.Tensor, y: al.Tensor) -> al.Tensor:
        return x + y

    shapes = ({0: al.Dim("n", max=6)}, {0: al.Dim("n", min=3)})
    compiled = al.compile(added, dynamic_shapes=shapes, backend="reference")
    for n in (4, 3, 6):
        assert compiled(al.ones(n), al.ones(n)).shape == (n,)
    assert len(compiled.entries) == 1
    for n in (2, 7):
        with pytest.raises(al.ArgumentError, match="dimension 'n', is .*, expected 3 to 6"):
            compiled(al.ones(n), al.ones(n))
    apart = ({0: al.Dim("n", max=4)}, {0: al.Dim("n", min=6)})
    with pytest.raises(al.ArgumentError, match="'n' has min=6 in one place and max=4 in another"):
        al.compile(added, dynamic_shapes=apart, backend="reference")(al.ones(4), al.ones(4))


@pytest.mark.rules("DYN-3")
def test_bounds_that_the_program_contradicts_make_another_region() -> None:
    """The bounds say for which sizes it may be; the conditions say for which this entry is."""

    def checked(x: al.Tensor) -> al.Tensor:
        if x.shape[0] > 8:
            raise ValueError("too long")
        return x * 2

    x = al.ones(4)
    al.mark_dynamic(x, 0, min=2, max=64)
    compiled = al.compile(checked, backend="reference")
    assert compiled(x).shape == (4,)
    (region,) = compiled.regions(witnesses=True)
    (need,) = region.needs
    assert need.witness is not None and need.witness["s0"] > 8
    with pytest.raises(ValueError, match="too long"):
        compiled(al.ones(9))
