"""Which dimensions of an op's operands and results go together: how an op may be cut in parts.

Ground floor. An op's declaration may say `dims=rule`: the rule gives labels to dimensions. Where
the dimensions of one label are cut alike, the op on the parts gives the parts of the results; a
label that no result has is joined by a reduction. Rules: OPS-23, OPS-24.
Spec: `specs/op_declaration.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from aotlite.ir.meta import TensorMeta

Label = str | int
Labels = tuple[Label | None, ...]
"""A label for each dimension; None for one that cannot be cut."""
Args = Mapping[str, Any]
"""What the meta rule sees of a call's arguments, by name."""
Metas = Sequence[TensorMeta]
WHICH = frozenset(("dim", "dims", "dim0", "dim1", "dim2", "dimension"))
"""Ints that say which dimension. Any other int argument may be computed from sizes."""


@attrs.frozen
class Dims:
    """How the dimensions of one call go together."""

    operands: Mapping[str, Any]
    """Labels of each tensor operand, by parameter; a tuple of labels for a list of tensors."""
    results: tuple[Labels, ...]
    joins: str | None = attrs.field(kw_only=True, default=None)
    """The reduction by which the results of parts are joined, along a label that no result has."""
    added: tuple[str, ...] = attrs.field(kw_only=True, default=())
    """Operands that are added to what is joined: they count once, not once a part."""
    sizes: Mapping[str, Labels] = attrs.field(kw_only=True, factory=dict)
    """Arguments that are sizes, with labels: those of a part are smaller."""
    blocks: bool = attrs.field(kw_only=True, default=False)
    """Dimensions of one label may be of several sizes: they go together in blocks."""


Rule = Callable[[Args, Metas], Dims | None]


def numbered(meta: TensorMeta, whole: Sequence[int] = ()) -> Labels:
    """Every dimension labelled by its place, but those that are to stay whole."""
    return tuple([None if i in whole else i for i in range(len(meta.shape))])


def spread(meta: TensorMeta, shape: Sequence[Any]) -> Labels:
    """Labels of an operand that broadcasts to a shape, whose dimensions are labelled by place."""
    skipped = len(shape) - len(meta.shape)
    return tuple([None if n == 1 else i + skipped for i, n in enumerate(meta.shape)])


# ------------------------------------------------------------------------------------------ rules
def elementwise(args: Args, results: Metas) -> Dims:
    """Operands broadcast to the result, and each element is computed by itself."""
    shape = results[0].shape
    found: dict[str, Any] = {}
    for name, value in args.items():
        if type(value) is TensorMeta:
            found[name] = spread(value, shape)
    return Dims(found, tuple([numbered(meta) for meta in results]))


def along(*names: str, whole: tuple[str, ...] = ()) -> Rule:
    """The op works along the dimensions that these arguments name, and on all others alike.

    None names every dimension. Operands in `whole` are not cut at all. A tensor that lacks the
    named dimensions has the others in order.
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
    """A reduction over the dimensions `dim`, all of them where it is None or empty."""

    def rule(args: Args, results: Metas) -> Dims:
        meta = args["self"]
        rank = len(meta.shape)
        cut = _named(args, ("dim",), rank)
        if args.get("dim") == () and results[0].shape != meta.shape:
            cut = frozenset(range(rank))  # to some reductions nothing means everything
        labels = numbered(meta, () if joins else tuple(cut))
        outs = tuple([_by_rank(meta, cut)(out) for out in results])
        return Dims({"self": labels}, outs, joins=joins)

    return rule


def trailing(named: str, *whole: str) -> Rule:
    """The op works on as many of the last dimensions as the sizes `named` are."""

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
    """The op works on the last `count` dimensions, and on all before alike."""

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
    """As einsum spells it: `"mk,kn->mn"` for the operands in order; a dot is not cut.

    An operand in `added` broadcasts to the result.
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
    """A reshape: of dimensions that are merged or divided, the first ones go together."""
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


# ------------------------------------------------------------------------ what rules are made of
def _is_tensor(value: Any) -> bool:
    return type(value) is TensorMeta or (
        type(value) is tuple and bool(value) and type(value[0]) is TensorMeta
    )


def _tensors(args: Args) -> list[TensorMeta]:
    found: list[TensorMeta] = []
    for value in args.values():
        if _is_tensor(value):
            found += value if type(value) is tuple else (value,)
    return found


def _each(value: Any, labels: Callable[[TensorMeta], Labels]) -> Any:
    return tuple([labels(meta) for meta in value]) if type(value) is tuple else labels(value)


def _named(args: Args, names: Sequence[str], rank: int) -> frozenset[int]:
    """The dimensions that arguments name, from 0."""
    found: list[int] = []
    for name in names:
        value = args.get(name)
        if value is None:
            return frozenset(range(rank))
        found += value if type(value) is tuple else (value,)
    return frozenset(dim % rank for dim in found) if rank else frozenset()


def _by_rank(meta: TensorMeta, cut: frozenset[int]) -> Callable[[TensorMeta], Labels]:
    """Labels of tensors that have all dimensions of `meta`, or all but those that are cut."""
    rank = len(meta.shape)
    rest = tuple([i for i in range(rank) if i not in cut])

    def labels(other: TensorMeta) -> Labels:
        if len(other.shape) == rank:
            return numbered(meta, tuple(cut))
        return rest if len(other.shape) == len(rest) else (None,) * len(other.shape)

    return labels
