"""Arguments in containers, empty ones too, are those of eager; what was met compiles nothing."""

from __future__ import annotations

from typing import Any

import optree
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al

LEAVES = st.sampled_from(["tensor", "tensor", 2, 2.0, True, None, "a"])
FORMS = st.recursive(
    LEAVES,
    lambda inner: st.tuples(
        st.sampled_from(["list", "tuple", "dict"]), st.lists(inner, max_size=2)
    ),
    max_leaves=4,
)
CALLS = st.tuples(
    st.lists(FORMS, max_size=3), st.dictionaries(st.sampled_from(["p", "q"]), FORMS, max_size=2)
)


def made(form: Any) -> Any:
    """The value of a form."""
    match form:
        case "tensor":
            return al.tensor([1.0, -2.0])
        case ("list", parts):
            return [made(part) for part in parts]
        case ("tuple", parts):
            return tuple([made(part) for part in parts])
        case ("dict", parts):
            return {f"k{i}": made(part) for i, part in enumerate(parts)}
    return form


def doubled(*args: Any, **kwargs: Any) -> Any:
    """Tensors twice, the rest as it is, in the same containers."""

    def each(value: Any) -> Any:
        return value * 2 if isinstance(value, al.Tensor) else value

    whole: Any = (args, kwargs)
    return optree.tree_map(each, whole, none_is_leaf=True)


def _plain(result: Any) -> Any:
    return optree.tree_map(
        lambda value: value.tolist() if isinstance(value, al.Tensor) else (type(value), value),
        result,
        none_is_leaf=True,
    )


@pytest.mark.draws(long=240)
@pytest.mark.rules("GEN-7", "GRD-1")
@settings(max_examples=40)
@given(st.lists(CALLS, min_size=1, max_size=3))
def test_any_arguments_after_any_others_are_those_of_eager(calls: list[Any]) -> None:
    compiled = al.compile(doubled)
    entries = 0
    for turn in range(2):
        for args, kwargs in calls:
            given_ = [made(form) for form in args], {name: made(f) for name, f in kwargs.items()}
            found = compiled(*given_[0], **given_[1])
            assert _plain(doubled(*given_[0], **given_[1])) == _plain(found)
        assert turn == 0 or entries == len(compiled.entries), "compiled again"
        entries = len(compiled.entries)
