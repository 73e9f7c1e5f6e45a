"""A call cut in parts along a label of its op's `dims`: what lies where.

Ground floor. Input is an op and its canonical arguments (anything with a meta); output says along
which dimension each operand and each result is cut, or that nothing can be.
Rules: OPS-23. Spec: `specs/op_declaration.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import Op, PureOp
from aotlite.ir.op.dims import Dims, Label, Labels


@attrs.frozen
class Cut:
    """One way to cut a call: an operand or result that has the label at a dimension, None if not.

    Operands are in the order of `Op.operands`.
    """

    operands: tuple[int | None, ...]
    results: tuple[int | None, ...]
    joins: str | None
    """By what reduction results without a dimension are joined."""
    added: tuple[bool, ...]
    """Operands that count once where results are joined."""
    label: Label
    sizes: Mapping[str, Labels]

    def args(self, op: Op, args: tuple[Any, ...], parts: int) -> tuple[Any, ...]:
        """The arguments of a part: sizes are smaller where the label is."""
        found = list(args)
        for i, parameter in enumerate(op.schema.parameters):
            labels = self.sizes.get(parameter.name)
            if labels is not None:
                pairs = zip(args[i], labels, strict=True)
                found[i] = tuple(
                    [n // parts if each == self.label and n > 0 else n for n, each in pairs]
                )
        return tuple(found)


def cuts_of(op: Op, args: tuple[object, ...], parts: int) -> Iterator[Cut]:
    """The ways in which a call can be cut in so many equal parts."""
    dims = dims_of(op, args)
    if dims is None:
        return
    metas = [operand.meta for operand in op.operands(args)]
    results = _results(op, args)
    labels = _labels_of_operands(op, args, dims)
    for label in _every([*labels, *dims.results]):
        places = tuple([_place(each, label) for each in labels])
        outs = tuple([_place(each, label) for each in dims.results])
        lost = None in outs
        if lost and (dims.joins is None or any(out is not None for out in outs)):
            continue
        found = [(m, p) for m, p in zip((*metas, *results), (*places, *outs), strict=True)]
        if not _is_even([m.shape[p] for m, p in found if p is not None], parts, blocks=dims.blocks):
            continue
        added = tuple([lost and name in dims.added for name in operand_names(op, args)])
        yield Cut(places, outs, dims.joins if lost else None, added, label, dims.sizes)


def dims_of(op: Op, args: tuple[object, ...]) -> Dims | None:
    """What the declaration says of this call; None where it says nothing."""
    if not isinstance(op, PureOp) or op.dims is None:
        return None
    names = [parameter.name for parameter in op.schema.parameters]
    return op.dims(dict(zip(names, op.key(args), strict=True)), _results(op, args))


def linear_groups(op: Op, args: tuple[object, ...]) -> Iterator[tuple[bool, ...]]:
    """For each group of operands in which together the op is linear, which operands are in it."""
    names = operand_names(op, args)
    given = dict(zip([p.name for p in op.schema.parameters], args, strict=True))
    for group in op.linear if isinstance(op, PureOp) else ():
        if all(name in names or given[name] == () for name in group):
            yield tuple([name in group for name in names])


def _results(op: Op, args: tuple[object, ...]) -> tuple[TensorMeta, ...]:
    found: Any = op.infer(args)
    return found if type(found) is tuple else (found,)


def operand_names(op: Op, args: tuple[Any, ...]) -> list[str]:
    """The parameter of each operand, in the order of `Op.operands`."""
    names = [parameter.name for parameter in op.schema.parameters]
    found = [names[i] for i in (*op.tensors, *op.mixed) if hasattr(args[i], "meta")]
    return found + [names[i] for i in op.lists for _ in args[i]]


def _labels_of_operands(op: Op, args: tuple[Any, ...], dims: Dims) -> list[Labels]:
    names = [parameter.name for parameter in op.schema.parameters]
    found = [
        dims.operands.get(names[i], (None,) * len(args[i].meta.shape))
        for i in (*op.tensors, *op.mixed)
        if hasattr(args[i], "meta")
    ]
    for i in op.lists:
        each = dims.operands.get(names[i])
        found += [(None,) * len(a.meta.shape) for a in args[i]] if each is None else each
    return found


def _every(several: list[Labels]) -> list[Label]:
    return list(dict.fromkeys(label for each in several for label in each if label is not None))


def _place(labels: Labels, label: Label) -> int | None:
    return labels.index(label) if label in labels else None


def _is_even(sizes: list[Any], parts: int, *, blocks: bool) -> bool:
    alike = blocks or all(size == sizes[0] for size in sizes)
    return alike and all(size % parts == 0 for size in sizes)
