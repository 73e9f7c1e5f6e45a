"""L12: the meta rule of an op on symbols agrees with the rule on each size of these symbols.

The sizes of a sample become symbols, in several ways, and the rule runs once on the symbols. Then,
for other values of the symbols: if all assumptions hold, the symbolic result at these values is the
result of the concrete rule; and if the concrete rule succeeds, no assumption that fixes an
expression to one value may fail, as a graph for one size would then fit no other. Where sizes are
symbols from 0, each assumption is needed: at some sizes that it alone excludes, results differ.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from aotlite.ir.errors import AotliteError
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.meta.symbolic import symbolic_strides
from aotlite.ir.op import GeometryOp, InplaceOp, MultiViewOp, Op, RandomOp
from aotlite.ir.op.schema import WHICH
from aotlite.ir.symbols.assumption import Assumption, concrete
from aotlite.ir.symbols.cases import fewest
from aotlite.ir.symbols.table import SymbolTable
from aotlite.testing.laws.ops.runs import bound
from aotlite.testing.laws.samples.sample import Sample

SPECIALIZES: dict[str, str] = {
    "split": "the number of results depends on a size",
    "unbind": "the number of results depends on a size",
    "avg_pool2d_backward": "the gradient's size is compared with a size computed in cases",
}
"""Op whose results differ between sizes, so that its assumptions fix a size -> the reason."""

TELLS_APART: dict[str, str] = {
    **SPECIALIZES,
    "linalg_solve": "sizes distinguish a batch of vectors from a matrix",
}
"""Op in which one size selects a case -> the reason."""

_OF_VIEWS: dict[str, str] = {
    "slice_scatter": "the view's size is a difference of maxima, of which orders are asked",
    "diagonal_scatter": "the view's size is a minimum, of which an order is asked",
    "view_dtype_copy": "the half of a product is not seen to be that of a factor",
}
NEEDLESS: dict[str, str] = {
    **_OF_VIEWS,
    "index_put": "nine sizes take some 600 runs, and the search ends after 120",
    "index_put_": "nine sizes take some 600 runs, and the search ends after 120",
    "adaptive_avg_pool2d_backward": "the factors of a product that is 1 are not seen to be 1",
}
"""Op with an assumption that the search by cases does not leave out -> what it does not see."""

RARELY_NEEDLESS: dict[str, str] = {
    "where": "that a size of 1 is as good as an equal one where the result has no elements",
}
"""The same for ops that do so on few samples, none of which is in the suite's table."""

Values = Mapping[str, int]


def _every(dim: int, ndim: int) -> bool:
    return True


@attrs.frozen
class SymbolicSizes:
    """A way to replace the sizes of a sample by symbols."""

    name: str
    shared: bool = attrs.field(kw_only=True)
    """Whether equal sizes are one symbol."""
    dims: Callable[[int, int], bool] = attrs.field(default=_every, kw_only=True)
    """(dim, number of dimensions) -> whether the size becomes symbolic."""
    less: int = attrs.field(default=0, kw_only=True)
    """A size is a symbol minus `less`, so that other values of the symbol give sizes of 0 and 1."""
    lower: int = attrs.field(default=2, kw_only=True)
    """The least size. From 0 rules run by cases (`ir/symbols/cases`)."""

    def size(self, table: SymbolTable, hint: int) -> Any:
        """A symbolic size; a number where it is below the range."""
        if hint < self.lower:
            return hint
        return table.size(hint + self.less, lower=self.lower) - self.less


VARIANTS = (
    SymbolicSizes("equal sizes are one symbol", shared=True),
    SymbolicSizes("each size is a symbol", shared=False),
    SymbolicSizes("first sizes are symbols", shared=True, dims=lambda dim, ndim: dim == 0),
    SymbolicSizes("last sizes are symbols", shared=True, dims=lambda dim, ndim: dim == ndim - 1),
    SymbolicSizes("sizes are symbols less 2", shared=True, less=2),
    SymbolicSizes("equal sizes are one symbol from 0", shared=True, lower=0),
    SymbolicSizes("each size is a symbol from 0", shared=False, lower=0),
)


# ------------------------------------------------------------------------------------- the law
def symbolic_is_concrete(op: Op, samples: Sequence[Sample]) -> None:
    """L12: the result of a rule on symbols, at values of the symbols, is that of the values."""
    tried = compared = 0
    for run in symbolic_runs(op, samples):
        tried += 1
        compared += sum(_check_at(op, run, values) for values in _other_values(run))
        if run.variant.lower == 0:
            _check_weakest(op, run)
        elif not run.variant.shared and op.name not in TELLS_APART:
            _check_takes_others(op, run)
    assert compared or not tried, (
        f"{op.name}: its assumptions hold for none of the other sizes, expected some"
    )


def symbolic_runs(op: Op, samples: Sequence[Sample]) -> Iterator[SymbolicRun]:
    """The runs of the rule on symbols, each right at the sizes of its sample."""
    for sample in _geometries(op, samples):
        yield from _runs(op, sample)


def _geometries(op: Op, samples: Sequence[Sample]) -> list[Sample]:
    """The first sample of each geometry, as rules treat sizes alike for all dtypes."""
    found = {str(_geometry(op.key(bound(op, sample)))): sample for sample in reversed(samples)}
    return list(found.values())


def _geometry(value: object) -> object:
    if isinstance(value, TensorMeta):
        return value.shape, value.stride
    return tuple(map(_geometry, value)) if type(value) is tuple else value


@attrs.frozen
class SymbolicRun:
    """A run of a rule on symbols."""

    where: str
    variant: SymbolicSizes
    table: SymbolTable
    key: tuple[Any, ...]
    result: Any


def _runs(op: Op, sample: Sample) -> Iterator[SymbolicRun]:
    """Runs the rule on each variant with symbols; checks it at the sizes of the sample."""
    key = op.key(bound(op, sample))
    expected = _said(op, key)
    shown = f"{op.name}{sample}"
    seen: list[tuple[str, int]] = []
    for variant in VARIANTS:
        table = SymbolTable(duck_shape=variant.shared)
        symbolic = _symbolized(op, key, table, variant)
        # Two variants may be equal, for example if no two sizes are.
        same = (str(_geometry(symbolic)), variant.lower)
        if table.symbols and same not in seen:
            seen.append(same)
            where = f"{shown}, {variant.name}"
            run = SymbolicRun(where, variant, table, symbolic, _result(op, symbolic, table))
            _check_at_hints(run, expected)
            yield run


def _check_at_hints(run: SymbolicRun, expected: object) -> None:
    hints = run.table.hints
    for assumption in run.table.log:
        assert assumption.holds(hints), (
            f"{run.where}: it assumes {assumption}, which is wrong for the sample's own {hints}"
        )
    got = concrete(run.result, hints)
    assert got == expected, (
        f"{run.where}: the rule gives {run.result}, which is {got} at {hints}, expected {expected}"
    )


def _check_takes_others(op: Op, run: SymbolicRun) -> None:
    """Checks that assumptions together do not fix a symbol to its hint: `s0 > 5`, `s0 <= 6`."""
    hints = run.table.hints
    for name, hint in hints.items():
        others = [{**hints, name: n} for n in range(2, hint + 8) if n != hint]
        fulfilled = any(all(a.holds(values) for a in run.table.log) for values in others)
        assert fulfilled or not any(_takes(op, run, values) for values in others), (
            f"{run.where}: it assumes {run.table.log}, which holds for no {name} near {hint}, "
            "expected some, since the rule takes others"
        )


def _check_weakest(op: Op, run: SymbolicRun) -> None:
    """Checks that for some sizes that an assumption alone excludes, the result differs."""
    log = run.table.log
    for assumption in () if op.name in {**NEEDLESS, **RARELY_NEEDLESS} else log:
        rest = [other for other in log if other is not assumption]
        alone = [
            values
            for values in _other_values(run)
            if not assumption.holds(values) and all(other.holds(values) for other in rest)
        ]
        tried = itertools.chain(alone, _near(alone, assumption, rest) if alone else ())
        assert not alone or not all(_is_same(op, run, values) for values in tried), (
            f"{run.where}: it assumes {assumption}, expected nothing that the result "
            f"{run.result} does not need: it is right for {alone[0]} as well"
        )


def _is_same(op: Op, run: SymbolicRun, values: Values) -> bool:
    """Whether the result on symbols is that of the rule at these sizes, which it may refuse."""
    try:
        return bool(_said(op, concrete(run.key, values)) == concrete(run.result, values))
    except (AotliteError, ZeroDivisionError):
        return False


def _near(
    alone: Sequence[Values], assumption: Assumption, rest: Sequence[Assumption]
) -> Iterator[Values]:
    """More sizes that an assumption alone excludes, drawn near those that are known."""
    draw = random.Random(0)
    for _ in range(_DRAWS):
        start = draw.choice(alone)
        values = {
            name: size if draw.random() < 0.6 else draw.choice((0, 1, 2, 3, 5))
            for name, size in start.items()
        }
        if not assumption.holds(values) and all(other.holds(values) for other in rest):
            yield values


_DRAWS = 2000


def _takes(op: Op, run: SymbolicRun, values: Values) -> bool:
    try:
        _said(op, concrete(run.key, values))
    except AotliteError:
        return False
    return True


def _check_at(op: Op, run: SymbolicRun, values: Values) -> bool:
    """Compares the results at these sizes; returns False if the assumptions exclude them."""
    broken = [assumption for assumption in run.table.log if not assumption.holds(values)]
    fixed = [assumption for assumption in broken if assumption.specializes]
    if broken and (not fixed or run.variant.lower == 0 or op.name in SPECIALIZES):
        return False
    try:
        expected = _said(op, concrete(run.key, values))
    except AotliteError as error:
        assert broken, (
            f"{run.where}: the rule gives {run.result}, and raises at {values}, expected an "
            f"assumption that excludes them: {error}"
        )
        return False
    assert not fixed, (
        f"{run.where}: it assumes {fixed[0]}, expected nothing that fails at {values}, which it "
        "takes"
    )
    got = concrete(run.result, values)
    assert got == expected, (
        f"{run.where}: the rule gives {run.result}, which is {got} at {values}, expected "
        f"{expected}; it assumed {run.table.log}"
    )
    return True


def _said(op: Op, key: tuple[object, ...]) -> object:
    """The results of the rules: metas, starts of windows, and the offsets that a draw consumes."""
    match op:
        case MultiViewOp():
            return tuple(view.rule(key[0], *rest) for view, rest in op.rule(*key))
        case InplaceOp():
            return op.functional.rule(*key)
        case GeometryOp():
            return op.view.rule(*key)
        case RandomOp():
            meta = op.rule(*key)
            return meta, op.functional.rule(int, int, 0, *key), op.consumes(meta)
    return op.rule(*key)


def _result(op: Op, key: tuple[object, ...], table: SymbolTable) -> object:
    """What `_said` gives for symbols, as an op's own rule is run."""
    found: object = fewest(table, lambda *key: _said(op, key), key)
    return found


# -------------------------------------------------------------------------------------- symbols
def _symbolized(op: Op, key: tuple[object, ...], table: SymbolTable, variant: SymbolicSizes) -> Any:
    """The key with symbols for the sizes in metas and in arguments."""
    found = []
    for value, parameter in zip(key, op.schema.parameters, strict=True):
        sized = parameter.type.text.startswith("int") and parameter.name not in WHICH
        turned = _argument if sized else _operand
        found.append(turned(value, table, variant))
    return tuple(found)


def _argument(value: Any, table: SymbolTable, variant: SymbolicSizes) -> object:
    """Sizes in an argument as symbols: those of operands with the same hint, else new ones."""
    if type(value) is tuple:
        return tuple(_argument(item, table, variant) for item in value)
    if value is None or value < 0 or value < 2 - variant.lower:
        return value
    hint = value + variant.less
    known = [name for name, symbol in table.symbols.items() if symbol.hint == hint]
    return table.named(known[0]) - variant.less if known else variant.size(table, value)


def _operand(value: object, table: SymbolTable, variant: SymbolicSizes) -> object:
    if type(value) is tuple:
        return tuple(_operand(item, table, variant) for item in value)
    if not isinstance(value, TensorMeta):
        return value
    shape = tuple(
        variant.size(table, size) if variant.dims(dim, value.ndim) else size
        for dim, size in enumerate(value.shape)
    )
    stride = symbolic_strides(shape, value.shape, value.stride)
    return tensor_meta(shape, stride, value.dtype, value.device)


def _other_values(run: SymbolicRun) -> list[Values]:
    """Other values of the symbols, without duplicates."""
    hints = run.table.hints
    changed = [*_changed(hints), *(_small(hints) if run.variant.lower == 0 else ())]
    found = {tuple(values.values()): values for values in changed}
    found.pop(tuple(hints.values()), None)
    return list(found.values())


def _changed(hints: Values) -> Iterator[Values]:
    """The hints, changed together, one by one, and to all different numbers."""
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


def _small(hints: Values) -> Iterator[Values]:
    """Sizes of 0 and 1: each by itself, by twos, and all sizes of one hint together."""
    for name in hints:
        for size in range(4):
            yield {**hints, name: size}
    for a, b in itertools.combinations(hints, 2):
        for first, second in ((0, 0), (1, 1), (0, 1), (1, 0), (0, 3), (3, 0), (1, 3), (3, 1)):
            yield {**hints, a: first, b: second}
    for chosen in itertools.product((0, 1, None), repeat=len(set(hints.values()))):
        of = dict(zip(sorted(set(hints.values())), chosen, strict=True))
        put = {name: of[hint] for name, hint in hints.items()}
        yield {name: hints[name] if size is None else size for name, size in put.items()}
