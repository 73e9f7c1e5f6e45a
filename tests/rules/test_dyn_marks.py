"""DYN-3: what a mark asks for, and what an error about one tells to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

import aotlite as al

Marks = Sequence[tuple[int, int]]
"""The numbers of arguments, and a dimension of each."""


def advice(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    marks: Marks = ((0, 0),),
    bounds: Mapping[str, int] | None = None,
    **options: Any,
) -> str:
    """The remedy in the error of a function that fixes a marked size."""
    for argument, dim in marks:
        al.mark_dynamic(arguments[argument], dim, **(bounds or {}))
    with pytest.raises(al.GuardError, match="and the function fixes it") as caught:
        al.compile(function, backend="reference", **options)(*arguments)
    (note,) = caught.value.__notes__
    return note


def added(x: Any, y: Any) -> Any:
    return x + y


def three_added(x: Any, y: Any, z: Any) -> Any:
    return x.sum() + (x * y + z)


def tail_added(x: Any, y: Any) -> Any:
    return x[1:] + y


def square_after_a_sum(x: Any, y: Any) -> Any:
    return (x + y).view(2, 2)


def compared(x: Any, n: int) -> Any:
    return x * 2 if x.shape[0] == n else x


def checked(x: Any) -> Any:
    if x.shape[0] < 4:
        raise ValueError
    return x * 2


KEPT = al.ones(4)


# ------------------------------------------------------------------- advice that helps if followed
@pytest.mark.rules("DYN-3")
def test_the_size_that_changes_with_a_marked_one_is_to_be_marked_too() -> None:
    x, y = al.ones(4), al.ones(4)
    assert advice(added, (x, y)) == (
        "Size 0 of argument 1 has to change with it: mark that, too, or give both one Dim in "
        "dynamic_shapes."
    )
    al.mark_dynamic(y, 0)
    compiled = al.compile(added, backend="reference")
    compiled(x, y)
    assert compiled(al.ones(7), al.ones(7)).shape == (7,)
    assert len(compiled.entries) == 1
    n = al.Dim("n")
    named = al.compile(added, dynamic_shapes={"x": {0: n}, "y": {0: n}}, backend="reference")
    for size in (4, 7):
        named(al.ones(size), al.ones(size))
    assert len(named.entries) == 1


@pytest.mark.rules("DYN-3")
def test_sizes_that_change_with_it_by_way_of_others_are_named_too() -> None:
    found = advice(three_added, (al.ones(4), al.ones(4), al.ones(4)))
    assert found.startswith("Size 0 of argument 1 and size 0 of argument 2 have to change with it")


@pytest.mark.rules("DYN-3")
def test_a_size_that_is_another_one_gets_no_common_name() -> None:
    found = advice(tail_added, (al.ones(4), al.ones(3)))
    assert found == "Size 0 of argument 1 has to change with it: mark that, too."


@pytest.mark.rules("DYN-3")
def test_of_several_sizes_that_are_equal_the_one_that_matters_is_named() -> None:
    found = advice(lambda x, y: x @ y, (al.ones(4, 4), al.ones(4, 4)), marks=((0, 1),))
    assert found.startswith("Size 0 of argument 1 has")
    assert "argument 0" not in found


@pytest.mark.rules("DYN-3", "DYN-26")
def test_an_int_is_to_be_named() -> None:
    found = advice(compared, (al.ones(4), 4))
    assert found.startswith("Argument 1 has to change with it: name that in dynamic_shapes, too")


@pytest.mark.rules("DYN-3")
def test_no_mark_is_advised_that_would_not_help() -> None:
    """Both sizes are fixed by the line that comes after."""
    found = advice(square_after_a_sum, (al.ones(4), al.ones(4)))
    assert "argument 1" not in found


@pytest.mark.rules("DYN-3", "DYN-36")
def test_a_tensor_that_is_no_argument_is_to_be_passed() -> None:
    found = advice(lambda x: x + KEPT, (al.ones(4),))
    assert "is no argument" in found
    assert "pass the tensor, and mark both" in found


@pytest.mark.rules("DYN-3")
def test_a_number_that_an_op_takes_is_to_be_computed() -> None:
    found = advice(lambda x: x.view(2, 2), (al.ones(4),))
    assert found == (
        "Leave out the mark, or compute the numbers that view takes there from this size."
    )


@pytest.mark.rules("DYN-3")
def test_bounds_of_the_mark_that_leave_one_size_are_to_be_widened() -> None:
    found = advice(checked, (al.ones(4),), bounds={"min": 2, "max": 4})
    assert found == (
        "The mark's own bounds (min=2, max=4) and that line leave 4 alone: widen the bounds."
    )


@pytest.mark.rules("DYN-3")
def test_a_line_of_the_functions_own_is_to_be_changed() -> None:
    found = advice(lambda x: sum([x for _ in range(x.shape[0])]), (al.ones(4),))
    assert found == (
        "Leave out the mark, or let that line not depend on the number. By default, and with "
        "dynamic=True, a size at which the program is another one is an entry of its own."
    )


@pytest.mark.rules("DYN-3", "DYN-27")
def test_a_float_of_a_function_that_is_differentiated_can_be_named() -> None:
    compiled = al.compile(added, dynamic_shapes={"y": True}, backend="reference")
    for y in (0.5, 0.25, -3.0):
        x = al.ones(3).requires_grad_()
        assert compiled(x, y).tolist() == added(x, y).tolist()
    assert len(compiled.entries) == 1


# ------------------------------------------------------------- marks after a function is compiled
@pytest.mark.rules("DYN-3")
def test_a_mark_replaces_the_entry_that_has_a_number_there() -> None:
    compiled = al.compile(lambda x: x * 2, backend="reference")
    x = al.ones(4)
    compiled(x)
    al.mark_dynamic(x, 0)
    for each in (x, x, al.ones(4), al.ones(9)):
        compiled(each)
    (region,) = compiled.regions()
    assert region.arguments == ("argument 0: f32[s0]",)
    assert region.calls == 4
    (_, second) = compiled.explain_recompiles()
    assert str(second.reasons[0]) == (
        "entry 0: size 0 of argument 0 is marked as dynamic, expected one that is a number"
    )


@pytest.mark.rules("DYN-3")
def test_a_mark_in_a_container_is_seen() -> None:
    compiled = al.compile(lambda given: given["x"] * 2, backend="reference")
    x = al.ones(4)
    compiled({"x": x})
    al.mark_dynamic(x, 0)
    for each in (x, x, al.ones(4)):
        compiled({"x": each})
    (region,) = compiled.regions()
    assert region.arguments == ("argument 0: f32[s0]",)


@pytest.mark.rules("DYN-3")
def test_a_mark_against_symbols_has_an_entry_of_its_own() -> None:
    compiled = al.compile(lambda x: x * 2, dynamic=True, backend="reference")
    x = al.ones(4)
    compiled(x)
    al.mark_static(x, 0)
    for each in (x, x, al.ones(4), al.ones(9)):
        compiled(each)
    first, second = compiled.regions()
    assert (first.arguments, second.arguments) == (
        ("argument 0: f32[s0]",),
        ("argument 0: f32[4]",),
    )
    assert first.calls == 3


@pytest.mark.rules("DYN-3")
@pytest.mark.parametrize("sizes", [(4,), (3, 4)])
def test_a_later_mark_of_a_size_that_is_fixed_is_an_error(sizes: Sequence[int]) -> None:
    """Of a number, and of a symbol that the function fixes; the entries serve whom they served."""
    compiled = al.compile(lambda x: x * x.shape[0], backend="reference")
    counted = al.compile(lambda x: [x * k for k in range(x.shape[0])], backend="reference")
    x = al.ones(4)
    for size in sizes:
        compiled(al.ones(size))
        counted(al.ones(size))
    al.mark_dynamic(x, 0)
    compiled(x)
    with pytest.raises(al.GuardError, match="size 0 of argument 0 is marked as dynamic"):
        counted(x)
    assert len(counted(al.ones(4))) == 4
    assert len(counted.entries) == len(sizes)


@pytest.mark.rules("DYN-3")
def test_a_mark_of_one_size_compiles_once() -> None:
    """Its bounds leave one size: there is a symbol, and no call looks for another."""
    compiled = al.compile(lambda x: x.view(2, 2), backend="reference")
    x = al.ones(4)
    compiled(x)
    al.mark_dynamic(x, 0, min=4, max=4)
    compiled(x)
    compiled(x)
    assert len(compiled.entries) == 1
    assert len(compiled.explain_recompiles()) == 2


@pytest.mark.rules("DYN-3", "GRD-4")
def test_an_entry_that_is_replaced_is_not_counted_at_the_limit() -> None:
    compiled = al.compile(
        lambda x: x * 2, recompile_limit=1, recompile_limit_is_error=True, backend="reference"
    )
    x = al.ones(4)
    compiled(x)
    al.mark_dynamic(x, 0)
    compiled(x)
    compiled(al.ones(5))
    assert len(compiled.entries) == 1


# ----------------------------------------------------------------------------- marks of views
def written(a: Any, b: Any) -> Any:
    a.mul_(2)
    return a * b.sum()


def turned(a: Any, b: Any) -> Any:
    a.unsqueeze_(0)
    return a * b.sum()


def halves(n: int, *, grad: bool) -> tuple[Any, Any]:
    base = al.ones(16).requires_grad_() * 1.0 if grad else al.ones(16)
    return base[:n], base[n:]


@pytest.mark.rules("SYN-12", "DYN-3")
@pytest.mark.parametrize(
    ("function", "op", "grad"), [(written, "mul_", True), (turned, "unsqueeze_", False)]
)
def test_a_mark_of_a_view_that_has_to_be_a_number_is_an_error(
    function: Callable[..., Any], op: str, grad: bool
) -> None:
    views = halves(3, grad=grad)
    al.mark_dynamic(views[0], 0)
    with pytest.raises(al.GuardError, match="size 0 of argument 0 is marked") as caught:
        al.compile(function, backend="reference")(*views)
    assert f"views of one base: {op}, " in str(caught.value)
    assert f"in {function.__name__}: " in str(caught.value)
    assert "Pass the base" in caught.value.__notes__[0]

    def inside(base: Any, n: int) -> Any:
        return function(base[:n], base[n:])

    followed = al.compile(inside, dynamic_shapes={"n": True}, backend="reference")
    for n in (3, 5, 9):
        assert followed(al.ones(16), n).tolist() == function(*halves(n, grad=False)).tolist()
    assert len(followed.entries) == 1


@pytest.mark.rules("SYN-12", "DYN-3")
def test_marks_of_views_that_are_read_or_written_without_a_gradient_are_symbols() -> None:
    views = halves(3, grad=False)
    al.mark_dynamic(views[0], 0)
    compiled = al.compile(written, backend="reference")
    compiled(*views)
    assert compiled.regions().rows[0].arguments[0] == "argument 0: f32[s0]"


@pytest.mark.rules("SYN-12", "DYN-36")
def test_views_whose_geometry_changes_have_numbers_with_a_reason() -> None:
    compiled = al.compile(turned, dynamic=True, backend="reference")
    for n in (3, 5):
        compiled(*halves(n, grad=False))
    (_, second) = compiled.explain_recompiles()
    assert "are numbers where the geometry of one changes" in str(second.reasons[0])


@pytest.mark.rules("SYN-12")
@pytest.mark.parametrize("dynamic", [None, True])
def test_symbols_that_were_no_use_are_not_tried_again(dynamic: bool | None) -> None:
    """Each size is captured once, but for the one at which this was found out. Where the call is
    another one, without a gradient, sizes are symbols."""
    runs: list[None] = []

    def noted(a: Any, b: Any) -> Any:
        runs.append(None)
        return written(a, b)

    compiled = al.compile(noted, dynamic=dynamic, backend="reference")
    counts = []
    for n in (3, 5, 6, 7):
        compiled(*halves(n, grad=True))
        counts.append(len(runs))
        runs.clear()
    assert counts == [2 if dynamic else 1, 1, 1, 1]
    for n in (3, 5, 6, 7):
        compiled(*halves(n, grad=False))
    assert "s0" in compiled.regions().rows[-1].arguments[0]


@pytest.mark.rules("DYN-3")
def test_bounds_are_conditions_that_a_table_shows() -> None:
    def branched(x: al.Tensor) -> al.Tensor:
        return x * 2 if x.shape[0] > 4 else x

    x = al.ones(6, 4)
    al.mark_dynamic(x, 0, min=5)
    al.mark_dynamic(x, 1, max=9)
    compiled = al.compile(branched, backend="reference")
    compiled(x)
    [region] = compiled.regions()
    assert region.bounds == ("s0 is 5 or more", "s1 is 0 to 9")
    assert region.guards == ()
    shown = str(compiled.regions())
    assert "s0 is 5 or more (mark or Dim)" in shown and "none on symbols" not in shown
