"""Windows on images of drawn sizes: pooling, transposed convolution, other sizes, as in PyTorch."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite import nn
from aotlite.ir.errors import AotliteError

EXAMPLES = settings(max_examples=80)
F = nn.functional
two = lambda low, high: st.tuples(st.integers(low, high), st.integers(low, high))


def image(shape, seed=0):
    """Quarters, so that sums are exact."""
    return np.random.default_rng([seed, *shape]).integers(-8, 9, shape) / 4


def agree(torch, name, arrays, options):
    """Values, strides and gradients are PyTorch's, or both refuse the call."""
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays]
    ours = [al.tensor(a, requires_grad=True) for a in arrays]
    try:
        expected = getattr(torch.nn.functional, name)(*theirs, **options)
    except (RuntimeError, ValueError):
        with pytest.raises(AotliteError):
            getattr(F, name)(*ours, **options)
        return
    got = getattr(F, name)(*ours, **options)
    assert (tuple(expected.shape), expected.stride()) == (got.shape, got.stride())
    np.testing.assert_allclose(got.detach().numpy(), expected.detach().numpy(), 1e-12, 1e-12)
    weights = image(got.shape, 1)
    (expected * torch.tensor(weights)).sum().backward()
    (got * al.tensor(weights)).sum().backward()
    for a, b in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(b.grad.numpy(), a.grad.numpy(), 1e-11, 1e-11)


@pytest.mark.torch
@EXAMPLES
@given(
    size=two(3, 8),
    kernel_size=two(1, 4),
    stride=two(1, 4),
    padding=two(0, 2),
    ceil_mode=st.booleans(),
    count_include_pad=st.booleans(),
    divisor_override=st.none() | st.integers(1, 5),
)
def test_avg_pool2d_is_pytorchs(torch, size, **options):
    agree(torch, "avg_pool2d", [image((1, 2, *size))], options)


@pytest.mark.torch
@EXAMPLES
@given(size=two(1, 9), output_size=two(1, 9))
def test_adaptive_avg_pool2d_is_pytorchs(torch, size, output_size):
    agree(torch, "adaptive_avg_pool2d", [image((2, *size))], {"output_size": output_size})


@pytest.mark.torch
@EXAMPLES
@given(
    size=two(1, 4),
    kernel=two(1, 3),
    stride=two(1, 3),
    padding=two(0, 2),
    output_padding=two(0, 2),
    dilation=two(1, 3),
    groups=st.integers(1, 2),
)
@example((3, 3), (2, 2), (1, 1), (0, 0), (1, 2), (3, 3), 1)
def test_conv_transpose2d_is_pytorchs(
    torch, size, kernel, stride, padding, output_padding, dilation, groups
):
    options = {
        "stride": stride,
        "padding": padding,
        "output_padding": output_padding,
        "dilation": dilation,
        "groups": groups,
    }
    x, bias = image((1, 2 * groups, *size)), image((3 * groups,))
    agree(torch, "conv_transpose2d", [x, image((2 * groups, 3, *kernel), 2), bias], options)


@pytest.mark.torch
@EXAMPLES
@given(
    size=two(1, 7),
    output=two(1, 9),
    mode=st.sampled_from(["nearest", "nearest-exact", "bilinear"]),
    align_corners=st.booleans(),
)
def test_interpolate_to_a_size_is_pytorchs(torch, size, output, mode, align_corners):
    options = {"size": output, "mode": mode}
    options |= {"align_corners": align_corners} if mode == "bilinear" else {}
    agree(torch, "interpolate", [image((1, 2, *size))], options)


@pytest.mark.torch
@EXAMPLES
@given(
    size=two(1, 7),
    scale_factor=st.tuples(st.floats(0.3, 3), st.floats(0.3, 3)),
    mode=st.sampled_from(["nearest", "nearest-exact", "bilinear"]),
    recompute_scale_factor=st.none() | st.booleans(),
)
def test_interpolate_by_a_factor_is_pytorchs(torch, size, **options):
    agree(torch, "interpolate", [image((1, 2, *size))], options)
