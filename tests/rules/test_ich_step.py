"""ICH-7, ICH-8: a whole training step as one program: writes, backward, optimizer, dropout."""

import copy

import numpy as np
import pytest

import aotlite as al
from aotlite import nn, optim
from aotlite.export import aot_export_module
from aotlite.interchange import (
    OnnxProgram,
    StableHloProgram,
    onnxruntime_backend,
    to_onnx,
    to_stablehlo,
    xla_backend,
)
from aotlite.nn import functional as F
from aotlite.programs import program
from tests.rules.test_ich_ops import needs

RUNTIMES = ("onnx", "stablehlo")
BACKENDS = {"onnx": onnxruntime_backend, "stablehlo": xla_backend}


def program_of(runtime, graph, signature=None):
    if runtime == "onnx":
        return OnnxProgram(to_onnx(graph, signature=signature))
    return StableHloProgram(to_stablehlo(graph, signature=signature))


class Net(nn.Module):
    """A convolution with batch normalization, dropout and a count of calls."""

    def __init__(self):
        self.convolution = nn.Conv2d(1, 2, 3, padding=1)
        self.norm = nn.BatchNorm2d(2)
        self.drop = nn.Dropout(0.5)
        self.classify = nn.Linear(8, 3)
        self.calls = nn.Buffer(al.tensor(0))

    def forward(self, images):
        self.calls.add_(1)
        hidden = F.max_pool2d(self.norm(self.convolution(images)).relu(), 2)
        return self.classify(self.drop(hidden.flatten(1)))


def step(net, optimizer, images, labels):
    scores = net(images)
    by_class = scores.t()
    by_class.sub_(by_class.detach().amax(0))
    loss = F.cross_entropy(scores, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def trained(function, net):
    """The losses of three steps, and the state after them."""
    optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    al.manual_seed(5)
    images, labels = al.randn(4, 1, 4, 4), al.tensor([0, 2, 1, 2])
    losses = [function(net, optimizer, images, labels).item() for _ in range(3)]
    return losses, [each.detach().numpy() for each in (*net.parameters(), *net.buffers())]


@pytest.mark.slow("XLA compiles a training step")
@pytest.mark.rules("ICH-7", "ICH-8")
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_training_step_is_one_program(runtime):
    """The masks of dropout are those of eager: another mask would change losses in the first digit.
    Results are equal to 1e-5: the runtimes round exp, log and sums in their own way."""
    needs(runtime)
    net = Net()
    twin = copy.deepcopy(net)
    compiled = al.compile(step, backend=BACKENDS[runtime])
    expected, found = trained(step, twin), trained(compiled, net)
    assert 1 == len(compiled.entries)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    for wanted, got in zip(expected[1], found[1], strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.rules("ICH-7")
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_draws_have_the_bits_of_eager(runtime):
    needs(runtime)

    def draws(x):
        return F.dropout(x, 0.3), al.rand(3, 5), al.randint(-7, 1 << 40, (5,)), al.rand(2)

    al.manual_seed(7)
    expected = [each.numpy() for each in draws(al.ones(9))]
    al.manual_seed(7)
    found = al.compile(draws, backend=BACKENDS[runtime])(al.ones(9))
    for wanted, got in zip(expected, found, strict=True):
        assert wanted.tobytes() == got.numpy().tobytes()


@pytest.mark.rules("ICH-8")
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_an_exported_module_is_trained_by_its_convention(runtime):
    """Gradients have the names of parameters, and `step` carries new values of buffers over."""
    needs(runtime)

    class Counting(nn.Module):
        def __init__(self):
            self.layer, self.calls = nn.Linear(2, 1), nn.Buffer(al.zeros(()))

        def forward(self, x):
            self.calls.add_(1)
            return ((self.layer(x).tanh() * self.calls).sum(),)

    module, x = Counting(), al.tensor([[0.5, -1.0], [2.0, 0.25]])
    graph, signature = aot_export_module(module, (x,), trace_joint=True, output_loss_index=0)
    program = program_of(runtime, graph, signature)
    names = program.convention["parameters"]
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    arrays = {key: np.array(state[name].detach().numpy()) for key, name in names.items()}
    (user,) = signature.user_inputs
    arrays[user] = x.numpy()
    for _ in range(2):
        for each in module.parameters():
            each.grad = None
        (loss,) = module(x)
        loss.backward()
        outputs, arrays = program.step(arrays)
        np.testing.assert_allclose(outputs["output_0"], loss.item(), rtol=1e-5)
        for output, name in program.convention["gradients"].items():
            np.testing.assert_allclose(outputs[output], state[name].grad.numpy(), rtol=1e-5)
    buffer = next(key for key, name in names.items() if name == "calls")
    assert 2.0 == arrays[buffer].item() == module.calls.item()


@pytest.mark.rules("ICH-8")
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_first_and_second_derivatives_are_operations_of_one_program(runtime):
    needs(runtime)

    def derivatives(x, w):
        value = ((x @ w).tanh() * x).sum()
        first = al.autograd.grad(value, (x, w), create_graph=True)
        second = al.autograd.grad(sum((each * each).sum() for each in first), (x, w))
        return value.detach(), *[each.detach() for each in first], *second

    x = al.tensor([[0.5, -0.25], [0.75, 1.0]], dtype=al.float64).requires_grad_()
    w = al.tensor([[1.0, 0.5], [-0.5, 0.25]], dtype=al.float64).requires_grad_()
    compiled = al.compile(derivatives, backend="reference")
    expected = compiled(x, w)
    program = program_of(runtime, compiled.forward_graph)
    found = program({"primals_0": x.detach().numpy(), "primals_1": w.detach().numpy()})
    assert 5 == len(found)
    for number, wanted in enumerate(expected):
        np.testing.assert_allclose(found[f"output_{number}"], wanted.detach().numpy(), rtol=1e-5)


@pytest.mark.rules("ICH-8")
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_compiled_function_has_derivatives_of_every_order_in_a_runtime(runtime):
    """Backwards, and backwards of backwards, are graphs that the runtime runs, too."""
    needs(runtime)

    def third(function):
        x = al.tensor([0.5, -1.25], dtype=al.float64).requires_grad_()
        found = function(x).sum()
        for _ in range(3):
            (found,) = al.autograd.grad(found.sum(), x, create_graph=True)
        return found.detach().numpy()

    def power(x):
        return x * x * x * x

    found = third(al.compile(power, backend=BACKENDS[runtime]))
    assert third(power).tobytes() == found.tobytes()


@pytest.mark.rules("ICH-8")
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_captured_program_leaves_with_the_places_of_its_state(runtime):
    """So does a compiled function that has run: its graph is the same."""
    needs(runtime)
    layer = nn.Linear(2, 1)

    def total(x):
        return layer(x).sum()

    x = al.tensor([[1.0, 2.0], [3.0, 4.0]])
    captured, compiled = program(total, x), al.compile(total, backend="reference")
    expected = compiled(x)
    for source in (captured, compiled):
        found = program_of(runtime, source)
        named = {k: v.rpartition(".")[2] for k, v in found.convention["parameters"].items()}
        assert {"weight", "bias"} == set(named.values())
        arrays = {key: getattr(layer, name).detach().numpy() for key, name in named.items()}
        got = found({"primals_0": x.numpy(), **arrays})["output_0"]
        np.testing.assert_allclose(got, expected.item(), rtol=1e-5)


@pytest.mark.rules("ICH-8")
def test_a_program_names_its_state_by_path():
    needs("onnx")

    def total(layer, x):
        return layer(x).sum()

    made = program(total, nn.Linear(2, 1), al.ones(3, 2))
    names = OnnxProgram(to_onnx(made)).convention["parameters"]
    assert names == {"hidden_0": "layer.weight", "hidden_1": "layer.bias"}
    assert list(names.values()) == list(made.state)
