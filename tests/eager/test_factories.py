"""Tensors from numbers and data are PyTorch's: values, dtypes, strides; and what is refused."""

import math
from typing import Any

import numpy as np
import pytest

import aotlite as al

# Each is evaluated with `t` the one library and the other.
EXPRESSIONS = """
t.arange(5)
t.arange(5.0)
t.arange(1, 2, 0.3)
t.arange(5, 0, -2)
t.arange(0, 7, 3)
t.arange(3, 3)
t.arange(True)
t.arange(0.5, 5, 1, dtype=t.int64)
t.arange(0, 1, 0.1, dtype=t.float16)
t.arange(254, dtype=t.uint8)
t.arange(start=1, end=4)
t.arange(end=4)
t.arange(t.tensor(1), t.tensor(7.5))
t.linspace(t.tensor(0.5), 2, 3)
t.full((2,), t.tensor(2))
t.zeros(size=(2, 3))
t.ones(size=[2])
t.empty(size=(2, 3, 4, 5), memory_format=t.channels_last).zero_()
t.arange(0, -1, -0.25, dtype=t.float64)
t.linspace(0, 1, 5)
t.linspace(0, 10, 4, dtype=t.int64)
t.linspace(0, -10, 4, dtype=t.int32)
t.linspace(3, 10, steps=1)
t.linspace(0, 1j, 3)
t.linspace(0, 1, 5, dtype=t.bfloat16).float()
t.logspace(0, 3, 4)
t.logspace(0, 3, 4, base=-2)
t.logspace(0, 3, 4, dtype=t.int64)
t.eye(2)
t.eye(2, 3, dtype=t.bool)
t.full((2,), 3)
t.full((2,), -1, dtype=t.uint8)
t.full((2,), 2.5, dtype=t.int8)
t.full((2,), math.inf, dtype=t.float16)
t.full((2,), 5, dtype=t.bool)
t.full((2,), -1, dtype=t.uint64)
t.full((2,), True)
t.zeros(())
t.zeros([2, 3], dtype=t.short)
t.ones(2, 0, 3)
t.scalar_tensor(3)
t.scalar_tensor(3, dtype=t.int8)
t.zeros(2).new_tensor([1, 2])
t.zeros(2, dtype=t.int64).new_tensor([1.5, 2])
t.zeros(3, 2).t().new_zeros(2, 2)
t.zeros(2).new_ones((2, 3), dtype=t.long)
t.full_like(t.zeros(2, dtype=t.int64), 2.5)
t.zeros_like(t.zeros(2, 3, 4, 5).permute(3, 1, 0, 2))
t.empty_strided((2, 3), (1, 2)).zero_()
t.empty(2, 3, 4, 5, memory_format=t.channels_last).zero_()
t.tensor([True, 2])
t.tensor([True, 2.5])
t.tensor([1, 2j])
t.tensor([np.float64(1)])
t.tensor([np.int32(1), 2])
t.tensor([np.float32(1), 2.0])
t.tensor([t.tensor(1.0, dtype=t.float64), 2])
t.tensor([np.zeros(2), np.ones(2)])
t.tensor(())
t.tensor([[], []])
t.tensor(range(3))
t.tensor([1, 2**63], dtype=t.uint64)
t.tensor(-1, dtype=t.uint8)
t.tensor([1.5, -1.5], dtype=t.int64)
t.tensor(1e10, dtype=t.float16)
t.as_tensor([1, 2])
t.as_tensor(np.arange(3, dtype=np.int16))
t.as_tensor(np.arange(3), dtype=t.float32)
t.asarray(3.0)
t.asarray([1, 2], dtype=t.float32)
""".split("\n")[1:-1]


@pytest.mark.torch
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_factories_equal_torch(torch, expression):
    theirs = eval(expression, {"t": torch, "np": np, "math": math})
    ours = eval(expression, {"t": al, "np": np, "math": math})
    assert str(theirs.dtype).removeprefix("torch.") == ours.dtype.name
    assert (tuple(theirs.shape), theirs.stride()) == (ours.shape, ours.stride())
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=2e-7, atol=0)


TOO_MANY = "arange: the range divided by the step is too large, expected at most 2**63 - 1 numbers"


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (
            lambda: al.arange(5, 0),
            al.ArgumentError,
            "arange: the range is 5 to 0, expected one in the direction of step 1",
        ),
        (
            lambda: al.arange(math.nan),
            al.ArgumentError,
            "arange: argument 'end' is nan, expected a finite number",
        ),
        (
            lambda: al.arange(0, math.inf),
            al.ArgumentError,
            "arange: argument 'end' is inf, expected a finite number",
        ),
        (
            lambda: al.arange(0, 1, -math.inf),
            al.ArgumentError,
            "arange: argument 'step' is -inf, expected a finite number",
        ),
        *(
            (lambda a=arguments: al.arange(*a), al.ShapeError, TOO_MANY)
            for arguments in [
                (0, 2**60, 1e-300),
                (1e308, -1e308, -1e-5),
                (0, 1, 5e-324),
                (-1e308, 1e308, 1e308),
                (0.0, 10**400),
                (0.0, 10**5000),
            ]
        ),
        (
            lambda: al.arange(10**400, 0.5),
            al.ArgumentError,
            "arange: the range is an int of 1329 bits to 0.5, expected one in the direction of "
            "step 1",
        ),
        (
            lambda: al.arange(0, -(10**5000)),
            al.ArgumentError,
            "arange: the range is 0 to an int of 16610 bits, expected one in the direction of "
            "step 1",
        ),
        (
            lambda: al.linspace(math.nan, 1, 3, dtype=al.int64),
            al.ArgumentError,
            "linspace: start is nan, expected a finite number for int64",
        ),
        (
            lambda: al.logspace(0, -math.inf, 3, dtype=al.int32),
            al.ArgumentError,
            "logspace: end is -inf, expected a finite number for int32",
        ),
        (
            lambda: al.arange(3j),
            al.ArgumentError,
            "arange: argument 'end' is 3j, expected a real number",
        ),
        (
            lambda: al.arange(0, 5, 0.5, dtype=al.int64),
            al.ArgumentError,
            "arange: step is 0, expected another number",
        ),
        (
            lambda: al.arange(2, dtype=al.bool),
            al.DTypeError,
            "arange: dtype is bool, expected a numeric one",
        ),
        (
            lambda: al.linspace(0, 1, -1),
            al.ShapeError,
            "linspace: steps is -1, expected at least 0",
        ),
        (
            lambda: al.linspace(0, 1j, 3, dtype=al.float32),
            al.DTypeError,
            "linspace: dtype is float32, expected a complex one",
        ),
        (
            lambda: al.eye(2, -3),
            al.ShapeError,
            "eye: size is (2, -3), expected no negative number",
        ),
        (
            lambda: al.full((2,), 300, dtype=al.uint8),
            al.ArgumentError,
            "full: value is 300, expected one that uint8 can hold",
        ),
        (
            lambda: al.full((2,), math.nan, dtype=al.int8),
            al.ArgumentError,
            "full: value is nan, expected one that int8 can hold",
        ),
        (
            lambda: al.full((2,), 1e10, dtype=al.float16),
            al.ArgumentError,
            "full: value is 10000000000.0, expected one that float16 can hold",
        ),
        (
            lambda: al.full((2,), 1j, dtype=al.float32),
            al.ArgumentError,
            "full: value is 1j, expected one that float32 can hold",
        ),
        (
            lambda: al.full((2,), 2**63),
            al.ArgumentError,
            f"full: value is {2**63}, expected one that int64 can hold",
        ),
        (
            lambda: al.zeros(2.5),
            al.ArgumentError,
            "full: argument 'size' is (2.5,), expected int[]",
        ),
        (
            lambda: al.zeros(2, device="gpu"),
            al.ArgumentError,
            "full: argument 'device' is 'gpu', expected device?",
        ),
        (
            lambda: al.ones(2, dtype=al.int64, requires_grad=True),
            al.DTypeError,
            "requires_grad_: the dtype is int64, expected a floating or complex one",
        ),
        (
            lambda: al.empty_strided((2, 3), (1,)),
            al.ShapeError,
            "empty_strided: stride is (1,), expected 2 numbers, none negative",
        ),
        (
            lambda: al.tensor(300, dtype=al.uint8),
            al.ArgumentError,
            "tensor: argument 'data' is 300, expected numbers in nested lists, each one that uint8 "
            "can hold",
        ),
        (
            lambda: al.tensor(math.nan, dtype=al.int64),
            al.ArgumentError,
            "tensor: argument 'data' is nan, expected numbers in nested lists, each one that int64 "
            "can hold",
        ),
        (
            lambda: al.tensor(1j, dtype=al.float32),
            al.ArgumentError,
            "tensor: argument 'data' is 1j, expected real numbers",
        ),
        (
            lambda: al.tensor(1, device="gpu"),
            al.DeviceError,
            "tensor: device is 'gpu', expected 'cpu', 'cuda', or 'cuda:0' and so on",
        ),
        (
            lambda: al.asarray([1], copy=False),
            al.ArgumentError,
            "asarray: copy is False, expected data of this dtype to be shared",
        ),
        (
            lambda: al.result_type("a", 1),
            al.ArgumentError,
            "result_type: an operand is 'a', expected a tensor or a number",
        ),
        (
            lambda: al.numel(3),  # type: ignore[arg-type]
            al.ArgumentError,
            "numel: argument 'input' is 3, expected a tensor",
        ),
        (
            lambda: al.finfo(al.int8),
            al.DTypeError,
            "finfo: dtype is int8, expected a floating or complex one",
        ),
        (
            lambda: al.iinfo(al.bool),
            al.DTypeError,
            "iinfo: dtype is bool, expected an integer one",
        ),
    ],
)
def test_bad_input_says_what_is_expected(function, error, message):
    with pytest.raises(error) as caught:
        function()
    assert message == str(caught.value).partition("\n")[0]


def test_as_tensor_shares_where_nothing_changes():
    x = al.ones(2, requires_grad=True)
    host = np.zeros(2)
    assert al.as_tensor(x) is x
    al.as_tensor(host)[0] = 5
    assert [5.0, 0.0] == host.tolist()
    assert not np.shares_memory(host, al.as_tensor(host, dtype=al.float32).numpy())
    assert al.as_tensor(x, dtype=al.float64).requires_grad


def test_asarray_copies_if_asked_and_has_the_history_asked_for():
    host, x = np.zeros(2), al.ones(2, requires_grad=True)
    assert not np.shares_memory(host, al.asarray(host, copy=True).numpy())
    assert np.shares_memory(host, al.asarray(host, copy=False).numpy())
    assert not al.asarray(x).requires_grad and al.asarray(x, requires_grad=True).requires_grad


def test_out_holds_what_the_factory_gives():
    target = al.zeros(3, dtype=al.int64)
    assert al.arange(3, out=target) is target
    assert [0, 1, 2] == target.tolist()
    assert [[1, 0], [0, 1]] == al.eye(2, out=al.zeros(2, 2)).tolist()
    with pytest.raises(al.ShapeError, match="argument 'out' has shape"):
        al.full((2,), 1, out=target)


@pytest.mark.torch
def test_promotion_and_limits_equal_torch(torch):
    names = [name for name in dir(al) if isinstance(getattr(torch, name, None), torch.dtype)]
    assert {"bool", "half", "long", "uint64", "float8_e5m2", "cdouble"} <= set(names)
    for a in names:
        mine, yours = getattr(al, a), getattr(torch, a)
        assert mine.name == str(yours).removeprefix("torch.")
        _compare_limits(torch, mine, yours)
        for b in names:
            assert al.can_cast(mine, getattr(al, b)) == torch.can_cast(yours, getattr(torch, b))
            _compare_promotion(torch, (mine, yours), (getattr(al, b), getattr(torch, b)))


def _compare_limits(torch, mine, yours):
    for kind, fields in (("finfo", "bits eps max min tiny smallest_normal"), ("iinfo", "bits max")):
        try:
            limits = getattr(torch, kind)(yours)
        except TypeError:
            with pytest.raises(al.DTypeError):
                getattr(al, kind)(mine)
            continue
        for field in (*fields.split(), "dtype"):
            assert getattr(limits, field) == getattr(getattr(al, kind)(mine), field), (mine, field)


def _compare_promotion(torch, one, other):
    try:
        expected = str(torch.promote_types(one[1], other[1])).removeprefix("torch.")
    except RuntimeError:
        with pytest.raises(al.DTypeError):
            al.promote_types(one[0], other[0])
        return
    assert expected == al.promote_types(one[0], other[0]).name


def test_questions_about_tensors():
    x = al.ones(2, 3)
    assert (True, True, False, 6) == (
        al.is_tensor(x),
        al.is_floating_point(x),
        al.is_complex(x),
        al.numel(x),
    )
    assert al.get_default_dtype() is al.float32 is al.result_type(x, 2)
    assert al.result_type(al.ones(2, dtype=al.int8), 2.5) is al.float32


def test_factories_in_a_compiled_function_give_what_they_give():
    def made(x):
        n = x.shape[0]
        counted = al.arange(n) + al.linspace(0, 1, n)
        return counted, al.eye(n) @ x, al.zeros_like(x.t()), x.new_ones(n, 2), x.new_tensor([n])

    x = al.ones(3, 2)
    for expected, got in zip(made(x), al.compile(made)(x), strict=True):
        assert (expected.tolist(), expected.stride()) == (got.tolist(), got.stride())


@pytest.mark.parametrize("backend", ["reference", "loops", "cpu"])
@pytest.mark.parametrize("name", ["linspace", "logspace"])
def test_ends_that_no_integer_is_are_refused_compiled_as_well(name: str, backend: str) -> None:
    compiled = al.compile(
        lambda x: getattr(al, name)(0, math.inf, 3, dtype=al.int64) + x, backend=backend
    )
    with pytest.raises(al.ArgumentError) as caught:
        compiled(al.ones(3))
    assert f"{name}: end is inf, expected a finite number for int64" == str(caught.value)


@pytest.mark.parametrize("dtype", [al.float32, al.float64])
@pytest.mark.parametrize("name", ["linspace", "logspace"])
def test_floats_are_spaced_between_whatever_ends(name: str, dtype: Any) -> None:
    spaced = getattr(al, name)(math.nan, 1, 3, dtype=dtype)
    assert [True] * 3 == spaced.isnan().tolist()
