"""`SizeCode`: generated code gives what `concrete` gives, for every expression and every size."""

from __future__ import annotations

import random
from typing import Any

import pytest

from aotlite.ir.graph.symbolic.size_code import SizeCode
from aotlite.ir.meta import tensor_meta
from aotlite.ir.symbols.assumption import concrete
from aotlite.ir.symbols.table import SymbolTable
from aotlite.stages.shared.size_values import AtSizes


def _expressions(draw: random.Random, table: SymbolTable, count: int) -> list[Any]:
    found: list[Any] = [table.symbol(draw.randint(2, 9), lower=0) for _ in range(3)]
    for _ in range(count):
        a, b = draw.choice(found), draw.choice([*found, 2, 3, -1])
        divisor = draw.choice([2, 3, 5])
        made = [
            a + b,
            a * b - 7,
            a // divisor,
            a % divisor,
            table.call("max", a, b),
            table.call("min", b, a),
            -a,
        ][draw.randrange(7)]
        if type(made) is not int:
            found.append(made)
    return found


@pytest.mark.rules("DYN-41")
@pytest.mark.parametrize("seed", range(30))
def test_code_gives_what_each_expression_is_at_all_sizes(seed: int) -> None:
    draw, table = random.Random(seed), SymbolTable()
    expressions = _expressions(draw, table, 25)
    meta = tensor_meta((expressions[0] * 2, 3), (3, 1))
    values = [*expressions, tuple(expressions[:4]), (4, (expressions[-1], 1)), meta, 5, None]
    code = SizeCode()
    function = code.function([code.text(each) for each in values])
    for _ in range(20):
        sizes = {name: draw.randint(0, 40) for name in table.hints}
        found = function(sizes)
        assert found == tuple([concrete(each, sizes) for each in values])
        assert found[-3] is meta.concrete(sizes)
    assert table.log == []


@pytest.mark.rules("DYN-41")
def test_each_expression_is_computed_once() -> None:
    table = SymbolTable()
    s0 = table.size(6, "x.shape[0]")
    calls: list[tuple[int, int]] = []

    def noted(a: int, b: int) -> int:
        calls.append((a, b))
        return a * b

    code = SizeCode()
    texts = [code.call(noted, s0 // 2, 3), code.call(noted, s0 // 2, 3), code.text((s0, s0))]
    assert code.function(texts)({"s0": 9}) == (12, 12, (9, 9)) and calls == [(4, 3)]
    assert len([line for line in code.lines if "//" in line]) == 1


@pytest.mark.rules("DYN-41")
def test_other_objects_are_put_and_those_without_symbols_are_themselves() -> None:
    table = SymbolTable()
    s0 = table.size(6, "x.shape[0]")
    code = SizeCode(lambda sizes: AtSizes(sizes).put, table.hints)
    plain, held = {"a": [1, 2]}, {"a": [s0 * 2, 2]}
    assert not code.has_sizes(plain) and code.has_sizes(held)
    one, other = code.function([code.text(plain), code.text(held)])({"s0": 5})
    assert one is plain and other == {"a": [10, 2]}
