"""Modules and optimizers inside compiled functions: what happens equals eager, bit for bit."""

import copy
import re

import pytest

import aotlite as al
from aotlite import nn, optim
from aotlite.ir.errors import UnsupportedError

F = nn.functional


def network():
    """Every layer once, a few of them in their in-place form."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4, momentum=None),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(16, 6),
        nn.Dropout(0.25, inplace=True),
        nn.Linear(6, 3),
    )


def loss(model, images, labels):
    return F.cross_entropy(model(images), labels)


def update(optimizer):
    optimizer.step()


def trained(model, options, functions, steps=6):
    """Losses and final states of a training; the rate falls on the way."""
    loss, update = functions
    optimizer = optim.SGD(model.parameters(), **options)
    al.manual_seed(1)
    losses = []
    for step in range(steps):
        images = al.rand(5, 1, 4, 4)
        value = loss(model, images, al.tensor([0, 1, 2, 0, 1]))
        optimizer.zero_grad()
        value.backward()
        if step == 3:
            optimizer.lr = 0.01
        update(optimizer)
        losses.append(value.item())
    states = {**model.state_dict(), **optimizer.state_dict()}
    return losses, {name: tensor.tolist() for name, tensor in states.items()}, al.get_rng_state()


@pytest.mark.parametrize(
    "options",
    [
        {"lr": 0.1},
        {"lr": 0.1, "momentum": 0.9, "nesterov": True},
        {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.01},
    ],
    ids=str,
)
def test_training_is_eagers(options):
    model = network()
    functions = al.compile(loss), al.compile(update)
    expected = trained(copy.deepcopy(model), options, (loss, update))
    assert expected == trained(model, options, functions)
    assert [len(function.entries) for function in functions] == [1, 1]


def test_a_parameter_that_has_no_gradient_yet_compiles_a_variant_of_its_own():
    def run(update):
        used, late = (al.ones(2, requires_grad=True) for _ in range(2))
        optimizer = optim.SGD([used, late], lr=1.0, momentum=0.5, dampening=0.5)
        for with_late in (False, True, True):
            optimizer.zero_grad()
            (used * 2 + (late * 3 if with_late else 0)).sum().backward()
            update(optimizer)
        return used.tolist(), late.tolist(), late.version

    compiled = al.compile(update)
    assert run(update) == run(compiled)
    assert len(compiled.entries) == 2


@pytest.mark.rules("FUN-13")
def test_modes_compile_variants_and_dropout_in_eval_returns_its_argument():
    layer, x = nn.Dropout(0.5), al.ones(3)
    drop = al.compile(lambda layer, x: layer(x))
    assert drop(layer, x) is not x
    assert drop(layer.eval(), x) is x
    drop(layer.train(), x)
    layer.p = 0.25
    drop(layer, x)
    assert len(drop.entries) == 3


def test_functional_call_inside_a_compiled_function():
    layer = nn.BatchNorm2d(2)

    def scaled(weight, mean, x):
        return nn.functional_call(layer, {"weight": weight, "running_mean": mean}, x).square().sum()

    def world(function):
        weight, mean = al.tensor([1.0, 2.0], requires_grad=True), al.zeros(2)
        al.manual_seed(0)
        x = al.rand(3, 2, 2, 2)
        value = function(weight, mean, x)
        value.backward()
        return value.item(), weight.grad.tolist(), mean.tolist(), layer.running_mean.tolist()

    assert world(scaled) == world(al.compile(scaled))
    assert layer.weight.grad is None


def test_a_module_made_inside_a_compiled_function_takes_writes():
    def made(x):
        layer = nn.Linear(3, 2)
        layer.scale = 2.0
        layer.eval()
        return layer(x) * layer.scale

    al.manual_seed(0)
    expected = made(al.ones(3)).tolist()
    al.manual_seed(0)
    assert expected == al.compile(made)(al.ones(3)).tolist()


@pytest.mark.parametrize(
    ("what", "write"),
    [
        ("writing attribute 'training' of a Linear", lambda layer: layer.eval()),
        ("writing attribute 'weight' of a Linear", lambda layer: setattr(layer, "weight", None)),
        ("writing attribute 'bias' of a Linear", lambda layer: delattr(layer, "bias")),
    ],
)
def test_writes_are_refused_and_nothing_is_changed(what, write):
    layer = nn.Linear(3, 2)
    (layer(al.ones(3)) * 2).sum().backward()
    gradient = layer.weight.grad
    with pytest.raises(UnsupportedError, match=f"capture: {what}"):
        al.compile(write)(layer)
    assert layer.training and layer.weight.grad is gradient and layer.bias is not None


def test_assigned_buffer_is_refused_with_the_line_to_write():
    """Eager takes a Buffer there, and says the same of a plain tensor."""

    class Mean(nn.Module):
        def __init__(self, wrap):
            self.mean, self.wrap = nn.Buffer(al.zeros(2)), wrap

        def forward(self, x):
            self.mean = self.wrap(self.mean + x)
            return self.mean * 2

    x = al.ones(2)
    assert [2.0, 2.0] == Mean(nn.Buffer)(x).tolist()
    line = r"write.* in place.*mean.copy_\(value\)"
    with pytest.raises(UnsupportedError, match="writing attribute 'mean' of a Mean") as caught:
        al.compile(Mean(nn.Buffer), backend="reference")(x)
    assert re.search(line, "".join(caught.value.__notes__))
    for call in (Mean(lambda new: new), al.compile(Mean(lambda new: new), backend="reference")):
        with pytest.raises(al.ArgumentError, match=line):
            call(x)


def test_loading_a_state_is_seen_by_compiled_functions():
    layer = nn.Linear(3, 2)
    run = al.compile(lambda layer, x: layer(x))
    run(layer, al.ones(3))
    layer.load_state_dict({"weight": al.ones(2, 3), "bias": al.zeros(2)})
    assert run(layer, al.ones(3)).tolist() == [3.0, 3.0]
    layer.weight = nn.Parameter(al.zeros(2, 3))
    assert run(layer, al.ones(3)).tolist() == [0.0, 0.0]
    assert len(run.entries) == 1


@pytest.mark.parametrize("kind", [nn.Parameter, nn.Buffer, al.tensor])
def test_a_function_sees_the_class_of_a_parameter(kind):
    def by_class(x):
        scaled = x * 2 if isinstance(x, nn.Parameter) else x * 3
        return scaled, type(x).__name__, isinstance(x.detach(), nn.Parameter)

    given = kind(al.ones(2)) if kind is not al.tensor else al.ones(2)
    (mine, *rest), (its, *others) = al.compile(by_class)(given), by_class(given)
    assert (mine.tolist(), rest) == (its.tolist(), others)
