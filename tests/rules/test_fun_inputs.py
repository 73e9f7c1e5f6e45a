"""Written inputs: by the graph or behind it, returned or not, counted as in eager; and strides."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.ir.errors import AotliteError


# ------------------------------------------------------------------------------- mixes of inputs
@attrs.frozen
class Argument:
    """One input, and what is done to it."""

    requires_grad: bool
    writes: tuple[int, ...]
    """Which writes, in order."""
    no_grad: bool
    turned: bool
    returned: int
    """0: not at all, 1: itself, 2: a view of it, 3: something computed from it."""

    def made(self, position: int) -> Any:
        """A fresh tensor that is no leaf where it requires grad."""
        value = (al.arange(4.0) + 10.0 * position + 1.0).view(2, 2)
        return value.requires_grad_() * 1.0 if self.requires_grad else value

    def changed(self, x: Any) -> None:
        """Does what is done to it."""
        with al.no_grad() if self.no_grad else nullcontext():
            for write in self.writes:
                _WRITES[write](x)
            if self.turned:
                x.t_()

    def given_back(self, x: Any) -> list[Any]:
        """The results that come of it."""
        return [[], [x], [x.view_as(x)[0]], [x * 2.0]][self.returned]


_WRITES = (
    lambda x: x.mul_(2.0),
    lambda x: x[0].add_(1.0),
    lambda x: x.detach().sub_(3.0),
    lambda x: x.t()[1].zero_(),
    lambda x: x.hidden_alias().mul_(5.0),
)

arguments: st.SearchStrategy[list[Argument]] = st.lists(
    st.builds(
        Argument,
        st.booleans(),
        st.lists(st.integers(0, len(_WRITES) - 1), max_size=3).map(tuple),
        st.booleans(),
        st.sampled_from((False, False, False, True)),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=3,
)


def seen(given_: list[Argument], compiles: bool, **options: Any) -> Any:
    """What a caller sees of one call: values, identity, memory, counters; or the error's class."""

    def body(*xs: Any) -> list[Any]:
        for each, x in zip(given_, xs, strict=True):
            each.changed(x)
        return [y for each, x in zip(given_, xs, strict=True) for y in each.given_back(x)]

    xs = [each.made(i) for i, each in enumerate(given_)]
    before = [x._version for x in xs]
    try:
        results = (al.compile(body, **options) if compiles else body)(*xs)
    except AotliteError as error:
        return type(error)
    return (
        [(y.tolist(), y.stride(), y.requires_grad) for y in (*results, *xs)],
        [[y is x for x in xs] for y in results],
        [[y.storage is x.storage for x in xs] for y in results],
        [x._version - count for x, count in zip(xs, before, strict=True)],
    )


@pytest.mark.draws(long=1200)
@given(arguments, st.booleans())
@settings(max_examples=150)
@pytest.mark.rules("FUN-21", "FUN-22", "FUN-23", "FUN-24", "FUN-19", "FUN-20", "META-3")
def test_every_mix_of_written_and_returned_inputs_is_as_in_eager(
    given_: list[Argument], kept: bool
) -> None:
    """Versions too: by what eager raises them, hidden writes by nothing."""
    expected = seen(given_, compiles=False)
    assert expected == seen(given_, compiles=True, keep_inference_input_mutations=kept)


@pytest.mark.rules("FUN-24")
def test_each_kind_of_written_input_is_returned_at_its_place() -> None:
    """Behind the graph (it requires grad), by the graph, and not written."""
    behind = Argument(True, (0,), False, False, 0)
    inside = Argument(False, (0,), False, False, 1)
    for others in ([behind, inside], [inside, behind], [behind, inside, inside]):
        expected = seen(others, compiles=False)
        assert expected == seen(others, compiles=True, keep_inference_input_mutations=True)


# --------------------------------------------------------------------------------------- strides
@attrs.frozen
class Layout:
    """A tensor whose dimensions lie in memory in any order, with gaps between them."""

    shape: tuple[int, ...]
    order: tuple[int, ...]
    gaps: tuple[int, ...]

    def made(self) -> Any:
        """A fresh tensor with these strides, which is the whole of what it is a window on."""
        strides, step = {}, 1
        for dim in self.order:
            strides[dim] = step * self.gaps[dim]
            step = strides[dim] * max(self.shape[dim], 1)
        stride = tuple(strides[dim] for dim in range(len(self.shape)))
        return (al.arange(float(step)) + 1.0).as_strided(self.shape, stride)


def _layouts(ndim: int, shape: tuple[int, ...]) -> st.SearchStrategy[Layout]:
    return st.builds(
        Layout,
        st.just(shape),
        st.permutations(range(ndim)).map(tuple),
        st.tuples(*[st.sampled_from((1, 1, 1, 2))] * ndim),
    )


pairs: st.SearchStrategy[tuple[Layout, Layout]] = (
    st.sampled_from(((3, 2), (2, 3), (2, 3, 2), (1, 3), (3, 1, 2), (4,), (0, 2), (2, 2)))
    .map(lambda shape: _layouts(len(shape), shape))
    .flatmap(lambda layouts: st.tuples(layouts, layouts))
)
"""Two tensors of one shape in layouts of their own."""

_CHANGES = (
    lambda x, y: x.mul_(2.0),
    lambda x, y: x.add_(y),
    lambda x, y: x.copy_(y),
    lambda x, y: x.transpose(0, -1).mul_(3.0),
    lambda x, y: x[:1].copy_(y[:1]),
    lambda x, y: x.zero_(),
)


@pytest.mark.draws(long=600)
@given(pairs, st.sampled_from(_CHANGES), st.booleans())
@settings(max_examples=90)
@pytest.mark.rules("FUN-12")
def test_what_looks_at_strides_sees_those_of_eager(
    pair: tuple[Layout, Layout], change: Any, copied: bool
) -> None:
    """Of a written input or of a written value in its layout: results, views, copies of memory."""

    def body(x: Any, y: Any) -> Any:
        x = x.clone() if copied else x
        change(x, y)
        if copied:  # its memory, in order
            x = x.as_strided((x.numel(),), (1,)).clone()
        return x * 1.0, x.clone(), x.t() if x.dim() < 3 else x[:1], al.zeros_like(x), x

    outcomes = []
    for function in (body, al.compile(body)):
        x, y = (layout.made() for layout in pair)
        results = function(x, y)
        outcomes.append([(each.tolist(), each.stride()) for each in (*results, x)])
    assert outcomes[0] == outcomes[1]
