"""Witnesses are code of the library: calls of adapters' methods with their arguments put in."""

import operator
from typing import Any

import pytest

from aotlite.conformance import Adapter
from aotlite.conformance.adapters.numpy import NumPy
from aotlite.conformance.isolation.tracked_adapter import Watched
from aotlite.conformance.witnesses.call_source import along, index_text, spell, written
from aotlite.conformance.witnesses.functions import library_of
from aotlite.conformance.witnesses.recording import Recorder

xp: Any = None  # a library that is named only


class Words(Adapter):
    """Methods of every form that is spelled."""

    narrow = lambda self, a, dim, start, length: a[along(dim, slice(start, start + length))]
    select = lambda self, a, dim, index: a[along(dim, index, ...)]
    asarray = lambda self, a, copy: xp.take(a) if copy else xp.see(a)
    zeros = lambda self, shape, dtype: xp.zeros(shape, dtype=getattr(xp, dtype))
    put = lambda self, a, places, value: operator.setitem(a, places, value)

    def setitem(self, a, key, value):
        a[key] = value

    def frozen(self, values, dtype):
        """A docstring, and a local name."""
        a = xp.array(values, dtype)
        a.flags.writeable = False
        return a

    def add_(self, a, b):
        """A guard is left out."""
        if b is None:
            raise ValueError
        a += b
        return a

    def neg(self, a):
        """Too much to be spelled."""
        for _ in range(2):
            a = -a
        return a


@pytest.mark.parametrize(
    ("name", "arguments", "lines", "expression"),
    [
        ("narrow", {"a": "a", "dim": "0", "start": "1", "length": "2"}, [], "a[1:3]"),
        ("narrow", {"a": "a", "dim": "2", "start": "0", "length": "1"}, [], "a[:, :, 0:1]"),
        ("select", {"a": "a", "dim": "1", "index": "-1"}, [], "a[:, -1, ...]"),
        ("asarray", {"a": "a", "copy": "True"}, [], "xp.take(a)"),
        ("asarray", {"a": "a", "copy": "None"}, [], "xp.see(a)"),
        ("zeros", {"shape": "(2,)", "dtype": "'int64'"}, [], "xp.zeros((2,), dtype=xp.int64)"),
        ("put", {"a": "a", "places": "[0, 1]", "value": "b"}, ["a[[0, 1]] = b"], ""),
        ("setitem", {"a": "a", "key": "...", "value": "5"}, ["a[...] = 5"], ""),
        ("add_", {"a": "a", "b": "b"}, ["a += b"], "a"),
        ("neg", {"a": "a"}, [], "neg(a)"),
    ],
)
def test_a_call_is_spelled(name, arguments, lines, expression):
    assert (lines, expression) == spell(name, getattr(Words(), name), arguments)


def test_a_local_name_is_the_results():
    method = Words().frozen
    lines, expression = spell("frozen", method, {"values": "[0]", "dtype": "'int8'"}, "c")
    assert lines == ["c = xp.array([0], 'int8')", "c.flags.writeable = False"]
    assert expression == "c"


def test_indices_and_values_are_written_as_people_do():
    assert "1:, ..., 0, ::2" == index_text((slice(1, None), ..., 0, slice(None, None, 2)))
    assert "(slice(None), [1, ...])" == written((slice(None), [1, ...]))


def test_names_follow_objects():
    """One object has one name, a write gives none, parts get one each."""
    on = Recorder(NumPy())
    a = on.from_list([0, 1], "int64")
    on.setitem(a, 0, 5)
    first, second = on.split(a, 1, 0)
    assert on.add_(first, second) is first
    on.to_list(a)
    assert [
        "a = np.array([0, 1], 'int64')",
        "a[0] = 5",
        "b, c = np.split(a, range(1, a.shape[0], 1), 0)",
        "np.add(b, c, out=b)",
        "a.tolist()",
    ] == on.lines()


def test_a_refused_call_says_so():
    on = Recorder(NumPy())
    a = on.from_list([0], "int64")
    with pytest.raises(IndexError):
        on.getitem(a, 3)
    assert "a[3]  # raises IndexError" == on.lines()[-1]


def test_arguments_are_written_as_they_were_given():
    """A library may keep the list it is given, and write it."""
    values = [1, 2]
    on = Recorder(NumPy())
    on.from_list(values, "int64")
    values[0] = 7
    assert ["a = np.array([1, 2], 'int64')"] == on.lines()


def test_functions_that_a_library_traces_call_it_directly():
    """What is wrapped around an adapter would be traced as well, or end the trace."""
    adapter, called = NumPy(), []
    on = Recorder(Watched(adapter, {}, called.append))
    assert library_of(on) is library_of(adapter) is adapter
    on.to_list(on.zeros((1,), "int64"))
    assert ["zeros", "", "to_list", ""] == called
    assert ["a = np.zeros((1,), 'int64')", "a.tolist()"] == on.lines()
