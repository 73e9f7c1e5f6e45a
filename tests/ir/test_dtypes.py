"""Dtypes are single objects, and promote as PyTorch's do."""

import copy
import itertools
import pickle

import numpy as np
import pytest

from aotlite.ir import dtypes
from aotlite.ir.dtypes import (
    DTYPES,
    by_name,
    can_cast_in_place,
    dtype_of_scalar,
    from_numpy,
    promote,
    result_type,
)
from aotlite.ir.errors import DTypeError

PAIRS = list(itertools.product(DTYPES, repeat=2))
NUMBERS = (True, 2, 2.5, 2j)
SHORT = "b8 u8 i8 i16 i32 i64 u16 u32 u64 f16 bf16 f32 f64 f8e4m3 f8e5m2 c64 c128".split()


def promoted(a, b):
    """The promoted dtype, None where there is none."""
    try:
        return promote(a, b)
    except DTypeError:
        return None


def test_short_names_are_the_documented_ones():
    assert sorted(SHORT) == sorted(dtype.short for dtype in DTYPES)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtype_is_one_object_however_it_is_reached(dtype):
    assert dtype is by_name(dtype.name)
    assert dtype is by_name(dtype.short)
    assert dtype is from_numpy(dtype.numpy)
    assert dtype is copy.copy(dtype)
    assert dtype is copy.deepcopy(dtype)
    assert dtype is pickle.loads(pickle.dumps(dtype))
    assert f"aotlite.{dtype.name}" == repr(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_facts_agree_with_a_numpy_array_of_the_dtype(dtype):
    array = np.zeros(3, dtype.numpy)
    assert array.itemsize == dtype.itemsize
    assert np.iscomplexobj(array) == dtype.is_complex
    assert (np.array(-1).astype(dtype.numpy).real < 0) == dtype.is_signed
    assert dtype.is_differentiable == (dtype.is_floating_point or dtype.is_complex)


def test_platform_integer_types_are_the_fixed_width_ones():
    assert from_numpy(np.dtype("longlong")) is dtypes.int64
    assert from_numpy(np.dtype(int)) is from_numpy(np.dtype("l"))


@pytest.mark.parametrize("code", ["O", "U3", "M8[s]", "g", "V4", "i4,f4"])
def test_from_numpy_refuses_what_no_tensor_holds(code):
    with pytest.raises(
        DTypeError, match=r"^from_numpy: dtype is dtype\(.*\), expected one of bool,"
    ):
        from_numpy(np.dtype(code))


def test_from_numpy_refuses_foreign_byte_order_and_says_what_to_do():
    with pytest.raises(DTypeError) as caught:
        from_numpy(np.dtype(">f4"))
    message = "from_numpy: dtype is dtype('>f4'), expected native byte order"
    assert message == str(caught.value)
    assert ["convert it with array.astype(array.dtype.newbyteorder('='))"] == caught.value.__notes__


def test_by_name_names_the_known_dtypes_when_it_fails():
    with pytest.raises(DTypeError, match=r"^by_name: name is 'float', expected a dtype") as caught:
        by_name("float")
    assert caught.value.__notes__[0].startswith("dtypes: bool, uint8,")


def test_promote_is_commutative_and_idempotent():
    assert all(promoted(a, b) is promoted(b, a) for a, b in PAIRS)
    assert all(promoted(a, a) is a for a in DTYPES)


def test_promote_never_loses_a_kind():
    found = [(a, b, promoted(a, b)) for a, b in PAIRS]
    assert all(c.kind == max(a.kind, b.kind) for a, b, c in found if c is not None)


def test_promote_refuses_pairs_without_a_common_dtype():
    rule = "^promote: dtypes are uint16 and int8, expected a pair with a common dtype\n"
    with pytest.raises(DTypeError, match=rule):
        promote(dtypes.uint16, dtypes.int8)


def test_to_real_undoes_to_complex_for_dtypes_with_a_complex_partner():
    assert [dtypes.float32, dtypes.float64] == [
        dtype.to_complex().to_real() for dtype in (dtypes.float32, dtypes.float64)
    ]
    assert dtypes.complex64 is dtypes.complex64.to_complex()
    assert dtypes.int8 is dtypes.int8.to_real()
    with pytest.raises(DTypeError, match=r"^to_complex: dtype is int8, expected one of float16, "):
        dtypes.int8.to_complex()


def test_scalar_dtypes_are_those_of_a_tensor_made_of_the_number():
    expected = [dtypes.bool_, dtypes.int64, dtypes.float32, dtypes.complex64]
    assert expected == [dtype_of_scalar(number) for number in NUMBERS]
    assert dtypes.float32 is dtype_of_scalar(np.float64(1))
    with pytest.raises(
        DTypeError, match=r"^dtype_of_scalar: value is a str, expected bool, int, float or complex$"
    ):
        dtype_of_scalar("1")


def test_result_type_ranks_dimensioned_over_0d_over_numbers():
    f16, f64, i32 = dtypes.float16, dtypes.float64, dtypes.int32
    assert f16 is result_type([(f64, 0), (f16, 3), 2.5])
    assert f64 is result_type([(f64, 0), 2.5])
    assert dtypes.float32 is result_type([2.5, (i32, 1)])
    assert dtypes.complex128 is result_type([(f64, 1), 2j])
    assert dtypes.complex64 is result_type([(f16, 1), 2j])
    with pytest.raises(
        DTypeError, match=r"^result_type: operands are \[\], expected at least one$"
    ):
        result_type([])


def test_in_place_cast_follows_the_order_of_kinds():
    assert can_cast_in_place(dtypes.float64, dtypes.float16)
    assert can_cast_in_place(dtypes.int64, dtypes.uint8)
    assert not can_cast_in_place(dtypes.float32, dtypes.int64)
    assert not can_cast_in_place(dtypes.int8, dtypes.bool_)
    assert not can_cast_in_place(dtypes.complex64, dtypes.float64)


# ------------------------------------------------------------------------------------- PyTorch
def answer(function, *args):
    """PyTorch's dtype as ours, None where PyTorch refuses."""
    try:
        return by_name(str(function(*args)).removeprefix("torch."))
    except RuntimeError:
        return None


@pytest.mark.torch
def test_promote_equals_pytorch_on_every_pair(torch):
    for a, b in PAIRS:
        expected = answer(torch.promote_types, getattr(torch, a.name), getattr(torch, b.name))
        assert expected is promoted(a, b), (a, b)


@pytest.mark.torch
def test_in_place_cast_equals_pytorch_on_every_pair(torch):
    for a, b in PAIRS:
        expected = torch.can_cast(getattr(torch, a.name), getattr(torch, b.name))
        assert expected == can_cast_in_place(a, b), (a, b)


@pytest.mark.torch
def test_result_type_equals_pytorch_on_pairs_of_tensors_and_numbers(torch):
    samples = [(dtype, ndim) for dtype in DTYPES for ndim in (0, 1)] + list(NUMBERS)
    for operands in itertools.product(samples, repeat=2):
        if not would_be_complex32(operands):
            expected = answer(torch.result_type, *(as_pytorch(torch, each) for each in operands))
            assert expected is combined(operands), operands


@pytest.mark.torch
def test_result_type_equals_pytorch_on_triples_of_all_ranks(torch):
    """PyTorch lets the number meet the 0-d tensor first, and their dtype the dimensioned one."""
    for (a, b), number in itertools.product(PAIRS, NUMBERS):
        operands = [(a, 1), (b, 0), number]
        low = combined(operands[1:])
        if low is None or would_be_complex32(operands):
            continue
        tensor = torch.empty(1, dtype=getattr(torch, a.name))
        scalar = torch.empty((), dtype=getattr(torch, low.name))
        expected = answer(torch.result_type, tensor, scalar)
        for permuted in itertools.permutations(operands):
            assert expected is combined(permuted), permuted


def as_pytorch(torch, operand):
    if not isinstance(operand, tuple):
        return operand
    dtype, ndim = operand
    return torch.empty((1,) * ndim, dtype=getattr(torch, dtype.name))


def would_be_complex32(operands):
    """Whether float16 is among what is made complex: aotlite has no complex32."""
    dtypes_of = [each[0] if isinstance(each, tuple) else dtype_of_scalar(each) for each in operands]
    return dtypes.float16 in dtypes_of and any(dtype.is_complex for dtype in dtypes_of)


def combined(operands):
    """The result type, None where there is none."""
    try:
        return result_type(operands)
    except DTypeError:
        return None
