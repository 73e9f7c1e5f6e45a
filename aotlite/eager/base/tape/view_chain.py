"""View chains: the views that lead from a root to a tensor, as a linked list.

A chain shares all of its steps with the chain it goes on from, so that views of views, however
many, cost the same each. Rules: TEN-3, FUN-2. Spec: `specs/autograd.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, overload

import attrs

from aotlite.ir.geometry.overlap import has_internal_overlap
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import ViewOp
from aotlite.ir.symbols.assumption import concrete


@attrs.define(eq=False)
class ViewStep:
    """One view of a chain: the op, its arguments after the operand, the metas; never changed.

    Every view makes one: a frozen record takes twice as long to make.
    """

    op: ViewOp
    args: tuple[Any, ...]
    operand: TensorMeta
    result: TensorMeta

    def at(self, values: Mapping[str, int]) -> ViewStep:
        """The step where symbols, by name, have these values."""
        operand, result = self.operand.concrete(values), self.result.concrete(values)
        return ViewStep(self.op, concrete(self.args, values), operand, result)


class ViewChain:
    """Steps from a root, in order; never changed. Iterates like a tuple of them.

    >>> EMPTY_CHAIN.steps, len(EMPTY_CHAIN)
    ((), 0)
    """

    __slots__ = ("__weakref__", "_before", "_last", "_length", "_repeats", "shorter")

    def __init__(self, before: ViewChain | None = None, last: ViewStep | None = None) -> None:
        self._before = before
        self._last = last
        self._length: int = 0 if before is None else before._length + 1
        self._repeats: bool | None = None if before is not None else False
        self.shorter: ViewChain | None = None
        """What shows the same in fewer steps, once somebody has asked (`chain_simplification`)."""

    def then(self, step: ViewStep) -> ViewChain:
        """This chain and one step more."""
        return ViewChain(self, step)

    def joined(self, steps: Iterable[ViewStep]) -> ViewChain:
        """This chain and these steps more."""
        chain = self
        for step in steps:
            chain = ViewChain(chain, step)
        return chain

    @property
    def before(self) -> ViewChain:
        """This chain without its last step; the empty one has none to leave out."""
        return EMPTY_CHAIN if self._before is None else self._before

    def is_like(self, other: ViewChain) -> bool:
        """Whether the steps are the same views of equal metas."""
        if self._length != other._length:
            return False
        a, b = self, other
        while a is not b:
            x, y = a._last, b._last
            assert x is not None and y is not None  # of equal length
            if x.op is not y.op or x.result is not y.result or x.args != y.args:
                return False
            a, b = a._before or EMPTY_CHAIN, b._before or EMPTY_CHAIN
        return True

    @property
    def steps(self) -> tuple[ViewStep, ...]:
        """The steps as a tuple."""
        return tuple(reversed(list(reversed(self))))

    @property
    def repeats(self) -> bool:
        """Whether some step shows an element twice (`expand`, windows that overlap)."""
        unknown = []
        chain: ViewChain = self
        while chain._repeats is None:
            unknown.append(chain)
            assert chain._before is not None
            chain = chain._before
        found = chain._repeats
        for chain in reversed(unknown):
            assert chain._last is not None
            found = chain._repeats = found or overlaps_itself(chain._last.result)
        return found

    def at(self, values: Mapping[str, int]) -> ViewChain:
        """The chain where symbols in it, by name, have these values."""
        return EMPTY_CHAIN.joined([step.at(values) for step in self])

    def __len__(self) -> int:
        return self._length

    def __reversed__(self) -> Iterator[ViewStep]:
        chain: ViewChain | None = self
        while chain is not None and chain._last is not None:
            yield chain._last
            chain = chain._before

    def __iter__(self) -> Iterator[ViewStep]:
        return iter(self.steps)

    @overload
    def __getitem__(self, index: int) -> ViewStep: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[ViewStep, ...]: ...
    def __getitem__(self, index: int | slice) -> ViewStep | tuple[ViewStep, ...]:
        if index == -1 and self._last is not None:
            return self._last
        return self.steps[index]

    def __reduce__(self) -> tuple[Any, ...]:
        return chain_of, self.steps  # a list, linked, would be pickled as deep as it is long

    def __repr__(self) -> str:
        return f"Chain({', '.join(step.op.name for step in self)})"


EMPTY_CHAIN = ViewChain()
"""The chain of a root."""


def chain_of(*steps: ViewStep) -> ViewChain:
    """The chain of these steps."""
    return EMPTY_CHAIN.joined(steps)


def overlaps_itself(meta: TensorMeta) -> bool:
    """Whether two indices lie at one address (TEN-8)."""
    return not meta.dense and has_internal_overlap(meta.shape, meta.stride)
