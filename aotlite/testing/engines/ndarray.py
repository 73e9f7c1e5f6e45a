"""NumPy as an engine for programs: values and memory, no history.

An oracle that is independent of aotlite: each step is the line of NumPy that scripts show
(`scripts.numpy_language`). Only what arrays lack is defined here: objects that change geometry or
memory, memory that grows, and version counters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from math import prod
from types import CodeType
from typing import Any
from warnings import catch_warnings

import numpy as np

from aotlite.testing.engines.base import Engine, EngineTensor
from aotlite.testing.programs.steps import Step, is_inplace
from aotlite.testing.programs.vocabulary import GEOMETRY as MOVES
from aotlite.testing.programs.vocabulary import MULTI, VIEWS
from aotlite.testing.scripts.language import Name
from aotlite.testing.scripts.numpy_language import HELPERS, NO_MEANING, NumPyLanguage

UNTRACKED = ("detach", "hidden_alias")
"""Views that have no base (TEN-5)."""


class ArrayMemory:
    """Bytes that arrays share."""

    def __init__(self, buffer: np.ndarray) -> None:
        self.buffer = buffer


class Count:
    """A version counter; a hidden alias has its own."""

    writes = 0


class Array:
    """An object on a memory, like a tensor of PyTorch."""

    requires_grad = False
    is_leaf = True
    grad_fn = None
    grad = None

    def __init__(self, memory: ArrayMemory, count: Count, like: np.ndarray, offset: int) -> None:
        self.memory = memory
        self.count = count
        self.base: Array | None = None
        self.take(like, offset)

    def take(self, like: np.ndarray, offset: int) -> None:
        """Takes the geometry of an array that starts at `offset` bytes in the memory."""
        self.dtype, self.shape, self.strides = like.dtype, like.shape, like.strides
        self.offset = offset

    @property
    def array(self) -> np.ndarray:
        """The elements, as an array on the memory."""
        return np.ndarray(self.shape, self.dtype, self.memory.buffer, self.offset, self.strides)

    def stride(self) -> tuple[int, ...]:
        return tuple([step // self.dtype.itemsize for step in self.strides])

    def storage_offset(self) -> int:
        return self.offset // self.dtype.itemsize

    def numel(self) -> int:
        return prod(self.shape)

    def detach(self) -> Array:
        return self

    def __getattr__(self, op: str) -> Callable[..., Any]:
        if op.startswith("_"):
            raise AttributeError(op)
        return partial(run, op, self)


def on_new_memory(made: np.ndarray) -> Array:
    """An object on new memory."""
    dense = made if made.flags.owndata or not made.size else made.copy(order="K")
    flat = dense.ravel(order="K").view(np.uint8)
    return Array(ArrayMemory(flat), Count(), dense, 0)


def run(op: str, *args: Any) -> Any:
    """Returns the value of a step of programs."""
    if op == "resize_":
        return _resized(*args)
    if op == "set_":
        return _put(*args)
    if op in NO_MEANING:
        return args[0]
    target = args[0] if args and isinstance(args[0], Array) else None
    if op in MOVES:
        assert target is not None
        return _moved(target, _computed(op.rstrip("_"), args))
    if is_inplace(Step(op)):
        _computed(op, args, is_statement=True)
        assert target is not None
        target.count.writes += 1
        return target
    found = _computed(op, args)
    if op in MULTI:
        assert target is not None
        return tuple([_seen(target, each, op) for each in found])
    if target is not None and (op in VIEWS or op == "getitem") and _is_shared(op, target, found):
        return _seen(target, found, op)
    return on_new_memory(found)


def _is_shared(op: str, source: Array, found: np.ndarray) -> bool:
    """Whether a view op made a view: two ops copy if no view is possible."""
    copies = op in ("reshape", "flatten") and found.size
    return not copies or np.may_share_memory(found, source.memory.buffer)


def _seen(source: Array, found: np.ndarray, op: str) -> Array:
    """A view of an object."""
    if op == "flatten" and found.shape == source.shape:
        return source
    count = Count() if op == "hidden_alias" else source.count
    made = Array(source.memory, count, found, _start(source, found))
    if op not in UNTRACKED:
        made.base = source.base or source
    return made


def _start(source: Array, found: np.ndarray) -> int:
    """Returns the start of an array in its memory, in bytes."""
    if not found.size:
        return source.offset
    return int(found.ctypes.data - source.memory.buffer.ctypes.data)


def _moved(target: Array, found: np.ndarray) -> Array:
    target.take(found, _start(target, found))
    return target


def _put(target: Array, source: Array) -> Array:
    """`set_`: the object takes the memory and geometry of another."""
    target.memory, target.count, target.base = source.memory, source.count, None
    target.take(source.array, source.offset)
    return target


def _resized(target: Array, shape: Sequence[int]) -> Array:
    """`resize_`: additional memory is zeros."""
    if tuple(shape) == target.shape:
        return target
    like = np.empty(tuple(shape), target.dtype)
    buffer = target.memory.buffer
    lacking = target.offset + like.nbytes - buffer.size
    if like.size and lacking > 0:
        target.memory.buffer = np.concatenate([buffer, np.zeros(lacking, np.uint8)])
    target.take(like, target.offset)
    target.count.writes += 1
    return target


# --------------------------------------------------------------------------------- lines of NumPy
LANGUAGE = NumPyLanguage()


def _computed(op: str, args: Sequence[object], *, is_statement: bool = False) -> Any:
    """Returns the result of an op's line; None for a statement."""
    scope: dict[str, object] = {"np": np, **HELPERS}
    words = tuple(_word(arg, scope) for arg in args)
    if is_statement:
        with catch_warnings(action="ignore", category=np.exceptions.ComplexWarning):
            exec(_code(LANGUAGE.inplace(op, words), "exec"), scope)
        return None
    return eval(_code(LANGUAGE.expression(op, words), "eval"), scope)


def _word(arg: object, scope: dict[str, object]) -> object:
    """An argument with names in place of objects; adds their arrays to the scope."""
    if isinstance(arg, Array):
        name = f"a{len(scope)}"
        scope[name] = arg.array
        return Name(name)
    if isinstance(arg, (tuple, list)):
        return tuple(_word(item, scope) for item in arg)
    return arg


@cache
def _code(text: str, mode: str) -> CodeType:
    return compile(text, "<NumPy>", mode)


class NumPyEngine(Engine):
    """NumPy's arrays as objects on memory."""

    name = "numpy"
    tensor_type = Array

    def make(
        self, values: list[object], shape: Sequence[int], dtype: str, *, grad: bool
    ) -> EngineTensor:
        del grad
        return on_new_memory(np.array(values, self.dtype(dtype)).reshape(tuple(shape)).copy())

    def full(self, shape: Sequence[int], number: float, dtype: str) -> EngineTensor:
        return on_new_memory(np.full(tuple(shape), number, self.dtype(dtype)))

    def dtype(self, name: str) -> np.dtype:
        return np.dtype(name)

    def function(self, name: str) -> Callable[..., EngineTensor]:
        return partial(run, name)

    def alias(self, tensor: EngineTensor) -> EngineTensor:
        return run("alias", tensor)

    def hidden_alias(self, tensor: EngineTensor) -> EngineTensor:
        return run("hidden_alias", tensor)

    def resize(self, tensor: EngineTensor, shape: Sequence[int]) -> EngineTensor:
        return run("resize_", tensor, shape)

    def no_grad(self) -> AbstractContextManager[object]:
        return nullcontext()

    def backward(self, tensors: Sequence[Any], gradients: Sequence[Any]) -> None:
        """Nothing: no array requires grad."""

    def storage_of(self, tensor: Any) -> int:
        return id(tensor.memory)

    def version_of(self, tensor: Any) -> int:
        writes: int = tensor.count.writes
        return writes

    def base_of(self, tensor: Any) -> EngineTensor | None:
        return tensor.base

    def bytes_of(self, tensor: Any) -> bytes:
        return tensor.array.tobytes()

    def call(self, op: str, args: Sequence[object]) -> Any:
        if op in ("make", "full", "ints"):
            return super().call(op, args)
        return run(op, *args)
