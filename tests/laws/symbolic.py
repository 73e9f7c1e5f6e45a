"""L12: the rule of an op says of symbols what it says of each size that they may stand for.

The sizes of a sample become symbols, in several ways; the rule runs once on these. Then, for other
values of the symbols: where all that was assumed holds, the result with the values put in is the
concrete rule's at these sizes; and where the concrete rule succeeds, no assumption that an
expression has one value may fail: a graph made for one size would serve no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from aotlite.ir.assumption import concrete
from aotlite.ir.errors import AotliteError
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import GeometryOp, MultiViewOp, Op, ViewOp
from aotlite.ir.symbol_table import SymbolTable
from aotlite.ir.symbolic_meta import symbolic_strides
from tests.laws.running import bound
from tests.samples import Sample

SIZES = frozenset(
    ("size", "input_size", "weight_size", "output_size", "normalized_shape", "split_sizes", "count")
)
"""Parameters of ints that are sizes: a program gets them from shapes."""

SPECIALIZES: dict[str, str] = {
    "split": "the number of parts is that of the results",
    "unbind": "the number of parts is that of the results",
}
"""Ops whose results are not the same for other sizes, so that an assumption must say which."""

Values = Mapping[str, int]


@attrs.frozen
class Variant:
    """A way to make symbols of sizes: `of(table, size, operand index, dim)`."""

    name: str
    of: Callable[[SymbolTable, int, int, int], Any]


def _own(table: SymbolTable, size: int, operand: int, dim: int) -> Any:
    return table.size(size, f"{operand}.shape[{dim}]")


def _first(table: SymbolTable, size: int, operand: int, dim: int) -> Any:
    return table.size(size, f"{operand}.shape[{dim}]") if dim == 0 else size


def _last(table: SymbolTable, size: int, operand: int, dim: int) -> Any:
    return table.size(size, f"{operand}.shape[{dim}]") if dim == -1 else size


VARIANTS = (
    (Variant("equal sizes are one symbol", _own), True),
    (Variant("each size is a symbol", _own), False),
    (Variant("the first size is a symbol", _first), True),
    (Variant("the last size is a symbol", _last), True),
)
"""With whether equal hints share a symbol."""


# ------------------------------------------------------------------------------------- the law
def symbolic_is_concrete(op: Op, samples: Sequence[Sample]) -> None:
    """L12: with values put in, a rule on symbols gives what it gives on the values."""
    for sample in samples:
        key = op.key(bound(op, sample))
        expected = _said(op, key)
        for variant, duck in VARIANTS:
            table = SymbolTable(duck_shape=duck)
            symbolic = _symbolized(op, key, table, variant)
            if table.symbols:
                where = f"{op.name}{sample}, {variant.name}"
                result = _said(op, symbolic)
                _check_at_hints(where, table, result, expected)
                for values in _other_values(table):
                    _check_at(op, where, (table, symbolic, result), values)


def _check_at_hints(where: str, table: SymbolTable, result: Any, expected: Any) -> None:
    for assumption in table.log:
        assert assumption.holds(table.hints), (
            f"{where}: it assumes {assumption}, which is wrong where the symbols are {table.hints}"
        )
    got = concrete(result, table.hints)
    assert got == expected, (
        f"{where}: the rule gives {result}, which is {got} at {table.hints}, expected {expected}"
    )


def _check_at(op: Op, where: str, made: tuple[SymbolTable, Any, Any], values: Values) -> None:
    table, key, result = made
    broken = [assumption for assumption in table.log if not assumption.holds(values)]
    try:
        expected = _said(op, concrete(key, values))
    except AotliteError as error:
        assert broken, (
            f"{where}: the rule gives {result}, and refuses {values}, expected an assumption that "
            f"says so: {error}"
        )
        return
    if not broken:
        got = concrete(result, values)
        assert got == expected, (
            f"{where}: the rule gives {result}, which is {got} at {values}, expected {expected}; "
            f"it assumed {table.log}"
        )
    fixed = [assumption for assumption in broken if assumption.specializes]
    assert not fixed or op.name in SPECIALIZES, (
        f"{where}: it assumes {fixed[0]}, expected nothing that {values} break, which it takes"
    )


def _said(op: Op, key: Any) -> Any:
    """What the rule gives: metas, with starts where they are windows."""
    said = op.rule(*key)
    match op:
        case MultiViewOp():
            return tuple(view.rule(key[0], *rest) for view, rest in said)
        case ViewOp() | GeometryOp():
            return tuple(said)
    return said


# -------------------------------------------------------------------------------------- symbols
def _symbolized(op: Op, key: tuple[Any, ...], table: SymbolTable, variant: Variant) -> Any:
    """The key with symbols for sizes: of metas, and of arguments that are sizes."""
    found = []
    for index, (value, parameter) in enumerate(zip(key, op.schema.parameters, strict=True)):
        if parameter.name in SIZES and parameter.type.text.startswith("int"):
            found.append(_argument(value, table, variant, index))
        else:
            found.append(_operand(value, table, variant, index))
    return tuple(found)


def _argument(value: Any, table: SymbolTable, variant: Variant, index: int) -> Any:
    if type(value) is tuple:
        return tuple(_argument(item, table, variant, index) for item in value)
    if variant.of is not _own or value is None:
        return value
    known = [name for name, symbol in table.symbols.items() if symbol.hint == value]
    # Sizes that a program passes are mostly sizes that it got from another operand.
    return table.named(known[0]) if known else table.size(value, f"argument {index}")


def _operand(value: Any, table: SymbolTable, variant: Variant, index: int) -> Any:
    if type(value) is tuple:
        return tuple(_operand(item, table, variant, index) for item in value)
    if not isinstance(value, TensorMeta):
        return value
    last = len(value.shape) - 1
    shape = tuple(
        variant.of(table, size, index, -1 if dim == last and variant.of is _last else dim)
        for dim, size in enumerate(value.shape)
    )
    stride = symbolic_strides(shape, value.shape, value.stride)
    return tensor_meta(shape, stride, value.dtype, value.device)


def _other_values(table: SymbolTable) -> Iterator[Values]:
    """Values that symbols may have as well: changed together, one by one, and all different."""
    hints = table.hints
    for add in (1, 2, 5):
        yield {name: hint + add for name, hint in hints.items()}
    yield {name: 2 * hint for name, hint in hints.items()}
    yield dict.fromkeys(hints, 2)
    yield dict.fromkeys(hints, 7)
    yield {name: 3 + 2 * i for i, name in enumerate(hints)}
    yield {name: 9 - i % 7 for i, name in enumerate(hints)}
    for name in hints:
        yield {**hints, name: hints[name] + 1}
        yield {**hints, name: 2}
