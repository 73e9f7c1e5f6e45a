"""Bad input for every op: its samples, broken in one place each.

What a break has to raise is known for some (a dim that is not there, an index out of bounds, a
negative size, a destination that overlaps itself). Of the others, which an op may well have a
meaning for, the law says: an error is one of ours, names the op, what it got and what it expected,
and nothing is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np

from aotlite.ir.errors import (
    AliasError,
    AotliteError,
    ArgumentError,
    IndexOutOfRangeError,
    ShapeError,
)
from aotlite.ir.op import OPS, GeometryOp, InplaceOp, Op
from aotlite.ir.op.composite import COMPOSITES, Composite
from aotlite.ir.op.schema import Schema, SchemaParameter
from aotlite.testing.laws.ops.runs import memory, tensors_in
from aotlite.testing.laws.samples.sample import Sample
from tests.samples import samples_of

FAR = 99
"""No sample has so many dimensions, or elements along one."""


AROUND = ("take_along_dim",)
"""Ops that wrap indices in a dimension, so that any index is in bounds, as in PyTorch."""
COUNTS = ("tile",)
"""Ops whose parameter `dims` has numbers of repeats, as in PyTorch."""


@attrs.frozen(eq=False)
class Break:
    """A sample that is wrong in one place."""

    what: str
    sample: Sample
    raises: tuple[type[AotliteError], ...] = ()
    """The error that it has to raise; None: it may have a meaning."""


# ----------------------------------------------------------------------------------- the breaks
def breaks(op: Op | Composite, name: str) -> Iterator[Break]:
    """Breaks of a few samples of an op or composite."""
    schema = op.schema
    if schema is None:
        return
    every = [s for s in samples_of(name) if not s.kwargs and _fits(schema, s)]
    for sample in (every[:1] + every[-1:])[: 1 if len(every) == 1 else 2]:
        yield from _of_one(op, schema, sample)


def _fits(schema: Schema, sample: Sample) -> bool:
    return len(sample.args) <= len(schema.parameters)


def _of_one(op: Op | Composite, schema: Schema, sample: Sample) -> Iterator[Break]:
    for i, (parameter, value) in enumerate(zip(schema.parameters, sample.args, strict=False)):

        def broken(what: str, new: Any, *raises: type[AotliteError], at: int = i) -> Break:
            args = (*sample.args[:at], new, *sample.args[at + 1 :])
            return Break(f"{schema.parameters[at].name}: {what}", Sample(args), raises)

        yield broken("of no type", object(), ArgumentError)
        if isinstance(value, np.ndarray):
            yield from _of_tensor(op, parameter, value, broken)
        elif isinstance(value, tuple) and value and isinstance(value[0], np.ndarray):
            yield broken("a list with what is no tensor", (*value, "x"), ArgumentError)
            yield broken("shapes differ", (*value, np.ones((7, 5, 3, 2), value[0].dtype)))
        elif _is_dim(parameter) and value is not None and op.name not in COUNTS:
            is_list = parameter.type.text.startswith("int[]")
            # As many as there were: of a wrong number, permute does not look at them.
            rest = value[1:] if isinstance(value, (tuple, list)) else ()
            far = (FAR, *rest) if is_list and not isinstance(value, int) else FAR
            yield broken("no such dimension", far, IndexOutOfRangeError)
        elif _is_size(parameter) and value:
            negative = -FAR if isinstance(value, int) else (*value[:-1], -FAR)
            yield broken("a negative size", negative, ShapeError, ArgumentError)
    surplus = Sample((*sample.args, *_surplus(schema, sample)))
    yield Break("one argument too many", surplus, (ArgumentError,))
    yield Break("unknown name", Sample(sample.args, {"otter": 1}), (ArgumentError,))
    if isinstance(op, InplaceOp):
        yield from _of_destination(op, sample)


def _surplus(schema: Schema, sample: Sample) -> list[Any]:
    return [None] * (len(schema.parameters) - len(sample.args) + 1)


def _of_tensor(
    op: Any, parameter: SchemaParameter, value: np.ndarray, broken: Any
) -> Iterator[Break]:
    for dtype in ("bool", "int64", "uint16", "float32", "complex64"):
        if value.dtype != dtype:
            yield broken(f"dtype {dtype}", np.abs(value).astype(dtype))
    yield broken("more dimensions", np.ones((2, *value.shape, 3, 2), value.dtype))
    yield broken("no dimensions", np.ones((), value.dtype))
    yield broken("another size", np.ones(tuple(n + 3 for n in value.shape), value.dtype))
    if _is_index(parameter) and value.size and op.name not in AROUND:
        for far in (FAR, -FAR):
            wrong = value.copy()
            wrong.reshape(-1)[-1] = far
            yield broken(f"index {far}", wrong, IndexOutOfRangeError)


def _is_dim(parameter: SchemaParameter) -> bool:
    return parameter.type.text.startswith("int") and bool(
        re.fullmatch(r"dims?|dim[012]|axis[01]?|(start|end)_dim|source|destination", parameter.name)
    )


def _is_size(parameter: SchemaParameter) -> bool:
    names = ("size", "sizes", "shape", "repeats")
    return parameter.type.text == "int[]" and parameter.name in names


def _is_index(parameter: SchemaParameter) -> bool:
    return parameter.type.is_tensor and parameter.name in ("index", "indices")


def _of_destination(op: InplaceOp, sample: Sample) -> Iterator[Break]:
    """TEN-7: fills of one value may write an overlapping destination, all else may not."""
    first = sample.args[0]
    if isinstance(first, np.ndarray) and first.ndim and first.shape[0] > 1 and first.size:
        overlapping = np.lib.stride_tricks.as_strided(first, first.shape, (0, *first.strides[1:]))
        must = () if op.functional.cost.value == "factory" else (AliasError, ArgumentError)
        yield Break("overlaps itself", Sample((overlapping, *sample.args[1:])), must)


# ------------------------------------------------------------------------------------- the law
def check(name: str, call: Any, broken: Break, args: tuple[Any, ...], kwargs: Any) -> str | None:
    """Returns the fault of a call on broken arguments; None if it ends rightly."""
    tensors = tensors_in((args, tuple(kwargs.values())))
    before = [_state(tensor) for tensor in tensors]
    try:
        call(args, kwargs)
    except AotliteError as error:
        return _wrong_error(name, broken, error, before != [_state(t) for t in tensors])
    except Exception as error:
        return f"raises {error!r}, expected one of ours"
    if broken.raises:
        return f"raises nothing, expected {' or '.join(each.__name__ for each in broken.raises)}"
    return None


def _state(tensor: Any) -> Any:
    storage = tensor.storage
    return memory(tensor).tobytes(), storage.version, tensor.meta, tensor.offset


def _wrong_error(name: str, broken: Break, error: AotliteError, is_written: bool) -> str | None:
    if is_written:
        return f"raises {error!r} after something was written"
    if broken.raises and not isinstance(error, broken.raises):
        return f"raises {error!r}, expected {' or '.join(e.__name__ for e in broken.raises)}"
    line = str(error).split("\n")[0]
    told = "\n".join([line, *getattr(error, "__notes__", ())])
    if ", expected " not in line:
        return f"says {line!r}, expected '<op>: <what> is <got>, expected <rule>'"
    if not any(re.search(rf"\b{re.escape(own)}\b", told) for own in _own_names(name)):
        return f"says {told!r}, expected the name of the op"
    return None


def _own_names(name: str) -> list[str]:
    op = OPS.get(name)
    names = [name]
    if isinstance(op, InplaceOp):
        names.append(op.functional.name)
    if isinstance(op, GeometryOp):
        names.append(op.view.name)
    return names


def targets() -> list[tuple[str, bool]]:
    """Every op and composite with a schema; the latter marked True."""
    made = [(name, True) for name, each in COMPOSITES.items() if each.schema is not None]
    return [(name, False) for name in OPS] + made
