"""GELU and LayerNorm: what they compute by definition and in PyTorch, and what they refuse."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite import nn
from aotlite.ir.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from tests.eager.helpers.listarrays import LISTS
from tests.nn.helpers.compare import same, same_call, share_state

F = nn.functional
FEW = settings(max_examples=50)


# ---------------------------------------------------------------------------------- erf and gelu
@FEW
@given(st.floats(-10, 10), st.sampled_from([al.float32, al.float64]))
def test_erf_is_the_mathematicians(x, dtype):
    tensor = al.tensor([x], dtype=dtype)
    expected = math.erf(tensor.item())
    unit = {al.float32: 5e-7, al.float64: 5e-16}[dtype]
    assert tensor.erf().item() == pytest.approx(expected, rel=unit)


@FEW
@given(st.floats(-8, 8))
def test_gelu_of_both_signs_differs_by_the_value(x):
    """x N(x) - (-x) N(-x) = x, as N(x) + N(-x) = 1."""
    for approximate in ("none", "tanh"):
        up, down = (F.gelu(al.tensor([v], dtype=al.float64), approximate) for v in (x, -x))
        assert up.item() - down.item() == pytest.approx(x, abs=1e-14)


def test_gelu_far_out_is_the_value_or_zero():
    for approximate in ("none", "tanh"):
        for dtype in (al.float32, al.float64, al.float16):
            x = al.tensor([50.0, -50.0, 0.0], dtype=dtype)
            assert F.gelu(x, approximate).tolist() == [50.0, 0.0, 0.0]


@pytest.mark.torch
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_is_pytorchs(torch, approximate):
    theirs, ours = torch.nn.GELU(approximate), nn.GELU(approximate)
    assert repr(theirs) == repr(ours)
    same_call(torch, theirs, ours, (3, 4))
    same_call(torch, torch.special.erf, lambda x: x.erf(), (3, 4))


@pytest.mark.torch
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_rounds_16_bits_once_as_pytorch_does(torch, name, approximate):
    values = np.linspace(-6, 6, 301, dtype=np.float32)
    theirs = torch.tensor(values).to(getattr(torch, name))
    ours = al.tensor(values).to(getattr(al, name))
    expected = torch.nn.functional.gelu(theirs, approximate=approximate).float().numpy()
    # The last place may round either way; where erf comes near -1, what float32 holds of 1 + erf.
    unit, rest = {"float16": 2.0**-10, "bfloat16": 2.0**-7}[name], 2e-6
    np.testing.assert_allclose(F.gelu(ours, approximate).float().numpy(), expected, unit, rest)


def test_gelu_refuses_what_it_has_no_meaning_for():
    with pytest.raises(ArgumentError, match="gelu: approximate is 'erf', expected 'none' or 'tanh"):
        F.gelu(al.ones(2), "erf")
    with pytest.raises(ArgumentError, match="GELU: approximate is True, expected 'none' or 'tanh'"):
        nn.GELU(True)
    with pytest.raises(DTypeError, match="gelu: dtype is int64, expected a floating one"):
        F.gelu(al.tensor([1]))
    with pytest.raises(DTypeError, match="erf: dtype is complex64, expected a real one"):
        al.tensor([1j]).erf()


# ----------------------------------------------------------------------------- layer normalization
@FEW
@given(
    st.lists(st.floats(-100, 100), min_size=2, max_size=6, unique=True).filter(
        lambda row: np.std(row) > 1e-2
    ),
    st.floats(-50, 50),
    st.floats(0.5, 20),
)
def test_layer_norm_forgets_shift_and_scale(row, shift, scale):
    values = np.array(row)
    result = F.layer_norm(al.tensor(values), len(row), eps=0.0).numpy()
    moved = F.layer_norm(al.tensor(values * scale + shift), len(row), eps=0.0).numpy()
    np.testing.assert_allclose([result.mean(), result.std()], [0.0, 1.0], atol=1e-9)
    np.testing.assert_allclose(moved, result, atol=1e-8)


NORMS = [
    {},
    {"eps": 0.5},
    {"elementwise_affine": False},
    {"bias": False},
]


@pytest.mark.torch
@pytest.mark.parametrize("options", NORMS, ids=str)
@pytest.mark.parametrize("sizes", [3, (3,), (4, 3)], ids=str)
def test_layer_norm_is_pytorchs(torch, options, sizes):
    theirs = torch.nn.LayerNorm(sizes, dtype=torch.float64, **options)
    ours = nn.LayerNorm(sizes, dtype=al.float64, **options)
    rng = np.random.default_rng(0)
    for parameter in ours.parameters():
        parameter.detach().copy_(al.tensor(rng.standard_normal(parameter.shape)))
    share_state(ours, theirs)
    assert list(theirs.state_dict()) == list(ours.state_dict())
    assert repr(theirs) == repr(ours)
    same_call(torch, theirs, ours, (2, 4, 3))
    for (name, expected), (mine, got) in zip(
        theirs.named_parameters(), ours.named_parameters(), strict=True
    ):
        assert name == mine
        same(expected.grad, got.grad)


@pytest.mark.parametrize("dtype", [al.float16, al.bfloat16], ids=str)
@pytest.mark.parametrize("what", ["none", "tanh", "norm"])
def test_gradients_of_16_bits_are_formed_in_float32(dtype, what):
    """They are those in float64, rounded. PyTorch keeps a 16-bit mean: its are off by more."""
    values = np.linspace(-6, 6, 300).reshape(3, 100)
    found = []
    for computes in (al.float64, dtype):
        x, w, cotangent = (
            al.tensor(v).to(dtype).to(computes) for v in (values, values[0] * 3, values[::-1])
        )
        x.requires_grad_(), w.requires_grad_()
        y = F.layer_norm(x, 100, w) if what == "norm" else F.gelu(x, what) * w
        y.backward(cotangent)
        found.append([t.double().numpy() for t in (x.grad, w.grad)])
    unit = {al.float16: 2.0**-10, al.bfloat16: 2.0**-7}[dtype]
    # The gradient of w * gelu(x) meets a rounded gelu(x), and sums over three rows.
    scale = [unit, unit if what == "norm" else 3 * unit]
    for expected, got, rtol in zip(*found, scale, strict=True):
        np.testing.assert_allclose(got, expected, rtol, unit)


def test_layer_norm_gives_contiguous_memory_whatever_it_is_given():
    x = al.rand(4, 3).t()
    assert x.stride() == (1, 3)
    assert F.layer_norm(x, (4,)).stride() == (4, 1)


def test_layer_norm_keeps_its_input_for_the_gradient():
    """As in PyTorch, a write to it before the backward raises; nothing else of its size is kept."""
    x, layer = al.rand(2, 3, requires_grad=True), nn.LayerNorm(3)
    y = layer(x)
    with al.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="version"):
        y.sum().backward()


def test_layer_norm_starts_with_no_change_and_returns_there():
    layer = nn.LayerNorm((2, 3))
    assert set(layer.weight.flatten().tolist()) == {1.0}
    assert set(layer.bias.flatten().tolist()) == {0.0}
    with al.no_grad():
        layer.weight.fill_(3), layer.bias.fill_(3)
    layer.reset_parameters()
    assert set(layer.weight.flatten().tolist()) == {1.0}
    assert set(layer.bias.flatten().tolist()) == {0.0}


def test_layer_norm_refuses_what_does_not_fit():
    x = al.ones(2, 3)
    with pytest.raises(ShapeError, match=r"layer_norm: normalized_shape is \(2,\), expected one o"):
        F.layer_norm(x, 2)
    with pytest.raises(ShapeError, match=r"layer_norm: normalized_shape is \(\), expected one or"):
        F.layer_norm(x, ())
    with pytest.raises(ShapeError, match=r"argument 'weight' has shape \(2,\), expected \(3,\)"):
        F.layer_norm(x, 3, al.ones(2))
    with pytest.raises(DTypeError, match="argument 'bias' has dtype float64, expected float32"):
        F.layer_norm(x, 3, None, al.ones(3, dtype=al.float64))
    with pytest.raises(DTypeError, match="layer_norm: dtype is int64, expected a floating one"):
        F.layer_norm(al.ones(3, dtype=al.int64), 3)


def test_layer_norm_refuses_operands_on_two_devices():
    with pytest.raises(DeviceError, match="layer_norm: operands are on cpu and lists, expected on"):
        F.layer_norm(al.ones(3), 3, al.ones(3, device=LISTS))


# ---------------------------------------------------------------------------------------- compiled
@FEW
@given(
    st.sampled_from(["none", "tanh"]),
    st.sampled_from([(3,), (4, 3), (2, 4, 3)]),
    st.booleans(),
    st.integers(0, 100),
)
def test_compiled_block_is_eagers(approximate, shape, transposed, seed):
    transposed = transposed and len(shape) > 1

    def block(norm, x):
        return F.gelu(norm(x.mT if transposed else x), approximate)

    sizes = shape[-2:-1] if transposed else shape[-1:]
    values = np.random.default_rng(seed).standard_normal(shape)

    def world(function):
        norm, x = nn.LayerNorm(sizes, dtype=al.float64), al.tensor(values, requires_grad=True)
        y = function(norm, x)
        (y * y).sum().backward()
        found = [y.detach(), x.grad, norm.weight.grad, norm.bias.grad]
        return [t.tolist() for t in found], y.stride()

    assert world(block) == world(al.compile(block))
