"""Adapters of NumPy with one mistake each: one for every rule about memory.

A mistake is a few methods in place of the adapter's. `PLAIN` names the rules that NumPy itself
breaks; they need none.
"""

import copy
import weakref

import numpy as np
from numpy.lib.stride_tricks import as_strided

from aotlite.conformance.adapters.numpy import NumPy

PLAIN = (
    "TEN-2p",
    "TEN-1e",
    "WRT-9",
    "WRT-11",
    "TEN-7a",
    "TEN-8a",
    "TEN-7b",
    "TEN-7g",
    "COP-13",
    "COP-14",
)


def copying(name):
    """The method returns copies of what it should return."""
    original = getattr(NumPy, name)

    def method(self, *arguments):
        made = original(self, *arguments)
        return [each.copy() for each in made] if isinstance(made, list | tuple) else made.copy()

    return {name: method}


def one_by_one(combine):
    """A write that reads each operand element just before it writes."""

    def method(self, a, b):
        spread = np.broadcast_to(b, a.shape)
        for index in np.ndindex(a.shape):
            a[index] = combine(a[index], spread[index])
        return a

    return method


def loop_add_out(self, a, b, out):
    for index in np.ndindex(out.shape):
        out[index] = a[index] + b[index]
    return out


def loop_cumsum_out(self, a, dim, out):
    parts, outs = np.moveaxis(a, dim, 0), np.moveaxis(out, dim, 0)
    for number in range(len(parts)):
        outs[number, ...] = parts[number] + (outs[number - 1] if number else 0)
    return out


def loop_sum_out(self, a, dim, out):
    out[...] = 0
    for part in np.moveaxis(a, dim, 0):
        for index in np.ndindex(out.shape):
            out[index] += part[index]
    return out


def loop_matmul_out(self, a, b, out):
    for i, j in np.ndindex(out.shape):
        out[i, j] = sum(a[i, k] * b[k, j] for k in range(a.shape[1]))
    return out


def loop_put(self, a, places, value):
    for place, each in zip(places, value, strict=True):
        a[place] = each


def add_copies_of_gaps(self, a, b):
    np.add(a, b, out=a if a.flags.c_contiguous else a.copy())
    return a


def setitem_of_copies(self, a, key, value):
    if any(isinstance(each, slice) for each in np.atleast_1d(np.array(key, object))):
        a = a.copy()
    a[key] = value


def silent_setitem(self, a, key, value):
    if a.flags.writeable:
        a[key] = value


def resized_copy(self, a, b):
    np.copyto(a, np.resize(b, a.shape), casting="unsafe")


def refusing_copy(self, a, b):
    if np.shares_memory(a, b):
        raise ValueError("overlap")
    np.copyto(a, b, casting="unsafe")


def refusing_add(self, a, b):
    if np.shares_memory(a, b):
        raise ValueError("overlap")
    return np.add(a, b, out=a)


def refusing_strides(self, a, key, value):
    if 0 in a.strides:
        raise ValueError("overlap, perhaps")
    a[key] = value


def refusing_nothing(self, a, b):
    if a.size == 0:
        raise ValueError("nothing")
    return np.add(a, b, out=a)


def fill_no_points(self, a, number):
    if a.ndim:
        a.fill(number)


POOL: dict = {}


def pooled(self, values, dtype):
    """All arrays of one size lie in the same memory."""
    made = np.array(values, dtype)
    memory = POOL.setdefault((made.shape, dtype), made)
    memory[...] = made
    return memory[...]


def unsqueeze_base(self, a, dim):
    a.shape = np.expand_dims(a, dim).shape
    a.base.shape = (1, *a.base.shape)


def pick_views(self, a, places):
    return a[places[0] : places[0] + 1] if len(places) == 1 and places[0] >= 0 else a[places]


def pick_all(self, a, mask):
    return a if all(mask) else a[mask]


def first_wins(self, a, places, value):
    a[places[::-1]] = value[::-1]


def put_copy(self, a, places, value):
    (a if a.flags.owndata else a.copy())[places] = value


def put_once(self, a, places, value):
    a[places] += value


def clamping(self, a, key):
    place, *rest = key if isinstance(key, tuple) else (key,)
    inside = min(place, len(a) - 1) if isinstance(place, int) else place
    return a[(inside, *rest)] if len(a) else a


def sort_in_place(self, a):
    a.sort()
    return a


def as_it_was(self, a, b):
    return a if isinstance(b, int) and b == 0 else np.add(a, b)


def add_into_first(self, a, b):
    return np.add(a, b, out=a) if isinstance(b, np.ndarray) else np.add(a, b)


def same_strides(self, a):
    return as_strided(a.copy().reshape(-1), a.shape, a.strides)


def each_alone(self, values):
    return [copy.deepcopy(each) for each in values]


def thawed(method):
    """A method that makes an immutable array writable first."""

    def thawing(self, a, *arguments):
        a.flags.writeable = True
        return method(self, a, *arguments)

    return thawing


def add_to_frozen(self, a, b):
    a += b
    return a


def writes_anyway(self, a, key, value):
    a[key] = value
    return a


def counts_once(self, a, key, value):
    made = a.copy()
    made[key] += value
    return made


def drops_outside(self, a, key, value):
    made = a.copy()
    if not isinstance(key, int) or -len(a) <= key < len(a):
        made[key] = value
    return made


def no_negative_strides(self, a):
    return np.asarray(a[::-1]) if a.strides and a.strides[0] < 0 else np.asarray(a)


def dies_with_source(self, a):
    made = a.copy()
    weakref.finalize(a, made.fill, -1)
    return made


def one_way(self, a):
    made = np.asarray(a)
    made.flags.writeable = False
    return made


def emptied(self, a, shape):
    a[...] = 0


def spread_out(self, a, b, out):
    return np.copyto(out, np.resize(np.add(a, b), out.shape), casting="unsafe")


def copied_out(self, a, b, out):
    np.add(a, b, out=out)
    return out.copy()


def dense_out(self, a, b, out):
    np.add(a, b, out=np.array(out))
    return out


def padded(self, a, dtype):
    size = np.dtype(dtype).itemsize
    data = np.ascontiguousarray(a).tobytes()
    return np.frombuffer(data + bytes(-len(data) % size), dtype)


MISTAKES = {
    "TEN-2a": copying("narrow"),
    "TEN-2b": copying("select"),
    "TEN-2c": copying("slice"),
    "TEN-2d": copying("transpose"),
    "TEN-2e": copying("permute"),
    "TEN-2f": copying("expand"),
    "TEN-2g": copying("squeeze"),
    "TEN-2h": copying("unsqueeze"),
    "TEN-2i": copying("diagonal"),
    "TEN-2j": copying("unfold"),
    "TEN-2k": copying("split"),
    "TEN-2l": copying("unbind"),
    "TEN-2m": copying("view"),
    "TEN-2n": copying("flip"),
    "TEN-2o": copying("getitem"),
    "TEN-2q": copying("as_strided"),
    "TEN-2r": copying("reshape"),
    "TEN-2s": copying("flatten"),
    "TEN-2t": {"view": lambda self, a, shape: a.reshape(shape)},
    "TEN-2u": {"reshape": lambda self, a, shape: a.reshape(shape, order="A")},
    "TEN-2v": copying("contiguous"),
    "TEN-2w": {"contiguous": lambda self, a: a},
    "TEN-2x": copying("real"),
    "TEN-1a": {"shape": lambda self, a: a.shape[::-1]},
    "TEN-1b": {"transpose": lambda self, a, dim0, dim1: a.swapaxes(dim0, dim1).copy()},
    "TEN-1c": {"data_pointer": lambda self, a: a.ctypes.data & ~15},
    "TEN-1d": {"from_list": lambda self, values, dtype: np.array(values, dtype, order="F")},
    "TEN-1f": copying("getitem"),
    "TEN-24c": {"unsqueeze_": unsqueeze_base},
    "WRT-1": copying("narrow"),
    "WRT-2": copying("select"),
    "WRT-3": copying("slice"),
    "WRT-4": copying("transpose"),
    "WRT-5": copying("view"),
    "WRT-6": copying("unsqueeze"),
    "WRT-7": copying("squeeze"),
    "WRT-8": {"setitem": silent_setitem},
    "WRT-10": copying("split"),
    "WRT-13": copying("getitem"),
    "WRT-14": copying("transpose"),
    "WRT-15": copying("narrow"),
    "WRT-16": {"add_": add_copies_of_gaps},
    "WRT-17": {"add_": lambda self, a, b: np.add(a, b, out=a).copy()},
    "WRT-18": {"add_out": copied_out},
    "WRT-19": {"add_out": dense_out},
    "WRT-20": {"copy_": resized_copy},
    "WRT-21": {"add_": refusing_nothing},
    "WRT-22": {"fill_": fill_no_points},
    "WRT-23": {"setitem": setitem_of_copies},
    "WRT-24": {"from_list": pooled},
    "TEN-8b": {"setitem": refusing_strides},
    "TEN-7c": {"add_": refusing_add},
    "TEN-7d": {"copy_": one_by_one(lambda _, value: value)},
    "TEN-7e": {"add_": one_by_one(lambda old, value: old + value)},
    "TEN-7f": {"copy_": refusing_copy},
    "TEN-7h": {"mul_": one_by_one(lambda old, value: old * value)},
    "TEN-7i": {"copy_": one_by_one(lambda _, value: value)},
    "OUT-1": {"add_out": loop_add_out},
    "OUT-2": {"cumsum_out": loop_cumsum_out},
    "OUT-3": {"sum_out": loop_sum_out},
    "OUT-4": {"matmul_out": loop_matmul_out},
    "IDX-1a": {"pick": pick_views},
    "IDX-1b": {"pick_mask": pick_all},
    "IDX-1c": {"pick": pick_views},
    "IDX-1d": {"put": put_copy},
    "IDX-1e": {"put_mask": put_copy},
    "IDX-6a": {"put": first_wins},
    "IDX-6b": {"put_add": put_once},
    "IDX-6c": {"put": loop_put},
    "IDX-7a": {"put": loop_put},
    "IDX-7b": {"pick": lambda self, a, places: a.take(places, mode="clip")},
    "IDX-7c": {"getitem": clamping},
    "FUN-A1": {"sort": sort_in_place},
    "FUN-A2": {"add": as_it_was},
    "FUN-A3": {"add": as_it_was},
    "FUN-A4": {"clone": same_strides},
    "FUN-A5": {"add": add_into_first},
    "COP-1": {"clone": lambda self, a: a},
    "COP-2": {"asarray": lambda self, a, copy: np.asarray(a)},
    "COP-3": {"astype": lambda self, a, dtype, copy: a.astype(dtype, copy=False)},
    "COP-4": {"astype": lambda self, a, dtype, copy: a.view(dtype)},
    "COP-5": {"deepcopy": lambda self, values: list(values)},
    "COP-6": {"pickled": lambda self, values: list(values)},
    "COP-7": {"asarray": lambda self, a, copy: np.array(a)},
    "COP-8": {"asarray": lambda self, a, copy: np.array(a)},
    "COP-9": {"astype": lambda self, a, dtype, copy: a.astype(dtype)},
    "COP-10": {"reshape_copy": lambda self, a, shape, copy: a.reshape(shape)},
    "COP-11": {"reshape_copy": lambda self, a, shape, copy: a.reshape(shape)},
    "COP-12": {"clone": same_strides},
    "COP-15": {"deepcopy": each_alone},
    "TEN-6a": copying("view_dtype"),
    "TEN-6b": copying("view_dtype"),
    "TEN-6c": {"view_dtype": lambda self, a, dtype: np.ascontiguousarray(a).view(dtype)},
    "TEN-6d": {"view_dtype": padded},
    "TEN-9a": {"copy_": resized_copy},
    "TEN-9b": {"add_": lambda self, a, b: np.add(a, b, out=a, casting="unsafe")},
    "TEN-9c": {"add_": lambda self, a, b: np.add(a, b)},
    "TEN-9d": {"copy_": lambda self, a, b: np.copyto(a, b)},
    "TEN-9e": {
        "setitem": lambda self, a, key, value: np.copyto(a[key], np.resize(value, a[key].shape))
    },
    "OUT-5": {"add_out": spread_out},
    "OUT-6": {"add_out": spread_out},
    "IMM-1": {"frozen": lambda self, values, dtype: np.array(values, dtype)},
    "IMM-2": {"iadd": thawed(add_to_frozen)},
    "IMM-3": {"frozen": lambda self, values, dtype: np.array(values, dtype)},
    "IMM-4": {"narrow": thawed(NumPy.narrow)},
    "IMM-5": {"to_numpy": thawed(NumPy.to_numpy)},
    "IMM-6": {"immutable": True},
    "IMM-7": {"set_at": writes_anyway},
    "IMM-8": {"add_at": counts_once},
    "IMM-9": {"set_at": drops_outside},
    "EXC-1": copying("from_numpy"),
    "EXC-2": copying("to_numpy"),
    "EXC-3": {"to_numpy": lambda self, a: a.T},
    "EXC-4": {"from_numpy": no_negative_strides},
    "EXC-5": {"from_numpy": thawed(NumPy.from_numpy)},
    "EXC-6": copying("from_dlpack"),
    "EXC-7": copying("dlpack_to_numpy"),
    "EXC-8": {"dlpack_to_numpy": lambda self, a: np.from_dlpack(a).T},
    "EXC-9": copying("from_dlpack"),
    "EXC-10": copying("from_buffer"),
    "EXC-11": {"python_bytes": lambda self, size, writable: bytearray(range(size))},
    "EXC-12": {"memoryview": lambda self, a: memoryview(a.copy())},
    "EXC-13": {"from_numpy": dies_with_source},
    "EXC-14": {"convert": one_way},
    "EXC-15": {"resize_": emptied},
    "MEM-1": {"copy_": one_by_one(lambda _, value: value)},
}


def broken(rule):
    """NumPy's adapter with the mistake that breaks a rule."""
    POOL.clear()
    return type("Broken", (NumPy,), MISTAKES.get(rule, {}))
