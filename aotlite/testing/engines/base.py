"""The interface of programs to a library: the base class `Engine`, and `engine(name)`.

Place: `aotlite.testing`, below everything that runs programs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from math import prod
from typing import Any, Protocol

from aotlite.ir.errors import ArgumentError
from aotlite.testing.programs.numbers import numbers


class EngineTensor(Protocol):
    """A tensor of any engine: it has PyTorch's methods, of which these return no tensor."""

    @property
    def shape(self) -> Sequence[int]: ...
    @property
    def dtype(self) -> Any: ...
    @property
    def requires_grad(self) -> bool: ...
    @property
    def is_leaf(self) -> bool: ...
    @property
    def grad_fn(self) -> object: ...
    @property
    def grad(self) -> EngineTensor | None: ...
    def dim(self) -> int: ...
    def numel(self) -> int: ...
    def stride(self) -> tuple[int, ...]: ...
    def storage_offset(self) -> int: ...
    def __getattr__(self, name: str, /) -> Callable[..., EngineTensor]: ...
    def __getitem__(self, index: object, /) -> EngineTensor: ...
    def __setitem__(self, index: object, value: object, /) -> None: ...


class Engine(ABC):
    """An array library that programs run on. Tensors have PyTorch's methods, unless `call` is
    overridden."""

    name: str
    tensor_type: Any
    """The class of tensors, or a tuple of classes."""

    @abstractmethod
    def make(
        self, values: list[object], shape: Sequence[int], dtype: str, *, grad: bool
    ) -> EngineTensor:
        """A contiguous leaf on new memory, with these values in row-major order."""

    @abstractmethod
    def full(self, shape: Sequence[int], number: float, dtype: str) -> EngineTensor:
        """A tensor of one number."""

    @abstractmethod
    def dtype(self, name: str) -> Any:
        """The library's dtype of a name like "float64"."""

    @abstractmethod
    def function(self, name: str) -> Callable[..., EngineTensor]:
        """A top-level function of the library."""

    @abstractmethod
    def alias(self, tensor: EngineTensor) -> EngineTensor:
        """A view of the same geometry, with history."""

    @abstractmethod
    def hidden_alias(self, tensor: EngineTensor) -> EngineTensor:
        """An alias without history and with its own version counter (TEN-5)."""

    @abstractmethod
    def resize(self, tensor: EngineTensor, shape: Sequence[int]) -> EngineTensor:
        """`resize_`; new memory is zeros."""

    @abstractmethod
    def no_grad(self) -> AbstractContextManager[object]:
        """The context manager."""

    @abstractmethod
    def backward(
        self, tensors: Sequence[EngineTensor], gradients: Sequence[EngineTensor | None]
    ) -> None:
        """Adds to the `.grad` of leaves."""

    @abstractmethod
    def storage_of(self, tensor: EngineTensor) -> int:
        """Returns a number for the tensor's memory, equal for all views, hidden aliases too."""

    @abstractmethod
    def version_of(self, tensor: EngineTensor) -> int:
        """The count of writes (TEN-10)."""

    @abstractmethod
    def base_of(self, tensor: EngineTensor) -> EngineTensor | None:
        """The base of a view, or None (TEN-3)."""

    @abstractmethod
    def bytes_of(self, tensor: EngineTensor) -> bytes:
        """The elements in the order of indices."""

    def call(self, op: str, args: Sequence[object]) -> Any:
        """The result of an op of programs; see `aotlite.testing.programs.steps` for their names."""
        special = SPECIAL.get(op)
        if special is not None:
            return special(self, *args)
        return getattr(args[0], op)(*args[1:])

    def __reduce__(self) -> tuple[object, ...]:
        return engine, (self.name,)


ENGINES: dict[str, Callable[[], Engine]] = {}
"""Name -> maker of each shipped engine; the package fills it."""


@cache
def _shipped(name: str) -> Engine:
    return ENGINES[name]()


def engine(name: str | Engine = "aotlite") -> Engine:
    """Returns the engine of a name, or the engine itself.

    Raises `ArgumentError` for an unknown name, `MissingExtraError` if its library is not installed.

    >>> engine("aotlite").name
    'aotlite'
    """
    if isinstance(name, Engine):
        return name
    if name not in ENGINES:
        known = ", ".join(map(repr, ENGINES))
        raise ArgumentError(f"engine: the name is {name!r}, expected one of {known}")
    return _shipped(name)


def index_of(items: Sequence[object]) -> tuple[object, ...]:
    """The index of a list in programs: ints, "1:3", "...", "none", tensors."""
    return tuple(_index_item(item) if isinstance(item, str) else item for item in items)


def _index_item(text: str) -> object:
    if text in ("...", "none"):
        return ... if text == "..." else None
    return slice(*[int(part) if part else None for part in text.split(":")])


def _make(engine: Engine, seed: int, shape: Sequence[int], dtype: str, grad: bool) -> object:
    return engine.make(numbers(prod(shape), seed, dtype), shape, dtype, grad=grad)


def _setitem(_: Engine, tensor: EngineTensor, index: Sequence[object], value: object) -> object:
    tensor[index_of(index)] = value
    return tensor


SPECIAL: dict[str, Callable[..., object]] = {
    "make": _make,
    "full": lambda engine, shape, number, dtype: engine.full(shape, number, dtype),
    "ints": lambda engine, values: engine.make(list(values), [len(values)], "int64", grad=False),
    "getitem": lambda _, x, index: x[index_of(index)],
    "setitem": _setitem,
    "index_put_": lambda _, x, index, value: x.index_put_(tuple(index), value),
    "real": lambda _, x: x.real,
    "imag": lambda _, x: x.imag,
    "view_dtype": lambda engine, x, dtype: x.view(engine.dtype(dtype)),
    "to": lambda engine, x, dtype: x.to(engine.dtype(dtype)),
    "view_as_real": lambda engine, x: engine.function("view_as_real")(x),
    "view_as_complex": lambda engine, x: engine.function("view_as_complex")(x),
    "resize_": lambda engine, x, shape: engine.resize(x, shape),
    "alias": lambda engine, x: engine.alias(x),
    "hidden_alias": lambda engine, x: engine.hidden_alias(x),
}
"""Ops that are no methods of tensors, or differ between libraries."""
