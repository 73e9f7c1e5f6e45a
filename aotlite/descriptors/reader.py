"""Reads the value that a descriptor speaks of, from a call's arguments and results.

`read` follows the descriptor's path in the user's own structures, and asks nothing of the entry's
generated code: so it can be compared with what the graph was given (TRC-8).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from aotlite.descriptors import kinds
from aotlite.descriptors.kinds import AnyDescriptor
from aotlite.descriptors.names import Names
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.interop import from_numpy
from aotlite.eager.rng.generator import default_generator
from aotlite.ir.arrays import Array
from aotlite.ir.errors import AotliteError, ArgumentError, noted
from aotlite.ir.graph.role import Hidden
from aotlite.pipeline.containers.leaf_paths import Field
from aotlite.stages.records.guards.access_paths import NOTHING


@attrs.frozen(eq=False)
class Moment:
    """A call, before it or after it: its arguments and, after it, its result."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any] = attrs.field(factory=dict)
    result: Any = NOTHING


def read(names: Names, descriptor: AnyDescriptor, moment: Moment) -> Any:
    """The value that a descriptor speaks of, at this moment.

    A tensor or ndarray as the caller has it; for a synthetic base an array of the graph's library
    on the shared memory; an int for a size; a 0-d tensor for the generator's seed and offset.
    An `InputMutationOutput` is the input itself, whose value it is after the call.
    Raises ArgumentError where no caller has the value: a saved one, a tangent, a token.
    """
    reader = _READERS.get(type(descriptor))
    if reader is None:
        raise noted(
            ArgumentError(f"descriptors: no caller has the {descriptor}, expected one of a call"),
            "Saved values, tangents and tokens pass between the graphs alone.",
        )
    try:
        found = reader(names, descriptor, moment)
    except AotliteError:
        raise
    except (IndexError, KeyError, AttributeError, TypeError) as error:
        raise noted(
            ArgumentError(
                f"descriptors: the call has no {descriptor}, expected one like the first"
            ),
            "Pass args and kwargs as for descriptors_of.",
        ) from error
    return found


def _walk(value: Any, path: Sequence[Any]) -> Any:
    for key in path:
        value = getattr(value, key) if isinstance(key, Field) else value[key]
    return value


def _argument(names: Names, of: kinds.PlainInput, moment: Moment) -> Any:
    first, *rest = of.path
    if first in moment.kwargs:
        return _walk(moment.kwargs[first], rest)  # type: ignore[index]
    if first in names.parameters:
        return _walk(moment.args[names.parameters.index(str(first))], rest)
    place, *rest = rest  # `args`: those behind the named parameters
    return _walk(moment.args[len(names.parameters) + int(place)], rest)


def _state(names: Names, of: kinds.ParamInput | kinds.BufferInput, moment: Moment) -> Any:
    role = of.role
    assert isinstance(role, Hidden)
    to_module, name = names.owners[role.index]
    value = to_module.resolve(names.leaves(moment.args, moment.kwargs))
    for attribute in name.split("."):
        value = getattr(value, attribute)
    return value


def _reached(names: Names, of: kinds.ReachedInput, moment: Moment) -> Any:
    role = of.role
    assert isinstance(role, Hidden)
    return names.entry.hidden[role.index].resolve(names.leaves(moment.args, moment.kwargs))


def _base(names: Names, of: kinds.SyntheticBaseInput, moment: Moment) -> Array:
    base = names.base(of.role)
    anchor = _tensor(read(names, names.of(base.anchor), moment))
    meta, size = base.meta, base.meta.dtype.itemsize
    first = (anchor.offset * anchor.meta.dtype.itemsize + base.start) // size
    arrays, buffer = meta.device.arrays, anchor.storage.buffer
    return arrays.strided(buffer, meta.dtype, meta.shape, meta.stride, first)


def _tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else from_numpy(value)


def _of(names: Names, of: Any, moment: Moment) -> Any:
    return read(names, of.of, moment)


def _result(names: Names, of: kinds.PlainOutput, moment: Moment) -> Any:
    if moment.result is NOTHING:
        raise ArgumentError(f"descriptors: {of} is read before the call, expected a result")
    return _walk(moment.result, of.path)


def _shared_base(names: Names, of: Any, moment: Moment) -> Any:
    """The tensor that the first of the views is a view of."""
    return read(names, of.of[0], moment)._base


def _random_state(names: Names, of: Any, moment: Moment) -> Any:
    return getattr(default_generator, of.field)


_READERS: Mapping[type, Callable[[Names, Any, Moment], Any]] = {
    kinds.PlainInput: _argument,
    kinds.ParamInput: _state,
    kinds.BufferInput: _state,
    kinds.ReachedInput: _reached,
    kinds.SyntheticBaseInput: _base,
    kinds.ViewBaseInput: _shared_base,
    kinds.SubclassPart: lambda names, of, moment: getattr(read(names, of.of, moment), of.attr),
    kinds.SizeInput: lambda names, of, moment: read(names, of.of, moment).shape[of.dim],
    kinds.RandomStateInput: _random_state,
    kinds.RandomStateOutput: _random_state,
    kinds.PlainOutput: _result,
    kinds.InputMutationOutput: _of,
    kinds.IntermediateBaseOutput: _shared_base,
    kinds.RewrittenOutput: _of,
    kinds.CurrentInput: _of,
    kinds.GradOutput: lambda names, of, moment: read(names, of.of, moment).grad,
    kinds.GradWriteOutput: lambda names, of, moment: read(names, of.of, moment).grad,
}
