"""Random programs that compute with sizes, on wrappers: compiled once, compared with eager.

    python -m tests.end_to_end.wrapper_size_programs --count 500 --seed 1 --kind two

The programs are those of `size_programs`. Their arguments are wrappers of one class, or of two
classes; a part's sizes may be others than the wrapper's.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import aotlite as al
from aotlite.eager.base.tensor import Tensor
from aotlite.subclasses import MaskedTensor, QuantizedTensor, TwoTensor
from tests.end_to_end.drawn_size_programs import SizeProgram, draw
from tests.end_to_end.size_programs import check, compare_many, parser_of

Wrap = Callable[[al.Tensor, al.Tensor, bool], al.Tensor]
"""Makes a wrapper of two tensors of one geometry and other memory."""


class Padded(Tensor):
    """A tensor in the first rows of a longer one: its part has one row more. The spec is the number
    of dimensions."""

    inner: Tensor

    def __new__(cls, inner: Tensor) -> Padded:
        shape = (inner.shape[0] - 1, *inner.shape[1:])
        made: Any = Tensor._make_wrapper_subclass(
            cls, shape, inner.stride(), dtype=inner.dtype, device=inner.device
        )
        made.inner = inner
        return made

    def __tensor_flatten__(self) -> tuple[list[str], int]:
        return ["inner"], self.inner.ndim

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, spec: int, size: Any, stride: Any) -> Padded:
        return cls(inner["inner"])

    def __coerce_tangent_metadata__(self) -> Tensor:
        return self.inner[:-1]

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        dense = [_rows(each) for each in args]
        named = {name: _rows(each) for name, each in kwargs.items()}
        if func.op.views and func.op.name not in ("detach", "view_as"):
            return NotImplemented
        if func.op.views:
            return cls(args[0].inner.detach())
        if func.op.writes:
            func(*dense, **named)
            return args[0]
        return func(*dense, **named)


def _rows(value: Any) -> Any:
    if isinstance(value, Padded):
        return value.inner[:-1]
    return tuple(map(_rows, value)) if isinstance(value, tuple) else value


def _two(a: al.Tensor, b: al.Tensor, grad: bool) -> al.Tensor:
    return TwoTensor(a, b, requires_grad=grad)


def _nested(a: al.Tensor, b: al.Tensor, grad: bool) -> al.Tensor:
    return TwoTensor(TwoTensor(a, b), TwoTensor(b, a), requires_grad=grad)


def _masked(a: al.Tensor, b: al.Tensor, grad: bool) -> al.Tensor:
    return MaskedTensor(a, b > 0, requires_grad=grad)


def _quantized(a: al.Tensor, b: al.Tensor, grad: bool) -> al.Tensor:
    return QuantizedTensor(a.to(al.int8), al.tensor(0.5), requires_grad=grad)


def _by_row(a: al.Tensor, b: al.Tensor, grad: bool) -> al.Tensor:
    axis = 0 if a.ndim else None
    made: al.Tensor = QuantizedTensor.from_dense(a, axis=axis)
    return made.requires_grad_(grad)


def _padded(a: al.Tensor, b: al.Tensor, grad: bool) -> al.Tensor:
    whole = al.zeros(a.shape[0] + 1, *a.shape[1:])
    whole[:-1] = a
    return Padded(whole).requires_grad_(grad)


KINDS: dict[str, Wrap] = {
    "two": _two,
    "nested": _nested,
    "masked": _masked,
    "quantized": _quantized,
    "rows": _by_row,
    "padded": _padded,
}


def arguments(wrap: Wrap, program: SizeProgram, sizes: dict[str, int]) -> list[al.Tensor]:
    """The arguments of a program, as wrappers; one that is passed twice is one wrapper."""
    made: dict[int, al.Tensor] = {}
    found = []
    for a, b in zip(program.arguments(sizes), program.arguments(sizes), strict=True):
        if id(a) not in made:
            with al.no_grad():
                b.mul_(3.0)
                made[id(a)] = wrap(a.detach(), b.detach(), a.requires_grad)
        found.append(made[id(a)])
    return found


def check_wrapped(seed: int, most: int, kind: str, **options: Any) -> tuple[Counter[str], str]:
    """Compares the program of a seed with wrappers of a kind at all sizes, as `check` does."""
    program = draw(seed)
    make: Any = partial(arguments, KINDS[kind])
    most = most if len(program.symbols) < 3 else min(most, 2)
    return check(program, most, make=lambda *given: make(*given), **options)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--kind", choices=[*KINDS], default="two", help="of the wrappers")

    def check_one(seed: int, given: argparse.Namespace) -> tuple[Counter[str], str]:
        return check_wrapped(seed, given.most, given.kind, backend=given.backend)

    return compare_many(parser, check_one, lambda given: given.kind)


if __name__ == "__main__":
    sys.exit(main())
