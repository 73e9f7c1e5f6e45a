"""The gradient of `as_strided` on leaves that are views, or that begin inside their storage.

Windows of the storage are drawn; they may begin before the leaf, lie in its gaps, end behind it,
and see one place several times. PyTorch's gradients and second derivatives are the same. (Of a view
of a leaf that is no view they are not: there PyTorch drops what lies outside that view.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aotlite as al

pytestmark = pytest.mark.rules("FUN-11", "TEN-23")

ROOM = 24


def windows() -> Any:
    """Shapes, strides and offsets of windows within the room."""
    dims = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3)), min_size=1, max_size=2)
    return st.tuples(dims, st.integers(0, 6))


LEAVES = {
    "a view": lambda window: window.requires_grad_(),
    "detached": lambda window: window.detach().requires_grad_(),
}


OF = {
    "a view": ("a view", False),
    "a view of a view": ("a view", True),
    "detached": ("detached", False),
}


def derivatives(lib: Any, kind: str, leaf: Any, seen: Any, cut: Any, run: Any = None) -> list[Any]:
    """The gradient of the leaf and the derivative of that."""
    (dims, offset), (seen_dims, seen_offset) = leaf, seen
    base = lib.arange(float(ROOM)) + 1
    x = LEAVES[kind](base.as_strided(*map(tuple, zip(*dims, strict=True)), offset))

    def loss(x: Any) -> Any:
        inner = x[:1] if cut else x
        window = inner.as_strided(*map(tuple, zip(*seen_dims, strict=True)), seen_offset)
        return (window * window * window).sum()

    value = (loss if run is None else run(loss))(x)
    (first,) = lib.autograd.grad(value, [x], create_graph=True)
    (second,) = lib.autograd.grad((first * first).sum(), [x], allow_unused=True)
    return [first.tolist(), None if second is None else second.tolist()]


def close(expected: list[Any], found: list[Any]) -> None:
    """Elements in one place share what flows there: PyTorch divides in another order."""
    for one, other in zip(expected, found, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.torch
@pytest.mark.draws(long=1500)
@settings(max_examples=60)
@given(st.sampled_from([*OF]), windows(), windows())
@example("a view", ([(3, 1)], 1), ([(2, 1)], 0))
@example("detached", ([(4, 1)], 1), ([(2, 1)], 0))
@example("a view of a view", ([(4, 1)], 1), ([(6, 1)], 0))
def test_gradients_of_windows_are_those_of_pytorch(torch, of, leaf, seen):
    """Compiled the same, unless the window leaves the elements of the argument."""
    kind, cut = OF[of]
    expected = derivatives(torch, kind, leaf, seen, cut)
    close(expected, derivatives(al, kind, leaf, seen, cut))
    try:
        found = derivatives(al, kind, leaf, seen, cut, al.compile)
    except al.UnsupportedError as error:
        assert "as_strided" in str(error)
    else:
        close(expected, found)


def test_a_window_reaches_the_leaf_that_is_a_view():
    """It had no gradient, since the base that it counts from has none."""
    for kind in LEAVES:
        found = derivatives(al, kind, ([(3, 1)], 1), ([(2, 1)], 0), False)
        assert [3 * 2.0**2, 0.0, 0.0] == found[0]
