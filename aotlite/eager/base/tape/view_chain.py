"""`ViewChain`: the views that lead from a root to a tensor, as an immutable linked list.

A view of a view has the chain of its base and one step more, and shares all earlier steps with it.
So each view costs the same, however long its chain. Rules: TEN-3, FUN-2. Spec: `specs/autograd.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, overload

import attrs

from aotlite.ir.geometry.overlap import has_internal_overlap
from aotlite.ir.geometry.sizes import is_symbolic
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import MultiViewOp, ViewOp
from aotlite.ir.symbols.assumption import concrete


@attrs.define(eq=False, repr=False)
class ViewStep:
    """One view of a chain: the op, its arguments after the operand, the metas. Immutable.

    Every view makes one, and a frozen class would take twice as long to construct.
    """

    op: ViewOp
    args: tuple[Any, ...]
    operand: TensorMeta
    result: TensorMeta

    def at(self, values: Mapping[str, int]) -> ViewStep:
        """The step with its symbols replaced by these values, by name."""
        operand, result = self.operand.concrete(values), self.result.concrete(values)
        return ViewStep(self.op, concrete(self.args, values), operand, result)


@attrs.frozen(eq=False)
class MultiViewCall:
    """One call of a multi-output view: all steps of its results have the same record."""

    op: MultiViewOp
    args: tuple[object, ...]
    """The arguments after the operand."""


@attrs.define(eq=False, repr=False)
class PartStep(ViewStep):
    """The step of one result of a multi-output view: whoever replays it with its history replays
    the whole call, since its results share a tape node."""

    parts: MultiViewCall
    index: int
    """Its place among the results."""

    def at(self, values: Mapping[str, int]) -> PartStep:
        step = super().at(values)
        parts = MultiViewCall(self.parts.op, concrete(self.parts.args, values))
        return PartStep(step.op, step.args, step.operand, step.result, parts, self.index)


class ViewChain:
    """The steps from a root, in order. Immutable; it iterates like a tuple.

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
        """The cached result of `chain_simplification.shorter`."""

    def then(self, step: ViewStep) -> ViewChain:
        """This chain with one more step."""
        return ViewChain(self, step)

    def joined(self, steps: Iterable[ViewStep]) -> ViewChain:
        """This chain with these further steps."""
        chain = self
        for step in steps:
            chain = ViewChain(chain, step)
        return chain

    @property
    def before(self) -> ViewChain:
        """This chain without its last step; the empty chain is returned itself."""
        return EMPTY_CHAIN if self._before is None else self._before

    def is_like(self, other: ViewChain) -> bool:
        """Whether both chains have equal steps: op, arguments and result."""
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
        """Whether some step shows an element twice (`expand`, overlapping windows)."""
        unknown = []
        chain: ViewChain = self
        while chain._repeats is None:
            unknown.append(chain)
            assert chain._before is not None
            chain = chain._before
        found = chain._repeats
        for chain in reversed(unknown):
            assert chain._last is not None
            found = found or overlaps_itself(chain._last.result)
            chain._repeats = None if is_symbolic(chain._last.result.stride) else found
        return found

    def at(self, values: Mapping[str, int]) -> ViewChain:
        """The chain with its symbols replaced by these values, by name."""
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

    def __reduce__(self) -> tuple[object, ...]:
        return chain_of, self.steps  # a list, linked, would be pickled as deep as it is long

    def __repr__(self) -> str:
        return f"Chain({', '.join(step.op.name for step in self)})"


EMPTY_CHAIN = ViewChain()
"""The chain of a root."""


def chain_of(*steps: ViewStep) -> ViewChain:
    """The chain of these steps."""
    return EMPTY_CHAIN.joined(steps)


def overlaps_itself(meta: TensorMeta) -> bool:
    """Whether two indices have the same address (TEN-8)."""
    return (is_symbolic((*meta.shape, *meta.stride)) or not meta.dense) and has_internal_overlap(
        meta.shape, meta.stride
    )
