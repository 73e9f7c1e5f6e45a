"""Chains of views: what is written goes back through them, and a shorter chain sees the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.eager.autograd.chain_simplification import further, shorter
from aotlite.eager.autograd.nodes.op_nodes import put, replay
from aotlite.eager.base.tape.view_chain import EMPTY_CHAIN, ViewChain, ViewStep
from aotlite.ir.errors import AotliteError
from aotlite.ir.op import OPS, ViewOp
from aotlite.testing import Inputs, assert_same_effects

VIEWS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("t", ()),
    *[("transpose", dims) for dims in ((0, 1), (-1, 0), (1, 2))],
    *[("permute", (order,)) for order in ((1, 0), (1, 2, 0), (2, 0, 1), (0, 1, 2))],
    *[("view", (size,)) for size in ((24,), (4, 6), (2, 3, 4), (4, 3, 2), (12, 2))],
    *[("slice", (dim, a, b, by)) for dim, a, b, by in ((0, 1, None, 1), (0, 0, -1, 1))],
    *[("slice", (dim, a, b, by)) for dim, a, b, by in ((0, 0, 9, 2), (1, 1, 3, 1), (-1, 0, 9, 1))],
    ("slice", (0, 1, None, 3)),
    ("slice", (1, 2, 2, 1)),
    *[("select", (dim, index)) for dim, index in ((0, 0), (0, -1), (1, 1))],
    ("unsqueeze", (0,)),
    ("squeeze", (None,)),
    ("diagonal", (0, 0, 1)),
    ("detach", ()),
)

drawn: st.SearchStrategy[list[int]] = st.lists(
    st.integers(0, len(VIEWS) - 1), min_size=1, max_size=8
)


def chains(views: list[int]) -> tuple[ViewChain, ViewChain]:
    """The chain of those of the views that are allowed, and the shorter one."""
    meta = al.ones(2, 3, 4).meta
    whole = short = EMPTY_CHAIN
    for view in views:
        name, args = VIEWS[view]
        op = OPS[name]
        assert isinstance(op, ViewOp)
        try:
            result, _ = op.rule(meta, *args)
        except AotliteError:
            continue
        step = ViewStep(op, args, meta, result)
        whole, short = whole.then(step), further(short, step)
        meta = result
    assert len(short) == len(shorter(whole))
    return whole, short


@pytest.mark.draws(long=3200)
@given(drawn)
@settings(max_examples=400)
@pytest.mark.rules("FUN-3", "FUN-7")
def test_a_shorter_chain_sees_and_writes_the_same(views: list[int]) -> None:
    whole, shorter = chains(views)
    assert len(shorter) <= len(whole)
    base = al.arange(24.0).view(2, 3, 4)
    seen, same = replay(whole, base), replay(shorter, base)
    assert (seen.meta, seen.storage_offset()) == (same.meta, same.storage_offset())
    value = seen * 2.0 + 100.0
    one, other = (put(chain, base, value) for chain in (whole, shorter))
    assert one.tolist() == other.tolist()


@pytest.mark.draws(long=1600)
@given(drawn)
@settings(max_examples=264)
@pytest.mark.rules("FUN-7")
def test_a_write_through_a_chain_obeys_the_laws_of_a_lens(views: list[int]) -> None:
    """Put-get, get-put and put-put; what the chain does not show stays."""
    chain, _ = chains(views)
    base = al.arange(24.0).view(2, 3, 4)
    seen = replay(chain, base)
    one, two = seen + 100.0, seen * 0.0 - 1.0
    written = put(chain, base, one)
    assert replay(chain, written).tolist() == one.tolist()
    assert put(chain, base, seen).tolist() == base.tolist()
    assert put(chain, written, two).tolist() == put(chain, base, two).tolist()
    shown = set(seen.reshape(-1).tolist())
    before, after = np.array(base.tolist()), np.array(written.tolist())
    assert (before == after)[~np.isin(before, sorted(shown))].all()


@pytest.mark.rules("FUN-7")
@pytest.mark.parametrize(
    ("views", "length"),
    [
        (["t", "t"], 0),
        (["view", "unsqueeze", "squeeze"], 1),
        (["detach", "alias"], 0),
        (["t", "detach", "t"], 0),
    ],
)
def test_views_that_undo_each_other_leave_no_step(views: list[str], length: int) -> None:
    args = {"view": ((3, 4),), "unsqueeze": (0,), "squeeze": ((0,),)}
    meta, chain = al.ones(4, 3).meta, EMPTY_CHAIN
    for name in views:
        op: Any = OPS[name]
        result, _ = op.rule(meta, *args.get(name, ()))
        chain = further(chain, ViewStep(op, args.get(name, ()), meta, result))
        meta = result
    assert length == len(chain)


ROWS: dict[str, Callable[[Any], Any]] = {
    "as they are": lambda x: x,
    "written": lambda x: (x[0].mul_(2), x)[1],
    "written through parts": lambda x: (x[:, 1].mul_(2), x.t().t())[1],
    "in another dtype": lambda x: x.view(al.int64).view(al.complex64),
    "by a copy for complex numbers": lambda x: al.view_as_complex(al.view_as_real(x)),
}


@pytest.mark.rules("FUN-12", "TEN-2")
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("inner", [1, 2])
@pytest.mark.parametrize(("stop", "by"), [(2, 1), (4, 1), (3, 2), (4, 2), (4, 3)])
def test_a_view_that_strides_allow_in_eager_is_taken(
    rows: str, inner: int, stop: int, by: int
) -> None:
    """Rows that overlap, or have gaps, and of which parts lie evenly: no copy does by itself."""
    outer = len(range(0, stop, by)) * by * inner

    def inputs() -> Inputs:
        memory = al.arange(24.0) + 1j
        return Inputs((memory.as_strided((2, 4), (outer, inner)),), also=[memory])

    def f(x: Any) -> Any:
        before = x[:, :stop:by].view(-1)
        after = ROWS[rows](x)[:, :stop:by].view(-1)
        return before * 1, after * 1

    assert_same_effects(f, al.compile(f, verify=2), inputs)


@pytest.mark.rules("TEN-17", "TEN-2")
def test_the_gradient_of_a_write_is_viewed_as_the_written_memory_was() -> None:
    """A gradient seen as complex numbers is a copy, whose strides do not allow the same view."""

    def f(x: Any) -> Any:
        view = al.view_as_complex(x.transpose(1, 0))
        view.movedim(0, 1).view((4,)).mul_(2)
        return view

    def inputs() -> Any:
        return Inputs((al.arange(8.0).view(2, 2, 2).requires_grad_() * 1,))

    assert_same_effects(f, al.compile(f), inputs)
    leaf = al.arange(8.0).view(2, 2, 2).requires_grad_()
    al.view_as_real(f(leaf * 1)).sum().backward()
    assert leaf.grad is not None and leaf.grad.tolist() == al.full((2, 2, 2), 2.0).tolist()
