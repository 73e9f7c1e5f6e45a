"""Functions that written files hold: the source of each that a file needs goes into it as it is.

They need NumPy alone, and nothing of this package but each other; the file's text is
`inspect.getsource` of them (`file_parts.py`). Rules: PYX-2, PYX-3, PYX-7, PYX-10. Spec:
`specs/to_python.md`.
"""

# The texts are read by people who know NumPy and not aotlite, and have no annotations.
# mypy: ignore-errors
import base64
import zlib

import numpy as np


def _array(name, value, shape, dtype, strides):
    """The argument, checked: an array of this shape, dtype and these strides, in elements."""
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{name} is a {type(value).__name__}, expected an array")
    if value.shape != shape or value.dtype != dtype:
        found, wanted = f"{value.dtype}{list(value.shape)}", np.dtype(dtype)
        raise ValueError(f"{name} is {found}, expected {wanted}{list(shape)}")
    if value.size:
        for size, step, wanted in zip(shape, value.strides, strides, strict=True):
            if size > 1 and step != wanted * value.itemsize:
                found = [step // value.itemsize for step in value.strides]
                raise ValueError(
                    f"{name} has strides {found} in elements, expected {list(strides)}: pass a copy"
                )
    return value


def _size(name, value, dim):
    """The size of a dimension of an argument: a size that may be another one in each call."""
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{name} is a {type(value).__name__}, expected an array")
    if value.ndim <= dim:
        raise ValueError(f"{name} has shape {value.shape}, expected more than {dim} dimensions")
    return value.shape[dim]


def _meets(condition, holds):
    """Checks a condition on sizes under which this file was written."""
    if not holds:
        raise ValueError(f"sizes do not meet {condition}, as this file needs: write it for them")


def _number(name, value, expected):
    """Checks a number for which this file was written."""
    if type(value) is not type(expected) or repr(value) != repr(expected):
        raise ValueError(f"{name} is {value!r}, expected {expected!r}, as when this was written")


def _apart(arrays, written, families):
    """Checks that arrays that are written share no memory with others, but of their family."""
    for name in written:
        kin = [one for family in families if name in family for one in family]
        for other, value in arrays.items():
            if other not in (name, *kin) and np.shares_memory(arrays[name], value):
                raise ValueError(f"{name} and {other} share memory, expected arrays that do not")


def _same(name, value, other, first):
    """Checks that two arguments are one array."""
    if value is not first:
        raise ValueError(f"{name} and {other} are two arrays, expected one passed twice")


def _beside(name, value, other, anchor, distance):
    """Checks that an array begins so many bytes behind another one, in one memory."""
    found = value.__array_interface__["data"][0] - anchor.__array_interface__["data"][0]
    if value.size and found != distance:
        raise ValueError(
            f"{name} begins {found} bytes behind {other}, expected {distance}: views of one array"
        )


def _key(state, name):
    """An array of the state."""
    if name not in state:
        raise KeyError(f"state[{name!r}] is missing, expected an array")
    return state[name]


def _window(x, shape, strides, start, dtype=None):
    """A view of x's memory with these strides, from element `start` behind x's first on."""
    as_strided = np.lib.stride_tricks.as_strided
    x = np.asarray(x)
    new = x.dtype if dtype is None else np.dtype(dtype)
    if 0 in shape:
        return np.empty(shape, new)
    span = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    first, last = start * new.itemsize, (start + span) * new.itemsize
    _reaches(x, first, last)
    back = -(first // x.itemsize) if first < 0 else 0  # elements of x before its first
    count = back - (-last // x.itemsize)
    if back:
        x = as_strided(x, (back + 1,), (-x.itemsize,))[back:]
    flat = as_strided(x, (max(count, 1),), (x.itemsize,)).view(np.uint8)
    flat = flat[first + back * x.itemsize :][: span * new.itemsize].view(new)
    return as_strided(flat, shape, [step * new.itemsize for step in strides])


def _reaches(x, first, last):
    """Checks that the bytes from `first` to `last`, counted from x's first one, are its memory."""
    owner, base = x, x.base
    while base is not None:
        owner = base if isinstance(base, np.ndarray) else owner
        base = getattr(base, "base", None)
    ahead = x.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
    if ahead + first < 0 or ahead + last > owner.nbytes:
        raise ValueError(
            f"bytes {ahead + first} to {ahead + last} of the memory of an array are needed, which "
            f"has {owner.nbytes}: pass a view of an array that has them"
        )


def _strided(x, strides):
    """A copy of x with these strides, in elements."""
    x = np.asarray(x)
    span = 1 + sum((n - 1) * step for n, step in zip(x.shape, strides, strict=True))
    memory = np.empty(span if x.size else 0, x.dtype)
    steps = [step * x.itemsize for step in strides]
    copy = np.lib.stride_tricks.as_strided(memory, x.shape, steps)
    copy[...] = x
    return copy


def _laid_out(x, strides):
    """x itself if it has these strides, in elements, else a copy that has."""
    x = np.asarray(x)
    steps = zip(x.shape, x.strides, strides, strict=True)
    is_so = all(n < 2 or have == step * x.itemsize for n, have, step in steps)
    return x if is_so else _strided(x, strides)


def _packed(text, shape, dtype):
    """The array whose bytes are compressed in this text."""
    return np.frombuffer(zlib.decompress(base64.b85decode(text)), dtype).reshape(shape).copy()


def _philox(seed, c0, c1, c2, c3):
    """Four random words of 32 bits, in uint64, for each counter: Philox 4x32-10.

    Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
    """
    k0, k1 = int(seed) % 2**32, (int(seed) >> 32) % 2**32
    for _ in range(10):
        first, second = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c2 = (second >> 32) ^ c1 ^ k0, (first >> 32) ^ c3 ^ k1
        c1, c3 = second & 0xFFFFFFFF, first & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c0, c1, c2, c3


def _words(seed, offset, count):
    """`count` words of 32 bits, in uint64, of the random stream of a seed."""
    block = np.arange(-(-count // 4), dtype=np.uint64) + int(offset) // 4 % 2**64
    zero = np.zeros_like(block)
    lanes = _philox(seed, block & 0xFFFFFFFF, block >> 32, zero, zero)
    return np.stack(lanes, axis=1).reshape(-1)[:count]


def _grid(seed, offset, rows, columns):
    """A uniform float64 for each row, which has a block of the stream, and each column."""
    block = np.arange(rows, dtype=np.uint64).reshape(-1, 1) + int(offset) // 4 % 2**64
    column = np.arange(1, columns + 1, dtype=np.uint64)
    zero = np.zeros((rows, columns), np.uint64)
    counter = (block & 0xFFFFFFFF) + zero, (block >> 32) + zero, column + zero, zero
    first, second, _, _ = _philox(seed, *counter)
    return ((first >> 5) * 2**26 + (second >> 6)).astype(np.float64) * 2.0**-53


def _advanced(offset, count):
    """The offset behind so many words of the random stream."""
    found = int(offset) + count
    if found >= 2**63:
        raise ValueError(f"the random stream ends at 2**63, and {found} are drawn: set a new seed")
    return np.array(found, np.uint64)


def _padded(found, count):
    """The first `count` rows, with zeros behind them if there are fewer."""
    result = np.zeros((count, *found.shape[1:]), found.dtype)
    result[: len(found)] = found[:count]
    return result


def _selected(a, mask, count):
    """The first `count` elements where the mask holds, with zeros if there are fewer."""
    a, mask = np.broadcast_arrays(a, mask)
    return _padded(a[mask], count)


def _masked_scatter(a, mask, source):
    """a with the elements of `source`, in order, where the mask holds."""
    a, mask = np.broadcast_arrays(a, mask)
    count = int(mask.sum())
    if count > source.size:
        raise ValueError(f"masked_scatter: {source.size} elements, expected {count}")
    result = np.array(a, order="C")
    result[mask] = np.ravel(source)[:count]
    return result


def _repeated(repeats):
    """Each position as often as `repeats` says."""
    if (repeats < 0).any():
        raise ValueError("repeat_interleave: a repeat is negative")
    return np.repeat(np.arange(len(repeats)), repeats).astype(repeats.dtype)


def _repeated_to(repeats, count):
    """Each position as often as `repeats` says, `count` in all."""
    found = _repeated(repeats)
    if len(found) != count:
        raise ValueError(f"repeat_interleave: the repeats sum to {len(found)}, expected {count}")
    return found


def _bisected(sequence, values, right):
    """For each value the number of elements of its line before it; nans are past all others."""
    values, size = np.asarray(values), sequence.shape[-1]
    lines = values if sequence.ndim > 1 else values.reshape(-1)
    low = np.zeros(lines.shape, np.int64)
    high = np.full(lines.shape, size, np.int64)
    for _ in range(size.bit_length()):
        middle = (low + high) // 2
        inside = np.take_along_axis(sequence, np.minimum(middle, size - 1), axis=-1)
        after = inside > lines if right else inside >= lines
        before = (low < high) & ~after
        high = np.where((low < high) & after, middle, high)
        low = np.where(before, middle + 1, low)
    return low.reshape(values.shape)


def _histogram(a, bins, low, high):
    """The number of elements in each of the bins of a range, by default the elements' own."""
    if low == high and a.size:
        low, high = float(a.min()), float(a.max())
    if low == high:
        low, high = low - 1, high + 1
    if not abs(high - low) < np.inf:
        raise ValueError(f"histc: the range is {low} to {high}, expected a finite one")
    inside = a[(a >= low) & (a <= high)]
    places = ((inside - low) * bins / (high - low)).astype(np.int64)
    return np.bincount(np.minimum(places, bins - 1), None, bins)


def _matrix_exp(a):
    """The exponential of each matrix, in 64 bits: a quotient of degree 13, after halvings.

    Source: Higham, "The scaling and squaring method for the matrix exponential revisited" (2005).
    """
    norm = float(np.max(np.sum(np.abs(a), axis=-2)))
    if not np.isfinite(norm):
        return np.full(a.shape, np.nan, a.dtype)
    halvings = max(int(np.ceil(np.log2(norm / 5.371920351148152))), 0) if norm else 0
    a, one = a * 0.5**halvings, np.eye(a.shape[-1], dtype=a.dtype)
    b = (64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0)
    b += (129060195264000.0, 10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0)
    b += (40840800.0, 960960.0, 16380.0, 182.0, 1.0)
    a2 = a @ a
    a4 = a2 @ a2
    a6 = a4 @ a2
    high = a6 @ (a6 * b[13] + a4 * b[11] + a2 * b[9])
    odd = a @ (high + a6 * b[7] + a4 * b[5] + a2 * b[3] + one * b[1])
    high = a6 @ (a6 * b[12] + a4 * b[10] + a2 * b[8])
    even = high + a6 * b[6] + a4 * b[4] + a2 * b[2] + one * b[0]
    result = np.linalg.solve(even - odd, even + odd)
    for _ in range(halvings):
        result = result @ result
    return result


def _bincount(a, weights, least):
    """How often each integer from 0 on occurs, or the sum of its weights."""
    if a.size and (a.min() < 0 or a.max() >= 2**63 - 1):
        raise IndexError(f"bincount: elements are {a.min()} to {a.max()}, expected from 0 on")
    weights = None if weights is None else np.asarray(weights, np.float64)
    return np.bincount(np.asarray(a, np.int64), weights, least)


def _cotangent(name, value, shape, dtype, strides):
    """A copy of a cotangent with these strides, in elements; zeros for None."""
    if value is None:
        return _strided(np.zeros(shape, dtype), strides)
    value = np.asarray(value)
    if value.shape != shape or value.dtype != dtype:
        found, wanted = f"{value.dtype}{list(value.shape)}", np.dtype(dtype)
        raise ValueError(f"{name} is {found}, expected {wanted}{list(shape)}")
    return _strided(value, strides)


def _places(x):
    """The number of each element of x, in an array with x's strides."""
    strides = [step // x.itemsize for step in x.strides]
    return _strided(np.arange(x.size).reshape(x.shape), strides)


def _add_at(x, places, values):
    """Adds values to the elements of x with these numbers, of which one may be there twice."""
    if x.ndim:
        np.add.at(x, np.unravel_index(places, x.shape), values)
    else:
        x += np.sum(values)


def _added(a, b):
    """The sum of two gradients, of which each may be None."""
    if a is None or b is None:
        return b if a is None else a
    return np.asarray(a + b)


def _unique(a, dim, consecutive, count):
    """The distinct elements or slices in order, the place of each, and how often each occurs.
    The first and the last result have `count` entries, with zeros where there are fewer."""
    shape = a.shape if dim is None else (a.shape[dim],)
    a = a.reshape(-1) if dim is None else np.moveaxis(a, dim, 0)
    lines = a.reshape(a.shape[0], -1 if a.size else 0)
    order = np.arange(len(a))
    if len(a) and not consecutive:
        order = np.lexsort(lines.T[::-1])
    ordered = lines[order]
    starts = np.ones(len(a), bool)
    starts[1:] = np.any(ordered[1:] != ordered[:-1], axis=1)
    inverse = (np.cumsum(starts) - 1)[np.argsort(order)].reshape(shape)
    counts = np.diff(np.append(np.flatnonzero(starts), len(a)))
    found = _padded(a[order[starts]], count)
    return found if dim is None else np.moveaxis(found, 0, dim), inverse, _padded(counts, count)
