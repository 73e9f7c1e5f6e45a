"""Results of a function that was traced with symbolic sizes, with numbers put in."""

import collections

import numpy as np

from aotlite.ir.symbols.symint import SymBool, SymInt
from tests.ir.helpers.size_programs import Key, Pair


def at(value, sizes):
    """The value with numbers for sizes, where the symbols have these values by name."""
    if type(value) is SymInt:
        return value.table.evaluate(value, sizes)
    if type(value) is SymBool:
        raise AssertionError(f"a snippet was given {value}")
    if type(value) in (list, tuple, set, frozenset):
        return type(value)([at(item, sizes) for item in value])
    if type(value) is Pair:
        return Pair(*[at(item, sizes) for item in value])
    if type(value) in (dict, collections.Counter):
        return type(value)({at(key, sizes): at(item, sizes) for key, item in value.items()})
    if type(value) is Key:
        return Key(at(value.size, sizes), value.name)
    if type(value) is slice:
        return slice(*[at(item, sizes) for item in (value.start, value.stop, value.step)])
    return value


def form(value):
    """A text that is equal for equal values of equal types."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{value.strides if value.size else ''}{value.tolist()}"
    if type(value) in (list, tuple, Pair):
        return f"{type(value).__name__}({', '.join(map(form, value))})"
    if type(value) in (set, frozenset):
        return f"{type(value).__name__}({', '.join(sorted(map(form, value)))})"
    if type(value) in (dict, collections.Counter):
        items = [f"{form(key)}: {form(item)}" for key, item in value.items()]
        return f"{type(value).__name__}({', '.join(items)})"
    return f"{type(value).__name__}:{value!r}"
