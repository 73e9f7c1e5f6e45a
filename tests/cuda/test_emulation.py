"""The emulation has what CuPy has, and refuses what CuPy refuses, or does wrongly."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from aotlite.ir.arrays.cupy_table import cupy_table
from aotlite.testing.cuda import emulated_cuda, emulated_library
from aotlite.testing.cuda.emulation_errors import EmulationError

CUPY = emulated_library().cupy


def array(*values, dtype="float32"):
    return CUPY.asarray(np.array(values, dtype))


def test_the_table_is_what_the_installed_cupy_has():
    cupy = pytest.importorskip("cupy")
    if not cupy.__version__.startswith("14.2"):
        pytest.skip(f"the table is of CuPy 14.2, this is {cupy.__version__}")
    path = Path(__file__).parents[2] / "tools" / "cupy_table.py"
    spec = importlib.util.spec_from_file_location("cupy_table", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.table() == cupy_table()


def test_methods_of_arrays_are_those_of_cupys():
    cupy = pytest.importorskip("cupy")
    own = {"check_here", "refuse_float8"}
    names = {name for name in dir(CUPY.ndarray) if name[0] != "_"} - own
    assert set() == names - set(dir(cupy.ndarray))


def overlapping(x):
    x[1:] = x[:-1]


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda x: np.asarray(x), TypeError, "Implicit conversion to a NumPy array"),
        (lambda x: np.exp(x), TypeError, "does not support ufuncs"),
        (lambda x: x + np.ones(2, "float32"), TypeError, "Unsupported type"),
        (lambda x: CUPY.sum([1.0, 2.0]), TypeError, "expected an array"),
        (lambda x: CUPY.argsort(x, stable=True), TypeError, "unexpected keyword argument 'stable'"),
        (lambda x: CUPY.bitwise_and(x, x), TypeError, "Wrong type"),
        (lambda x: CUPY.logaddexp.accumulate(x), NotImplementedError, "is not supported"),
        (lambda x: CUPY.multiply.at(x, 0, 1), NotImplementedError, "not supported"),
        (lambda x: x[array(5, dtype="int64")], EmulationError, "out of range"),
        (lambda x: x[np.array([0])], EmulationError, "an index is a ndarray"),
        (lambda x: CUPY.where(True, x, x), EmulationError, "the condition is no array"),
        (lambda x: overlapping(CUPY.concat([x, x])), EmulationError, "overlaps where it is"),
        (lambda x: CUPY.unstack(x), AttributeError, "unstack"),
        (lambda x: CUPY.asarray(np.array(["a"])), ValueError, "Unsupported dtype"),
    ],
)
def test_what_cupy_refuses_is_refused(wrong, error, message):
    with pytest.raises(error, match=message):
        wrong(array(1.0, 2.0))


def test_an_array_of_another_device_is_found():
    x = array(1.0)
    with CUPY.cuda.Device(1), pytest.raises(EmulationError, match="device 0 while 1 is"):
        x + 1


def test_results_of_reductions_are_arrays_without_dimensions():
    found = CUPY.sum(array(1.0, 2.0))
    assert (CUPY.ndarray, (), 3.0) == (type(found), found.shape, found.item())


def test_chosen_brain_floats_become_32_bits_as_cupys_loops_have_it():
    import ml_dtypes

    x = CUPY.asarray(np.ones(2, ml_dtypes.bfloat16))
    assert np.dtype("float32") == CUPY.where(x > 0, x, x).dtype
    assert x.dtype == emulated_cuda().arrays.namespace.where(x > 0, x, x).dtype


def test_a_view_is_on_the_same_memory_and_a_result_is_not():
    x = array(1.0, 2.0, 3.0, 4.0)
    assert x.data.ptr + 4 == x[1:].data.ptr == x.reshape(2, 2)[0, 1].data.ptr
    assert x is x[1:].base and (x + 1).base is None


def test_python_numbers_of_a_higher_kind_bring_their_dtype():
    bytes_, truth = array(1, 2, dtype="int8"), array(1, 0, dtype="bool")
    halves = array(1.0, 2.0, dtype="float16")
    assert ["float64", "float16", "int64", "int8"] == [
        str(x.dtype) for x in (bytes_ + 1.5, halves + 1, truth + 1, bytes_ + True)
    ]


def test_values_that_are_not_numpys_are_cupys():
    """As CuPy 14.2's sources have it: quotients of floats, remainders of integers, signs of 0."""
    big = array(2**53 + 1, dtype="int64")
    assert [10.0] == (array(1.0, dtype="float64") // 0.1).tolist()
    assert [0] == CUPY.fmod(big, 2).tolist() and [1] == (big % 2).tolist()
    nans = array(1.0, np.nan, np.nan)
    assert 2 == CUPY.argmax(nans).item()
    zeros = CUPY.full((2,), -0.0)
    signs = [CUPY.asarray(-0.0), CUPY.asarray(np.array([-0.0])), zeros]
    assert [False, [True], [True, True]] == [CUPY.signbit(x).tolist() for x in signs]
    zeros[...] = -0.0
    assert [False, False] == CUPY.signbit(zeros).tolist()
