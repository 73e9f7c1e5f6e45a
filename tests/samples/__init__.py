"""Sample inputs for every op: plain data, from which tensors are made in fresh memory each time.

`samples_of(name)` gives the samples of an op. Arrays stand for tensors and carry their layout. A
sample that is `smooth` is of float64 and stays away from kinks, so that it can be differentiated
numerically. An op in the table without samples here fails the suite (tests/laws/test_laws.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import aotlite.ir.ops  # noqa: F401  (fills the tables)
from aotlite import from_numpy
from aotlite.eager.creation.from_data import call
from aotlite.ir import dtypes
from aotlite.ir.dtypes import can_cast_in_place
from aotlite.ir.errors import AotliteError
from aotlite.ir.op import OPS, InplaceOp
from aotlite.ir.op.composite import COMPOSITES
from aotlite.testing.laws.samples.sample import (
    ALL,
    FLOATS,
    NUMERIC,
    Make,
    Sample,
    array,
    dense_layouts,
    expanded,
    flipped,
    gapped,
    layouts,
    positive,
    special,
)

# ------------------------------------------------------------------------------------ collections
_FAMILIES: dict[str, Callable[[], Iterable[Sample]]] = {}


def samples_of(name: str) -> list[Sample]:
    """The samples of an op; empty if there are none. All laws share the arrays, to read.

    An in-place or geometry op `f_` takes those of `f` of which it may write the first operand.
    """
    return list(_samples_of(name))


@cache
def _samples_of(name: str) -> list[Sample]:
    found = _fresh_samples_of(name)
    for sample in found:
        _make_read_only((sample.args, tuple(sample.kwargs.values())))
    return found


def _make_read_only(value: Any) -> None:
    if isinstance(value, np.ndarray):
        value.setflags(write=False)
    elif isinstance(value, (tuple, list)):
        for item in value:
            _make_read_only(item)


def _fresh_samples_of(name: str) -> list[Sample]:
    family = _FAMILIES.get(name)
    if family is not None:
        return list(family())
    if name.endswith("_") and name[:-1] in _FAMILIES:
        found = [s for s in samples_of(name[:-1]) if _can_be_written(name[:-1], s)]
        # The tests of ops write a copy of a leaf; those of composites would write the leaf.
        return found if name in OPS else [Sample(s.args, s.kwargs) for s in found]
    return []


def register(*names: str) -> Callable[[Any], Any]:
    """Registers a function that gives the samples of these ops (it is passed the name)."""

    def note(function: Callable[[str], Iterable[Sample]]) -> Any:
        _FAMILIES.update((name, partial(function, name)) for name in names)
        return function

    return note


def _can_be_written(name: str, sample: Sample) -> bool:
    """Whether the first operand may hold the result: its memory, shape and dtype."""
    first = sample.args[0]
    if not isinstance(first, np.ndarray) or (0 in first.strides and first.size):
        return False
    if not isinstance(OPS.get(name + "_"), InplaceOp) and name not in COMPOSITES:
        return True
    face: Any = partial(call, name) if name in OPS else COMPOSITES[name]
    try:
        result = face(*map(_tensors, sample.args), **sample.kwargs).meta
    except AotliteError as error:
        error.add_note(f"in this sample of {name}: {sample.args!r}, {sample.kwargs!r}")
        raise
    dtype = dtypes.from_numpy(first.dtype)
    kept = name in ("masked_fill", "copy", "fill") or can_cast_in_place(result.dtype, dtype)
    return bool(result.shape == first.shape and kept)


def _tensors(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return from_numpy(np.array(value))
    return tuple(map(_tensors, value)) if isinstance(value, tuple) else value


_ROOTS = ("exp expm1 log log1p sqrt rsqrt reciprocal sin cos tanh sigmoid erf").split()
"""Ops that give floats for integers, which an integer operand could not hold."""


# -------------------------------------------------------------------------------------- pointwise
_DOMAINS: dict[str, Make] = dict.fromkeys(("log", "log1p", "sqrt", "rsqrt", "reciprocal"), positive)


@register("neg", "conj", "real", "abs", "sign", "relu", "floor", "ceil")
def _kept_dtype(name: str) -> Iterable[Sample]:
    # PyTorch has no relu, floor or ceil of bool; negation of bool has no meaning.
    for dtype in NUMERIC:
        yield from (Sample((a,)) for a in [*layouts(dtype), special(dtype)])
    yield from _smooth_unary(name)
    if name in ("conj", "real", "neg", "abs"):
        yield Sample((np.array([1 + 2j, -0.5j, -3 + 0j]),))


@register(*_ROOTS)
def _floating_unary(name: str) -> Iterable[Sample]:
    make = _DOMAINS.get(name, array)
    for dtype in FLOATS:
        yield from (Sample((a,)) for a in [*layouts(dtype, make), special(dtype)])
    yield from (Sample((make((2, 3), dtype),)) for dtype in ("int64", "bool") if dtype != "bool")
    yield Sample((special("bool"),))
    if name == "reciprocal":
        yield Sample((np.array([0j, 2j, -1 + 1j]),))
    yield from _smooth_unary(name)


def _smooth_unary(name: str) -> Iterable[Sample]:
    make = _DOMAINS.get(name, array)
    offset = 0.03  # off the integers, where floor and ceil jump
    for a in (make((2, 3)), flipped(make((2, 3), seed=1)), make((), seed=2)):
        yield Sample((np.add(a, offset, out=a),), smooth=True)


def _pairs(dtypes_: Iterable[str] = ALL, make: Make = array) -> Iterable[Sample]:
    for dtype in dtypes_:
        a, b = make((2, 3), dtype), make((2, 3), dtype, 1)
        yield Sample((a, b))
        yield Sample((flipped(a), b))
        yield Sample((flipped(a), flipped(b)))
        yield Sample((gapped(a), make((3,), dtype, 2)))
        yield Sample((a, make((2, 1), dtype, 2)))
        yield Sample((a, make((), dtype, 2)))
        yield Sample((make((3,), dtype), expanded(make((3,), dtype, 1), 2)))
        yield Sample((make((), dtype), make((), dtype, 1)))
        yield Sample((make((0, 3), dtype), make((1, 3), dtype)))
        yield Sample((make((1, 1, 1), dtype), b))
    yield Sample((make((2, 3), "float32"), make((3,), "int64", 1)))
    third = make((2, 3), "float32") / np.float32(3)
    yield Sample((third, make((3,), "float64", 1) / 7))  # products need rounding, once
    yield Sample((make((2, 3), "float32"), make((), "float64", 1)))
    for dtype in FLOATS:
        values = special(dtype)
        yield Sample((values[:, None].copy(), values))


def _numbers(numbers: tuple[Any, ...], make: Make = array) -> Iterable[Sample]:
    for number in numbers:
        yield Sample((make((2, 3), "float32"), number))
        yield Sample((make((2, 3), "int64"), number))
        # Where layouts are ambiguous, a number is an operand like others, or none at all.
        yield Sample((np.ones((2, 4, 4, 1))[:, ::2, ::2], number))
    yield Sample((make((2, 3), "bool"), 2.0))
    yield Sample((gapped(make((2, 3), "float64")), 3))
    yield Sample((flipped(make((2, 1, 3), "float64")), 3))


def _smooth_pairs(make: Make = array) -> Iterable[Sample]:
    for a, b in (
        (make((2, 3)), make((2, 3), seed=5)),
        (flipped(make((2, 3))), make((3,), seed=5)),
        (make((3,)), make((2, 1), seed=6)),
        (make(()), make((), seed=6)),
    ):
        yield Sample((a, np.add(b, 0.05, out=b)), smooth=True)  # no two of them equal


@register("add", "sub", "rsub", "mul", "div")
def _arithmetic(name: str) -> Iterable[Sample]:
    # Differences of bools have no meaning; PyTorch refuses them.
    yield from _pairs(NUMERIC if name in ("sub", "rsub") else ALL)
    if name in ("sub", "rsub"):
        yield from (s for s in _numbers((2, -0.5)) if s.args[0].dtype != bool)
    else:
        yield from _numbers((2, -0.5, True))
    yield from _smooth_pairs()
    yield Sample((array((2, 3)), 1.5), smooth=True)
    if name == "mul":
        yield Sample((np.array([1 + 2j, -1j]), np.array([0.5 - 1j, 2 + 0j])))


@register("pow")
def _power(name: str) -> Iterable[Sample]:
    yield from _pairs(FLOATS, positive)
    yield from (Sample((positive((2, 3), dtype), 2)) for dtype in NUMERIC)
    for exponent in (0, 1, 2, 3, 0.5, -0.5, -1.0):
        yield Sample((special("float64"), exponent))
        yield Sample((positive((2, 3)), exponent), smooth=True)
    yield Sample((2.0, array((2, 3), "float32")))
    yield Sample((np.array([0.0, 0.0, 0.0, 2.0]), np.array([2.0, 0.0, -1.0, 0.0])))
    yield Sample((2.0, array((2, 3))), smooth=True)
    yield from _smooth_pairs(positive)


@register("maximum", "minimum")
def _extremes(name: str) -> Iterable[Sample]:
    yield from _pairs()
    yield Sample((np.array([1.0, 2.0, -3.0]), np.array([1.0, 1.0, -3.0])))
    yield from _smooth_pairs()


@register("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor")
def _comparisons(name: str) -> Iterable[Sample]:
    yield from _pairs()
    if not name.startswith("logical"):
        yield from _numbers((2, -0.5, True))


@register("logical_not", "isnan")
def _unary_truth(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        yield from (Sample((a,)) for a in [*layouts(dtype), special(dtype)])


@register("gelu")
def _gelu(name: str) -> Iterable[Sample]:
    for tanh in (False, True):
        for dtype in FLOATS:
            yield from (Sample((a, tanh)) for a in [*layouts(dtype), special(dtype)])
        yield from (Sample((*s.args, tanh), smooth=True) for s in _smooth_unary(name))


@register("relu_backward")
def _relu_backward(name: str) -> Iterable[Sample]:
    for dtype in FLOATS:
        yield Sample((array((2, 3), dtype), np.maximum(array((2, 3), dtype, 1), 0)))
        yield Sample((flipped(array((2, 3), dtype)), flipped(array((2, 3), dtype, 1))))
        yield Sample((array((0,), dtype), array((0,), dtype)))
        yield Sample((special(dtype), special(dtype)))
    yield Sample((array((2, 3)), array((2, 3), seed=1)), smooth=True)


@register("where")
def _where(name: str) -> Iterable[Sample]:
    mask = array((2, 3), "bool")
    for dtype in ALL:
        a, b = array((2, 3), dtype), array((2, 3), dtype, 1)
        yield Sample((mask, a, b))
        yield Sample((flipped(mask), flipped(a), flipped(b)))
        yield Sample((mask, array((3,), dtype), array((), dtype, 1)))
        yield Sample((array((0, 3), "bool"), array((3,), dtype), b[:1]))
        yield Sample((array((), "bool"), gapped(a), b))
    yield Sample((mask, array((2, 3), "float32"), 2))
    yield Sample((mask, 1, array((2, 3), "int64")))
    yield Sample((mask.astype("uint8") * 2, array((2, 3)), 0.5), smooth=True)
    yield Sample((mask, 1.5, array((3,), "int64")))
    yield Sample((flipped(mask), 1.0, 0.0))
    yield Sample((mask, array((2, 3), "float32"), array((2, 3), "float64")))
    yield Sample((mask, array((2, 3)), array((3,), seed=1)), smooth=True)
    yield Sample((mask, array((2, 3)), 0.5), smooth=True)
    yield Sample((np.array([True, False]), array((2, 1)), array((), seed=1)), smooth=True)


@register("clamp")
def _clamp(name: str) -> Iterable[Sample]:
    for bounds in ((-0.2, 0.3), (None, 0.3), (-0.2, None)):
        for dtype in FLOATS:
            yield from (Sample((a, *bounds)) for a in [*layouts(dtype), special(dtype)])
        yield Sample((array((2, 3)) + 0.03, *bounds), smooth=True)
    yield Sample((array((2, 3), "int64"), -1, 2))
    yield Sample((array((2, 3), "int64"), 0.5, None))
    low, high = np.array([-0.27, 9.0, 0.1]), np.array([0.2, 8.0, 0.2])  # one pair is crossed
    yield Sample((array((2, 3)), low, None), smooth=True)
    yield Sample((flipped(array((2, 3))), low, high), smooth=True)
    yield Sample((array((2, 3), "int64"), np.array(0.5), np.array(2)))
    yield Sample((special("float64")[:, None].copy(), special("float64"), None))


@register("masked_fill")
def _masked_fill(name: str) -> Iterable[Sample]:
    mask = array((2, 3), "bool", 1)
    for dtype in ALL:
        for a in dense_layouts(dtype)[:3]:
            yield Sample((a, mask, True if dtype == "bool" else 2))
        yield Sample((array((2, 3), dtype), array((3,), "bool"), False))
        yield Sample((array((0, 3), dtype), array((3,), "bool"), False))
    yield Sample((array((3,), "float32"), mask, -1.5))
    yield Sample((array((2, 3)), flipped(mask), -1.5), smooth=True)
    yield Sample((array((2, 1)), mask, -1.5), smooth=True)
    for dtype in ALL:
        yield Sample((array((2, 3), dtype), mask, np.array(1.5, "float32")))
    yield Sample((array((2, 3), "float32"), mask, np.array(2)))
    yield Sample((array((2, 3)), mask, np.array(-1.5)), smooth=True)
    yield Sample((array((2, 1)), mask, np.array(-1.5)), smooth=True)


@register("cast")
def _cast(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        for target in (dtypes.float32, dtypes.float64, dtypes.int64, dtypes.bool_):
            yield Sample((array((2, 3), dtype), target))
        yield from (Sample((a, dtypes.float64)) for a in layouts(dtype))
    yield Sample((array((2, 3)), dtypes.float64), smooth=True)
    yield Sample((flipped(array((2, 3))), dtypes.complex128))


# ---------------------------------------------------------------------------- copies and factories
@register("clone")
def _clone(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        yield from (Sample((a,)) for a in [*layouts(dtype), special(dtype)])
    yield Sample((gapped(array((2, 3))),), smooth=True)


@register("restride")
def _restride(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        for a in layouts(dtype):
            if a.shape == (2, 3):
                yield from (Sample((a, stride)) for stride in ((3, 1), (1, 2), (6, 2)))
        yield Sample((array((), dtype), ()))
        yield Sample((array((0, 3), dtype), (3, 1)))
    yield Sample((array((2, 3)), (1, 2)), smooth=True)


@register("copy")
def _copy(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        for a in dense_layouts(dtype)[:3]:
            yield Sample((a, array((2, 3), dtype, 1)))
            yield Sample((a, array((3,), "float32", 1)))
        yield Sample((array((2, 3), dtype), flipped(array((2, 3), "int64", 1))))
        yield Sample((array((), dtype), array((1,), dtype, 1)[0, ...]))
        yield Sample((array((0, 3), dtype), array((3,), dtype)))
    yield Sample((array((2, 3)), array((3,), seed=1)), smooth=True)
    yield Sample((flipped(array((2, 3))), array((), seed=1)), smooth=True)


@register("fill")
def _fill(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        number = True if dtype == "bool" else 3
        yield from (Sample((a, number)) for a in layouts(dtype))
    yield Sample((array((2, 3), "float32"), float("nan")))
    yield Sample((array((2, 3)), -0.0))
    yield Sample((array((2, 3)), 1.5), smooth=True)


# The rest of the ops by subject; imported last, since they register here.
for _path in sorted(Path(__file__).parent.glob("[!_]*.py")):
    import_module(f"{__name__}.{_path.stem}")
