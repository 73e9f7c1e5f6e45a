"""What a witness says is what the adapter's method does, for all constants that it may be given."""

import ast
import math

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotlite import conformance
from aotlite.conformance.adapters.numpy import NumPy
from aotlite.conformance.outcomes import Breaks
from aotlite.conformance.witnesses.call_source import along, is_constant, spell, written
from aotlite.conformance.witnesses.recording import Recorder

xp = None  # a library that is named only


def same(one, two):
    """Whether two constants are one in class and value; nan is nan, and -0.0 is not 0.0."""
    if type(one) is not type(two):
        return False
    match one:
        case slice():
            parts = ("start", "stop", "step")
            return all(same(getattr(one, each), getattr(two, each)) for each in parts)
        case tuple() | list():
            return len(one) == len(two) and all(map(same, one, two))
        case set() | frozenset():
            return sorted(map(written, one)) == sorted(map(written, two))
        case dict():
            return same(list(one.items()), list(two.items()))
        case np.generic() if one.dtype.kind in "fc":
            return same(one.item(), two.item())
        case float():
            return repr(one) == repr(two)
        case complex():
            return same((one.real, one.imag), (two.real, two.imag))
    return one == two


SCALARS = st.one_of(
    st.none(),
    st.just(...),
    st.booleans(),
    st.integers(-9, 9),
    st.floats(width=32),
    st.complex_numbers(width=64),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.sampled_from([math.nan, math.inf, -math.inf, -0.0, complex(-0.0, -0.0), complex(0, -1)]),
    st.integers(-9, 9).map(np.int64),
    st.booleans().map(np.bool_),
    st.floats().map(np.float64),
    st.floats(width=32).map(np.float32),
    st.complex_numbers(width=64).map(np.complex64),
)
ENDS = st.one_of(st.none(), st.integers(-9, 9), st.integers(-9, 9).map(np.int64))
SLICES = st.builds(slice, ENDS, ENDS, ENDS)
CONSTANTS = st.recursive(
    st.one_of(SCALARS, SLICES),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.frozensets(SCALARS, max_size=3),
        st.sets(SCALARS, max_size=3),
        st.dictionaries(SCALARS, inner, max_size=2),
    ),
    max_leaves=6,
)
NAMES = {"np": np, "along": along}


@pytest.mark.draws(long=2000)
@given(CONSTANTS)
def test_a_written_constant_is_the_constant(value):
    assert is_constant(value)
    assert same(value, eval(written(value), NAMES))


@attrs.define
class Heard:
    """Stands for an array: keeps what is done with it, and gives others like it."""

    log: list = attrs.field(factory=list)

    def __getitem__(self, key):
        self.log.append(("get", single(key)))
        return Heard(self.log)

    def __setitem__(self, key, value):
        self.log.append(("set", single(key), value))

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        self.log.append(("attribute", name))
        return Heard(self.log)

    def __call__(self, *arguments, **named):
        self.log.append(("call", arguments, sorted(named.items())))
        return Heard(self.log)


def single(key):
    """A tuple of one index reads as the index."""
    return key[0] if type(key) is tuple and len(key) == 1 else key


class Forms:
    """Every way in which an index or a constant stands in an adapter's method."""

    narrow = lambda self, a, i, j: a[:, i:j]
    select = lambda self, a, i, j: a[..., i, :]
    slice = lambda self, a, i, j: a[i:j:2, None, ::j]
    getitem = lambda self, a, i, j: a[i]
    view = lambda self, a, i, j: a[(i, j), :]
    permute = lambda self, a, i, j: a[(slice(i), (j, slice(None)))]
    unfold = lambda self, a, i, j: a[along(2, slice(i, j), ...)]
    expand = lambda self, a, i, j: a.take(i, where=j)[:, i:]
    clone = lambda self, a, i, j: a[[i, j], 1:2] if i else a[:, j:]
    asarray = lambda self, a, i, j: a[{i: 1, "j": j}["j"], 0:1] if j is not None else a[:, :]
    sort = lambda self, a, i, j: a(*[i, j], key=(i, [j, (1, 2)]))
    astype = lambda self, a, i, j: a.where(a[:, i] if i is None else j, float("nan"), -0.0)

    def setitem(self, a, i, j):
        a[:, i:j] = j

    def put(self, a, i, j):
        b = a[:, 1:2]
        b[i, ...] = (i, j)
        return b


FORMS = [name for name, method in vars(Forms).items() if callable(method)]


def done(method, *arguments):
    heard = Heard()
    try:
        method(heard, *arguments)
    except TypeError as error:  # as an index of a dictionary that cannot be hashed
        return heard.log, str(error)
    return heard.log, None


def runs(lines):
    """The function of `a` that consists of these lines."""
    names = dict(NAMES)
    exec("\n".join(["def spelled(a):", *(f"    {line}" for line in lines or ["pass"])]), names)
    return names["spelled"]


@pytest.mark.draws(long=2000)
@given(st.sampled_from(FORMS), CONSTANTS, CONSTANTS)
def test_a_spelled_call_does_what_the_method_does(name, first, second):
    method = getattr(Forms(), name)
    expected, failure = done(method, first, second)
    texts = {"a": "a", "i": written(first), "j": written(second)}
    lines, expression = spell(name, method, texts)
    found, said = done(runs([*lines, *filter(None, [expression])]))
    assert (same(expected, found), failure is None) == (True, said is None)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ((slice(None), slice(1, 3)), "a[:, 1:3]"),
        ((slice(0, 2), (1, 2)), "a[0:2, (1, 2)]"),
        ((slice(1, None), np.int64(1)), "a[slice(1, None), np.int64(1)]"),
        (float("nan"), "a[float('nan')]"),
        (frozenset(), "a[frozenset()]"),
    ],
)
def test_an_index_is_written_as_people_do(key, text):
    assert ([], text) == spell("getitem", NumPy().getitem, {"a": "a", "key": written(key)})


class Sliced(NumPy):
    """NumPy, its ranges of columns in NumPy's own words."""

    name = "sliced"
    narrow = lambda self, a, dim, start, length: (
        a[:, start : start + length] if dim == 1 else a[along(dim, slice(start, start + length))]
    )


class Copied(NumPy):
    """A mistake that shows in a range of columns only."""

    narrow = lambda self, a, dim, start, length: (
        a[:, start : start + length].copy() if dim == 1 else a[start : start + length]
    )


def test_numpy_in_its_own_words_keeps_what_numpy_keeps():
    rules = ["views", "geometry", "writes", "copies", "random_chains"]
    plain, sliced = (conformance.check(each, rules) for each in (NumPy, Sliced))
    assert [each.outcome for each in plain.results] == [each.outcome for each in sliced.results]
    assert len(plain.kept) >= 60


def test_a_witness_has_slices_of_columns():
    [result] = conformance.check(Copied, rules=["TEN-2a"]).results
    assert isinstance(result.outcome, Breaks)
    assert "b = a[:, 0:1].copy()" in result.outcome.lines


def test_a_numpy_scalar_is_written_where_nothing_gave_it():
    on = Recorder(NumPy())
    a = on.from_list([1, 2], "int64")
    first = on.getitem(a, np.int64(0))
    on.add(a, first)
    on.add(a, np.float32("nan"))
    assert [
        "a = np.array([1, 2], 'int64')",
        "b = a[np.int64(0)]",
        "c = np.add(a, b)",
        "d = np.add(a, np.float32(float('nan')))",
    ] == on.lines()
    assert all(map(ast.parse, on.lines()))
