"""Backwards on memory of the caller's: refused iff the form or the history says so."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from tests.rules.test_fun_backwards import Stashing

A, B = 0, 1
"""Numbers of the tensors that are read."""


# ------------------------------------------------- what the caller's tensor became in the meantime
FORMS: dict[str, Any] = {
    "as it was": lambda t, room: t.view_as(t),
    "other values": lambda t, room: t.add_(1),
    "transposed": lambda t, room: t.t_(),
    "its own form": lambda t, room: t.set_(t.view_as(t)),
    "elsewhere in its memory": lambda t, room: t.set_(room[4:].view(2, 2)),
    "back": lambda t, room: t.set_(room[:4].view(2, 2)),
    "other memory": lambda t, room: t.set_(al.full((2, 2), 7.0)),
    "larger": lambda t, room: t.set_(room[:6].view(3, 2)),
    "of one row": lambda t, room: t.set_(room[:2].view(1, 2)),
}


@pytest.mark.rules("SAV-3", "GEN-2")
@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(list(FORMS)), max_size=3),
    st.booleans(),
    st.lists(st.sampled_from((A, B)), min_size=1, max_size=2, unique=True),
)
def test_a_backward_reads_a_tensor_iff_it_has_the_form_that_it_had(
    changes: list[str], partly: bool, read: list[int]
) -> None:
    """Refused where geometry, place or memory differ from the call's end, and only there."""

    def f(x: Any, *tensors: Any) -> Any:
        for number in read:
            x = Stashing.apply(x, tensors[number])
        return x

    found: list[Any] = []
    for run in (f, al.compile(f)):
        room, x = al.arange(8.0), al.ones(2, 2).requires_grad_()
        tensors = [room[:4].view(2, 2), room[2:6].view(2, 2)]
        y, before = run(x, *tensors), [_form(t) for t in tensors]
        for change in changes:
            FORMS[change](tensors[partly], room)
        same = all(_form(tensors[i]) == before[i] for i in read)
        try:
            y.sum().backward()
        except al.UnsupportedError:
            assert x.grad is None
            found.append("refused")
            continue
        except al.AotliteError:  # of a form that eager's backward cannot use
            found.append("an error")
            continue
        assert x.grad is not None
        found.append(x.grad.tolist())
    eager, compiled = found
    assert compiled == (eager if same else "refused")


def _form(tensor: Any) -> Any:
    return tensor.shape, tensor.stride(), tensor.storage_offset(), id(tensor.storage)


# --------------------------------------------------------------------- what the written values are
@pytest.mark.rules("FUN-31")
@settings(max_examples=60)
@given(
    st.lists(
        st.sampled_from(("number", "gradient", "saved", "other memory", *["itself"] * 4)),
        min_size=1,
        max_size=5,
    ),
    st.booleans(),
)
def test_with_grad_mode_on_a_backward_is_refused_iff_it_writes_what_has_a_history(
    parts: list[str], create: bool
) -> None:
    """What it writes is a sum of parts, in any order; numbers and the memory itself have none."""

    def f(x: Any, buffer: Any, other: Any) -> Any:
        return Summing.apply(x, buffer, other, parts)

    found: list[Any] = []
    for run in (f, al.compile(f)):
        x = al.arange(1.0, 3.0).requires_grad_()
        buffer, other = al.ones(2), al.full((2,), 5.0)
        y = run(x, buffer, other).sum()
        try:
            (grad,) = al.autograd.grad(y, x, create_graph=create)
        except al.UnsupportedError:
            assert ([1.0, 1.0], 0) == (buffer.tolist(), buffer.version)
            found.append("refused")
        else:
            assert grad is not None
            found.append((buffer.tolist(), buffer.version, grad.tolist()))
    eager, compiled = found
    has_history = not {"number", "itself"}.issuperset(parts)
    assert compiled == ("refused" if create and has_history else eager)


class Summing(al.autograd.Function):
    """Its backward writes a sum of parts into a memory."""

    @staticmethod
    def forward(ctx: Any, x: Any, buffer: Any, other: Any, parts: list[str]) -> Any:
        ctx.save_for_backward(x)
        ctx.memory, ctx.parts = (buffer, other), parts
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,), (buffer, other) = ctx.saved_tensors, ctx.memory
        values = {"number": 3.0, "gradient": grad, "saved": x, "other memory": other}
        total = buffer * 0.0 if ctx.parts[0] == "itself" else values[ctx.parts[0]]
        for part in ctx.parts[1:]:
            total = total + (buffer if part == "itself" else values[part])
        buffer.copy_(total) if isinstance(total, al.Tensor) else buffer.fill_(total)
        return grad * x * 2, None, None, None
