"""Calls of compiled graphs: from arrays to C and back with one call of a builtin function.

The fast way reads each array's data pointer where CPython and NumPy keep it, which is looked at
once a process; where it is not there, addresses are asked for one by one.
Spec: `specs/cpu_runtime.md`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import attrs
import numpy as np

from aotlite.backends.cpu.runtime.runtime_library import Runtime, load_runtime
from aotlite.backends.native.libraries.shared_library import LibraryFunction
from aotlite.backends.protocol import Window
from aotlite.ir.errors import BackendError

Launch = Callable[[list[np.ndarray | Window]], int]
"""Takes an array or a window for each value slot; returns what `run` returned."""


class _Call(ctypes.Structure):
    """`al_call`"""

    _fields_ = (
        ("run", ctypes.c_void_p),
        ("values", ctypes.c_int64),
        ("constants", ctypes.c_int64),
        ("arena_bytes", ctypes.c_int64),
        ("brief", ctypes.c_int64),
        ("sizes", ctypes.c_void_p),
        ("constant_slots", ctypes.c_void_p),
    )
    owners: tuple[Any, ...]


_FUNCTIONS = (
    "PyObject_IsInstance",
    "PyList_Size",
    "PyList_GetItem",
    "PyTuple_Size",
    "PyTuple_GetItem",
    "PyLong_AsLongLong",
    "PyLong_FromLongLong",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "PyErr_SetString",
    "PyErr_NoMemory",
)


class _Python(ctypes.Structure):
    """`al_python`"""

    _fields_ = (
        ("array_type", ctypes.c_void_p),
        ("tuple_type", ctypes.c_void_p),
        ("error", ctypes.c_void_p),
        ("type_offset", ctypes.c_int64),
        ("data_offset", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in _FUNCTIONS),
    )


@attrs.frozen
class Signature:
    """What the slots of a compiled graph are: values of a call, constants, scratch memory."""

    sizes: Sequence[int]
    """Bytes of an element, of each value that a call brings."""
    constants: Sequence[np.ndarray | Window] = ()
    arena_bytes: int = 0
    """Of the last slot, which begins a page and belongs to one run at a time."""
    brief: bool = False
    """Runs are over in microseconds: they keep the interpreter's lock, as NumPy's small ufuncs do,
    since getting it back from a busy thread takes milliseconds."""


def launcher(run: Any, signature: Signature) -> Launch:
    """A function that runs a compiled graph; threads may call it at the same time.

    `run` is the library's `int run(void **slots, const al_runtime *runtime)`, a `LibraryFunction`
    or as ctypes gives it. What is returned refers to it, and so to its library. Values that a call
    brings must be as long as the kernel assumes; their alignment is that of their elements. Nothing
    is checked but that they are arrays or windows. What is called returns what `run` returns; it
    raises MemoryError where there is no scratch memory.
    """
    runtime = load_runtime()
    call = _call(run, signature)
    make = _maker(runtime)
    return slow_launch(runtime, call) if make is None else make(call)


def _call(run: Any, signature: Signature) -> _Call:
    sizes, constants = signature.sizes, signature.constants
    element_sizes = (ctypes.c_int64 * len(sizes))(*sizes)
    slots = (ctypes.c_void_p * len(constants))(*map(_constant_address, constants))
    call = _Call(
        run=run.address
        if isinstance(run, LibraryFunction)
        else ctypes.cast(run, ctypes.c_void_p).value,
        values=len(sizes),
        constants=len(constants),
        arena_bytes=signature.arena_bytes,
        brief=signature.brief,
        sizes=ctypes.addressof(element_sizes),
        constant_slots=ctypes.addressof(slots),
    )
    call.owners = (run, element_sizes, slots, tuple(constants))
    return call


def _constant_address(value: np.ndarray | Window) -> int:
    size = (value[0] if isinstance(value, tuple) else value).itemsize
    return address(value, size)


def address(value: np.ndarray | Window, size: int) -> int:
    """Where a value begins, as the C side finds it."""
    array, start = value if isinstance(value, tuple) and len(value) == 2 else (value, 0)
    if not isinstance(array, np.ndarray) or type(start) is not int or start < 0:
        raise BackendError(
            f"launch: a value is of type {type(value).__name__}, expected an ndarray or a window "
            "(ndarray, start)"
        )
    return array.ctypes.data + start * size


# -------------------------------------------------------------------------------------- fast way
@cache
def _maker(runtime: Runtime) -> Callable[[_Call], Launch] | None:
    """What makes a builtin function for a call; None where objects are laid out in another way."""
    offsets = layout(runtime)
    if offsets is None:
        return None
    known = (id(np.ndarray), id(tuple), id(BackendError), *offsets)
    api = ctypes.pythonapi
    functions = (ctypes.cast(getattr(api, name), ctypes.c_void_p).value for name in _FUNCTIONS)
    runtime.library.al_method.restype = ctypes.c_void_p
    method = runtime.library.al_method(ctypes.byref(_Python(*known, *functions)))
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
        ("PyCFunction_NewEx", api)
    )

    def make(call: _Call) -> Launch:
        # The function owns this array, the array the call, the call what it points to.
        function: Launch = new(method, np.frombuffer(memoryview(call), np.uint8), None)
        return function

    return make


def layout(runtime: Runtime) -> tuple[int, int] | None:
    """How far from their beginnings objects keep their type, and ndarrays their data pointer.

    None where that is not at the end of the header that all objects of CPython have, and behind it.
    """
    header = object.__basicsize__
    whole = np.arange(24.0).reshape(4, 6)
    arrays = (whole, whole[1:, 2:], whole.T, whole.view(np.uint8), np.empty(0), np.array(1))
    if not hasattr(ctypes, "pythonapi") or header < 16 or header + 8 > np.ndarray.__basicsize__:
        return None
    read = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_int64)(
        ("al_pointer_at", runtime.library)
    )
    values: tuple[object, ...] = (*arrays, (), [], 1)
    of_types = all(read(value, header - 8) == id(type(value)) for value in values)
    of_data = all((read(array, header) or 0) == array.ctypes.data for array in arrays)
    return (header - 8, header) if of_types and of_data else None


# -------------------------------------------------------------------------------------- slow way
def slow_launch(runtime: Runtime, call: _Call) -> Launch:
    """The same as a Python function: some microseconds an array."""
    al_run = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(
        ("al_run", runtime.library)
    )
    sizes = (ctypes.c_int64 * call.values).from_address(call.sizes)[:]

    def launch(values: list[np.ndarray | Window]) -> int:
        if not isinstance(values, list) or len(values) != len(sizes):
            raise BackendError("launch: values are not a list, or not as many as the kernel has")
        found = [address(value, size) for value, size in zip(values, sizes, strict=True)]
        slots = (ctypes.c_void_p * (call.values + call.constants + 1))(*found)
        code: int = al_run(ctypes.addressof(call), ctypes.addressof(slots))
        if code < 0:
            raise MemoryError
        return code

    return launch
