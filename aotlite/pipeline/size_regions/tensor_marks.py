"""Marks of tensors: which of their sizes are symbols in functions that take them.

    mark_dynamic(x, 0)        a symbol, for each function that x is passed to
    mark_static(x, 0)         a number

A function asks for the marks where it is compiled, and where it looks for the entry of a call: an
entry that has a number for a marked size does not serve the tensor with the mark. A tensor that a
compiled function returns notes which of its sizes were symbols there. Used by `choice` and `api`.
Rules: DYN-3, DYN-6. Spec: `specs/size_regions.md`.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.ir.errors import ArgumentError
from aotlite.ir.forks import UNFORKED
from aotlite.ir.geometry.sizes import is_symbolic
from aotlite.ir.graph.role import Primal
from aotlite.pipeline.arguments import FlatArguments
from aotlite.pipeline.containers.leaf_paths import Field, paths_in
from aotlite.pipeline.request import CompiledEntry, Request
from aotlite.pipeline.size_regions.named_dimensions import check_bounds, wrapped_dim
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.symbolic_sizes import SizeRequest, SizeSource, sources_of
from aotlite.stages.s1_capture.subclass_fakes import parts_by_role
from aotlite.stages.s10_runtime.guards.failures import GuardFailure
from aotlite.stages.s10_runtime.source import FunctionSource
from aotlite.stages.shared.size_values import Settled

STATIC = None
"""The mark of a size that stays a number."""
MARKS: dict[int, tuple[weakref.ref[Tensor], dict[int, SizeRequest | None]]] = {}
"""By a tensor's id: the tensor, and a mark for each dimension that has one."""


def mark_dynamic(
    tensor: Tensor, dim: int | Sequence[int], *, min: int | None = None, max: int | None = None
) -> None:
    """Marks sizes of a tensor as symbols for functions that are compiled with it as an argument.

    `min` and `max` bound the size. A function that fixes such a size is an error where it is
    compiled, with the line that does.

    >>> import aotlite as al
    >>> double = al.compile(lambda x: x * 2)
    >>> x = al.ones(4, 3)
    >>> al.mark_dynamic(x, 0)
    >>> double(x).shape, double(al.ones(7, 3)).shape, len(double.entries)
    ((4, 3), (7, 3), 1)
    """
    check_bounds("mark_dynamic", min, max)
    _mark("mark_dynamic", tensor, dim, SizeRequest(min, max, is_marked=True))


def mark_static(tensor: Tensor, dim: int | Sequence[int] | None = None) -> None:
    """Marks sizes of a tensor as numbers, all of them without `dim`: each one compiles anew."""
    dims = range(tensor.ndim) if dim is None and isinstance(tensor, Tensor) else dim
    _mark("mark_static", tensor, dims, STATIC)


def _mark(what: str, tensor: object, dims: object, mark: SizeRequest | None) -> None:
    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"{what}: argument 'tensor' is {tensor!r}, expected a tensor")
    listed: Iterable[Any] = dims if isinstance(dims, (Sequence, range)) else (dims,)
    wrapped = [wrapped_dim(what, dim, tensor.ndim) for dim in listed]
    key = id(tensor)
    with UNFORKED:
        if key not in MARKS or MARKS[key][0]() is not tensor:
            MARKS[key] = weakref.ref(tensor), {}
            weakref.finalize(tensor, MARKS.pop, key, None)
        MARKS[key][1].update(dict.fromkeys(wrapped, mark))


def marks_of(tensor: Tensor) -> Mapping[int, SizeRequest | None]:
    """The marks of a tensor by dimension."""
    found = MARKS.get(id(tensor))
    return {} if found is None or found[0]() is not tensor else found[1]


def copy_marks(tensor: Tensor, to: Tensor) -> None:
    """Marks the sizes of `to` as those of `tensor` are."""
    for dim, mark in marks_of(tensor).items():
        _mark("mark_dynamic", to, dim, mark)


# -------------------------------------------------------------------------------- marks of a call
def may_be_marked(args: Iterable[object]) -> bool:
    """Whether an argument may have marks, or a part that has some."""
    return any(id(each) in MARKS or isinstance(each, Tensor) and is_wrapper(each) for each in args)


def agreeing(
    entries: Sequence[CompiledEntry], call: FlatArguments, first: int
) -> Sequence[CompiledEntry]:
    """The entries that agree with the marks of a call's tensors, from argument `first` on."""
    return [each for each in entries if against_marks(each, call, first) is None]


def replaced(
    entries: Sequence[CompiledEntry], call: FlatArguments, first: int
) -> list[CompiledEntry]:
    """The entries for these very sizes, all of them numbers, that were made before one of them was
    marked: the entry with the mark serves what they serve."""
    plain = [each for each in entries if not each.symbols]
    others = [each for each in plain if against_marks(each, call, first) is not None]
    return [each for each in others if each.guarded.why_not(call.leaves) is None]


def against_marks(
    entry: CompiledEntry, call: FlatArguments | Request, first: int
) -> GuardFailure | None:
    """The mark of a call's tensors that an entry does not agree with; None if there is none.

    A size that is marked as dynamic must be a symbol that nothing fixes, or that was marked when
    the function was compiled: then what fixes it was accepted.
    """
    for source, mark in _marks_in(call, first):
        if mark is STATIC and source in entry.symbols:
            return GuardFailure(str(source), "marked as static", "one that may be a symbol")
        if mark is not STATIC and not entry.symbols.get(source, False):
            return GuardFailure(str(source), "marked as dynamic", "one that is a number")
    return None


def _marks_in(
    call: FlatArguments | Request, first: int
) -> Iterator[tuple[SizeSource, SizeRequest | None]]:
    for index, tensor in enumerate(call.leaves):
        if index >= first and MARKS and isinstance(tensor, Tensor):
            for role, part, _ in parts_by_role(Primal(index), tensor):
                marks = marks_of(part)
                for source in sources_of(role, part.meta) if marks else ():
                    if source.dim in marks:
                        yield source, marks[source.dim]


# ------------------------------------------------------------------------------ notes of results
ResultNote: TypeAlias = "tuple[tuple[Any, ...], frozenset[int]]"
"""The path of a result among the containers, and its dimensions whose sizes are symbols."""


def notes_of(captured: Captured) -> Iterator[ResultNote]:
    """The new tensors in the results that have symbols for sizes."""
    recorder, spec = captured.recorder, captured.containers.spec
    if recorder.sizes is None or spec is None:
        return
    settled = Settled(recorder.sizes.table)
    for path, result in zip(paths_in(spec), captured.results, strict=False):
        if isinstance(result, Tensor) and recorder.input_of(result) is None:
            shape = settled.put(result.meta.shape)
            dims = frozenset([dim for dim, size in enumerate(shape) if is_symbolic((size,))])
            if dims:
                yield path, dims


def note_results(source: FunctionSource, found: str, notes: Iterable[ResultNote]) -> None:
    """Adds lines that note, of each new tensor in the results `found`, which of its sizes are
    symbols: those of the next function that takes it are symbols then, too (DYN-6)."""
    for path, dims in notes:
        keys = [_step(source, key) for key in path]
        known = source.constant(dims, "D", f"dimensions {sorted(dims)}")
        source.add(f"    {found}{''.join(keys)}._dynamic_dims = {known}")


def _step(source: FunctionSource, key: object) -> str:
    return f".{key}" if isinstance(key, Field) else f"[{source.constant(key, 'K', repr(key))}]"


def was_symbolic(tensor: Tensor, dim: int) -> bool:
    """Whether a size was a symbol in the function that returned the tensor."""
    return dim in getattr(tensor, "_dynamic_dims", ())
