"""Samples for the comparison of ndarrays and tensors in `ndarray_table.py`, and the comparison."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np

from aotlite.eager.creation import array_names as names
from aotlite.eager.creation.array_stand_in import ArrayStandIn, is_stand_in
from aotlite.eager.creation.interop import from_numpy


class Permissive(ArrayStandIn):
    """A stand-in that refuses no form, so that its results can be compared."""

    __slots__ = ()

    def _check(self, form: str) -> None:
        pass

    def _check_index(self, form: str) -> None:
        pass

    def _check_operator(self, form: str, other: str) -> None:
        pass


# ---------------------------------------------------------------------------------------- samples
REALS = [0.0, -0.0, 1.0, -1.5, 2.0, 0.5, 3.0, -3.0, 2.5, np.inf, -np.inf, np.nan, 1e-7, 6e4]
COMPLEX = [0, 1, -1.5, 2j, 1 + 1j, -0.5 - 2j, complex(np.inf, 1), complex(np.nan, 0)]
NUMBERS: dict[str, list[Any]] = {
    "bool": [True, False],
    "int": [1, 0, 2, -1, -2, 3, 7, 64],
    "int beyond": [-1, 2**8, 2**20, 2**40, -(2**40), 2**64, 2**70],
    "float": [0.5, 2.0, 0.0, -0.0, -1.5, 3.0, 1e300, np.inf, np.nan],
    "complex": [1j, 2 - 0.5j, 0j],
}
SHAPES = ((5,), (2, 3), (1,), (2, 1, 3), (0, 3))


def pool(dtype: np.dtype[Any]) -> np.ndarray:
    """The values of a dtype for operators."""
    if dtype.kind == "b":
        return np.array([True, False])
    if dtype.kind == "f":
        return np.array(REALS, dtype)
    if dtype.kind == "c":
        return np.array(COMPLEX, dtype)
    limits = np.iinfo(dtype)
    low = [] if dtype.kind == "u" else [-1, -2, -7]
    return np.array([1, 0, 2, 3, 7, 64, *low, limits.min, limits.max], dtype)


def arrays(kind: str) -> list[Any]:
    """Arrays, or scalars, of a receiver's class, such as `float32:n`."""
    name, rank = kind.split(":")
    values = pool(np.dtype(name))
    if rank == "n":
        tame = values[: min(len(values), 7)]
        found = [np.resize(tame, shape) for shape in SHAPES]
        return [*found, np.resize(values, (3, 5)), np.resize(tame, (3, 2)).T]
    picked = [np.array(each) for each in values[[0, 1, -1, len(values) // 2]]]
    return picked if rank == "0" else [each[()] for each in picked]


def pairs(form: str, first: str, second: str) -> Iterator[tuple[Any, Any]]:
    """Operands of two classes: all pairs of values, and shapes that are broadcast."""
    one, other = first.split(":"), second.split(":")
    if "@" in form and one[1] == "n":
        for shape, its in (((3,), (3,)), ((2, 3), (3, 2)), ((2, 3), (3,)), ((3,), (3, 2))):
            b = _filled(other[0], its) if other[-1] == "n" else None
            yield from [(_filled(one[0], shape), b)] if b is not None else []
    if second in NUMBERS:
        dtype = names.dtypes_by_name[one[0]]
        fits = [n for n in NUMBERS[second] if names.number_class(n, dtype) == second]
        yield from itertools.product(_operands(one, many=True), fits)
    elif one[1] == "n" == other[1]:
        a, b = pool(np.dtype(one[0])), pool(np.dtype(other[0]))
        yield np.repeat(a, len(b)), np.tile(b, len(a))
        yield np.resize(a, (2, 3)), np.resize(b, 3)
        yield np.resize(a, 3), np.resize(b, (2, 3))
        yield np.resize(a, (0, 3)), np.resize(b, 3)
    else:
        yield from itertools.product(
            _operands(one, many=other[1] != "n"), _operands(other, many=one[1] != "n")
        )


def _filled(name: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.resize(np.array([1, 0, 2, 3, 1], np.dtype(name)), shape)


def _operands(kind: list[str], *, many: bool) -> list[Any]:
    values = pool(np.dtype(kind[0]))
    if kind[1] == "n":
        return [values.copy(), np.resize(values, (2, 3)), values[:0].copy()]
    scalars = list(values if many or len(values) < 4 else values[[0, 1, 2, 3, 6, -1, -2]])
    return [np.array(each) for each in scalars] if kind[1] == "0" else scalars


# ------------------------------------------------------------------------------------- outcomes
@attrs.frozen(eq=False)
class Outcome:
    """The outcome of one run: a value, or the name of an error; and the operands after it."""

    value: Any
    raised: str
    operands: tuple[Any, ...]

    def sharing(self) -> list[Any]:
        """For each returned array: the operand that it is or shares memory with, and how."""
        found: list[Any] = []
        for part in _parts(self.value):
            for operand in self.operands:
                if not (isinstance(part, np.ndarray) and isinstance(operand, np.ndarray)):
                    found.append(None)
                elif part is operand:
                    found.append("is")
                elif np.shares_memory(part, operand):
                    found.append((part.strides, part.flags.writeable))
                else:
                    found.append("apart")
        return found


def _parts(value: Any) -> list[Any]:
    return [*value] if type(value) in (tuple, list) else [value]


def by_numpy(run: Callable[..., Any], *given: Any) -> Outcome:
    """NumPy's outcome for operands, which it may write."""
    given = tuple([_own(each) for each in given])
    try:
        return Outcome(run(*given), "", given)
    except Exception as error:  # NumPy's error is its meaning
        return Outcome(None, type(error).__name__, given)


def _own(value: Any) -> Any:
    return value.copy("K") if isinstance(value, np.ndarray) else value


def by_tensor(run: Callable[..., Any], *given: Any) -> Outcome:
    """The outcome of a stand-in that refuses nothing, with arrays and scalars for stand-ins."""
    own = [_own(each) for each in given]
    made = [stood_in(each) for each in own]
    memory = [_numpys(each) for each in own]
    shown = {id(stand_in): array for stand_in, array in zip(made, memory, strict=True)}

    def outside(value: Any) -> Any:
        if type(value) in (tuple, list):
            return type(value)([outside(each) for each in value])
        if not is_stand_in(value):
            return value
        if id(value) in shown:
            return shown[id(value)]
        array = value._tensor.numpy()
        return array[()] if value._is_scalar else array

    try:
        return Outcome(outside(run(*made)), "", tuple(memory))
    except Exception as error:  # as above
        return Outcome(None, type(error).__name__, tuple(memory))


def stood_in(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return Permissive(from_numpy(value))
    if isinstance(value, Scalar):
        return Permissive(from_numpy(np.array(value.value)), is_scalar=True)
    return value


@attrs.frozen
class Scalar:
    """A computed NumPy scalar, as opposed to one from outside."""

    value: Any


# ----------------------------------------------------------------------------------- comparison
def difference(
    mine: Outcome, its: Outcome, before: tuple[Any, ...], *, exact: bool, may_raise: bool = True
) -> str:
    """The difference of two outcomes in words; "" if they are equal, or a tensor raises."""
    if its.raised and (may_raise or mine.raised):
        return "" if _same(its.operands, before, exact=True) else "A tensor raises and has written"
    if not mine.raised and not its.raised:
        if _same(mine.value, its.value, exact=exact):
            if mine.sharing() != its.sharing():
                return f"NumPy gives {_how(mine)}, a tensor {_how(its)}"
            if _same(mine.operands, its.operands, exact=exact):
                return ""
            return f"NumPy writes {_value(mine.operands)}, a tensor {_value(its.operands)}"
        if _kind(mine.value) == _kind(its.value):
            return f"NumPy gives {_value(mine.value)}, a tensor {_value(its.value)}"
    return f"NumPy {_meaning(mine)}, a tensor {_meaning(its)}"


def _meaning(outcome: Outcome) -> str:
    return f"raises {outcome.raised}" if outcome.raised else f"gives {_kind(outcome.value)}"


def _how(outcome: Outcome) -> str:
    found = [each for each in outcome.sharing() if each is not None]
    if "is" in found:
        return "the array itself"
    views = [each for each in found if each != "apart"]
    return f"a view with strides {views[0][0]}, writable {views[0][1]}" if views else "a copy"


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"a {value.dtype} array"
    if isinstance(value, np.generic):
        return f"a {value.dtype} scalar"
    return f"a {type(value).__name__}"


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_value, value))
    text = repr(value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value)
    return text if len(text) < 60 else f"{text[:57]}..."


def _same(mine: Any, its: Any, *, exact: bool) -> bool:
    if type(mine) is not type(its):
        return False
    if isinstance(mine, (tuple, list)):
        return len(mine) == len(its) and all(
            _same(a, b, exact=exact) for a, b in zip(mine, its, strict=True)
        )
    if isinstance(mine, (np.ndarray, np.generic)):
        if mine.dtype != its.dtype or mine.shape != its.shape:
            return False
        return _equal(np.asarray(mine), np.asarray(its), exact=exact)
    try:
        return bool(mine == its) or (mine != mine and its != its)  # nan
    except Exception:  # an object that cannot be compared counts as different
        return False


def _equal(a: np.ndarray, b: np.ndarray, *, exact: bool) -> bool:
    if a.dtype.kind not in "fc":
        return np.array_equal(a, b)
    if a.dtype.kind == "c":
        return _equal(a.real, b.real, exact=exact) and _equal(a.imag, b.imag, exact=exact)
    if exact:
        there = ~np.isnan(a)
        return np.array_equal(a, b, equal_nan=True) and np.array_equal(
            np.signbit(a[there]), np.signbit(b[there])
        )
    return np.allclose(a, b, rtol=16 * np.finfo(a.dtype).eps, atol=0, equal_nan=True)


def cell(run: Callable[..., Any], samples: Iterator[tuple[Any, ...]], *, exact: bool) -> str | None:
    """The difference on some sample; "" for none; None if all raise.

    An error of a tensor for some values alone is no difference.
    """
    refused: str | None = None
    gave = False
    for given in samples:
        before = tuple([_numpys(each) for each in given])
        mine, its = by_numpy(run, *before), by_tensor(run, *given)
        found = difference(mine, its, before, exact=exact)
        if found:
            return found
        if its.raised and not mine.raised:
            refused = difference(mine, its, before, exact=exact, may_raise=False)
        gave = gave or not its.raised
    return "" if gave else refused


def _numpys(value: Any) -> Any:
    return value.value if isinstance(value, Scalar) else value
