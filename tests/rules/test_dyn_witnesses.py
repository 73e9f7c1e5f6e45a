"""DYN-24: `regions(witnesses=True)` says for each guard why it is needed."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from typing import Any

import pytest

import aotlite as al
from tests.end_to_end.drawn_size_programs import draw
from tests.end_to_end.size_programs import check


def needs(function: Any, *arguments: Any) -> dict[str, Any]:
    """The needs of the one region that a call makes, by guard."""
    compiled = al.compile(function, dynamic=True, backend="reference")
    compiled(*arguments)
    (region,) = compiled.regions(witnesses=True)
    assert not region.unknown
    return {need.guard.text: need for need in region.needs}


@pytest.mark.rules("DYN-24")
def test_a_branch_of_the_users_has_a_witness() -> None:
    def branching(x: al.Tensor) -> al.Tensor:
        return x * 2 if x.shape[0] > 3 and x.shape[1] % 2 == 0 else x

    found = needs(branching, al.ones(5, 4))
    assert found["s0 > 3"].witness["s0"] <= 3
    assert found["s1 % 2 == 0"].witness["s1"] % 2 == 1


@pytest.mark.rules("DYN-24")
def test_sizes_at_which_the_function_raises_are_a_witness() -> None:
    def checked(x: al.Tensor, y: al.Tensor) -> al.Tensor:
        assert x.shape[0] > 2
        return x + y

    found = needs(checked, al.ones(5), al.ones(5))
    assert found["s0 > 2"].witness["s0"] <= 2
    assert found["s0 == s1"].witness is not None


@pytest.mark.rules("DYN-24")
def test_a_plain_result_and_a_size_that_a_loop_counts_have_witnesses() -> None:
    def plain(x: al.Tensor) -> Any:
        return x, "even" if x.shape[0] % 2 == 0 else "odd"

    def loop(x: al.Tensor) -> al.Tensor:
        for k in range(x.shape[0]):
            x = x + k
        return x

    assert needs(plain, al.ones(6))["s0 % 2 == 0"].witness["s0"] % 2 == 1
    assert needs(loop, al.ones(4))["s0 == 4"].witness is not None


@pytest.mark.rules("DYN-24")
def test_a_guard_that_others_imply_is_dropped_where_the_region_is_made() -> None:
    def twice(x: al.Tensor) -> al.Tensor:
        if x.shape[0] > 2 and x.shape[0] > 4:
            return x * 2
        return x

    compiled = al.compile(twice, dynamic=True, backend="reference")
    compiled(al.ones(6))
    (region,) = compiled.regions(witnesses=True)
    assert [guard.text for guard in region.guards] == ["s0 > 4"]
    assert [str(need) for need in region.needs] == [
        "s0 > 4: needed at s0=4",
        "s0 > 2: the other guards imply it",
    ]
    compiled(al.ones(4))
    assert len(compiled.entries) == 2


@pytest.mark.rules("DYN-24")
def test_needs_are_in_the_order_of_the_guards() -> None:
    """Whatever is dropped, by whom and when: then come the needs of what is no guard."""

    def mixed(x: al.Tensor, y: al.Tensor) -> al.Tensor:
        if x.shape[1] > 1:
            x = x * 1
        rows = 3
        if y.shape[0] > 7:
            rows = 2 + 1
        if x.shape[0] > 2 and x.shape[0] > 4 and x.shape[0] % 2 == 0:
            return (x * rows)[: y.shape[0]] + y[: x.shape[0] - 1].sum()
        return x * (3 if x.shape[0] > 1 else 5)

    compiled = al.compile(mixed, dynamic=True, backend="reference")
    dropped = 0
    for rows, others in ((6, 9), (3, 9), (1, 4), (8, 2)):
        compiled(al.ones(rows, 3), al.ones(others))
        for region in compiled.regions(witnesses=True):
            count = len(region.guards)
            assert [need.guard for need in region.needs[:count]] == list(region.guards)
            assert not any(need.is_dead or need.is_needless for need in region.needs[:count])
            assert all(need.is_dead or need.is_needless for need in region.needs[count:])
            dropped += len(region.needs) - count
    assert dropped > 2


@pytest.mark.rules("DYN-24")
def test_an_entry_without_symbols_says_that_it_counts_no_calls() -> None:
    compiled = al.compile(lambda x: x * 2, backend="reference")
    for n in (4, 5, 5):
        compiled(al.ones(n))
    assert [region.calls for region in compiled.regions()] == [None, 2]
    first, second = compiled.regions()
    assert first.cells(0)[3] == "not counted"
    assert second.cells(1)[3] == "2"


@pytest.mark.rules("DYN-24")
def test_a_guard_that_excludes_sizes_for_nothing_is_open() -> None:
    def same(x: al.Tensor, factor: float) -> al.Tensor:
        if x.shape[0] > 3:
            return x * factor
        return x * factor

    compiled = al.compile(same, dynamic=True, backend="reference")
    compiled(al.ones(5), 2.5)
    ((need,),) = [region.needs for region in compiled.regions(witnesses=True)]
    assert need.is_open
    assert {"s0": 3} in need.tried
    assert "no witness; right at" in str(need)


@pytest.mark.rules("DYN-24")
def test_the_table_shows_why() -> None:
    compiled = al.compile(lambda x: x if len(x) > 3 else -x, dynamic=True, backend="reference")
    compiled(al.ones(5))
    text = repr(compiled.regions(witnesses=True))
    assert "needed at s0=" in text
    assert "needed at" not in repr(compiled.regions())


@pytest.mark.rules("DYN-24", "GEN-8")
def test_views_numbers_and_gradients_are_traced_again() -> None:
    def mixed(x: al.Tensor, y: al.Tensor, k: int) -> al.Tensor:
        x[1:].mul_(2)
        return (x * k)[: y.shape[0]] + y if y.shape[0] < x.shape[0] else y.sum()

    base = al.ones(6)
    arguments = base[1:5], base[3:], 3
    compiled = al.compile(mixed, dynamic=True, backend="reference")
    compiled(*arguments)
    w = al.ones(4, requires_grad=True)
    compiled(w * 1, al.ones(3, requires_grad=True), 3)
    tables = compiled.regions(witnesses=True)
    assert [row.unknown for row in tables] == [""] * len(tables)
    found = [need for row in tables for need in row.needs]
    assert found
    assert not any(need.is_open for need in found)


@pytest.mark.rules("DYN-24", "BOX-2")
def test_witnesses_keep_nothing_of_the_caller_alive() -> None:
    class Scaled(al.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = al.nn.Parameter(al.ones(1))

    def scaled(module: Any, x: al.Tensor) -> al.Tensor:
        return x * module.weight if x.shape[0] > 2 else x

    compiled = al.compile(scaled, dynamic=True, backend="reference")
    module, x = Scaled(), al.ones(4)
    compiled(module, x)
    (region,) = compiled.regions(witnesses=True)
    assert [need.witness is not None for need in region.needs] == [True]
    seen = weakref.ref(module), weakref.ref(x)
    del module, x, region
    gc.collect()
    assert [ref() for ref in seen] == [None, None]
    (region,) = compiled.regions(witnesses=True)
    assert region.unknown == "argument 0 of the call that was traced is gone"
    assert "is gone" in repr(compiled.regions(witnesses=True))


@pytest.mark.rules("DYN-24")
def test_nearly_all_guards_of_random_programs_have_witnesses() -> None:
    seen: Counter[str] = Counter()
    for seed in range(8):
        counts, difference = check(draw(seed), 2, witnesses=True, backend="reference")
        assert not difference
        seen.update(counts)
    assert seen["witness"] > 12
    assert seen["open"] <= 0.02 * seen["witness"]


def window(x: al.Tensor, y: al.Tensor) -> al.Tensor:
    return x.select(0, y.shape[0] // 2).as_strided((y.shape[0] % 2, 2), (1, 1))


def tail(x: al.Tensor) -> al.Tensor:
    y = x * 2
    y[1:].zero_()
    return y


def spread(x: al.Tensor) -> al.Tensor:
    return x.expand(2, *x.shape) * 1


def rolled(x: al.Tensor) -> al.Tensor:
    return al.cat([x[2:], x[:2]])


def apart(x: al.Tensor) -> tuple[al.Tensor, al.Tensor]:
    return al.arange(abs(x.shape[0] - 2)), x


def one_row(x: al.Tensor) -> al.Tensor:
    return al.einsum("i...,i...->...", x[:1], x[:1])


def to_none(x: al.Tensor) -> al.Tensor:
    return x[: -(x.shape[0] * x.shape[1])]


def filled(x: al.Tensor, y: al.Tensor) -> tuple[al.Tensor, ...]:
    x[y.shape[0] - 1] = y.sum()
    return x, x * 2


@pytest.mark.rules("DYN-24", "DYN-25")
@pytest.mark.parametrize(
    ("function", "shapes", "is_free"),
    [
        (window, [(5, 5), (5,)], False),
        (tail, [(5, 3)], False),
        (spread, [(5,)], True),
        (rolled, [(5, 3)], True),
        (apart, [(5,)], True),
        (filled, [(5, 3), (5,)], False),
        (one_row, [(5, 3)], False),
        (to_none, [(5, 3)], True),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_what_does_not_depend_on_sizes_has_no_guard(
    function: Any, shapes: list[tuple[int, ...]], is_free: bool
) -> None:
    """A window within the caller's elements, a write that may be of nothing, the gradients of
    expand and cat, a count that is an absolute value, a row that gets one number, a product of one
    row, a slice of which nothing is left."""
    arguments = [al.ones(*shape, requires_grad=is_free) for shape in shapes]
    compiled = al.compile(function, dynamic=True, backend="reference")
    compiled(*arguments)
    (region,) = compiled.regions(witnesses=True)
    assert [need for need in region.needs if need.is_open] == []
    if is_free:
        assert region.guards == ()


@pytest.mark.rules("DYN-24")
def test_overlap_is_a_comparison_of_sizes() -> None:
    """Rows of five elements apart: those of six and more share memory."""

    def doubled(x: al.Tensor) -> al.Tensor:
        return x.mul_(2)

    x = al.ones(15).as_strided((3, 4), (5, 1))
    (need,) = needs(doubled, x).values()
    assert need.guard.text == "s1 - 1 < 5"
    assert need.witness is not None and need.witness["s1"] > 5


@pytest.mark.rules("DYN-24", "DYN-40")
def test_a_bound_for_floats_has_a_witness_where_they_are_rounded() -> None:
    def halved(x: al.Tensor) -> tuple[al.Tensor, int]:
        return x + 1, int(x.shape[0] / 2)

    (need,) = needs(halved, al.ones(5)).values()
    assert need.guard.text == f"s0 <= {1 << 53}"
    assert need.witness is not None
    assert int(need.witness["s0"] / 2) != need.witness["s0"] // 2


@pytest.mark.rules("DYN-24", "DYN-40")
def test_a_bound_that_no_memory_reaches_is_dropped() -> None:
    def halved(x: al.Tensor) -> tuple[al.Tensor, int]:
        return x + 1 if x.shape[0] > 1 else x, int(x.shape[1] / 2)

    found = needs(halved, al.ones(5, 5))
    assert found["s0 > 1"].witness is not None
    assert found[f"s1 <= {1 << 53}"].is_needless


@pytest.mark.rules("DYN-24")
def test_no_loop_over_a_large_size_looks_for_a_witness() -> None:
    def looped(x: al.Tensor) -> al.Tensor:
        if x.shape[0] > 10_000:
            return x * len(range(x.shape[0]))
        return x * 2

    (need,) = needs(looped, al.ones(5)).values()
    assert need.far is not None, "no size of more than 4,096 becomes a number"
