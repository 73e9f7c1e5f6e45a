"""`Op.bind` remembers types of arguments that were canonical: that must never show."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aotlite.ir.errors import ArgumentError
from aotlite.ir.graph.builder import Builder
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS

X = Builder().placeholder(tensor_meta((2, 3)))

ITEMS = st.sampled_from([0, 1, 2, True, 1.0, np.int64(1), None, X])
VALUES = ITEMS | st.lists(ITEMS, max_size=2) | st.lists(ITEMS, max_size=2).map(tuple)
CALLS = st.lists(st.lists(VALUES, max_size=3).map(lambda rest: (X, *rest)), max_size=8)


def outcome(bind: Any, args: tuple[Any, ...]) -> Any:
    try:
        bound = bind(args, {})
    except ArgumentError as error:
        return str(error)
    return shown(bound)


def shown(value: Any) -> Any:
    """By type and identity: comparing proxies would run an op."""
    if isinstance(value, tuple):
        return tuple(shown(item) for item in value)
    return type(value), id(value) if value is X else value


@example("permute", [(X, (0, 1)), (X, (np.int64(1), 0)), (X, (1.0, 0)), (X, (0, 1))])
@given(st.sampled_from(["permute", "sum", "mul", "roll", "split", "select", "clone"]), CALLS)
def test_calls_bound_before_change_nothing(name, calls):
    op = attrs.evolve(OPS[name])  # without memories
    for args in calls:
        assert outcome(op.schema.bind, args) == outcome(op.bind, args)


@pytest.mark.parametrize("name", ["cat", "stack"])
def test_numbers_are_no_tensors_after_an_empty_list_of_tensors(name):
    op = attrs.evolve(OPS[name])
    op.bind(((), 0), {})
    with pytest.raises(ArgumentError, match=rf"^{name}: argument 'tensors' is \(1, 2\), expected"):
        op.bind(((1, 2), 0), {})
