"""Strategies for memory, for layouts on it, and for the numbers in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
from hypothesis import strategies as st

from aotlite.ir.errors import ArgumentError
from aotlite.testing.generate.choices import DTYPES, Source, chosen
from aotlite.testing.generate.layouts import Layout, Storage
from aotlite.testing.observe.exact_numbers import BITS
from aotlite.testing.strategies.hypothesis_choices import Choices

Geometry = tuple[tuple[int, ...], tuple[int, ...]]
SIZES = (2, 1, 3, 4, 0)


def exact_numbers(dtype: str = "float64") -> st.SearchStrategy[object]:
    """Numbers of a dtype, for which small programs compute exact sums and products.

    Small whole numbers; with 64 bits also quarters, for up to five factors; bools for "bool".

    >>> from hypothesis import find
    >>> find(exact_numbers("float64"), lambda number: number < 0)
    -1.0
    """
    if dtype == "bool":
        return st.booleans()
    if dtype.startswith("complex"):
        parts = exact_numbers("float64" if dtype == "complex128" else "float32")
        return st.builds(complex, parts, parts)
    if dtype.startswith(("int", "uint")):
        return st.integers(0 if dtype[0] == "u" else -4, 4)
    if dtype not in BITS:
        raise ArgumentError(
            f"exact_numbers: the dtype is {dtype!r}, expected bool, an integer dtype or one of "
            f"{', '.join(BITS)}"
        )
    whole = st.integers(-4, 4).map(float)
    if BITS[dtype] < 50:
        return whole
    return whole | st.integers(-15, 15).map(lambda quarters: quarters / 4)


def storages(
    *,
    dtypes: Sequence[str] | None = None,
    max_size: int = 12,
    requires_grad: bool | None = None,
) -> st.SearchStrategy[Storage]:
    """Memory of 1 to `max_size` numbers; `requires_grad` None: either.

    >>> from hypothesis import find
    >>> find(storages(), lambda storage: storage.size > 4)
    Storage(size=5, dtype='float64', seed=0, requires_grad=False)
    """
    names = chosen("storages", "dtypes", DTYPES, dtypes)
    if max_size < 1:
        raise ArgumentError(f"storages: max_size is {max_size}, expected 1 or more")
    grads = st.booleans() if requires_grad is None else st.just(requires_grad)
    made = st.builds(Storage, st.integers(1, max_size), st.sampled_from(names), st.integers(0, 6))
    return st.builds(_with_grad, made, grads)


def _with_grad(storage: Storage, requires_grad: bool) -> Storage:
    is_float = not storage.dtype.startswith("int")
    return attrs.evolve(storage, requires_grad=requires_grad and is_float)


def layouts(
    storage: Storage | st.SearchStrategy[Storage] | None = None,
    *,
    overlapping: bool | None = None,
    dtypes: Sequence[str] | None = None,
    max_dims: int = 3,
) -> st.SearchStrategy[Layout]:
    """Layouts on a storage: any shape, stride and offset within it; no stride is negative.

    `overlapping` True: two elements have one address; False: none have; None: either. `dtypes`:
    those of the tensor that fit the storage; the storage's own if None is given or none fits.

    >>> from hypothesis import find
    >>> find(layouts(Storage(4), overlapping=True), lambda layout: layout.offset > 1).places()
    (2, 2)
    """
    if not 0 <= max_dims <= 6:
        raise ArgumentError(f"layouts: max_dims is {max_dims}, expected 0 to 6")
    if overlapping and not max_dims:
        raise ArgumentError("layouts: max_dims is 0, expected more: one element does not overlap")
    names = None if dtypes is None else chosen("layouts", "dtypes", DTYPES, dtypes)
    memory = storages() if storage is None else storage
    memory = st.just(memory) if isinstance(memory, Storage) else memory
    way = {None: _any, True: _overlapping, False: _apart}[overlapping]
    return _layouts(memory, way, names or (), max_dims)


@st.composite
def _layouts(
    draw: st.DrawFn,
    memory: st.SearchStrategy[Storage],
    way: Callable[[Source, int, int], Geometry],
    dtypes: Sequence[str],
    max_dims: int,
) -> Layout:
    source = Choices(draw)
    storage = draw(memory)
    dtype = source.choice([name for name in dtypes if storage.count(name)] or [storage.dtype])
    room = storage.count(dtype)
    shape, stride = way(source, room, source.randint(0, max_dims))
    start = Layout(storage, shape, stride, 0, dtype)
    return attrs.evolve(start, offset=source.randint(0, room - start.end))


def _any(source: Source, room: int, dims: int) -> Geometry:
    """A geometry that spans at most `room` elements."""
    shape, stride = [], []
    for _ in range(dims):
        size = source.choice(SIZES)
        most = (room - 1) // (size - 1) if size > 1 else room
        shape.append(size)
        stride.append(source.randint(0, most))
        room -= max(size - 1, 0) * stride[-1]
    order = source.sample(range(dims), dims)
    return tuple(shape[i] for i in order), tuple(stride[i] for i in order)


def _overlapping(source: Source, room: int, dims: int) -> Geometry:
    """A geometry in which two indices have one address."""
    shape, stride = map(list, _any(source, room, max(dims, 1)))
    shape = [size or 1 for size in shape]
    if Layout(Storage(room), tuple(shape), tuple(stride)).overlaps:
        return tuple(shape), tuple(stride)
    dim = source.randrange(len(shape))
    shape[dim], stride[dim] = max(shape[dim], 2), 0
    return tuple(shape), tuple(stride)


def _apart(source: Source, room: int, dims: int) -> Geometry:
    """A geometry in which each index has its own address.

    The drawn one if it has the property, else one with nested dimensions.
    """
    shape, stride = _any(source, room, dims)
    if not Layout(Storage(room), shape, stride).overlaps:
        return shape, stride
    sizes, steps, span = [], [], 1
    for _ in range(dims):
        sizes.append(source.randint(1, max(room // span, 1)))
        steps.append(span)
        span *= sizes[-1]
    return tuple(reversed(sizes)), tuple(reversed(steps))
