"""Exchange with NumPy, DLPack and buffers: memory is shared in both directions, or copied."""

from __future__ import annotations

import gc

from aotlite.conformance.adapter import Adapter, Array
from aotlite.conformance.models.memory_model import Shape
from aotlite.conformance.models.model_arrays import Chain, chain, new
from aotlite.conformance.rules import attempt, expect, rule
from aotlite.conformance.rules.cases import layouts
from aotlite.conformance.unsupported import Absent

SIZES = (1, 2, 64)


def mutual(on: Adapter, source: Array, made: Array) -> None:
    """Checks that a one-dimensional NumPy array and an array of the library share memory."""
    on.assign_item(source, 0, 100)
    got = on.to_list(made)
    expect(got[0], 100, "the first element after the write to the other side")
    try:
        on.setitem(made, 0, 200)
    except Absent:
        return
    expect(on.numpy_values(source)[0], 200, "the other side's first element after a write")


@rule("EXC-1", "from_numpy shares memory both ways", SIZES)
def from_numpy(on: Adapter, case: int) -> None:
    """A write by NumPy shows in the library's array, and the reverse."""
    source = on.numpy_source(case)
    mutual(on, source, on.from_numpy(source))


@rule("EXC-2", "to_numpy shares memory both ways", SIZES)
def to_numpy(on: Adapter, case: int) -> None:
    """A write by NumPy shows in the library's array, and the reverse."""
    twin = new(on, (case,))
    seen = on.to_numpy(twin.array)
    on.setitem(twin.array, 0, 200)
    expect(on.numpy_values(seen)[0], 200, "the first element of NumPy's array after the write")
    on.assign_item(seen, 0, 100)
    expect(on.to_list(twin.array)[0], 100, "the first element after NumPy's write")


@rule("EXC-3", "to_numpy keeps every layout", lambda: layouts())
def numpy_layouts(on: Adapter, case: Chain) -> None:
    """NumPy reads transposed and gapped arrays with the right values."""
    _, [twin] = chain(on, case)
    expect(on.numpy_values(on.to_numpy(twin.array)), twin.values(), "NumPy's values")


NUMPY_KEYS: tuple[object, ...] = (
    slice(None), slice(1, None), slice(None, None, 2), slice(None, None, -1), slice(0, 0),
    (None, slice(2)), (slice(3, None, -2), None),
)  # fmt: skip


@rule("EXC-4", "from_numpy of every layout: refused or right", NUMPY_KEYS)
def from_layouts(on: Adapter, case: object) -> None:
    """NumPy arrays with gaps or negative strides have the right values, or are refused."""
    source = on.index_numpy(on.numpy_source(4), case)
    made: list[Array] = []
    if attempt(lambda: made.append(on.from_numpy(source))) is None:
        expect(on.to_list(made[0]), on.numpy_values(source), "the values")


@rule("EXC-5", "read-only memory of NumPy is never written", [
    (size, way) for size in SIZES for way in ("from_numpy", "convert", "from_dlpack")
])  # fmt: skip
def read_only(on: Adapter, case: tuple[int, str]) -> None:
    """A read-only NumPy array is refused, copied, or not written."""
    size, way = case
    source = on.numpy_read_only(size)
    made: list[Array] = []
    if attempt(lambda: made.append(getattr(on, way)(source))) is None:
        attempt(on.setitem, made[0], 0, 100)
    expect(on.numpy_values(source), list(range(size)), "the read-only memory after the attempt")


@rule("EXC-6", "from_dlpack shares memory both ways", SIZES)
def from_dlpack(on: Adapter, case: int) -> None:
    """A write by NumPy shows in the array that DLPack made of its memory, and the reverse."""
    if on.immutable:
        raise Absent("arrays that can be written")
    source = on.numpy_source(case)
    mutual(on, source, on.from_dlpack(source))


@rule("EXC-7", "NumPy's from_dlpack shares memory", SIZES)
def dlpack_to_numpy(on: Adapter, case: int) -> None:
    """The NumPy array that DLPack made shows later writes by the library."""
    twin = new(on, (case,))
    seen = on.dlpack_to_numpy(twin.array)
    on.setitem(twin.array, 0, 200)
    expect(on.numpy_values(seen)[0], 200, "the first element of NumPy's array after the write")


@rule("EXC-8", "DLPack keeps every layout", lambda: layouts())
def dlpack_layouts(on: Adapter, case: Chain) -> None:
    """NumPy reads transposed and gapped arrays with the right values."""
    _, [twin] = chain(on, case)
    expect(on.numpy_values(on.dlpack_to_numpy(twin.array)), twin.values(), "NumPy's values")


@rule("EXC-9", "from_dlpack of the library's own array shares memory", SIZES)
def dlpack_itself(on: Adapter, case: int) -> None:
    """The new array shows later writes to the original."""
    twin = new(on, (case,))
    made = on.from_dlpack(twin.array)
    on.setitem(twin.array, 0, 200)
    expect(on.to_list(made)[0], 200, "the first element after the write")


@rule("EXC-10", "from_buffer shares the memory of a writable buffer", SIZES)
def from_buffer(on: Adapter, case: int) -> None:
    """A write to the Python buffer shows in the array."""
    buffer = on.python_bytes(case, True)
    made = on.from_buffer(buffer, "uint8")
    on.assign_item(buffer, 0, 100)
    expect(on.to_list(made)[0], 100, "the first element after the write")


@rule("EXC-11", "an immutable buffer is never written", (2, 64))
def read_only_buffer(on: Adapter, case: int) -> None:
    """Python's `bytes` are refused, copied, or not written. (Python shares single bytes.)"""
    buffer = on.python_bytes(case, False)
    made: list[Array] = []
    if attempt(lambda: made.append(on.from_buffer(buffer, "uint8"))) is None:
        attempt(on.setitem, made[0], 0, 100)
    expect(list(buffer), list(range(case)), "the bytes after the attempt")


@rule("EXC-12", "the buffer protocol shares memory", SIZES)
def memoryview(on: Adapter, case: int) -> None:
    """A memoryview of an array shows later writes to the array."""
    twin = new(on, (case,))
    seen = on.memoryview(twin.array)
    on.setitem(twin.array, 0, 200)
    expect(seen[0], 200, "the first element of the memoryview")


@rule("EXC-13", "shared memory outlives NumPy's array", [
    (size, way) for size in (1, 64, 4096) for way in ("from_numpy", "from_dlpack", "convert")
])  # fmt: skip
def outlives(on: Adapter, case: tuple[int, str]) -> None:
    """An array on NumPy's memory keeps its values after NumPy's array is deleted."""
    size, way = case
    made = on.from_dying_numpy(way, size)
    gc.collect(0)
    others = [on.numpy_source(size) for _ in range(4)]
    expect(on.to_list(made), list(range(size)), f"the values, with {len(others)} other arrays")


@rule("EXC-14", "conversion from NumPy shares both ways, or copies", SIZES)
def conversion(on: Adapter, case: int) -> None:
    """The library's default conversion never shares writes in one direction alone."""
    source = on.numpy_source(case)
    made = on.convert(source)
    on.assign_item(source, 0, 100)
    shared = on.to_list(made)[0] == 100
    on.setitem(made, 0, 200)
    expect(on.numpy_values(source)[0] == 200, shared, "whether NumPy sees the library's write")


@rule("EXC-15", "resize_ does not free memory that NumPy shares", [(1,), (2,)])
def not_moved(on: Adapter, case: Shape) -> None:
    """After `resize_`, or its refusal, NumPy still reads the old values."""
    twin = new(on, case, first=1)
    seen = on.to_numpy(twin.array)
    attempt(on.resize_, twin.array, (4096,))
    expect(on.numpy_values(seen), twin.values(), "NumPy's values")
