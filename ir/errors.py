"""The errors that aotlite raises, and `noted`, which adds notes to one.

Ground floor: imported by every module, imports nothing.
Each class derives from `AotliteError` and from the builtin that a user would catch.
A message reads `<op or stage>: <what> is <got>, expected <rule>`. The node, the user's line, the
rule's number and the remedy are notes (PEP 678).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar, TypeVar

__all__ = [
    "AbsentError",
    "AliasError",
    "AotliteError",
    "ArgumentError",
    "AutogradError",
    "BackendError",
    "DTypeError",
    "DeviceError",
    "ExportError",
    "ExportWarning",
    "FormatError",
    "FreezeError",
    "GraphError",
    "GuardError",
    "IndexOutOfRangeError",
    "LinAlgError",
    "MissingExtraError",
    "OutOfMemoryError",
    "ProtocolError",
    "RngError",
    "ShapeError",
    "SubclassError",
    "TangentError",
    "TokenError",
    "UnsupportedError",
    "noted",
]


class AotliteError(Exception):
    """Base of every error that aotlite raises on purpose."""

    reading: ClassVar[Callable[[object], object] | None] = None
    """What a text, or other argument, is passed through when somebody reads it (DYN-23)."""

    def __str__(self) -> str:
        return str(_read(super().__str__()))

    def __repr__(self) -> str:
        return str(_read(super().__repr__()))

    @property
    def args(self) -> tuple[object, ...]:
        return tuple(map(_read, _ARGS.__get__(self)))

    @args.setter
    def args(self, given: tuple[object, ...]) -> None:
        _ARGS.__set__(self, given)


_ARGS = vars(BaseException)["args"]


def _read(value: object) -> object:
    return value if AotliteError.reading is None else AotliteError.reading(value)


class ShapeError(AotliteError, ValueError):
    """Shapes, sizes or strides that do not fit together."""


class ArgumentError(AotliteError, ValueError, TypeError):
    """An argument that is missing, surplus, or of the wrong type or value."""


class NumberOverflowError(ArgumentError, OverflowError):
    """An op overflowed on a number that is too large. Also an OverflowError, like its cause."""


class RngError(ArgumentError):
    """A seed, an offset or a state that is invalid for a random generator, or not allowed here."""


class DTypeError(AotliteError, TypeError):
    """A dtype that is unknown, or that an op does not take."""


class IndexOutOfRangeError(AotliteError, IndexError):
    """An index or a dimension outside its range."""


class AliasError(AotliteError, RuntimeError):
    """Tensors share memory, or one overlaps itself, where the op has no defined result then."""


class AutogradError(AotliteError, RuntimeError):
    """A rule of differentiation is broken: a saved value was written, a leaf changed in place."""


class UnsupportedError(AotliteError, RuntimeError):
    """A legal program that aotlite does not support."""


class AbsentError(AotliteError, AttributeError):
    """An attribute that NumPy's ndarray does not have, although tensors may."""


class SubclassError(AotliteError, TypeError):
    """A wrapper subclass does not implement an op, or cannot be built from the tensors given."""


class ProtocolError(SubclassError):
    """A wrapper subclass breaks its protocol, such as by returning a wrong type or shape."""


class TokenError(AotliteError, RuntimeError):
    """An effect would be dropped, repeated or reordered, or an op cannot be an effect."""


class TangentError(AotliteError, RuntimeError):
    """A tangent does not have the class or layout that the backward was compiled for."""


class DeviceError(AotliteError, RuntimeError):
    """A device that is absent, or operands on different devices."""


class OutOfMemoryError(AotliteError, MemoryError):
    """An allocation failed on a device or on the host. Nothing was kept of it."""


class BackendError(AotliteError, RuntimeError):
    """A backend failed: no toolchain, a kernel that does not build or launch."""


class LinAlgError(AotliteError, RuntimeError):
    """A matrix that has no inverse or no such decomposition."""


class GuardError(AotliteError, RuntimeError):
    """An assumption of compiled code does not hold in this call."""


class GraphError(AotliteError, RuntimeError):
    """A graph breaks an invariant. No user input can cause this: it is a bug of aotlite."""


class FormatError(AotliteError, ValueError):
    """A file or a text is not in the format that its reader expects."""


class ExportError(AotliteError, RuntimeError):
    """A program cannot be exported under the convention that was asked for."""


class FreezeError(AotliteError, RuntimeError):
    """A frozen tensor would have to be trained, or was erased from its module (FRZ-4, FRZ-8)."""


class ExportWarning(UserWarning):
    """A program was exported with something fixed that each call of the function asks anew."""


class MissingExtraError(AotliteError, ImportError):
    """An optional dependency is absent; the message says what to install."""


ErrorT = TypeVar("ErrorT", bound=BaseException)


def noted(error: ErrorT, *notes: str | None) -> ErrorT:
    """Returns `error` itself, with every note that is not None added to it, in order.

    >>> error = noted(ShapeError("view: numel is 6, expected 8"), "in %3 = view(%2, [8])", None)
    >>> error.__notes__
    ['in %3 = view(%2, [8])']
    """
    for note in notes:
        if note is not None:
            error.add_note(note)
    return error


def out_of_memory(what: str, error: MemoryError) -> MemoryError:
    """The `OutOfMemoryError` for a failed allocation; an error of aotlite's is returned itself.

    NumPy's error knows the shape and dtype, so that the message can name the bytes.

    >>> print(out_of_memory("add", MemoryError()))
    add: memory is asked for that the system does not give, expected less
    """
    if isinstance(error, AotliteError):
        return error
    shape, dtype = getattr(error, "shape", None), getattr(error, "dtype", None)  # of NumPy's
    asked = "memory is" if shape is None else f"{math.prod(shape) * dtype.itemsize} bytes are"  # type: ignore[union-attr]
    return OutOfMemoryError(
        f"{what}: {asked} asked for that the system does not give, expected less"
    )


BUILTIN = (MemoryError, OverflowError, ValueError, IndexError)
"""What Python and NumPy raise of numbers that are too large for them."""


_TOO_BIG = ("array is too big", "Maximum allowed")
"""How NumPy's errors begin of arrays beyond 63 bits; they are plain ValueErrors."""


def in_words(what: str, values: Iterable[object], error: Exception) -> Exception:
    """The aotlite error for one of memory or of numbers that are too large; any other is itself.

    `values` are the op's arguments: an int among them that 64 bits cannot hold is the cause.

    >>> print(in_words("tril", (1 << 70,), OverflowError()))
    tril: a number is an int of 71 bits, expected one of 64 bits
    """
    if isinstance(error, AotliteError):
        return error
    if isinstance(error, MemoryError):
        return out_of_memory(what, error)
    for value in _numbers(values):
        if not -(2**63) <= value < 2**63:
            got, expected = too_long(value)
            return ArgumentError(f"{what}: {got}, expected {expected}")
    if isinstance(error, ValueError) and str(error).startswith(_TOO_BIG):
        return OutOfMemoryError(
            f"{what}: an array is asked for that no address reaches the end of, expected less"
        )
    if isinstance(error, OverflowError):
        return NumberOverflowError(
            f"{what}: with its numbers there is an overflow ({error}), expected smaller ones"
        )
    return error


def too_long(number: int) -> tuple[str, str]:
    """The words (got, expected) of an error about an int that no dtype holds."""
    bits = number.bit_length() + (number < 0)
    return f"a number is an int of {bits} bits", "one of 64 bits"


def _numbers(values: Iterable[object]) -> Iterator[int]:
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from _numbers(value)
        elif type(value) is int:
            yield value


def in_op(error: ErrorT, name: str) -> ErrorT:
    """Returns `error` itself, with a note that names the op, unless it does already.

    >>> in_op(ShapeError("view: numel is 6, expected 8"), "reshape").__notes__
    ['in reshape']
    """
    told = [str(error), *getattr(error, "__notes__", ())]
    if not any(text.startswith((f"{name}:", f"in {name}")) for text in told):
        error.add_note(f"in {name}")
    return error
