"""`ParameterType`: the types of parameters in schemas, and the conversion of values to them.

Ground floor. A converter returns the canonical form of a value: a tuple for a list, a Python number
for NumPy's. A symbolic size stays symbolic (`specs/symbols.md`).
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable
from functools import partial
from typing import Final

import attrs
import numpy as np

from aotlite.ir.arrays.cuda_devices import device_named
from aotlite.ir.dtypes import DType, as_dtype
from aotlite.ir.geometry.memory_format import MemoryFormat
from aotlite.ir.geometry.sizes import as_size
from aotlite.ir.op.host_function import HostFunction
from aotlite.ir.symbols.calls import Call, Computed
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.floats.symfloat import SymFloat
from aotlite.ir.symbols.polynomial import Atom
from aotlite.ir.symbols.symint import SymInt
from aotlite.ir.symbols.user_code import symbols_of_atom

__all__ = ["PARAMETER_TYPES", "UNFIT", "Number", "ParameterType", "fitted"]


# ------------------------------------------------------------------------------------ conversion
class Unfit(enum.Enum):
    """The type of `UNFIT`."""

    UNFIT = "unfit"


UNFIT: Final = Unfit.UNFIT
"""The result of a converter for a value of another type. (None is a valid value of some types.)"""

Converter = Callable[[object], object]

Number = int | float | complex
"""A number in a tensor's place, or a Scalar. A bool is an int, a symbolic size computes as one."""

_INT: Final = frozenset((int,))

MOST_SIZE: Final = 1 << 63
LEAST: Final = -MOST_SIZE
MOST: Final = (1 << 64) - 1
"""The range of a Scalar that is an int: int64 and uint64 together, as in PyTorch."""


# By attribute, not class: the classes of tensors are defined above the ground floor.
def _to_having(attribute: str, value: object) -> object:
    return value if hasattr(value, attribute) else UNFIT


_to_tensor: Converter = partial(_to_having, "meta")


def _to_number(value: object) -> object:
    if type(value) is int:
        return value if LEAST <= value <= MOST else UNFIT
    if type(value) is SymInt:
        found = fitted(value)
        return found if type(found) is SymInt else _to_number(found)
    value = _number_of(_unwrapped(value))
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return _to_number(int(value))
    if isinstance(value, float):
        return float(value)
    return complex(value) if isinstance(value, complex) else UNFIT


def fitted(value: SymInt) -> SymInt | int:
    """A symbolic number, as far as it is known or assumed to be an int64; else its value."""
    fits = _most(value) <= MOST_SIZE or -LEAST > value >= LEAST
    return value if fits else value.plain()


_IN_MEMORY: Final = 1 << 47
"""No memory has more elements: a product of different sizes is counted as one tensor's elements,
and a size of its own as no more."""


_UNKNOWN: Final = MOST_SIZE + 1


def _most(value: object) -> int:
    """What the absolute value does not exceed for sizes of tensors in memory; `_UNKNOWN` for what
    must be asked."""
    if type(value) is not SymInt:
        return min(abs(value), _UNKNOWN) if isinstance(value, int) else _UNKNOWN
    total = 0
    for monomial, factor in value.terms.items():
        most, seen = abs(factor), set[str]()
        for atom in monomial:
            bound, names = _most_of_atom(atom), symbols_of_atom(atom)
            if seen and bound >= _IN_MEMORY and seen.isdisjoint(names):
                bound = -(-bound // _IN_MEMORY)
            most, seen = most * bound, seen | names
        total += most
    return min(total, _UNKNOWN)


def _most_of_atom(atom: Atom) -> int:
    if isinstance(atom, Computed):
        return min(int(atom.limit), _UNKNOWN)
    if isinstance(atom, Call):
        return _UNKNOWN if atom.function == "**" else max(_most(atom.left), _most(atom.right))
    if atom.lower is None or atom.upper is None:
        return MOST_SIZE if atom.lower is None else _IN_MEMORY
    return max(abs(atom.lower), abs(atom.upper))


def _unwrapped(value: object) -> object:
    """The Python number in a NumPy scalar or 0-d array; else `value` itself."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return value.item()
    return value


def _number_of(value: object) -> object:
    """The number in a 0-d tensor, by its `item()`; else `value` itself.

    A tensor that requires grad is returned itself: as a number it would silently lose its gradient.
    """
    asked = getattr(value, "item", None)
    if asked is None or getattr(value, "requires_grad", False) or getattr(value, "shape", 0) != ():
        return value
    return asked()


def _to_int(value: object) -> object:
    size = as_size(_unwrapped(value))
    return UNFIT if size is None else size


def _to_float(value: object) -> object:
    value = _number_of(_unwrapped(value))
    if isinstance(value, bool) or not isinstance(value, (int, float, SymInt, SymFloat, SizeFloat)):
        return UNFIT
    try:
        return float(value)
    except OverflowError:  # an int beyond all floats
        return UNFIT


def _to_bool(value: object) -> object:
    value = _unwrapped(value)
    return value if isinstance(value, bool) else UNFIT


def _to_str(value: object) -> object:
    return str(value) if isinstance(value, str) else UNFIT


def _to_instance(kind: type, value: object) -> object:
    return value if isinstance(value, kind) else UNFIT


def _to_dtype(value: object) -> object:
    return _to_instance(DType, as_dtype(value))


def _to_device(value: object) -> object:
    if type(value) is str:
        return device_named(value) if value == "cpu" or value.startswith("cuda") else UNFIT
    return _to_having("arrays", value)


def _to_operand(value: object) -> object:
    if type(value) is int:
        return value if LEAST <= value <= MOST else UNFIT
    return value if hasattr(value, "meta") else _to_number(value)


def _to_tensor_or_none(value: object) -> object:
    return None if value is None else _to_tensor(value)


def _to_tuple(convert: Converter, value: object) -> object:
    if not isinstance(value, (tuple, list)):
        return UNFIT
    converted = tuple([convert(item) for item in value])
    # By identity, not `in`: tensors compared with == would run an op.
    if any(item is UNFIT for item in converted):
        return UNFIT
    if type(value) is tuple and all(map(operator.is_, value, converted)):
        return value
    return converted


def _to_ints(value: object) -> object:
    if type(value) is tuple and _INT.issuperset(map(type, value)):
        return value
    if isinstance(value, (tuple, list)):
        return _to_tuple(_to_int, value)
    single = _to_int(value)
    return UNFIT if single is UNFIT else (single,)


# ----------------------------------------------------------------------------------------- types
@attrs.frozen(eq=False, repr=False)
class ParameterType:
    """A type of parameters, such as `Tensor?`. Equal types are the same object."""

    text: str
    convert: Converter
    """Value -> its canonical form, or `UNFIT`. Not called for types in `as_is`."""
    as_is: frozenset[type] = attrs.field(kw_only=True, default=frozenset())
    """Python types whose values are canonical as they are."""

    def canonical(self, value: object) -> object:
        """The canonical form of `value`; `UNFIT` if it is not of this type."""
        return value if type(value) in self.as_is else self.convert(value)

    @property
    def is_tensor(self) -> bool:
        """Whether the argument is one tensor, or None where that is allowed."""
        return self.text in ("Tensor", "Tensor?")

    @property
    def is_tensor_list(self) -> bool:
        """Whether the argument is a tuple of tensors."""
        return self.text in ("Tensor[]", "Tensor?[]")

    @property
    def holds_number(self) -> bool:
        """Whether both a tensor and a number are allowed; false for a plain Scalar."""
        return self.text in ("Tensor|Scalar", "Tensor|Scalar?")

    @property
    def holds_tensor(self) -> bool:
        """Whether the argument can be a tensor, or hold some."""
        return self.text.startswith("Tensor")

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"ParameterType({self.text!r})"

    # Copies and pickles are the same object.
    def __reduce__(self) -> tuple[Callable[[str], ParameterType], tuple[str]]:
        return _type_named, (self.text,)


def _basic_types() -> list[ParameterType]:
    numbers = frozenset((bool, float, complex, SymFloat, SizeFloat))  # an int may be too large
    return [
        ParameterType("Tensor", _to_tensor),
        ParameterType("Scalar", _to_number, as_is=numbers),
        ParameterType("Tensor|Scalar", _to_operand, as_is=numbers),
        ParameterType("int", _to_int, as_is=_INT),
        ParameterType("float", _to_float, as_is=frozenset((float,))),
        ParameterType("bool", _to_bool, as_is=frozenset((bool,))),
        ParameterType("str", _to_str, as_is=frozenset((str,))),
        ParameterType("dtype", _to_dtype, as_is=frozenset((DType,))),
        ParameterType("memory_format", partial(_to_instance, MemoryFormat)),
        ParameterType("device", _to_device),
        ParameterType("generator", partial(_to_having, "draw")),
        ParameterType("function", partial(_to_instance, HostFunction)),
        ParameterType("int[]", _to_ints),
        ParameterType("Tensor[]", partial(_to_tuple, _to_tensor)),
    ]


def _all_types() -> dict[str, ParameterType]:
    basic = _basic_types()
    optional = [
        ParameterType(f"{each.text}?", each.convert, as_is=each.as_is | {type(None)})
        for each in basic
        if each.text != "Tensor[]"
    ]
    sparse = ParameterType("Tensor?[]", partial(_to_tuple, _to_tensor_or_none))
    return {each.text: each for each in (*basic, *optional, sparse)}


PARAMETER_TYPES: Final = _all_types()
"""Every type that a schema can name, by its text."""


def _type_named(text: str) -> ParameterType:
    return PARAMETER_TYPES[text]
