"""Creation records: where a wrapper's parts are in a flat list, and how to rebuild it from them.

    Two(a, Two(b, c))   ->   a · b · c · symbolic sizes and strides of the inner, then of the outer

For code that calls graphs by hand, or exports them (AOTAutograd's SubclassCreationMeta). The
runtime uses `SubclassMeta`s, which name parts by role. Parts are in the order of names, depth
first; each wrapper's symbolic sizes and strides follow its parts.
Rules: SUB-2..SUB-6, SUB-8, SUB-9, SUB-12, SUB-14, SUB-18, SUB-19. Spec: `specs/s5_desugar.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import flatten, inner_tensors, is_wrapper, unflatten
from aotlite.ir.errors import SubclassError, noted
from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import Hidden, Part, Primal
from aotlite.ir.symbols.symint import SymInt
from aotlite.stages.records.base import Record
from aotlite.stages.records.metadata.function_facts import InputMeta
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.records.metadata.subclass_meta import SubclassMeta
from aotlite.stages.shared.memory.view_families import copy_autograd

Sizes = tuple[int | None, ...]
"""Sizes or strides; None for a symbolic one, which has a place in the flat list (SUB-18)."""


@attrs.frozen(eq=False, repr=False)
class CreationRecord(Record):
    """How a wrapper is made of flat values (SUB-3)."""

    start: int
    """The index of its first item in the flat list."""
    count: int
    """The number of its items: dense parts, and symbolic sizes and strides."""
    kind: type[Any]
    spec: Any
    parts: tuple[tuple[str, int | CreationRecord], ...]
    """The index of each dense part, or the record of a part that is a wrapper."""
    outer_size: Sizes
    outer_stride: Sizes
    prototype: Tensor | None = None
    """While tracing: the wrapper whose autograd state is copied to the rebuilt one (SUB-8)."""

    def at_run_time(self) -> CreationRecord:
        """The record without prototypes, which keeps no tensor alive (SUB-8)."""
        parts = tuple(
            [
                (name, part.at_run_time() if isinstance(part, CreationRecord) else part)
                for name, part in self.parts
            ]
        )
        return attrs.evolve(self, parts=parts, prototype=None)


Records = tuple[int | CreationRecord, ...]
"""For each value its index in the flat list, or the record of a wrapper."""


def requires_subclass_dispatch(arguments: Iterable[object], results: Iterable[object]) -> bool:
    """Whether any argument or result is a wrapper; else nothing is taken apart (SUB-2)."""
    return any(map(is_wrapper, arguments)) or any(map(is_wrapper, results))


# ------------------------------------------------------------------------------------------- apart
def unwrap(values: Iterable[object], *, sizes: bool = True) -> list[Any]:
    """The flat list of these values: wrappers by their parts, anything else as it is (SUB-4).

    `sizes=False` leaves symbolic sizes out: tangents share them with the primals (SUB-12).
    """
    flat: list[Any] = []
    for value in values:
        _unwrap(value, flat, sizes=sizes)
    return flat


def unwrap_joint(
    primals: Iterable[object], tangents: Iterable[object]
) -> tuple[list[object], list[object]]:
    """The flat lists of a joint graph's two groups of inputs (SUB-4)."""
    return unwrap(primals), unwrap(tangents, sizes=False)


def _unwrap(value: Any, flat: list[object], *, sizes: bool) -> None:
    if not is_wrapper(value):
        flat.append(value)
        return
    for inner in inner_tensors(value).values():
        _unwrap(inner, flat, sizes=sizes)
    if sizes:
        flat += _symbolic(value.meta.shape)
        flat += _symbolic(value.meta.stride)


def _symbolic(sizes: Sequence[object]) -> list[Any]:
    return [size for size in sizes if isinstance(size, SymInt)]


def creation_records(values: Iterable[object], *, sizes: bool = True) -> Records:
    """How each of these values is made of `unwrap(values)` (SUB-3)."""
    found: list[int | CreationRecord] = []
    place = 0
    for value in values:
        record = _record(value, place, sizes=sizes)
        found.append(record)
        place += _count(record)
    return tuple(found)


def _record(value: Any, start: int, *, sizes: bool) -> int | CreationRecord:
    if not is_wrapper(value):
        return start
    names, spec = flatten(value)
    parts: list[tuple[str, int | CreationRecord]] = []
    place = start
    for name in names:
        part = _record(getattr(value, name), place, sizes=sizes)
        parts.append((name, part))
        place += _count(part)
    size, stride = (_known(each) for each in (value.meta.shape, value.meta.stride))
    if sizes:
        place += (*size, *stride).count(None)
    return CreationRecord(
        start, place - start, type(value), spec, tuple(parts), size, stride, value
    )


def _known(sizes: Sequence[Any]) -> Sizes:
    return tuple([None if isinstance(size, SymInt) else size for size in sizes])


def _count(record: int | CreationRecord) -> int:
    return 1 if isinstance(record, int) else record.count


# ----------------------------------------------------------------------------------------- together
def wrap(
    flat: Sequence[object], records: Records, *, saved: int = 0, like: Sequence[object] = ()
) -> tuple[Any, ...]:
    """The values rebuilt from the flat list, then its last `saved` items as they are (SUB-6).

    Rebuilt wrappers get the autograd state of the records' prototypes (SUB-8). `like` are values
    with the symbolic sizes, for a flat list of tangents, which has none (SUB-12). Raises
    SubclassError, with the three numbers, if the counts do not add up (SUB-5).
    """
    count = sum(map(_count, records))
    if count + saved != len(flat):
        raise noted(
            SubclassError(
                f"wrap: the records take {count} values and {saved} are saved, expected "
                f"{len(flat)}, all that there are"
            ),
            "A flat list is as long as the counts of its records and the saved values. (SUB-5)",
        )
    pairs = zip(records, like or [None] * len(records), strict=True)
    return (*[_wrap(flat, record, each) for record, each in pairs], *flat[len(flat) - saved :])


def _wrap(flat: Sequence[Any], record: int | CreationRecord, like: Any) -> Any:
    if isinstance(record, int):
        return flat[record]
    inner = {name: _wrap(flat, part, getattr(like, name, None)) for name, part in record.parts}
    rest = iter(flat[record.start + _parts_count(record) : record.start + record.count])
    if like is not None:
        rest = iter((*_symbolic(like.meta.shape), *_symbolic(like.meta.stride)))
    size = [next(rest) if each is None else each for each in record.outer_size]
    stride = [next(rest) if each is None else each for each in record.outer_stride]
    made: Tensor = unflatten(record.kind, inner, record.spec, size, stride)
    prototype = record.prototype
    if prototype is not None:
        copy_autograd(prototype, made, requires_grad=prototype.requires_grad_outside())
    return made


def _parts_count(record: CreationRecord) -> int:
    return sum(_count(part) for _, part in record.parts)


# ------------------------------------------------------------------------------ compiled functions
def records_of_inputs(meta: FunctionMeta, graph: Graph) -> Records:
    """The records of a compiled function's tensor arguments among a graph's inputs (SUB-3).

    Hidden inputs come last. Parts that several wrappers share have one index.
    """
    places = {node.role: index for index, node in enumerate(graph.placeholders)}
    wholes = sorted(
        [each.role for each in meta.inputs if not isinstance(each.role, Part)],
        key=lambda role: (isinstance(role, Hidden), role.index),
    )
    return tuple([_from_roles(meta, places, role) for role in wholes])


def _from_roles(meta: FunctionMeta, places: dict[Any, int], role: Any) -> int | CreationRecord:
    wrapping: SubclassMeta | None = meta.wrappers.get(role)
    if wrapping is None:
        return places[role]
    parts = [(name, _from_roles(meta, places, of)) for name, of, _ in wrapping.parts]
    firsts = [part if isinstance(part, int) else part.start for _, part in parts]
    count = sum(_count(part) for _, part in parts)
    outer = wrapping.meta
    return CreationRecord(
        min(firsts), count, wrapping.kind, wrapping.spec, tuple(parts), outer.shape, outer.stride
    )


def static_indices(records: Records, indices: Iterable[int]) -> tuple[int, ...]:
    """The flat indices of all parts of the values with these indices (SUB-19)."""
    return tuple([place for index in indices for place in _places(records[index])])


def _places(record: int | CreationRecord) -> Iterator[int]:
    if isinstance(record, int):
        yield record
    else:
        for _, part in record.parts:
            yield from _places(part)


def inner_mutated_indices(meta: FunctionMeta, graph: Graph) -> tuple[int, ...]:
    """The flat indices of the parts of all wrappers that a call writes (SUB-14).

    Whether a graph may write a part itself depends on the wrapper: it requires grad, and not the
    part.
    """
    records = records_of_inputs(meta, graph)
    wholes = [each for each in meta.inputs if not isinstance(each.role, Part)]
    by_role: dict[Any, InputMeta] = {each.role: each for each in wholes}
    order = sorted(by_role, key=lambda role: (not isinstance(role, Primal), role.index))
    written = [n for n, role in enumerate(order) if by_role[role].writes_data]
    return static_indices(records, written)
