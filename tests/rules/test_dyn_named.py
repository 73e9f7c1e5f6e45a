"""DYN-3: `dynamic_shapes=` finds the arguments that it speaks of, or is refused."""

from __future__ import annotations

from typing import Any

import pytest

import aotlite as al
from aotlite import nn

BATCH = {0: al.Dim("batch")}


def entries(function: Any, shapes: Any, *args: Any, **kwargs: Any) -> int:
    """The entries after calls with batches of 5, 6 and 7 for each "x" of the arguments."""
    compiled = al.compile(function, dynamic_shapes=shapes, dynamic=False, backend="reference")
    for n in (5, 6, 7):
        x = al.ones(n, 3)
        compiled(
            *[x if each == "x" else each for each in args],
            **{key: x if each == "x" else each for key, each in kwargs.items()},
        )
    return len(compiled.entries)


def many(x: Any, y: Any = None, *xs: Any, **extra: Any) -> Any:
    del y
    return x * 2 + sum(each.sum() for each in (*xs, *extra.values()))


@pytest.mark.rules("DYN-3")
@pytest.mark.parametrize("shapes", [{"input": BATCH}, (BATCH,)])
def test_the_names_of_a_module_are_those_of_forward(shapes: Any) -> None:
    module = nn.Linear(3, 2)
    assert entries(module, shapes, "x") == 1
    assert entries(module.forward, shapes, "x") == 1
    simple: Any = al.aot_module(module, al.compilers.nop, dynamic_shapes=shapes)
    for n in (5, 6, 7):
        assert simple(al.ones(n, 3)).shape == (n, 2)
    assert len(simple._compiled.entries) == 1


@pytest.mark.rules("DYN-3")
def test_static_arguments_take_no_names_away() -> None:
    shapes = {"x": BATCH}
    scaled: Any = al.aot_function(
        lambda k, x: x * k, al.compilers.nop, static_argnums=0, dynamic_shapes=shapes
    )
    for n in (5, 6, 7):
        scaled(2, al.ones(n, 3))
    assert len(scaled.entries) == 1


@pytest.mark.rules("DYN-3")
@pytest.mark.parametrize(
    ("shapes", "args", "kwargs"),
    [
        ({"x": BATCH, "y": BATCH}, ("x",), {}),
        ({"x": BATCH, "y": BATCH}, ("x", None), {}),
        ({"x": BATCH, "xs": [BATCH]}, ("x", None, "x"), {}),
        ({"x": BATCH, "xs": {1: BATCH, 0: BATCH}}, ("x", None, "x", "x"), {}),
        ({"x": BATCH, "extra": {"e": BATCH}}, ("x",), {"e": "x"}),
        ({"x": BATCH, "e": BATCH}, ("x",), {"e": "x"}),
        ((BATCH, None, BATCH), ("x", None, "x"), {}),
    ],
)
def test_names_reach_optional_and_further_arguments(shapes: Any, args: Any, kwargs: Any) -> None:
    assert entries(many, shapes, *args, **kwargs) == 1


@pytest.mark.parametrize(
    ("function", "shapes", "words"),
    [
        (many, {"z": BATCH}, "has 'z', which is no parameter .* expected 'x', 'y', 'xs', 'extra'"),
        (nn.Linear(3, 2).forward, {"self": BATCH}, "'self', which is no parameter"),
        (lambda x: x, (BATCH, BATCH), "has 1, which is no parameter .* at most one for each of"),
        (max, {"x": BATCH}, "'x', which is no parameter .* a tuple in the order"),
        (many, {"x": {True: True}}, "a dimension is True"),
        (many, {"x": {-1: al.Dim("a"), 1: al.Dim("b")}}, "has dimension 1 of x twice"),
        (many, {"x": True}, "has True for x, a tensor"),
        (many, {"x": {0: 5}}, "has 5 for dimension 0 of x"),
    ],
)
def test_a_part_that_is_about_no_argument_is_refused(
    function: Any, shapes: Any, words: str
) -> None:
    with pytest.raises(al.ArgumentError, match=words):
        entries(function, shapes, "x")


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"d": {"b": BATCH}}, r"has d\['b'\], which the call does not have"),
        ({"d": True}, "True for d, which is a container"),
        ({"d": {"a": [BATCH]}}, "a dict from dimensions to Dims"),
    ],
)
def test_a_part_that_is_about_no_element_is_refused(shapes: Any, words: str) -> None:
    compiled = al.compile(lambda d: d["a"] * 2, dynamic_shapes=shapes, backend="reference")
    with pytest.raises(al.ArgumentError, match=words):
        compiled({"a": al.ones(5, 3)})


@pytest.mark.rules("DYN-3")
@pytest.mark.parametrize(
    "shapes",
    [
        {"xs": [BATCH, BATCH, BATCH]},
        {"xs": {1: BATCH}},
        {"extra": {"e": BATCH}},
        {"extra": {"e": BATCH, "other": BATCH}, "xs": [BATCH]},
        {"y": BATCH},
        (BATCH, BATCH, BATCH, BATCH),
    ],
)
def test_what_a_call_leaves_out_needs_no_name(shapes: Any) -> None:
    """A parameter with a default, and an element of `*args` or `**kwargs`, in any call."""
    compiled = al.compile(many, dynamic_shapes=shapes, backend="reference")
    x = al.ones(4, 3)
    for args in ((), (None,), (x,), (x, x), (x, x, x)):
        for kwargs in ({}, {"e": x}, {"f": x}, {"e": x, "f": x}):
            assert compiled(x, *args, **kwargs).tolist() == many(x, *args, **kwargs).tolist()


@pytest.mark.rules("DYN-3")
@pytest.mark.parametrize("args", [(), (None, al.ones(3))])
@pytest.mark.parametrize("kwargs", [{}, {"e": al.ones(3)}])
@pytest.mark.parametrize(
    "shapes", [{"xs": {"e": BATCH}}, {"xs": {-1: BATCH}}, {"extra": {0: BATCH}}, {"xs": True}]
)
def test_what_no_call_can_have_is_refused(args: Any, kwargs: Any, shapes: Any) -> None:
    compiled = al.compile(many, dynamic_shapes=shapes, backend="reference")
    with pytest.raises(al.ArgumentError, match="which (the call does not have|is a container)"):
        compiled(al.ones(3), *args, **kwargs)


@pytest.mark.rules("DYN-3")
def test_a_dimension_of_a_number_is_refused_by_marks_and_names() -> None:
    scalar = al.ones(())
    for dim in (0, -1, 1):
        words = f"has no dimension, expected one of dimension {dim}"
        for mark in (al.mark_dynamic, al.mark_static):
            with pytest.raises(al.ArgumentError, match=f"the tensor {words}"):
                mark(scalar, dim)
        for said in (al.Dim("batch"), True, None):
            for shapes, name in (({"x": {dim: said}}, "x"), (({dim: said},), "argument 0")):
                compiled = al.compile(many, dynamic_shapes=shapes, backend="reference")
                with pytest.raises(al.ArgumentError, match=f"of {name}: the tensor {words}"):
                    compiled(scalar)
    assert al.compile(many, dynamic_shapes={"x": {}}, backend="reference")(scalar).item() == 2


@pytest.mark.rules("DYN-3")
@pytest.mark.parametrize("leaf", [3, 2.5, "text"])
def test_another_kind_of_argument_is_refused_by_its_name(leaf: Any) -> None:
    compiled = al.compile(lambda x: x, dynamic_shapes={"x": {"k": BATCH}}, backend="reference")
    with pytest.raises(al.ArgumentError, match=rf"x\['k'\], which is {leaf!r} in this call"):
        compiled({"k": leaf})


def branching(x: al.Tensor) -> al.Tensor:
    return x * 3 if x.shape[0] == 2 else x


def counted(x: al.Tensor) -> al.Tensor:
    return sum([x for _ in range(x.shape[0])], x)


def viewed(x: al.Tensor) -> al.Tensor:
    return x.view(2, 1)


def added(x: al.Tensor) -> al.Tensor:
    return x + HIDDEN


def kept(x: al.Tensor) -> Any:
    return {x.shape[0]: x}


def written(x: al.Tensor, y: al.Tensor) -> Any:
    return x.mul_(y)


HIDDEN = al.ones(2)


@pytest.mark.rules("DYN-3")
@pytest.mark.parametrize("function", [branching, counted, viewed, added, kept, written])
@pytest.mark.parametrize("way", ["mark", "Dim", "True", "tuple"])
def test_errors_say_how_the_size_was_asked_for(function: Any, way: str) -> None:
    """And what to leave out; a branch is an entry of its own where nobody asks for the size."""
    shapes: Any = {"Dim": {"x": BATCH}, "True": {"x": {0: True}}, "tuple": (BATCH,), "mark": None}
    x: Any = al.ones(4)[:2] if function is written else al.ones(2)
    rest: Any = (x._base[2:] * 1,) if function is written else ()
    if way == "mark":
        al.mark_dynamic(x, 0)
    compiled = al.compile(function, dynamic_shapes=shapes[way], backend="reference")
    try:
        compiled(x, *rest)
    except al.AotliteError as error:
        text = "\n".join((str(error), *error.__notes__))
    else:
        assert function is written or function is kept
        return
    named = "named 'batch' in dynamic_shapes"
    how = {"mark": "marked as dynamic", "True": "True in dynamic_shapes"}.get(way, named)
    assert f"size 0 of argument 0 is {how}" in text
    undoing = "leave out the mark" if way == "mark" else "leave it out of dynamic_shapes"
    assert undoing in text.lower() or function is written  # which has to name both
    assert ("mark" in text) is (way == "mark")
    for options in ({}, {"dynamic": True}):
        free = al.compile(function, backend="reference", **options)
        for n in (5, 2, 7):
            if function in (branching, counted):
                assert free(al.ones(n)).tolist() == function(al.ones(n)).tolist()


def test_dims_are_not_calculated_with() -> None:
    for calculated in (lambda n: 2 * n, lambda n: n + 1, lambda n: n // 2):
        with pytest.raises(al.ArgumentError, match="batch is calculated with, expected Dims alone"):
            calculated(al.Dim("batch"))


def test_a_mark_of_no_dimension_and_a_setting_that_is_none_are_refused() -> None:
    with pytest.raises(al.ArgumentError, match="a dimension is True"):
        al.mark_dynamic(al.ones(2, 2), True)
    with pytest.raises(al.ArgumentError, match="expected None, True or False"):
        al.compile(many, dynamic="auto")


@pytest.mark.parametrize("ask", [int, al.ones, lambda i: al.ones(9)[:i]])
def test_an_integer_tensor_is_asked_for_item(ask: Any) -> None:
    with pytest.raises(al.UnsupportedError) as raised:
        al.compile(ask, backend="reference")(al.tensor(3))
    assert "call item()" in str(raised.value) + "".join(getattr(raised.value, "__notes__", []))
