"""SGD by hand-computed steps, its state, and what it refuses. With PyTorch: nn/test_torch.py."""

import numpy as np
import pytest

import aotlite as al
from aotlite import nn, optim
from aotlite.ir.errors import ArgumentError, UnsupportedError
from tests.nn.helpers.listener import Listener


def leaf(*values):
    """A float64 leaf with these values and this gradient: ones."""
    tensor = al.tensor([float(v) for v in values], dtype=al.float64, requires_grad=True)
    tensor.grad = al.ones(len(values), dtype=al.float64)
    return tensor


def test_a_step_writes_the_parameter_itself_and_leaves_no_history():
    w = leaf(1, 2)
    optim.SGD([w], lr=0.5).step()
    assert w.tolist() == [0.5, 1.5]
    assert w.is_leaf and w.version == 1


def test_a_parameter_without_gradient_is_skipped():
    w, unused = leaf(1), leaf(2)
    unused.grad = None
    optimizer = optim.SGD([w, unused], lr=0.5, momentum=0.5, weight_decay=1.0)
    optimizer.step()
    assert unused.tolist() == [2.0] and unused.version == 0
    assert optimizer.momentum_buffers[1].version == 0


def test_momentum_gathers_gradients():
    w = leaf(0)
    optimizer = optim.SGD([w], lr=1.0, momentum=0.5)
    seen = [(optimizer.step(), w.item())[1] for _ in range(3)]
    assert seen == [-1.0, -2.5, -4.25]


def test_the_first_gradient_of_each_parameter_is_not_dampened():
    w, late = leaf(0), leaf(0)
    late.grad = None
    optimizer = optim.SGD([w, late], lr=1.0, momentum=0.5, dampening=0.5)
    optimizer.step()
    late.grad = al.ones(1, dtype=al.float64)
    optimizer.step()
    assert (w.item(), late.item()) == (-2.0, -1.0)


def test_the_learning_rate_is_one_tensor_that_is_written():
    optimizer = optim.SGD([leaf(0)], lr=0.5)
    lr = optimizer.lr
    optimizer.lr = 0.25
    assert optimizer.lr is lr and lr.item() == 0.25
    optimizer.set_lr(al.tensor(0.125))
    assert optimizer.lr is lr and lr.item() == 0.125
    assert lr.shape == () and lr.dtype is al.float64


def test_float32_parameters_take_float64_rates():
    w = al.ones(2, requires_grad=True)
    w.grad = al.ones(2)
    optimizer = optim.SGD([w], lr=0.25, momentum=0.5)
    optimizer.step()
    assert w.dtype is optimizer.momentum_buffers[0].dtype is al.float32
    assert w.tolist() == [0.75, 0.75]


def test_zero_grad_clears_or_zeroes():
    w = leaf(1)
    gradient = w.grad
    optimizer = optim.SGD([w], lr=0.5)
    optimizer.zero_grad(set_to_none=False)
    assert w.grad is gradient and gradient.tolist() == [0.0]
    optimizer.zero_grad()
    assert w.grad is None


def test_a_state_continues_another_optimizers_training(tmp_path):
    options = {"lr": 1.0, "momentum": 0.5, "dampening": 0.5}
    w, v = leaf(0), leaf(0)
    first, second = optim.SGD([w], **options), optim.SGD([v], **{**options, "lr": 3.0})
    first.step()
    nn.save_state(first.state_dict(), tmp_path / "sgd.npz")
    second.load_state_dict(nn.load_state(tmp_path / "sgd.npz"))
    first.step()
    second.step()
    assert list(first.state_dict()) == ["lr", "momentum_buffers.0", "gradient_scales.0"]
    assert v.item() == w.item() + 1.0


def test_a_state_that_does_not_fit_is_listed():
    with pytest.raises(ArgumentError, match="fit SGD, .*; missing: lr; unexpected: rate"):
        optim.SGD([leaf(0)]).load_state_dict({"rate": al.tensor(1.0)})


def test_a_step_under_capture_writes_no_attribute(monkeypatch):
    optimizer = optim.SGD([leaf(1)], lr=0.5, momentum=0.5, dampening=0.5, weight_decay=0.1)
    for param in optimizer.params:
        param.grad = None  # nothing to compute: what remains is attributes
    with monkeypatch.context() as patch:
        patch.setattr("aotlite.eager.tracked_objects.STATE.recorder", GradientListener())
        optimizer.step()
        with pytest.raises(RuntimeError, match="writing attribute 'lr' of a SGD"):
            optimizer.lr = 0.1


class GradientListener(Listener):
    @property
    def grads(self):
        return self

    def read(self, tensor):
        return tensor._grad

    def here(self, tensor):
        return tensor


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1.0}, "SGD: lr is -1.0, expected a finite number of at least 0"),
        ({"lr": float("nan")}, "SGD: lr is nan, expected a finite number of at least 0"),
        ({"lr": float("inf")}, "SGD: lr is inf, expected a finite number of at least 0"),
        ({"lr": 10**400}, "SGD: lr is 10*, expected a finite number of at least 0"),
        ({"lr": al.tensor(-1.0)}, "SGD: lr is -1.0, expected a finite number of at least 0"),
        ({"lr": al.tensor(float("nan"))}, "SGD: lr is nan, expected a finite number of at least 0"),
        ({"lr": al.tensor(1j)}, "SGD: lr is 1j, expected a finite number of at least 0"),
        ({"dampening": "x"}, "SGD: dampening is 'x', expected a finite number"),
        ({"dampening": float("inf")}, "SGD: dampening is inf, expected a finite number"),
        ({"nesterov": 3}, "SGD: nesterov is 3, expected True or False"),
        ({"lr": "fast"}, "SGD: lr is 'fast', expected a finite number of at least 0"),
        ({"lr": al.ones(2)}, r"SGD: lr has shape \(2,\), expected a number or 0 dimensions"),
        ({"momentum": -0.1}, "SGD: momentum is -0.1, expected a finite number of at least 0"),
        ({"weight_decay": -0.1}, "SGD: weight_decay is -0.1, expected a finite number of at leas"),
        ({"nesterov": True}, "SGD: nesterov with momentum 0 and dampening 0, expected momentum"),
    ],
)
def test_an_option_out_of_range_is_refused(options, message):
    with pytest.raises(ArgumentError, match=message):
        optim.SGD([leaf(0)], **options)


def test_a_rate_that_is_written_is_checked_as_one_that_is_given():
    optimizer = optim.SGD([leaf(0)], lr=0.5)
    for wrong in (-1.0, float("inf"), al.tensor(-1.0), al.tensor(float("nan"))):
        with pytest.raises(ArgumentError, match="SGD: lr is .*, expected a finite number of at le"):
            optimizer.lr = wrong
    assert 0.5 == optimizer.lr.item()


def test_options_may_be_numbers_of_numpy():
    options = {"momentum": np.float32(0.5), "dampening": np.int64(1), "weight_decay": np.float16(2)}
    optimizer = optim.SGD([leaf(0)], lr=np.float32(0.25), **options)
    optimizer.set_lr(np.float64(0.125))
    assert "SGD(lr=0.125, momentum=0.5, dampening=1.0, weight_decay=2.0, nesterov=False)" == repr(
        optimizer
    )


def test_parameters_must_be_leaves_each_once():
    w = leaf(1)
    with pytest.raises(ArgumentError, match="SGD: params is one tensor, expected several"):
        optim.SGD(w)
    with pytest.raises(ArgumentError, match="SGD: params is empty, expected at least one tensor"):
        optim.SGD([])
    with pytest.raises(ArgumentError, match=r"SGD: params\[0\] is 3, expected a tensor"):
        optim.SGD([3])
    with pytest.raises(ArgumentError, match=r"SGD: params\[1\] is the result of an op, expected a"):
        optim.SGD([w, w * 2])
    with pytest.raises(ArgumentError, match="SGD: a tensor is twice in params, expected each once"):
        optim.SGD([w, w])


def test_momentum_cannot_be_turned_on_after_construction():
    optimizer = optim.SGD([leaf(1)])
    optimizer.momentum = 0.9
    with pytest.raises(ArgumentError, match="SGD: momentum is 0.9 and there are no buffers"):
        optimizer.step()


def test_an_optimizer_prints_its_options():
    assert repr(optim.SGD([leaf(0)], lr=0.5, momentum=0.9)) == (
        "SGD(lr=0.5, momentum=0.9, dampening=0, weight_decay=0, nesterov=False)"
    )


def test_an_optimizer_without_step_says_so():
    with pytest.raises(UnsupportedError, match="Optimizer: the class has no method step"):
        optim.Optimizer([leaf(0)], lr=0.1).step()


def test_optimizers_take_any_iterable_of_parameters():
    net = nn.Linear(2, 1)
    assert optim.SGD(net.parameters(), lr=0.1).params == (net.weight, net.bias)
