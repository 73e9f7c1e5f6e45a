"""Layers and their functions: values known exactly, and errors. With PyTorch: test_torch.py."""

import re

import numpy as np
import pytest

import aotlite as al
from aotlite import nn
from aotlite.cli.measure import saved_bytes
from aotlite.ir.errors import (
    ArgumentError,
    DTypeError,
    IndexOutOfRangeError,
    ShapeError,
)

F = nn.functional


def test_dropout_returns_its_argument_itself_where_it_does_nothing():
    x = al.ones(3)
    assert F.dropout(x, 0.5, training=False) is x
    assert F.dropout(x, 0.0) is x
    assert F.dropout(al.ones(0), 0.5).numel() == 0
    assert nn.Dropout(0.5).eval()(x) is x
    state = al.get_rng_state()
    F.dropout(x, 0.0)
    assert al.get_rng_state() == state


def test_dropout_of_everything_is_zeros_with_zero_gradients():
    x = al.ones(3, requires_grad=True)
    y = F.dropout(x, 1.0)
    y.sum().backward()
    assert (y.tolist(), x.grad.tolist()) == ([0.0] * 3, [0.0] * 3)


def test_dropout_keeps_by_the_generators_numbers_and_scales():
    al.manual_seed(3)
    kept = al.rand(1000).numpy() >= 0.75
    al.manual_seed(3)
    x = al.ones(1000, requires_grad=True)
    y = F.dropout(x, 0.75)
    y.sum().backward()
    assert y.tolist() == x.grad.tolist() == (kept * 4.0).tolist()
    assert 150 < kept.sum() < 350


def test_dropout_in_place_writes_its_argument():
    x = al.ones(100)
    assert F.dropout(x, 0.5, inplace=True) is x
    assert set(x.tolist()) == {0.0, 2.0}
    assert F.dropout(x, 1.0, inplace=True) is x
    assert set(x.tolist()) == {0.0}


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_a_probability_outside_of_0_and_1_is_refused(p):
    with pytest.raises(ArgumentError, match=rf"dropout: p is {p}, expected 0 <= p <= 1"):
        F.dropout(al.ones(2), p)
    with pytest.raises(ArgumentError, match=rf"Dropout: p is {p}, expected 0 <= p <= 1"):
        nn.Dropout(p)


@pytest.mark.parametrize("p", ["a", None, [0.5], 1j])
def test_a_probability_that_is_no_number_is_refused(p):
    """The error is a TypeError too, as PyTorch's is."""
    refused = {
        "dropout: p": lambda: F.dropout(al.ones(2), p),
        "alpha_dropout: p": lambda: F.alpha_dropout(al.ones(2), p, training=False),
        "dropout2d: p": lambda: F.dropout2d(al.ones(1, 2, 2, 2), p),
        "Dropout: p": lambda: nn.Dropout(p),
        "LSTM: dropout": lambda: nn.LSTM(2, 2, dropout=p),
        "MultiheadAttention: dropout": lambda: nn.MultiheadAttention(2, 1, dropout=p),
    }
    for what, run in refused.items():
        text = re.escape(f"{what} is {p!r}, expected 0 <= p <= 1")
        with pytest.raises(ArgumentError, match=f"^{text}") as caught:
            run()
        assert isinstance(caught.value, TypeError)


def test_relu_in_place_writes_its_argument():
    x = al.tensor([-1.0, 2.0])
    assert F.relu(x, inplace=True) is x
    assert x.tolist() == [0.0, 2.0]


def test_padding_by_name():
    x, w = al.ones(1, 1, 4, 4), al.ones(1, 1, 3, 3)
    assert F.conv2d(x, w, padding="same").shape == (1, 1, 4, 4)
    assert F.conv2d(x, w, padding="same", dilation=2).shape == (1, 1, 4, 4)
    assert F.conv2d(x, w, padding="valid").shape == (1, 1, 2, 2)
    with pytest.raises(ArgumentError, match="conv2d: padding is 'full', expected 'same', 'valid'"):
        F.conv2d(x, w, padding="full")
    with pytest.raises(ArgumentError, match="conv2d: stride is 2, expected 1 with"):
        F.conv2d(x, w, stride=2, padding="same")
    uneven = F.conv2d(x, al.ones(1, 1, 2, 2), padding="same")
    assert uneven[0, 0, 3].tolist() == [2.0, 2.0, 2.0, 1.0]


def test_batch_norm_needs_two_values_a_channel_in_training():
    with pytest.raises(ArgumentError, match="expected more than 1 value a channel in training"):
        F.batch_norm(al.ones(1, 3, 1, 1), None, None, training=True)


def test_batch_norm_needs_running_statistics_in_eval():
    with pytest.raises(ArgumentError, match="batch_norm: running statistics are None"):
        F.batch_norm(al.ones(2, 3, 1, 1), None, None)


def test_batch_norm_checks_the_number_of_channels():
    with pytest.raises(ShapeError, match=r"'running_mean' has shape \(2,\), expected \(3,\)"):
        F.batch_norm(al.ones(2, 3, 1, 1), al.ones(2), al.ones(2))
    with pytest.raises(ShapeError, match=r"BatchNorm2d: the input has shape \(2, 3\), expected 4"):
        nn.BatchNorm2d(3)(al.ones(2, 3))


def test_running_statistics_get_no_history():
    layer = nn.BatchNorm2d(2)
    x = al.rand(4, 2, 3, 3, requires_grad=True)
    layer(x).sum().backward()
    assert not layer.running_mean.requires_grad
    assert layer.num_batches_tracked.item() == 1
    assert layer.num_batches_tracked.dtype is al.int64


def test_batch_norm_saves_one_activation_for_its_gradient():
    """Besides the centered input, nothing of the input's size is kept."""
    y = nn.BatchNorm2d(2)(al.rand(4, 2, 3, 3, requires_grad=True))
    assert y.numel() * 4 <= saved_bytes(y, ()) < 2 * y.numel() * 4


def test_cross_entropy_checks_its_labels():
    scores = al.zeros(2, 3)
    with pytest.raises(DTypeError, match="cross_entropy: labels have dtype float32, expected"):
        F.cross_entropy(scores, al.zeros(2))
    with pytest.raises(ShapeError, match=r"labels have shape \(3,\), expected \(2,\) for"):
        F.cross_entropy(scores, al.tensor([0, 1, 2]))
    with pytest.raises(IndexOutOfRangeError):
        F.cross_entropy(scores, al.tensor([0, 3]))
    with pytest.raises(IndexOutOfRangeError):
        F.cross_entropy(scores, al.tensor([0, -1]))


@pytest.mark.parametrize("loss", [F.cross_entropy, F.mse_loss])
def test_an_unknown_reduction_is_refused(loss):
    target = al.tensor([0, 0]) if loss is F.cross_entropy else al.zeros(2, 2)
    with pytest.raises(ArgumentError, match=f"{loss.__name__}: reduction is 'max', expected"):
        loss(al.zeros(2, 2), target, reduction="max")


def test_layers_refuse_what_they_cannot_be():
    with pytest.raises(ArgumentError, match="Conv2d: groups is 2, expected a divisor of 3 input"):
        nn.Conv2d(3, 4, 3, groups=2)
    with pytest.raises(ArgumentError, match="Conv2d: padding_mode is 'mirror', expected"):
        nn.Conv2d(3, 4, 3, padding_mode="mirror")
    with pytest.raises(ArgumentError, match="Sequential: '0' is 3, expected a Module"):
        nn.Sequential(3)


def test_sequential_is_a_sequence():
    first, second = nn.Flatten(), nn.ReLU()
    net = nn.Sequential({"flat": first}).append(second)
    assert (len(net), net[0], net[-1], [*net]) == (2, first, second, [first, second])
    assert [*net[1:]] == [second]
    with pytest.raises(IndexOutOfRangeError, match="Sequential: the index is 2, expected one of 2"):
        net[2]


def test_initial_values_repeat_after_manual_seed():
    def drawn(seed):
        al.manual_seed(seed)
        return [p.tolist() for p in nn.Sequential(nn.Conv2d(2, 3, 3), nn.Linear(4, 5)).parameters()]

    assert drawn(1) == drawn(1) != drawn(2)


@pytest.mark.parametrize(
    "layer", [nn.Linear(100, 400), nn.Conv2d(4, 400, 5, dtype=al.float64)], ids=["linear", "conv"]
)
def test_weights_and_biases_start_uniform_in_the_fan_ins_bound(layer):
    bound = 0.1
    for parameter in layer.parameters():
        values = parameter.detach().numpy()
        assert abs(values).max() <= bound * (1 + 1e-6)
        assert abs(values).max() > 0.97 * bound
        assert abs(values.mean()) < 0.01
        assert values.std() == pytest.approx(bound / np.sqrt(3), rel=0.1)


def test_initial_values_can_be_chosen():
    w = al.zeros(4, 2)
    assert nn.init.ones_(w) is w and set(w.flatten().tolist()) == {1.0}
    assert nn.init.zeros_(w) is w and set(w.flatten().tolist()) == {0.0}
    assert nn.init.calculate_fan_in_and_fan_out(al.zeros(6, 5, 2, 3)) == (30, 36)
    nn.init.kaiming_uniform_(w, mode="fan_out", nonlinearity="relu")
    assert 0 < abs(w.numpy()).max() <= np.sqrt(6 / 4)
    assert nn.init.kaiming_uniform_(al.zeros(2, 0)).shape == (2, 0)
    with pytest.raises(ShapeError, match=r"init: the weight has shape \(3,\), expected 2 or more"):
        nn.init.kaiming_uniform_(al.zeros(3))
    with pytest.raises(ArgumentError, match="init: nonlinearity is 'cube', expected one of"):
        nn.init.kaiming_uniform_(w, nonlinearity="cube")
    with pytest.raises(ArgumentError, match="kaiming_uniform_: mode is 'fan', expected 'fan_in'"):
        nn.init.kaiming_uniform_(w, mode="fan")


@pytest.mark.parametrize("dtype", [al.float16, al.float32, al.float64])
def test_normal_numbers_have_mean_and_deviation_and_repeat(dtype):
    def drawn():
        al.manual_seed(4)
        return nn.init.normal_(al.zeros(40, 250, dtype=dtype), 3.0, 0.5)

    w = drawn()
    values = w.double().numpy()
    assert w.tolist() == drawn().tolist() and w.dtype is dtype
    assert (values.mean(), values.std()) == pytest.approx((3.0, 0.5), abs=0.01)
    beyond = (abs(values - 3.0) > 1.0).mean()
    assert beyond == pytest.approx(0.0455, abs=0.005)  # of a normal distribution, beyond 2 sigma


def test_xavier_scales_by_both_fans():
    al.manual_seed(0)
    w = nn.init.xavier_uniform_(al.zeros(30, 120), gain=2.0).numpy()
    assert 0.98 * 0.4 < abs(w).max() <= 0.4 * (1 + 1e-6)  # 2 sqrt(6 / 150)
    assert nn.init.xavier_normal_(al.zeros(90, 110)).numpy().std() == pytest.approx(0.1, rel=0.03)
    assert nn.init.xavier_normal_(al.zeros(0, 0)).shape == (0, 0)
