"""ndarrays in compiled functions: NumPy's meaning or an error, never a tensor's meaning (NDA-1..7).

The law draws forms of the table, and names that are not in it, with dtypes and shapes.
"""

from __future__ import annotations

import importlib.util
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.eager.creation import array_names as names
from aotlite.eager.creation.array_stand_in import WAY_OUT

ROOT = Path(__file__).parents[2]


def _tool() -> Any:
    path = ROOT / "tools" / "ndarray_table.py"
    spec = importlib.util.spec_from_file_location("ndarray_table", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))  # beside it is what it imports
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


TOOL = _tool()


def compiled(body: Callable[..., Any], *args: Any) -> Any:
    return al.compile(body, backend="reference")(*args)


# ---------------------------------------------------------------------------------------------- law
def _same(mine: Any, its: Any) -> bool:
    if type(mine) is not type(its):
        return False
    if isinstance(mine, (tuple, list)):
        return len(mine) == len(its) and all(map(_same, mine, its))
    if not isinstance(mine, (np.ndarray, np.generic)):
        return bool(mine == its)
    if (mine.dtype, mine.shape) != (its.dtype, its.shape):
        return False
    if mine.dtype.kind not in "fc":
        return np.array_equal(mine, its)
    eps = np.finfo(mine.dtype).eps
    return np.allclose(mine, its, rtol=64 * eps, atol=64 * eps, equal_nan=True)


def _verdict(body: Callable[..., Any], arrays: list[Any]) -> str:
    """`same`, `raised`, or what is wrong: results, or what the arrays hold afterwards."""
    mine, its = [[_own(a) for a in arrays] for _ in range(2)]
    try:
        expected = body(*mine)
    except Exception:
        expected = _RAISED
    try:
        found = compiled(body, *its)
    except Exception as error:
        kept = _same(its, [_own(a) for a in arrays])
        known = isinstance(error, al.AotliteError) or expected is _RAISED
        return "raised" if known and kept else f"broken: {error!r}"
    if expected is _RAISED:
        return f"NumPy raises, compiled gives {found!r}"
    if _same(expected, found) and _same(mine, its):
        return "same"
    return f"expected {expected!r} and {mine!r}, found {found!r} and {its!r}"


_RAISED = object()


def _own(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def _array(draw: random.Random, dtype: Any = None, shape: Any = None) -> Any:
    dtype = np.dtype(str(draw.choice(names.KINDS))) if dtype is None else dtype
    shapes = [(), (3,), (2, 3), (3, 3), (1, 3), (2, 3, 2), (0,), (1,)]
    shape = draw.choice(shapes) if shape is None else shape
    pool = TOOL.pool(dtype)
    picked = [pool[draw.randrange(len(pool))] for _ in range(int(np.prod(shape)))]
    array = np.array(picked, dtype).reshape(shape)
    return array.T if draw.random() < 0.2 else array


def _number(draw: random.Random) -> Any:
    kind = draw.choice([*TOOL.NUMBERS])
    return draw.choice(TOOL.NUMBERS[kind])


def _operator_case(draw: random.Random) -> tuple[Any, list[Any]]:
    """A step, and the result through another one: what is computed is an ndarray, too."""
    run = TOOL.operators()[draw.choice([*TOOL.operators()])]
    a = _array(draw)
    how = draw.random()
    if how < 0.4:
        b = _array(draw, a.dtype if draw.random() < 0.6 else None, a.shape)
        return lambda a, b: run(a, b), [a, b]
    if how < 0.5:
        b = _array(draw)[...].reshape(-1)[:1]
        return lambda a, b: run(a, b[0]), [a, b] if b.size else [a, a.reshape(-1)]
    number: Any = _number(draw)
    if how > 0.9:
        with np.errstate(all="ignore"):
            number = np.array(1, draw.choice(names.KINDS).numpy)[()]
    return lambda a: run(a, number), [a]


def _call_case(draw: random.Random) -> tuple[Any, list[Any]]:
    name = draw.choice([n for n in TOOL.public(np.ndarray) if n not in ("tofile", "dump")])
    args, kwargs = draw.choice(TOOL.CALLS)
    first = draw.choice([lambda a: a, lambda a: a + a, lambda a: a[:1], lambda a: -a])
    if not callable(getattr(np.ndarray, name)):
        return lambda a: getattr(first(a), name), [_array(draw)]
    return lambda a: getattr(first(a), name)(*args, **kwargs), [_array(draw)]


def _known_call_case(draw: random.Random) -> tuple[Any, list[Any]]:
    """A call that agrees for some class: most of them are refused for no dtype."""
    known = names.table()["calls"]
    agreed = [r for f, r in TOOL.call_rows() if "." in known.get(f, {"cells": ""})["cells"]]
    run = draw.choice(draw.choice(agreed))
    return lambda a: run(a), [_array(draw)]


def _index_case(draw: random.Random) -> tuple[Any, list[Any]]:
    a = _array(draw, shape=draw.choice([(3,), (2, 3), (2, 3, 2), ()]))
    form = draw.choice(TOOL.index_forms())
    index = TOOL.index_of(form, a.shape, draw)
    if draw.random() < 0.5:
        return lambda a: a[index], [a]
    value: Any = _number(draw) if draw.random() < 0.5 else _array(draw, a.dtype, ())

    def write(a: Any, v: Any = value) -> Any:
        a[index] = v
        return a

    return (write, [a, value]) if isinstance(value, np.ndarray) else (write, [a])


def _unary_case(draw: random.Random) -> tuple[Any, list[Any]]:
    run = TOOL.UNARY[draw.choice([*TOOL.UNARY])]
    return lambda a: run(a), [_array(draw)]


CASES = [_operator_case, _operator_case, _call_case, _known_call_case, _index_case, _unary_case]


def _check(count: int, seed: int) -> Counter[str]:
    """Draws so many cases; returns how many had which verdict."""
    draw, found = random.Random(seed), Counter[str]()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for number in range(count):
            body, arrays = CASES[number % len(CASES)](draw)
            verdict = _verdict(body, arrays)
            assert verdict in ("same", "raised"), (number, seed, arrays, verdict)
            found[verdict] += 1
    return found


@pytest.mark.rules("NDA-3", "NDA-4", "NDA-5", "NDA-7", "GEN-2")
def test_compiled_functions_of_ndarrays_give_numpys_results_or_raise() -> None:
    """200 forms × dtypes × shapes: value, dtype, shape, kind, and what was written."""
    found = _check(200, seed=1)
    assert found["same"] > 30 and found["raised"] > 30, found


@pytest.mark.long
def test_compiled_functions_of_ndarrays_give_numpys_results_or_raise_long() -> None:
    assert 20_000 == sum(sum(_check(1000, seed).values()) for seed in range(2, 22))


# -------------------------------------------------------------------------------------------- table
def test_the_table_is_what_samples_say() -> None:
    """Rows drawn anew; `python tools/ndarray_table.py` makes all of them."""
    draw, known = random.Random(5), names.table()
    rows = dict(TOOL.call_rows())
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for form in draw.sample([f for f in known["calls"] if f in rows], 25):
            for kind in draw.sample(names.RECEIVERS, 6):
                made = TOOL._call_cell(rows[form], kind, form)
                assert (made == "") == (names.why_not(form, kind) is None), (form, kind, made)
        for form in draw.sample([*TOOL.operators()], 12):
            for a, b in zip(
                draw.sample(names.RECEIVERS, 8), draw.sample(names.OPERANDS, 8), strict=True
            ):
                made = TOOL.operator_cell(form, TOOL.operators()[form], a, b)
                assert (made == "") == (names.why_no_operator(form, a, b) is None), (form, a, b)
        for form in draw.sample(TOOL.index_forms(), 40):
            made = TOOL.index_cell(form, "n", writes=False)
            assert (made == "") == (names.why_no_index(f"a[{form}]", "float32:n") is None), form


def test_every_name_of_an_ndarray_is_in_the_table() -> None:
    found = {form.partition("(")[0] for form in names.table()["calls"]}
    assert set() == set(TOOL.public(np.ndarray)) - found


def test_the_page_is_made_of_the_table() -> None:
    assert TOOL.PAGE.read_text("utf-8") == TOOL.page(names.table())


# ----------------------------------------------------------------------------------------- refusals
def refused(body: Callable[..., Any], *args: Any) -> al.UnsupportedError:
    with pytest.raises(al.UnsupportedError) as caught:
        compiled(body, *args)
    return caught.value


def test_an_operator_or_name_that_differs_is_refused_with_both_meanings() -> None:
    error = refused(lambda a: a / 2, np.arange(3))
    assert (
        "ndarray: a / b with int of a int64 array is met in a compiled function, expected what "
        "means the same in NumPy and for tensors"
    ) == str(error)
    assert "NumPy gives a float64 array, a tensor gives a float32 array." == error.__notes__[0]
    assert WAY_OUT == error.__notes__[1]
    assert "std() of a float64 array" in str(refused(lambda a: a.std(), np.ones(2)))
    assert "a tensor gives a max." in refused(lambda a: a.max(1), np.ones((2, 2))).__notes__[0]
    assert "std() of a float64 array" in str(refused(lambda a: (a + 1).std(), np.ones(2)))


CALLED: list[Callable[[Any], Any]] = [
    np.sum,
    np.sin,
    np.add.reduce,
    np.asarray,
    np.linalg.norm,
    lambda a: np.add(a, a, out=a),
    lambda a: np.zeros(2) + np.asarray(a),
    lambda a: np.zeros(2) + a,
    lambda a: a + np.zeros(2),
    lambda a: divmod(a, 2),
    lambda a: setattr(a, "shape", (2, 1)),
    lambda a: memoryview(a),
    float,
    bool,
    lambda a: 1.0 in a,
    __import__("copy").copy,
    __import__("copy").deepcopy,
    __import__("pickle").dumps,
    lambda a: a.__array_interface__,
    lambda a: al.from_dlpack(a),
]


@pytest.mark.rules("NDA-3")
@pytest.mark.parametrize("call", range(len(CALLED)))
def test_what_asks_for_an_arrays_memory_or_values_raises(call: int) -> None:
    """Whoever catches the refusal is refused, too (CAP-13)."""
    with pytest.raises((al.AotliteError, TypeError)):
        compiled(CALLED[call], np.ones(2))


def test_a_name_that_an_ndarray_lacks_is_an_attribute_error() -> None:
    with pytest.raises(al.AbsentError, match="attribute 'mul_' is asked for") as caught:
        compiled(lambda a: a.mul_(2), np.ones(2))
    assert isinstance(caught.value, AttributeError)
    assert "NumPy raises AttributeError; a tensor has one." == caught.value.__notes__[0]
    assert not compiled(lambda a: hasattr(a, "mul_"), np.ones(2))


# --------------------------------------------------------------------------------------- subclasses
class Own(np.ndarray):
    """A user's subclass."""


def _subclasses() -> list[Any]:
    record = np.ones(2).view(np.recarray)
    masked = np.ma.masked_array([1.0, 2.0], [True, False])
    return [
        np.ones((1, 2)).view(np.matrix),
        masked,
        record,
        np.ones(2).view(Own),
        np.ones(2).view(np.memmap),
    ]


GLOBAL: Any = None


class Holder(al.nn.Module):
    """A Module that has an array."""

    def __init__(self, array: Any) -> None:
        super().__init__()
        self.array = array

    def forward(self, x: Any) -> Any:
        return x * al.tensor(self.array).sum()


@pytest.mark.rules("NDA-1")
@pytest.mark.parametrize("array", _subclasses(), ids=lambda a: type(a).__name__)
def test_subclasses_of_ndarray_are_refused_by_name_wherever_they_come_from(array: Any) -> None:
    global GLOBAL
    GLOBAL = array
    name = f"{type(array).__module__}.{type(array).__qualname__}"
    x, plain = al.ones(2), np.ones(2)
    ways = {
        "argument 0": lambda: compiled(lambda a: a, array),
        "argument 0['k'][1]": lambda: compiled(lambda d: d["k"][0], {"k": [1, array]}),
        "argument 'k'": lambda: al.compile(lambda k: k)(k=array),
        "argument 'data' of tensor": lambda: compiled(lambda x: x + al.tensor(array), x),
        "argument 'array' of from_numpy": lambda: compiled(lambda x: x + al.from_numpy(GLOBAL), x),
        "an operand of a * b": lambda: compiled(lambda a: a * array, plain),
    }
    for place, way in ways.items():
        with pytest.raises(al.UnsupportedError) as caught:
            way()
        assert f"ndarray: {place} is a {name}, expected a plain ndarray" == str(caught.value)
        assert "np.asarray(a)" in caught.value.__notes__[0]
    with pytest.raises(al.UnsupportedError, match="expected a plain ndarray"):
        al.compile(Holder(array))(x)


# ----------------------------------------------------------------------------------------- meanings
@pytest.mark.rules("NDA-2", "NDA-5")
def test_arrays_are_arrays_inside_and_outside() -> None:
    a = np.arange(3.0)
    found = compiled(lambda a, b: (isinstance(a, np.ndarray), a is b, a, a[1:], a.sum()), a, a)
    assert [True, True] == list(found[:2])
    assert a is found[2] and np.shares_memory(found[3], a)
    assert np.float64 is type(found[4])


@pytest.mark.rules("NDA-2")
def test_an_entry_for_ndarrays_serves_no_tensors() -> None:
    double = al.compile(lambda a: a * 2, backend="reference")
    assert [np.ndarray, al.Tensor, np.ndarray] == [
        type(double(each)) for each in (np.ones(2), al.ones(2, dtype=al.float64), np.ones(2))
    ]
    assert 2 == len(double.entries)


@pytest.mark.rules("NDA-4")
def test_scalars_are_no_views_and_are_not_written() -> None:
    def body(a: Any) -> Any:
        first, view = a[0], a[..., 1]
        a[:] = 5.0
        other = first
        other += 1.0
        return first, other, view

    first, other, view = compiled(body, np.array([1.0, 2.0]))
    assert (1.0, 2.0, 5.0) == (first, other, view)
    assert [np.float64, np.float64, np.ndarray] == list(map(type, (first, other, view)))


@pytest.mark.rules("NDA-6")
def test_tensors_of_an_array_lie_on_its_memory() -> None:
    def body(a: Any, w: Any) -> Any:
        x = al.from_numpy(a)
        x.mul_(3.0)
        return x, (x * w).sum(), a + 1.0, al.tensor(a).add_(1.0)

    for run in (body, al.compile(body, backend="reference")):
        a = np.ones(2)
        w: Any = al.ones(2, dtype=al.float64).requires_grad_()
        x, total, more, copy = run(a, w)
        total.backward()
        assert [3.0, 3.0] == a.tolist() == w.grad.tolist() == x.tolist()
        assert [4.0, 4.0] == more.tolist() == copy.tolist()
        assert [al.Tensor, np.ndarray, al.Tensor] == list(map(type, (x, more, copy)))


@pytest.mark.rules("NDA-6")
def test_ops_of_tensors_refuse_arrays_as_eager_does() -> None:
    bodies: list[Callable[..., Any]] = [
        lambda t, a: t + a,
        lambda t, a: a * t,
        lambda t, a: al.sin(a),
        lambda t, a: t == a,
        lambda t, a: a @ t,
        lambda t, a: al.cat([t, a]),
    ]
    for body in bodies:
        texts = []
        for run in (body, al.compile(body)):
            with pytest.raises(al.ArgumentError) as caught:
                run(al.ones(2), np.ones(2))
            texts.append(str(caught.value))
        assert texts[0] == texts[1]
