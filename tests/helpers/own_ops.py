"""Ops of the user's own, and a block after which they are taken out of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import aotlite.ir.ops  # noqa: F401  (fills the table: what comes later is the user's)
from aotlite.ir import scalar
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS
from aotlite.ir.op.operand import Operand


@contextmanager
def taken_out() -> Iterator[None]:
    """A block after which the op table is what it was."""
    before = set(OPS)
    try:
        yield
    finally:
        for name in set(OPS) - before:
            del OPS[name]
            if name in vars(Operand):
                delattr(Operand, name)


def softclip(register: Callable[..., object], **changes: object) -> object:
    """The pointwise op `my_softclip`, with other parts where `changes` has some."""
    return register(
        **{
            "schema": "my_softclip(Tensor self, float at=1.0) -> Tensor",
            "kernel": lambda xp, a, at: at * xp.tanh(a / at),
            "scalar": lambda a, at: at * scalar.tanh(a / at),
            "vjp": {"self": lambda grad, self, at: grad * (1 - (self / at).tanh().square())},
            "result": "float",
            "inplace": True,
            **changes,
        }
    )


def evens(register: Callable[..., object]) -> object:
    """The view op `my_evens`: every second row."""
    return register(
        "my_evens(Tensor(a) self) -> Tensor(a)",
        meta=lambda self: (
            tensor_meta(
                (-(-self.shape[0] // 2), *self.shape[1:]),
                (2 * self.stride[0], *self.stride[1:]),
                self.dtype,
                self.device,
            ),
            0,
        ),
        put=lambda parent, value: parent.slice_scatter(value, 0, None, None, 2),
        vjp={
            "self": lambda grad, self_meta: grad.new_zeros(self_meta.shape).slice_scatter(
                grad, 0, None, None, 2
            )
        },
    )
