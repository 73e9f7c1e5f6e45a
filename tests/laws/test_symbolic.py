"""The exceptions of L12 are needed; composites take symbols as ops do."""

import numpy as np
import pytest

from aotlite.ir import dtypes
from aotlite.ir.errors import AotliteError
from aotlite.ir.graph.builder import Builder
from aotlite.ir.meta import tensor_meta
from aotlite.ir.meta.symbolic import symbolic_meta
from aotlite.ir.op import OPS, DataOp
from aotlite.ir.op.composite import COMPOSITES
from aotlite.ir.symbols.assumption import concrete
from aotlite.ir.symbols.table import SymbolTable
from aotlite.ir.symbols.validation import judge
from aotlite.testing import laws
from aotlite.testing.laws.ops import symbolic
from tests.laws.helpers.composites import call
from tests.samples import samples_of


def rows(table, says, names=None, marks=()):
    """A row for each exception in `table`: its complaint says `says` where it is none."""
    found = table if names is None else names
    return [pytest.param(table, name, says, marks=marks, id=f"{name}-{says}") for name in found]


EXCEPTIONS = [
    *rows(symbolic.SPECIALIZES, "it assumes .* == .*, expected nothing"),
    *rows(
        symbolic.TELLS_APART,
        "expected some, since the rule takes",
        [name for name in symbolic.TELLS_APART if name not in symbolic.SPECIALIZES],
    ),
    *rows(symbolic.NEEDLESS, "it assumes .*, expected nothing that the", marks=[pytest.mark.long]),
]


@pytest.mark.parametrize(("table", "name", "says"), EXCEPTIONS)
def test_exceptions_of_the_law_are_needed(table, name, says, monkeypatch):
    """One that nothing needs would hide what comes later."""
    monkeypatch.delitem(table, name)
    with pytest.raises(AssertionError, match=f"^{name}.* {says}"):
        symbolic.symbolic_is_concrete(OPS[name], samples_of(name))


@pytest.mark.long
@pytest.mark.parametrize("name", symbolic.RARELY_NEEDLESS)
def test_op_that_rarely_assumes_more_than_it_needs_does(name, monkeypatch):
    monkeypatch.delitem(symbolic.RARELY_NEEDLESS, name)
    with pytest.raises(laws.LawError, match=r"it assumes .*, expected nothing that the"):
        laws.check_op(name)


# ---------------------------------------------------------------------------------- validation
def check_facts(name):
    """The assumptions of the rule imply every fact that it used, in each way to put in symbols."""
    for run in symbolic.symbolic_runs(OPS[name], samples_of(name)):
        verdict = judge(run.table, time_limit=20.0)
        assert verdict.counter is None and not verdict.unknown, f"{run.where}: {verdict}"


@pytest.mark.rules("DYN-11")
@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", ["view", "as_strided", "slice", "matmul", "cat", "conv2d", "roll"])
def test_facts_that_rules_use_follow_from_what_they_assume(name):
    check_facts(name)


@pytest.mark.long
@pytest.mark.rules("DYN-11")
@pytest.mark.parametrize("name", [n for n, op in OPS.items() if not isinstance(op, DataOp)])
def test_facts_that_all_rules_use_follow_from_what_they_assume(name):
    check_facts(name)


# ---------------------------------------------------------------------------------- composites
def traced(name, sample, make):
    """The metas of what a composite gives for operands that `make` gives metas for."""
    build = Builder("traced")

    def operand(value):
        if isinstance(value, np.ndarray):
            return build.placeholder(make(meta_of(value)))
        return type(value)(map(operand, value)) if isinstance(value, (tuple, list)) else value

    args = tuple(map(operand, sample.args))
    return metas_in(call(name, args, {key: operand(v) for key, v in sample.kwargs.items()}))


def meta_of(array):
    stride = tuple(step // array.itemsize for step in array.strides)
    return tensor_meta(array.shape, stride, dtypes.from_numpy(array.dtype))


def metas_in(value):
    if hasattr(value, "meta"):
        return (value.meta,)
    return tuple(map(metas_in, value)) if isinstance(value, (tuple, list)) else value


def can_be_traced(name, sample):
    try:
        traced(name, sample, lambda meta: meta)
    except (AotliteError, AttributeError):  # values are asked for, or it speaks of tensors alone
        return False
    return True


TRACED = {
    name: found
    for name in COMPOSITES
    if (found := [sample for sample in samples_of(name) if can_be_traced(name, sample)])
}


@pytest.mark.thinned(6)
@pytest.mark.parametrize("name", TRACED)
def test_composite_says_of_symbols_what_it_says_of_sizes(name):
    """DYN-2: at every size that keeps what was assumed, one of them the sample's own."""
    for sample in TRACED[name]:
        table = SymbolTable(duck_shape=True)
        made = []

        def symbolic(meta, table=table, made=made):
            made.append(symbolic_meta(table, meta, "x"))
            return made[-1]

        result = traced(name, sample, symbolic)
        hints = table.hints
        assert all(assumption.holds(hints) for assumption in table.log)
        for values in (hints, {k: n + 1 for k, n in hints.items()}, dict.fromkeys(hints, 6)):
            if all(assumption.holds(values) for assumption in table.log):
                metas = iter(made)
                expected = traced(name, sample, lambda _, m=metas, v=values: next(m).concrete(v))
                assert expected == concrete(result, values), (name, sample, values, table.log)


def test_most_composites_can_be_traced():
    """A new way to fail would else go unnoticed."""
    assert len(TRACED) > 0.8 * len(COMPOSITES)
