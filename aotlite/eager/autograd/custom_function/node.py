"""The tape node of a call of a `Function`. Rules: TEN-30, TEN-31.

Spec: `specs/autograd.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

from aotlite.eager.autograd.custom_function.context import FunctionCtx
from aotlite.eager.autograd.nodes.op_nodes import fitted, zeros_of
from aotlite.eager.autograd.nodes.saved_tensors import SavedTensor
from aotlite.eager.base.tape.node import SEQUENCE, Edge, Gradients, TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import AutogradError, DTypeError, noted
from aotlite.ir.meta import TensorMeta
from aotlite.ir.meta.devices import check_device


class CustomNode(TapeNode):
    """Runs the user's backward. Attributes that users set on `ctx` can be read on the node too."""

    __slots__ = ("_backward", "_given", "ctx", "is_formula", "metas")

    is_formula: bool
    """Whether the backward is linear in the gradients and has no effects, like an op's formulas."""

    def __init__(
        self,
        ctx: FunctionCtx,
        backward: Callable[..., Any],
        args: tuple[Any, ...],
        edges: list[Edge | None],
        metas: list[TensorMeta | None],
    ) -> None:
        self.ctx = ctx
        self.is_formula = False
        self._backward = backward
        self._given = [a.meta if isinstance(a, Tensor) else None for a in args]
        self.metas = metas
        self.edges = tuple(edges)
        self.sequence = next(SEQUENCE)
        self.origin = self.extra = None

    def name(self) -> str:
        return self.ctx._name

    def spread(self, values: Sequence[object]) -> list[Any]:
        return list(compress(values, [meta is not None for meta in self._given]))

    def gathered(self, values: Sequence[object]) -> list[Any]:
        rest = iter(values)
        return [None if meta is None else next(rest) for meta in self._given]

    def results(self) -> int:
        return len(self.metas)

    def run(self, grads: Gradients) -> Sequence[Any]:
        given = grads
        if self.ctx._materialize_grads:
            pairs = zip(grads, self.metas, strict=True)
            given = [zeros_of(m) if g is None and m is not None else g for g, m in pairs]
        before = [None if g is None else g.storage.version for g in grads]
        found = self._backward(self.ctx, *given)
        self._check_untouched(grads, before)
        return self._fitted(found if isinstance(found, tuple) else (found,))

    def _check_untouched(self, grads: Gradients, before: list[object]) -> None:
        for i, (grad, version) in enumerate(zip(grads, before, strict=True)):
            if grad is not None and grad.storage.version != version:
                raise noted(
                    AutogradError(
                        f"{self.name()}: gradient {i} was modified in place by the backward, "
                        "expected a backward that leaves its arguments as they are"
                    ),
                    "Others may hold the same gradient. Use grad * 2 instead of grad.mul_(2). "
                    "(TEN-31)",
                )

    def _fitted(self, found: tuple[Any, ...]) -> list[object]:
        count = len(self._given)
        if len(found) > count and all(each is None for each in found[count:]):
            found = found[:count]
        if len(found) != count:
            raise AutogradError(
                f"{self.name()}: the backward returned {len(found)} gradients, expected {count}, "
                "one for each argument of the forward"
            )
        return [self._one(i, each) for i, each in enumerate(found)]

    def _one(self, index: int, grad: Tensor | None) -> object:
        meta = self._given[index]
        if grad is None:
            return None
        if not isinstance(grad, Tensor):
            raise DTypeError(
                f"{self.name()}: gradient {index} that the backward returned is {grad!r}, expected "
                "a tensor or None"
            )
        if meta is None:
            raise AutogradError(
                f"{self.name()}: gradient {index} that the backward returned is {grad.meta}, "
                "expected None, since the argument is not a tensor"
            )
        if self.edges[index] is None:
            return None
        if not _can_be_summed(grad.shape, meta.shape):
            raise AutogradError(
                f"{self.name()}: gradient {index} that the backward returned has shape "
                f"{grad.shape}, expected one that sums to {meta.shape}"
            )
        if grad.dtype.is_complex and not meta.dtype.is_complex:
            raise AutogradError(
                f"{self.name()}: gradient {index} that the backward returned is {grad.dtype}, "
                f"expected a real one for an argument of {meta.dtype}"
            )
        what = f"{self.name()}: gradient {index} that the backward returned"
        check_device(what, grad.device, meta.device)
        return fitted(grad, meta)

    def kept_records(self) -> list[SavedTensor]:
        return self.ctx._kept_records()

    def release(self) -> None:
        self.ctx._release()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "ctx":
            raise AttributeError(name)
        return getattr(self.ctx, name)


def _can_be_summed(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Whether `to` broadcasts to `shape`."""
    if len(shape) < len(to):
        return False
    pairs = zip(reversed(shape), reversed(to), strict=False)
    return all(a == b or b == 1 for a, b in pairs)
