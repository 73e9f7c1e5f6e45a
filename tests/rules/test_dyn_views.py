"""SYN-12: sizes of views of one base are symbols, and which inputs share memory is compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from tests.end_to_end.drawn_size_programs import draw
from tests.end_to_end.size_calls import Arguments, is_same, observed
from tests.end_to_end.view_size_programs import HISTORIES, KINDS, check_views

CALLS = ((3, 8), (4, 9), (1, 6), (0, 5), (2, 5))
"""A place in a base, and the base's size."""


def only_read(a: Any, b: Any) -> Any:
    return [a.sum() * b.sum(), a * 2, b[1:]]


def one_is_written(a: Any, b: Any) -> Any:
    a.mul_(2)
    return [b.sum(), a]


def both_are_written(a: Any, b: Any) -> Any:
    a.add_(1)
    b.mul_(3)
    return [a, b, a.sum() * b.sum()]


def a_part_is_written(a: Any, b: Any) -> Any:
    b[:1] = a.sum()
    return [a * 1, b]


def written_behind_its_history(a: Any, b: Any) -> Any:
    a.detach().mul_(2)
    return [a * b.sum()]


WRITES = (one_is_written, both_are_written, a_part_is_written, written_behind_its_history)
VIEWS: dict[str, Callable[[Any, int], tuple[Any, Any]]] = {
    "split": lambda x, n: (x[:n], x[n:]),
    "with a gap": lambda x, n: (x[:n], x[n + 1 :]),
    "shifted": lambda x, n: (x[:-1], x[1:]),
    "the same": lambda x, n: (x, x),
    "the same twice": lambda x, n: (x[:], x[:]),
    "every other": lambda x, n: (x[::2], x[1::2]),
    "turned": lambda x, n: (x[:4].view(2, 2), x[:4].view(2, 2).t()),
    "overlapping": lambda x, n: (x[: n + 1], x[n:]),
}
ONE_ENTRY = set(VIEWS) - {"overlapping"}
"""Those that lie in the same way at all sizes."""


def given(views: Callable[[Any, int], tuple[Any, Any]], n: int, size: int, grad: bool) -> Arguments:
    leaf = al.tensor([float(k % 7 - 3) for k in range(size)]).requires_grad_(grad)
    made = Arguments(views(leaf * 1.0 if grad else leaf, n))
    made.leaves = (leaf,) if grad else ()
    return made


def compared(
    function: Callable[..., Any], views: Callable[[Any, int], tuple[Any, Any]], *, grad: bool
) -> al.CompiledFunction:
    """The compiled function, after its calls did what eager does."""
    compiled = al.compile(function, dynamic=True, backend="reference")
    for n, size in CALLS:
        expected = observed(function, given(views, n, size, grad))
        found = observed(compiled, given(views, n, size, grad))
        assert is_same(expected, found), f"{n} of {size}:\n{expected}\n{found}"
    return compiled


@pytest.mark.rules("SYN-12", "DYN-14")
@pytest.mark.thinned(3)
@pytest.mark.parametrize("form", VIEWS)
@pytest.mark.parametrize("function", [only_read, *WRITES])
def test_views_of_one_base_have_symbols(function: Callable[..., Any], form: str) -> None:
    compiled = compared(function, VIEWS[form], grad=False)
    if form in ONE_ENTRY:
        assert len(compiled.entries) == 1


@pytest.mark.rules("SYN-12")
@pytest.mark.parametrize("form", VIEWS)
def test_views_with_a_history_have_symbols_if_none_is_written(form: str) -> None:
    compiled = compared(only_read, VIEWS[form], grad=True)
    assert len(compiled.entries) <= 2
    assert "s0" in compiled.regions().rows[0].arguments[0]


@pytest.mark.rules("SYN-12", "SYN-7")
@pytest.mark.parametrize("form", ["split", "shifted"])
@pytest.mark.parametrize("function", WRITES)
def test_views_of_which_one_is_written_with_a_gradient_have_numbers(
    function: Callable[..., Any], form: str
) -> None:
    compiled = compared(function, VIEWS[form], grad=True)
    assert all("s0" not in row.arguments[0] for row in compiled.regions())
    if function is not written_behind_its_history:
        (_, second) = [*compiled.explain_recompiles()][:2]
        assert "are numbers where a write to one has a gradient" in str(second.reasons[0])


@pytest.mark.rules("SYN-12", "DYN-14", "GRD-2")
def test_at_the_same_offsets_larger_views_overlap() -> None:
    compiled = al.compile(one_is_written, dynamic=True, backend="reference")
    for n, start in ((3, 3), (2, 3), (4, 3), (6, 3), (3, 3), (1, 0), (3, 2), (5, 2), (0, 2)):
        outcomes = []
        for function in (one_is_written, compiled):
            x = al.tensor([float(k % 7 - 3) for k in range(9)])
            outcomes.append(observed(function, [x[:n], x[start:]]))
        assert is_same(*outcomes), (n, start)
    reasons = [str(each.reasons[0]) for each in compiled.explain_recompiles() if each.reasons]
    overlap = "a1 begins 12 bytes behind a0 and overlaps it"
    assert f"{overlap}, expected one storage of a0, a1" in reasons[0]
    assert len(compiled.entries) == 4


@pytest.mark.rules("SYN-12", "GEN-2")
def test_errors_of_views_show_strides_where_eagers_do() -> None:
    """A dimension of size 1 may have any stride."""

    def added(a: Any, b: Any) -> None:
        a.add_(b)

    texts = []
    for function in (added, al.compile(added, dynamic=True, backend="reference")):
        x = al.ones(8)
        windows = [x.as_strided((1, 1, 2), (0, 0, 1), start) for start in (0, 1)]
        with pytest.raises(al.AliasError) as caught:
            function(*windows)
        texts.append(str(caught.value).partition("\n")[0])
    assert texts[0] == texts[1]
    assert "f32[1, 1, 2] overlaps" in texts[0]


@pytest.mark.rules("SYN-12")
@pytest.mark.thinned(9)
@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("kind", KINDS)
def test_random_programs_of_views_are_eagers_at_all_sizes(kind: str, history: str) -> None:
    for seed in [seed for seed in range(9300, 9304) if len(draw(seed).shapes) > 1]:
        seen, difference = check_views(seed, 2, kind, history, backend="reference")
        assert not difference, f"seed {seed} {dict(seen)}{difference}"


@pytest.mark.long
@pytest.mark.rules("SYN-12")
@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("kind", KINDS)
def test_many_random_programs_of_views_are_eagers_at_all_sizes(kind: str, history: str) -> None:
    for seed in [seed for seed in range(9400, 9600) if len(draw(seed).shapes) > 1]:
        seen, difference = check_views(seed, 3, kind, history, backend="auto")
        assert not difference, f"seed {seed} {dict(seen)}{difference}"


# ------------------------------------------------------------------------- what is no argument
KEPT: list[Any] = []


@pytest.mark.rules("DYN-36")
def test_sizes_of_what_is_no_argument_are_numbers_and_it_says_so() -> None:
    """docs/limits.md: Python reads the geometry of the caller's own tensor there."""

    def scaled(x: Any) -> Any:
        return x * KEPT[0].sum() * KEPT[0].shape[0]

    compiled = al.compile(scaled, dynamic=True, backend="reference")
    for n in (3, 4, 5):
        KEPT[:] = [al.ones(n)]
        assert compiled(al.ones(n + 1)).tolist() == [float(n * n)] * (n + 1)
    assert len(compiled.entries) == 3
    assert {each.arguments[1].partition(": ")[2] for each in compiled.regions()} == {
        "f32[3]",
        "f32[4]",
        "f32[5]",
    }
    (_, second, _) = compiled.explain_recompiles()
    assert str(second.reasons[0]).endswith(
        "(sizes of a tensor that is no argument are numbers: pass it)"
    )


@pytest.mark.rules("DYN-36")
def test_a_hidden_size_is_read_from_the_tensor_itself() -> None:
    """What a symbol there would have to change: no op is asked for this number."""
    kept = al.ones(3)
    seen = []

    def reads(x: Any) -> Any:
        seen.append(type(kept.shape[0]))
        return x + kept.shape[0]

    al.compile(reads, dynamic=True, backend="reference")(al.ones(2))
    assert seen == [int]
