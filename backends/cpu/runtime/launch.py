"""Launches of compiled graphs: one call of a builtin function takes arrays to C and back.

The fast way is a builtin function made of the runtime library. It reads each array's data pointer
at its offset in CPython's and NumPy's objects, which is verified once a process. Where the layout
differs, the slow way asks each array for its address. Spec: `specs/cpu_runtime.md`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import attrs
import numpy as np

from aotlite.backends.calling_convention import Window
from aotlite.backends.cpu.runtime.runtime_library import Runtime, load_runtime
from aotlite.backends.native.libraries.shared_library import LibraryFunction
from aotlite.ir.errors import BackendError

Launch = Callable[[list[np.ndarray | Window]], int]
"""Takes an array or a window for each value's slot; returns the result of the C function."""


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
    owners: tuple[object, ...]


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
    """The slots of a compiled graph: values of the call, then constants, then the arena."""

    sizes: Sequence[int] | np.ndarray
    """The item size of each value of the call."""
    constants: Sequence[np.ndarray | Window] = ()
    arena_bytes: int = 0
    """The size of the arena, the last slot. It begins at a page and belongs to one run."""
    brief: bool = False
    """Whether runs take microseconds. They keep the GIL then, as NumPy's small ufuncs do, since
    getting it back from a busy thread takes milliseconds."""


def launcher(run: object, signature: Signature) -> Launch:
    """Returns a function that runs a compiled graph. Threads may call it at the same time.

    `run` is the C function `int run(void **slots, const al_runtime *runtime)`, as a
    `LibraryFunction` or a ctypes function. The returned function refers to it, and keeps its
    library loaded. It checks that values are arrays or windows, and nothing else: they must be as
    long as the kernels assume, and aligned to their elements. It returns the result of `run`, and
    raises MemoryError where there is no memory for the arena.
    """
    runtime = load_runtime()
    call = _call(run, signature)
    make = _maker(runtime)
    return slow_launch(runtime, call) if make is None else make(call)


def _call(run: Any, signature: Signature) -> _Call:
    sizes, constants = signature.sizes, signature.constants
    # Arrays of NumPy: ctypes makes a class for each length, a cycle, left to the collector.
    element_sizes = np.asarray(sizes, np.int64)
    slots = np.array([_constant_address(each) for each in constants], np.uintp)
    call = _Call(
        run=run.address
        if isinstance(run, LibraryFunction)
        else ctypes.cast(run, ctypes.c_void_p).value,
        values=len(sizes),
        constants=len(constants),
        arena_bytes=signature.arena_bytes,
        brief=signature.brief,
        sizes=element_sizes.ctypes.data,
        constant_slots=slots.ctypes.data,
    )
    call.owners = (run, element_sizes, slots, tuple(constants))
    return call


def _constant_address(value: np.ndarray | Window) -> int:
    size = (value[0] if isinstance(value, tuple) else value).itemsize
    return address(value, size)


def address(value: np.ndarray | Window, size: int) -> int:
    """Returns the address of a value's first element."""
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
    """Returns a maker of builtin functions for calls; None where the layout of objects differs."""
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
        # The function owns this array, the array the call, the call its pointers' targets.
        function: Launch = new(method, np.frombuffer(memoryview(call), np.uint8), None)
        return function

    return make


def layout(runtime: Runtime) -> tuple[int, int] | None:
    """Returns the offsets of an object's type and of an ndarray's data pointer.

    None unless the type is the last field of CPython's object header, and the data pointer follows
    it, in all objects that are tried.
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
    """Returns the launch as a Python function, which takes some microseconds for each array."""
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
