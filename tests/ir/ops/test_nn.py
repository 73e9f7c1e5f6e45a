"""Convolution and max pooling equal PyTorch's: values, strides, indices, gradients, refusals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.eager.creation.from_data import call
from aotlite.ir.errors import ArgumentError, DTypeError, ShapeError
from aotlite.ir.op import OPS
from tests.ir.helpers.op_oracle import (
    FLOATS,
    as_ours,
    as_torch,
    assert_same,
    check_gradients,
    compare,
    compare_gradients,
    laid_out,
)

EXAMPLES = settings(max_examples=60)


def image(shape, seed=0):
    return np.random.default_rng(seed).integers(-8, 9, shape) / 4


def channels_last(array):
    return array.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)


# -------------------------------------------------------------------------------- convolution
def conv(x, w, b=None, stride=(1,), padding=(0,), dilation=(1,), groups=1):
    return call("conv2d", x, w, b, stride, padding, dilation, groups)


@pytest.mark.torch
@EXAMPLES
@given(data=st.data())
def test_conv2d_equals_torch(torch, data):
    one_or_two = lambda low, high: st.lists(st.integers(low, high), min_size=1, max_size=2).map(
        tuple
    )
    groups, per_group = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2))
    kernel = tuple(data.draw(st.integers(1, 3)) for _ in "hw")
    out = groups * data.draw(st.integers(1, 2))
    shape = (
        data.draw(st.integers(0, 2)),
        groups * per_group,
        *(data.draw(st.integers(5, 8)) for _ in "hw"),
    )
    dtype = data.draw(st.sampled_from(FLOATS))
    x, w = (
        np.ascontiguousarray(laid_out(data.draw, shape, dtype)),
        laid_out(data.draw, (out, per_group, *kernel), dtype),
    )
    b = laid_out(data.draw, (out,), dtype) if data.draw(st.booleans()) else None
    options = [
        data.draw(one_or_two(1, 3)),
        data.draw(one_or_two(0, 2)),
        data.draw(one_or_two(1, 2)),
    ]
    compare(torch, "conv2d", torch.conv2d, x, np.ascontiguousarray(w), b, *options, groups)


CONVS = {
    "plain": ((2, 2, 4, 4), (3, 2, 2, 3), {}),
    "stride": ((2, 1, 5, 5), (2, 1, 2, 2), {"stride": (2,)}),
    "stride that leaves a border": ((1, 1, 5, 6), (1, 1, 2, 2), {"stride": (2, 3)}),
    "padding": ((1, 2, 3, 3), (2, 2, 3, 3), {"padding": (1, 2)}),
    "dilation": ((1, 1, 5, 5), (1, 1, 2, 2), {"dilation": (2, 3)}),
    "groups": ((1, 4, 3, 3), (4, 2, 2, 2), {"groups": 2}),
    "all": (
        (2, 2, 5, 6),
        (4, 1, 2, 3),
        {"stride": (2, 1), "padding": (1,), "dilation": (1, 2), "groups": 2},
    ),
}


@pytest.mark.torch
@pytest.mark.parametrize("case", CONVS)
def test_gradients_of_conv2d_equal_torch(torch, case):
    shape, weight, options = CONVS[case]
    compare_gradients(
        torch,
        lambda x, w, b: conv(x, w, b, **options),
        lambda x, w, b: torch.conv2d(x, w, b, **options),
        image(shape),
        image(weight, 1),
        image(weight[:1], 2),
    )


@pytest.mark.parametrize("case", ["plain", "all"])
def test_gradients_of_conv2d_equal_differences(case):
    shape, weight, options = CONVS[case]
    function = lambda x, w, b: conv(x.sin(), w, b, **options)
    check_gradients(function, image((1, *shape[1:])), image(weight, 1), image(weight[:1], 2))


@pytest.mark.parametrize("case", CONVS)
def test_the_three_convolutions_are_one_trilinear_form(case):
    """<conv(x, w), g> = <x, conv_input(g, w)> = <w, conv_weight(g, x)>; exact in quarters."""
    shape, weight, options = CONVS[case]
    x, w = al.tensor(image(shape)), al.tensor(image(weight, 1))
    full = {"stride": (1,), "padding": (0,), "dilation": (1,), "groups": 1} | options
    y = conv(x, w, **full)
    g = al.tensor(image(y.shape, 3))
    value = (y * g).sum().item()
    assert value == (g.conv2d_input(w, x.shape, **full) * x).sum().item()
    assert value == (g.conv2d_weight(x, w.shape, **full) * w).sum().item()


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bit_convolutions_accumulate_in_float32(torch, dtype):
    x, w = image((1, 64, 8, 8)).astype("f4"), image((2, 64, 3, 3), 1).astype("f4")
    theirs = [torch.from_numpy(a).to(getattr(torch, dtype)) for a in (x, w)]
    ours = [al.from_numpy(a).to(getattr(al, dtype)) for a in (x, w)]
    assert_same(torch.conv2d(*theirs), conv(*ours))


@pytest.mark.torch
@pytest.mark.parametrize("which", [(True, False), (False, True), (True, True)])
def test_a_channels_last_operand_gives_a_channels_last_result(torch, which):
    x, w = image((2, 3, 5, 4)), image((4, 3, 2, 2))
    x, w = (channels_last(a) if last else a for a, last in zip((x, w), which, strict=True))
    compare(torch, "conv2d", torch.conv2d, x, w)
    compare(torch, "conv2d", torch.conv2d, x[:0], w)


def test_conv2d_saves_both_operands_for_either_gradient():
    vjp = OPS["conv2d"].vjp
    assert [((0, 1), ()), ((0, 1), ()), ((), ())] == [vjp.saves((i,)) for i in range(3)]


# ------------------------------------------------------------------------------------ pooling
def pooled(torch, *args):
    return tuple(torch.nn.functional.max_pool2d(*args, return_indices=True))


@pytest.mark.torch
@EXAMPLES
@given(data=st.data())
def test_max_pool_equals_torch(torch, data):
    """Ties are common: the first of equal elements is chosen."""
    kernel = tuple(data.draw(st.integers(1, 3)) for _ in "hw")
    padding = tuple(data.draw(st.integers(0, k // 2)) for k in kernel)
    stride = tuple(data.draw(st.integers(1, 3)) for _ in "hw")
    dilation = tuple(data.draw(st.integers(1, 2)) for _ in "hw")
    shape = tuple(data.draw(st.integers(1, 2)) for _ in range(data.draw(st.integers(1, 2))))
    a = image(
        (*shape, data.draw(st.integers(5, 8)), data.draw(st.integers(5, 8))),
        data.draw(st.integers(0, 99)),
    )
    a = a.astype(data.draw(st.sampled_from(FLOATS)))
    ceil_mode = data.draw(st.booleans())
    name = "max_pool2d_with_indices"
    options = (kernel, stride, padding, dilation, ceil_mode)
    compare(torch, name, lambda *args: pooled(torch, *args), a, *options)


@pytest.mark.torch
@pytest.mark.parametrize("special", [-np.inf, np.nan, np.inf])
@pytest.mark.parametrize("padding", [0, 1])
def test_pooling_of_special_values_equals_torch(torch, special, padding):
    """A window of nothing but -inf still chooses a place on the image, not on its border."""
    some = image((1, 2, 5, 5))
    some[some > 0] = special
    for a in (some, np.full((1, 1, 4, 4), special)):
        ours = as_ours(a).max_pool2d_with_indices(2, 2, padding)
        assert_same(pooled(torch, as_torch(torch, a), 2, 2, padding), ours)


@pytest.mark.torch
def test_pooling_keeps_channels_last_and_integers(torch):
    a = channels_last(image((2, 3, 4, 4)))
    assert_same(pooled(torch, as_torch(torch, a), 2), as_ours(a).max_pool2d_with_indices(2))
    a = (image((2, 3, 4, 4)) * 4).astype("i8")
    assert_same(pooled(torch, as_torch(torch, a), 2), as_ours(a).max_pool2d_with_indices(2))


@pytest.mark.torch
@pytest.mark.parametrize("options", [(2,), (3, 1, 1), (2, 2, 0, 2), ((2, 3), (1, 2))])
def test_gradients_of_max_pool_equal_torch(torch, options):
    """Squared, so that there is a second gradient. Windows overlap in two of the cases."""
    square = lambda result: result[0] * result[0]
    compare_gradients(
        torch,
        lambda x: square(x.max_pool2d_with_indices(*options)),
        lambda x: square(pooled(torch, x, *options)),
        image((2, 2, 6, 7)),
    )


def test_the_first_of_equal_maxima_takes_the_gradient():
    x = al.ones(1, 1, 2, 2, requires_grad=True)
    x.max_pool2d_with_indices(2)[0].sum().backward()
    assert x.grad.flatten().tolist() == [1.0, 0.0, 0.0, 0.0]


def test_max_pool_saves_its_operand_and_the_indices():
    assert OPS["max_pool2d_with_indices"].vjp.saves((0,)) == ((0,), (1,))


# ----------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (
            lambda x, w: conv(x.view(4, 16), w),
            ShapeError,
            "conv2d: argument 'input' has shape (4, 16), expected 4 dimensions",
        ),
        (
            lambda x, w: conv(x.view(4, 1, 4, 4), w),
            ShapeError,
            "conv2d: the input has 1 channels, expected 2, the weight's 2 times 1 groups",
        ),
        (
            lambda x, w: conv(x, w, dilation=(4,)),
            ShapeError,
            "conv2d: the padded height is 4, expected at least 5, the extent of the kernel",
        ),
        (
            lambda x, w: conv(x, w, groups=2),
            ArgumentError,
            "conv2d: argument 'groups' is 2, expected a divisor of 3, the number of "
            "output channels",
        ),
        (
            lambda x, w: conv(x, w, stride=(1, 2, 3)),
            ArgumentError,
            "conv2d: argument 'stride' is (1, 2, 3), expected 1 or 2 numbers of at least 1",
        ),
        (
            lambda x, w: conv(x, w, padding=(-1,)),
            ArgumentError,
            "conv2d: argument 'padding' is (-1,), expected 1 or 2 numbers of at least 0",
        ),
        (
            lambda x, w: conv(x, w, al.ones(2)),
            ShapeError,
            "conv2d: argument 'bias' has shape (2,), expected (3,)",
        ),
        (
            lambda x, w: conv(x, w.double()),
            DTypeError,
            "conv2d: dtypes are float32, float64, expected one numeric dtype",
        ),
        (
            lambda x, w: x.conv2d_weight(x, w.shape, (1,), (0,), (1,), 1),
            ShapeError,
            "conv2d_weight: argument 'self' has shape (2, 2, 4, 4), expected (2, 3, 3, 3), the "
            "shape of the convolution's result",
        ),
        (
            lambda x, w: x.max_pool2d_with_indices(2, 2, 2),
            ArgumentError,
            "max_pool2d: argument 'padding' is (2,), expected at most half of the kernel size (2,)",
        ),
        (
            lambda x, w: x.max_pool2d_with_indices(5),
            ShapeError,
            "max_pool2d: the result's size is (0, 0), expected at least 1: the window (5, 5) is "
            "larger than shape (2, 2, 4, 4)",
        ),
        (
            lambda x, w: x.flatten().max_pool2d_with_indices(2),
            ShapeError,
            "max_pool2d: the tensor has shape (64,), expected 3 or 4 dimensions, all but the batch "
            "of at least 1",
        ),
        (
            lambda x, w: x.bool().max_pool2d_with_indices(2),
            DTypeError,
            "max_pool2d: dtype is bool, expected a floating or integer one",
        ),
    ],
)
def test_bad_arguments_say_what_is_expected(function, error, message):
    with pytest.raises(error) as caught:
        function(al.ones(2, 2, 4, 4), al.ones(3, 2, 2, 2))
    assert str(caught.value) == message
