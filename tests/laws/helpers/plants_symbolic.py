"""Mistakes in rules that show with symbolic sizes alone."""

from __future__ import annotations

from typing import Any

import attrs

from aotlite.ir.meta import TensorMeta, table_in, tensor_meta
from aotlite.ir.op import MultiViewOp
from aotlite.ir.symbols.assumption import concrete
from aotlite.ir.symbols.symint import SymInt
from tests.laws.helpers.planting import inside, plant, with_rule


# ---------------------------------------------------------------------------- L12: symbolic sizes
# Each mistake shows with symbols alone; of plain ints the rule says what it did.
def _asks_for_the_value(result: Any, key: Any) -> Any:
    for size in _symbols_in(key):
        int(size)
    return result


def _bounds_the_value(result: Any, key: Any) -> Any:
    """From both sides, so that no assumption says that it has one value."""
    for size in _symbols_in(key):
        next(n for n in range(size.hint, -1, -1) if size >= n)
        next(n for n in range(size.hint, 10_000) if size <= n)
    return result


def _gives_the_hint(result: Any, key: Any) -> Any:
    found = _symbols_in(key)
    return concrete(result, found[0].table.hints) if found else result


def _gives_another_size(result: Any, key: Any) -> Any:
    """One that is the same for the sample: the first of the hints, plus what is missing."""
    if type(result) is not TensorMeta or not _symbols_in(result.shape):
        return result
    first = _symbols_in(key)[0]
    sizes: tuple[Any, ...] = result.shape
    shape = [n if type(n) is int else first + (n.hint - first.hint) for n in sizes]
    return tensor_meta(shape, result.stride, result.dtype, result.device)


def _keeps_nothing_that_it_assumes(op: Any) -> Any:
    def changed(inner: Any) -> Any:
        def rule(*key: Any) -> Any:
            table = table_in(key)
            before = [] if table is None else list(table.log)
            result = inner.rule(*key)
            if table is not None:
                table.log[:] = before
            return result

        return attrs.evolve(inner, rule=rule)

    return changed(op) if isinstance(op, MultiViewOp) else inside(op, changed)


def _symbols_in(value: Any) -> list[Any]:
    if type(value) is SymInt:
        return [value]
    if type(value) is TensorMeta:
        value = (*value.shape, *value.stride)
    return [size for item in value for size in _symbols_in(item)] if type(value) is tuple else []


_ONE_OF_EACH_CLASS = (
    *("add", "sum", "matmul", "gather", "full", "uniform"),
    *("select", "unbind", "mul_", "transpose_", "rand"),
)
_OF_THE_PARTS = {"unbind": "split_with_sizes"}
for _name in _ONE_OF_EACH_CLASS:
    _sized = _OF_THE_PARTS.get(_name, _name)
    plant("L12", "it asks for the value of a size", with_rule(_asks_for_the_value), _sized)
    plant("L12", "it bounds a size from both sides", with_rule(_bounds_the_value), _sized)
    plant("L12", "it gives the size of one call", with_rule(_gives_the_hint), _sized)
plant(
    "L12", "it gives another size", with_rule(_gives_another_size), "add", "sum", "matmul", "full"
)
plant(
    "L12",
    "it keeps nothing that it assumes",
    _keeps_nothing_that_it_assumes,
    *("add", "matmul", "gather", "layer_norm"),
    *("view", "split", "copy_"),
)
