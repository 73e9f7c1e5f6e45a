"""`Dims`: which dimensions of an op's operands and results belong together, for sharding.

Ground floor. An op's declaration may have `dims=rule`. The rule labels dimensions, as einsum does:

    matmul    self (m, k)    other (k, n)    result (m, n)    joins "sum"

Shard the dimensions of one label alike: the op on the shards then gives the shards of the results.
Along a label that no result has (k), a reduction joins the results. Rules: OPS-23, OPS-24.
Spec: `specs/op_declaration.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from aotlite.ir.meta import TensorMeta

Label = str | int
Labels = tuple[Label | None, ...]
"""A label for each dimension; None for one that cannot be sharded."""
Args = Mapping[str, Any]
"""The key of a call, by parameter."""
Metas = Sequence[TensorMeta]


@attrs.frozen
class Dims:
    """The labels of the dimensions of one call."""

    operands: Mapping[str, Any]
    """Labels of each tensor operand, by parameter; a tuple of labels for a list of tensors."""
    results: tuple[Labels, ...]
    joins: str | None = attrs.field(kw_only=True, default=None)
    """The reduction that joins the results of shards, along a label that no result has."""
    added: tuple[str, ...] = attrs.field(kw_only=True, default=())
    """Operands that are added to the joined result: once, not once a shard (`addmm`'s bias)."""
    sizes: Mapping[str, Labels] = attrs.field(kw_only=True, factory=dict)
    """Labels of the arguments that are sizes, which are smaller for a shard."""
    blocks: bool = attrs.field(kw_only=True, default=False)
    """Dimensions of one label may differ in size, as in a reshape: equal fractions correspond."""


Rule = Callable[[Args, Metas], Dims | None]


def numbered(meta: TensorMeta, whole: Sequence[int] = ()) -> Labels:
    """Each dimension labeled by its position; None for those in `whole`."""
    return tuple([None if i in whole else i for i in range(len(meta.shape))])


def spread(meta: TensorMeta, shape: Sequence[object]) -> Labels:
    """Labels of an operand that broadcasts to `shape`, which is labeled by position."""
    skipped = len(shape) - len(meta.shape)
    return tuple([None if n == 1 else i + skipped for i, n in enumerate(meta.shape)])


# ------------------------------------------------------------------------------------------ rules
def elementwise(args: Args, results: Metas) -> Dims:
    """The rule of pointwise ops: operands broadcast, and each element is computed by itself."""
    shape = results[0].shape
    found: dict[str, Any] = {}
    for name, value in args.items():
        if type(value) is TensorMeta:
            found[name] = spread(value, shape)
    return Dims(found, tuple([numbered(meta) for meta in results]))


def along(*names: str, whole: tuple[str, ...] = ()) -> Rule:
    """The rule of ops that work along the dimensions which these arguments name.

    The others can be sharded. An argument None names every dimension. Operands in `whole` are not
    sharded at all. A tensor that lacks the named dimensions has the others in order.
    """

    def rule(args: Args, results: Metas) -> Dims:
        first = next(meta for meta in _tensors(args) if meta is not None)
        cut = _named(args, names, len(first.shape))
        every = _by_rank(first, cut)
        found = {name: _each(value, every) for name, value in args.items() if _is_tensor(value)}
        for name in whole:
            if name in found:
                found[name] = _each(args[name], lambda meta: (None,) * len(meta.shape))
        return Dims(found, tuple([every(meta) for meta in results]))

    return rule


def reduced_over(joins: str | None) -> Rule:
    """The rule of a reduction over the dimensions `dim`; all of them where it is None."""

    def rule(args: Args, results: Metas) -> Dims:
        meta = args["self"]
        rank = len(meta.shape)
        cut = _named(args, ("dim",), rank)
        if args.get("dim") == () and results[0].shape != meta.shape:
            cut = frozenset(range(rank))  # for some reductions () means all dimensions
        labels = numbered(meta, () if joins else tuple(cut))
        outs = tuple([_by_rank(meta, cut)(out) for out in results])
        return Dims({"self": labels}, outs, joins=joins)

    return rule


def trailing(named: str, *whole: str) -> Rule:
    """The rule of ops that work on the last dimensions, as many as the argument `named` has sizes.

    The others can be sharded.
    """

    def rule(args: Args, results: Metas) -> Dims:
        count = len(args[named])
        first = next(name for name, value in args.items() if _is_tensor(value))
        rank = len(args[first].shape)
        labels = numbered(args[first], range(rank - count, rank))
        found: dict[str, Any] = {first: labels}
        for name in whole:
            if _is_tensor(args[name]):
                found[name] = (None,) * len(args[name].shape)
        return Dims(found, (labels,) * len(results))

    return rule


def leading(count: int) -> Rule:
    """The rule of ops that work on the last `count` dimensions; those before can be sharded."""

    def labels(meta: TensorMeta) -> Labels:
        return numbered(meta, range(max(len(meta.shape) - count, 0), len(meta.shape)))

    def rule(args: Args, results: Metas) -> Dims:
        rank = len(next(meta for meta in _tensors(args) if meta is not None).shape)
        found = {name: labels(value) for name, value in args.items() if _is_tensor(value)}
        short = [tuple(range(min(rank - count, len(out.shape)))) for out in results]
        outs = [
            each + (None,) * (len(out.shape) - len(each))
            for each, out in zip(short, results, strict=True)
        ]
        return Dims(found, tuple(outs))

    return rule


def spelled(text: str, *, joins: str | None = "sum", added: tuple[str, ...] = ()) -> Rule:
    """The rule that an einsum equation gives: `"mk,kn->mn"`, the operands in order.

    A dot stands for a dimension that cannot be sharded. Operands in `added` broadcast to the
    result.
    """
    left, right = text.split("->")
    inputs = [_letters(part) for part in left.split(",")]
    outs = tuple([_letters(part) for part in right.split(",")])

    def rule(args: Args, results: Metas) -> Dims:
        names = [name for name, value in args.items() if _is_tensor(value) and name not in added]
        found: dict[str, Any] = dict(zip(names, inputs, strict=False))
        for name in added:
            if _is_tensor(args[name]):
                places = spread(args[name], results[0].shape)
                found[name] = tuple([None if i is None else outs[0][int(i)] for i in places])
        return Dims(found, outs, joins=joins, added=added)

    return rule


def _letters(text: str) -> Labels:
    return tuple([None if letter == "." else letter for letter in text])


def regrouped(args: Args, results: Metas) -> Dims | None:
    """The rule of a reshape: of each group of merged or split dimensions, the first ones
    correspond; None where the groups cannot be found."""
    meta, (out,) = args["self"], results
    labels: list[list[Label | None]] = [[None] * len(meta.shape), [None] * len(out.shape)]
    ends = (0, 0)
    sides = (meta.shape, out.shape)
    while ends[0] < len(sides[0]) and ends[1] < len(sides[1]):
        firsts = ends
        left, right = sides[0][ends[0]], sides[1][ends[1]]
        ends = ends[0] + 1, ends[1] + 1
        while left != right:
            grown = 0 if left < right else 1
            if ends[grown] >= len(sides[grown]):
                return None
            if grown:
                right *= sides[1][ends[1]]
            else:
                left *= sides[0][ends[0]]
            ends = (ends[0] + 1 - grown, ends[1] + grown)
        for side, first in enumerate(firsts):
            labels[side][first] = firsts[0]
    found = tuple(labels[1])
    return Dims({"self": tuple(labels[0])}, (found,), sizes={"size": found}, blocks=True)


# ------------------------------------------------------------------------------- parts of rules
def _is_tensor(value: object) -> bool:
    return type(value) is TensorMeta or (
        type(value) is tuple and bool(value) and type(value[0]) is TensorMeta
    )


def _tensors(args: Args) -> list[TensorMeta]:
    found: list[TensorMeta] = []
    for value in args.values():
        if _is_tensor(value):
            found += value if type(value) is tuple else (value,)
    return found


def _each(value: Any, labels: Callable[[TensorMeta], Labels]) -> object:
    return tuple([labels(meta) for meta in value]) if type(value) is tuple else labels(value)


def _named(args: Args, names: Sequence[str], rank: int) -> frozenset[int]:
    """The dimensions that these arguments name, counted from 0."""
    found: list[int] = []
    for name in names:
        value = args.get(name)
        if value is None:
            return frozenset(range(rank))
        found += value if type(value) is tuple else (value,)
    return frozenset(dim % rank for dim in found) if rank else frozenset()


def _by_rank(meta: TensorMeta, cut: frozenset[int]) -> Callable[[TensorMeta], Labels]:
    """A function that labels tensors with all dimensions of `meta`, or with all but `cut`."""
    rank = len(meta.shape)
    rest = tuple([i for i in range(rank) if i not in cut])

    def labels(other: TensorMeta) -> Labels:
        if len(other.shape) == rank:
            return numbered(meta, tuple(cut))
        return rest if len(other.shape) == len(rest) else (None,) * len(other.shape)

    return labels
