"""Layers and functions against PyTorch: values, gradients, statistics, training, in float64.

How they are compared: `compare.py`.
"""

import numpy as np
import pytest

import aotlite as al
from aotlite import nn, optim
from tests.nn.helpers.compare import both, same, same_call, same_states, share_state

F = nn.functional


CONVOLUTIONS = [
    {},
    {"stride": 2, "padding": 1},
    {"stride": (2, 1), "padding": (0, 2), "dilation": (1, 2)},
    {"groups": 2},
    {"padding": "same"},
    {"padding": "valid", "dilation": 2},
]


@pytest.mark.torch
@pytest.mark.parametrize("options", CONVOLUTIONS, ids=str)
def test_conv2d_is_pytorchs(torch, options):
    theirs = lambda x, w, b: torch.nn.functional.conv2d(x, w, b, **options)
    ours = lambda x, w, b: F.conv2d(x, w, b, **options)
    same_call(torch, theirs, ours, (2, 4, 7, 6), (6, 4 // options.get("groups", 1), 3, 3), (6,))


@pytest.mark.torch
@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 2},
        {"kernel_size": 3, "stride": 2, "padding": 1},
        {"kernel_size": (2, 3), "stride": (1, 2), "dilation": (2, 1), "ceil_mode": True},
    ],
    ids=str,
)
def test_max_pool2d_is_pytorchs(torch, options):
    theirs = lambda x: torch.nn.functional.max_pool2d(x, **options)
    same_call(torch, theirs, lambda x: F.max_pool2d(x, **options), (2, 3, 8, 9))
    same_call(torch, torch.nn.MaxPool2d(**options), nn.MaxPool2d(**options), (2, 3, 8, 9))


@pytest.mark.torch
def test_max_pool2d_gives_pytorchs_indices(torch):
    theirs, ours = both(torch, 2, 3, 6, 6)
    expected = torch.nn.functional.max_pool2d(theirs, 2, return_indices=True)
    got = F.max_pool2d(ours, 2, return_indices=True)
    for e, g in zip(expected, got, strict=True):
        same(e, g)


@pytest.mark.torch
@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 4, 3)], ids=str)
def test_linear_is_pytorchs(torch, shape):
    same_call(torch, torch.nn.functional.linear, F.linear, shape, (5, 3), (5,))


@pytest.mark.torch
@pytest.mark.parametrize("function", ["relu"])
def test_activations_are_pytorchs(torch, function):
    same_call(torch, getattr(torch.nn.functional, function), getattr(F, function), (3, 4))


@pytest.mark.torch
@pytest.mark.parametrize("function", ["softmax", "softmin", "log_softmax"])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmaxes_are_pytorchs(torch, function, dim):
    theirs = lambda x: getattr(torch.nn.functional, function)(x, dim)
    same_call(torch, theirs, lambda x: getattr(F, function)(x, dim), (3, 4, 5))


@pytest.mark.torch
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(4,), (3, 4), (3, 4, 2, 5)], ids=str)
def test_cross_entropy_is_pytorchs(torch, reduction, shape):
    labels = np.random.default_rng(0).integers(0, 4, shape[:1] + shape[2:] if shape[1:] else ())
    theirs = lambda x: torch.nn.functional.cross_entropy(
        x, torch.tensor(labels), reduction=reduction
    )
    ours = lambda x: F.cross_entropy(x, al.tensor(labels), reduction=reduction)
    same_call(torch, theirs, ours, shape)


@pytest.mark.torch
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_mse_loss_is_pytorchs(torch, reduction):
    theirs = lambda x, y: torch.nn.functional.mse_loss(x, y, reduction=reduction)
    ours = lambda x, y: F.mse_loss(x, y, reduction=reduction)
    same_call(torch, theirs, ours, (3, 4), (3, 4))


@pytest.mark.torch
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"momentum": None},
        {"momentum": 0.3, "eps": 1e-2},
        {"affine": False},
        {"track_running_stats": False},
    ],
    ids=str,
)
def test_batch_norm_follows_pytorch_over_several_batches(torch, options):
    theirs = torch.nn.BatchNorm2d(3, dtype=torch.float64, **options)
    ours = nn.BatchNorm2d(3, dtype=al.float64, **options)
    share_state(ours, theirs)
    for step in range(3):
        x, y = both(torch, 4, 3, 2, 5, seed=step)
        expected, got = theirs(x), ours(y)
        same(expected, got)
        (expected**3).sum().backward()
        (got**3).sum().backward()
        same(x.grad, y.grad)
    same_states(theirs, ours)
    theirs.eval(), ours.eval()
    same_call(torch, theirs, ours, (2, 3, 4, 4))
    same_states(theirs, ours)


@pytest.mark.torch
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtypes", [("float16", "float16"), ("bfloat16", "float32")], ids=str)
def test_batch_norm_sums_16_bits_in_float32_as_pytorch_does(torch, training, dtypes):
    values = np.random.default_rng(0).standard_normal((5, 4, 3, 2)).astype("f4")
    narrow, wide = dtypes
    unit = {"float16": 2.0**-9, "bfloat16": 2.0**-6}[narrow]

    def world(library, tensor):
        x = tensor(values * 10 + 5).to(getattr(library, narrow)).requires_grad_()
        rest = [tensor(values[i].flatten()[:4]).to(getattr(library, wide)) for i in range(4)]
        mean, var, weight, bias = rest[0], rest[1] ** 2, rest[2], rest[3]
        result = library.nn.functional.batch_norm(x, mean, var, weight, bias, training)
        (result.float() ** 3).sum().backward()
        assert result.dtype is x.dtype
        return [t.detach().float().numpy() for t in (result, x.grad, mean, var)]

    for expected, got in zip(world(torch, torch.tensor), world(al, al.tensor), strict=True):
        np.testing.assert_allclose(got, expected, unit, unit * abs(expected).max())


def network(layers, dtype):
    """A small network of either library."""
    return layers.Sequential(
        layers.Conv2d(1, 4, 3, padding=1, bias=False, dtype=dtype),
        layers.BatchNorm2d(4, dtype=dtype),
        layers.ReLU(),
        layers.MaxPool2d(2),
        layers.Conv2d(4, 6, 3, padding=1, groups=2, dtype=dtype),
        layers.ReLU(inplace=True),
        layers.Flatten(),
        layers.Dropout(0.0),
        layers.Linear(6 * 16, 10, dtype=dtype),
    )


@pytest.mark.torch
@pytest.mark.parametrize(
    "options",
    [
        {"lr": 0.1},
        {"lr": 0.1, "momentum": 0.9},
        {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.01},
        {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    ],
    ids=str,
)
def test_training_follows_pytorch_step_by_step(torch, options):
    ours, theirs = network(nn, al.float64), network(torch.nn, torch.float64)
    share_state(ours, theirs)
    optimizer = optim.SGD(ours.parameters(), **options)
    reference = torch.optim.SGD(theirs.parameters(), **options)
    for step in range(6):
        x, y = both(torch, 8, 1, 8, 8, seed=step, grad=False)
        labels = np.random.default_rng(step).integers(0, 10, 8)
        expected = torch.nn.functional.cross_entropy(theirs(x), torch.tensor(labels))
        got = F.cross_entropy(ours(y), al.tensor(labels))
        same(expected, got)
        reference.zero_grad(), optimizer.zero_grad()
        expected.backward(), got.backward()
        for (name, e), (mine, g) in zip(
            theirs.named_parameters(), ours.named_parameters(), strict=True
        ):
            assert name == mine
            same(e.grad, g.grad)
        reference.step(), optimizer.step()
        same_states(theirs, ours)


@pytest.mark.torch
def test_modules_print_as_pytorchs(torch):
    assert repr(network(torch.nn, torch.float64)) == repr(network(nn, al.float64))


@pytest.mark.torch
def test_constructors_have_pytorchs_arguments_and_defaults(torch):
    import inspect

    names = (
        "Sequential Linear Conv2d BatchNorm2d ReLU MaxPool2d Flatten Dropout GELU LayerNorm "
        "Embedding MultiheadAttention"
    ).split()
    for name in names:
        theirs = inspect.signature(getattr(torch.nn, name)).parameters.values()
        ours = inspect.signature(getattr(nn, name)).parameters.values()
        facts = lambda p: (p.name, None if p.name == "device" else p.default)
        theirs_seen = [facts(p) for p in theirs]
        for fact in map(facts, ours):
            assert fact in theirs_seen, (name, fact)
