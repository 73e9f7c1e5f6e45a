"""Which sizes and ints of a call become symbols: marks, named dimensions, and changes seen.

    mark_dynamic(x, 0)                              a mark of the tensor, for all functions
    compile(f, dynamic_shapes={"x": {0: batch}})    a named dimension, for this function
    compile(f, dynamic_shapes={"n": True})          an int, for this function
    compile(f, dynamic=True)                        each size of each argument, and each int
    compile(f, dynamic=None)                        each that was another one in an earlier call

Used by `api`. Rules: DYN-1, DYN-3, DYN-26. Spec: `specs/size_regions.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import attrs

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.ir.errors import ArgumentError
from aotlite.ir.geometry.sizes import Shape, hint_of, is_symbolic
from aotlite.ir.graph.role import Part, Primal
from aotlite.ir.symbols.cases.results import RuleResults, share_rules
from aotlite.ir.symbols.table import SymbolTable
from aotlite.pipeline.arguments import FlatArguments
from aotlite.pipeline.options import Options
from aotlite.pipeline.request import CompiledEntry
from aotlite.pipeline.size_regions.exact_types import searched
from aotlite.pipeline.size_regions.named_dimensions import named_sizes
from aotlite.pipeline.size_regions.tensor_marks import MARKS, STATIC, marks_of, was_symbolic
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.records.symbolic_sizes import (
    GivenRole,
    NumberSource,
    SizeRequest,
    SizeSource,
    Source,
    SymbolicSizes,
    sources_of,
)
from aotlite.stages.s1_capture.subclass_fakes import parts_by_role
from aotlite.stages.shared.memory.sized_views import why_numbers

_ARRAYS = "an argument is an ndarray, and NumPy's functions take numbers"


# ------------------------------------------------------------------------------------- the choice
def symbolic_sizes(
    function: Callable[..., object],
    call: FlatArguments,
    earlier: Collection[CompiledEntry],
    options: Options,
    rules: RuleResults,
    refused: list[str],
) -> SymbolicSizes | None:
    """The sizes and ints that become symbols in the compilation for a call; None if there are none.

    `earlier` are the entries for calls of this form, and `rules` what captures of this function
    have found that rules of ops need. `refused` gets the reason if all that were asked for stay
    numbers.
    """
    is_asked = options.dynamic_shapes is not None or bool(MARKS)
    noted = any(hasattr(tensor, "_dynamic_dims") for _, tensor in call.tensors())
    if not (options.dynamic or options.dynamic is None and (earlier or noted) or is_asked):
        return None
    if call.has_arrays:  # NumPy's functions take numbers alone
        refused += [f"{_ARRAYS} (NDA-2)"] if options.dynamic else []
        options = attrs.evolve(options, dynamic=False)
    named = named_sizes(function, call, options.dynamic_shapes)
    seen = list(earlier) if options.dynamic is None else []
    requests: dict[Source, SizeRequest] = {}
    metas = [each.meta for each in seen]
    any_may_be = options.dynamic or seen or noted or bool(MARKS)
    may_be = {source.argument for source in named}
    for index, tensor in call.tensors():
        if not any_may_be and index not in may_be and not is_wrapper(tensor):
            continue
        if index >= options.num_params_buffers:
            asked = _of_argument(index, tensor, metas, named, options)
            requests |= _with_gaps(asked, index, tensor, [each.meta for each in earlier])
    plain = {index for index, tensor in call.tensors() if _was_refused(index, tensor, earlier)}
    requests = {x: y for x, y in requests.items() if y.is_marked or x.argument not in plain}
    requests |= _ints(call, named, seen, options, {each.name for each in requests.values()})
    if not requests:
        return None
    marked = {source.argument for source, asked in requests.items() if asked.is_marked}
    question, user_code = searched(function, call.leaves)
    if not all(each.is_marked for each in requests.values()):
        if question is not None:
            whole = {i for i, tensor in call.tensors() if i in marked and is_wrapper(tensor)}
            requests = {x: y for x, y in requests.items() if y.is_marked or x.argument in whole}
    if not requests:
        refused.append(f"{question} would find that a symbol is no int (DYN-33)")
        return None
    made = SymbolicSizes(requests, share_rules(SymbolTable(), rules))
    made.table.computes.user_code = user_code
    return made


def _of_argument(
    index: int,
    tensor: Tensor,
    earlier: Sequence[FunctionMeta],
    named: Mapping[Source, SizeRequest | None],
    options: Options,
) -> dict[Source, SizeRequest]:
    """The sizes of an argument, and of its parts, that become symbols."""
    found: dict[Source, SizeRequest] = {}
    for role, part, whole in parts_by_role(Primal(index), tensor):
        marks, before = marks_of(part), _sizes_before(role, part.ndim, earlier)
        is_noted = options.dynamic is None and hasattr(part, "_dynamic_dims")
        for source, size in zip(sources_of(role, part.meta), part.shape, strict=True):
            dim = source.dim
            if dim in marks:
                asked = marks[dim]
            elif source in named:
                asked = named[source]
            else:
                is_other = bool(before) and any(_is_other(x[dim], size) for x in before)
                is_other = is_other or is_noted and was_symbolic(part, dim)
                asked = SizeRequest() if options.dynamic or is_other else None
                if whole is not None:
                    asked = _of_part(asked, source, size, whole, found, earlier)
            if asked is not None:
                _check_fits(asked, source, size)
                found[source] = asked
    return found


def _is_other(before: int, size: int) -> bool:
    return is_symbolic((before,)) or before != size


_STEP = 16
"""The longest step of a slice whose length is looked for in a stride that is a multiple of it."""


# Note [strides with gaps]
#     step(tokens[:, :-1], tokens[:, 1:])              # i64[4, 8][9, 1], then i64[4, 6][7, 1]
# The stride is that of a tensor which is no argument: no product of sizes. As a number it would
# make each length an entry. But a slice leaves out the same part each time, so that the stride is
# factor * size + rest, which calls of two sizes tell: 1 * size + 1. A slice with a step, as
# `x[:, ::2]`, of an odd length has the strides (2 * size - 1, 2), which its first call tells. What
# fits no such form stays a number.
def _with_gaps(
    requests: dict[Source, SizeRequest],
    index: int,
    tensor: Tensor,
    earlier: Sequence[FunctionMeta],
) -> dict[Source, SizeRequest]:
    """The requests of an argument, with the strides that change with a size and are no product of
    sizes. Note [strides with gaps]."""
    if not requests:
        return requests
    for role, part, _ in parts_by_role(Primal(index), tensor):
        metas = [x.meta for meta in reversed(earlier) for x in meta.inputs if x.role == role]
        before = [
            (tuple(map(hint_of, each.shape)), tuple(map(hint_of, each.stride)))
            for each in metas
            if len(each.shape) == part.ndim
        ]
        for source in sources_of(role, part.meta):
            asked, dim = requests.get(source), source.dim
            if asked is not None and asked.same_as is None:
                others = [each for each in before if each[0][dim] != part.shape[dim]]
                gaps = tuple(_gaps(dim, (part.shape, part.stride()), others))
                requests[source] = attrs.evolve(asked, gaps=gaps) if gaps else asked
    return requests


def _gaps(
    of: int, now: tuple[Shape, Shape], others: Sequence[tuple[Shape, Shape]]
) -> Iterator[tuple[int, int, int, int]]:
    """(dimension, factor, rest, less) of the strides that depend on one size, as of other calls."""
    for dim, wide in enumerate(now[1]):
        unit = 1 if dim == of else now[1][of]
        if unit and wide > unit and (dim != of or len(now[1]) == 1):
            seen = [(x[0][of], 1 if dim == of else x[1][of], x[1][dim]) for x in others]
            forms = [_of_two((now[0][of], unit, wide), each) for each in seen]
            form = _of_step(now[0][of], unit, wide) or next(filter(None, forms), None)
            if form is not None:
                yield dim, *form


def _of_step(size: int, unit: int, wide: int) -> tuple[int, int, int] | None:
    """(factor, rest, less) of a stride that is a multiple of a length, of which a slice with a step
    has taken this many elements: the length is no multiple of the step."""
    if size < 2:
        return None
    some = range(unit * (size - 1) + 1, unit * (size + 1)) if unit <= _STEP else (wide,)
    for length in some:
        steps = -(-length // unit)
        less = steps * unit - length
        if wide % length == 0 and less and size <= steps <= size + 1:
            factor = wide // length
            return factor, factor * (steps - size), factor * less
    return None


def _of_two(now: tuple[int, int, int], other: tuple[int, int, int]) -> tuple[int, int, int] | None:
    """(factor, rest, less) of a stride that two calls show; each has (size, unit, stride)."""
    (size, unit, wide), (before, step, stride) = now, other
    if not step or wide % unit or stride % step:
        return None
    factor, left = divmod(wide // unit - stride // step, size - before)
    rest = wide // unit - factor * size
    return (factor, rest, 0) if not left and factor > 0 and rest >= 0 else None


def _was_refused(index: int, tensor: Tensor, earlier: Iterable[CompiledEntry]) -> bool:
    """Whether sizes of an argument had to be numbers in an earlier entry, as those of a view, for
    a call with a gradient, or without, like this one: so would be those of this call (SYN-12)."""
    role = Primal(index)
    return any(
        each.role == role
        and each.requires_grad == tensor.requires_grad_outside()
        and bool(why_numbers(entry.meta, role))
        for entry in earlier
        for each in entry.meta.inputs
    )


def _sizes_before(role: GivenRole, ndim: int, earlier: Iterable[FunctionMeta]) -> list[Shape]:
    """The shapes that an input had in earlier entries, as far as they have as many dimensions."""
    shapes = [x.meta.shape for meta in earlier for x in meta.inputs if x.role == role]
    return [shape for shape in shapes if len(shape) == ndim]


# Note [sizes of parts]
#     x = TwoTensor(al.ones(5, 3), al.zeros(5, 3))     # f32[5, 3] of parts f32[5, 3], f32[5, 3]
# A class makes a wrapper of its parts, and may compare them: so sizes that are one size have to be
# one symbol. A part's size in the dimension of the same number is taken for the wrapper's where
# both are equal, and were in each earlier entry. Another size of a part has a symbol of its own; if
# the class asks whether it equals some other, that is a guard. What was taken for equal is compared
# at each call, as all metas are.
def _of_part(
    asked: SizeRequest | None,
    source: SizeSource,
    size: int,
    whole: tuple[GivenRole, Tensor],
    found: Mapping[Source, SizeRequest],
    earlier: Sequence[FunctionMeta],
) -> SizeRequest | None:
    """The request for a size of a part of `whole`. Note [sizes of parts]."""
    role, outer = whole
    dim, sources = source.dim, sources_of(role, outer.meta)
    if dim < len(sources) and outer.shape[dim] == size:
        part = Part(role, source.path[-1])
        pairs = [(_shape_in(each, role), _shape_in(each, part)) for each in earlier]
        if all(_agree(a, b, dim) for a, b in pairs):
            same = found.get(sources[dim])
            return asked if same is None else SizeRequest(same_as=same.same_as or sources[dim])
    is_asked = any(found[each].is_marked for each in sources if each in found)
    return SizeRequest() if is_asked and asked is None else asked


def _shape_in(meta: FunctionMeta, role: GivenRole) -> Shape | None:
    return next((each.meta.shape for each in meta.inputs if each.role == role), None)


def _agree(a: Shape | None, b: Shape | None, dim: int) -> bool:
    """Whether two shapes of an earlier entry may be equal in a dimension."""
    if a is None or b is None or not dim < len(a) or not dim < len(b):
        return True
    return is_symbolic((a[dim], b[dim])) or a[dim] == b[dim]


def _ints(
    call: FlatArguments,
    named: Mapping[Source, SizeRequest | None],
    earlier: Sequence[CompiledEntry],
    options: Options,
    names: Collection[str | None],
) -> Iterator[tuple[Source, SizeRequest]]:
    """The ints that become symbols, and floats that become inputs; `names` are those of sizes,
    which an int may share."""
    for index, leaf in enumerate(call.leaves):
        if type(leaf) is not int and type(leaf) is not float:
            continue
        source = NumberSource(index)
        asked = named.get(source, STATIC)
        if source not in named and (options.dynamic or _changes(index, leaf, earlier)):
            asked = SizeRequest()
        if asked is None:
            continue
        if type(leaf) is int:
            is_size = asked.name is not None and asked.name in names
            asked = attrs.evolve(asked, is_size=is_size)
            _check_fits(asked, source, leaf)
            yield source, asked
        elif asked.name is None:
            yield source, attrs.evolve(asked, is_float=True)
        else:
            what = f"dynamic_shapes has a Dim for the float {leaf!r}"
            raise ArgumentError(f"compile: {what}, expected True or None")


def _changes(index: int, leaf: float, earlier: Iterable[CompiledEntry]) -> bool:
    """Whether a number differs from those of earlier entries, or is a symbol or input of one."""
    known = [each.numbers.get(index, leaf) for each in earlier]
    return any(n is None or type(n) is type(leaf) and not _is_same(n, leaf) for n in known)


def _is_same(a: float, b: float) -> bool:
    """Whether two numbers of a type are the same; floats to the bit: 0.0 is not -0.0."""
    return repr(a) == repr(b) if isinstance(a, float) else a == b


def _check_fits(asked: SizeRequest, source: Source, size: int) -> None:
    least, most = 0 if asked.is_size and asked.least is None else asked.least, asked.most
    if (least is not None and size < least) or (most is not None and size > most):
        name = "" if asked.name is None else f", dimension {asked.name!r},"
        bounds = [f"at least {least}"] * (least is not None) + [f"at most {most}"] * (
            most is not None
        )
        room = f"{least} to {most}" if len(bounds) == 2 else bounds[0]
        raise ArgumentError(f"compile: {source}{name} is {size}, expected {room}")
