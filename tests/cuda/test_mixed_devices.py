"""Operands on several devices: refused by every op, but for numbers and indices."""

import pytest

import aotlite as al
import aotlite.ir.ops
from aotlite.ir.effects import EffectOp, TokenOp
from aotlite.ir.op import OPS, Cost, PureOp
from aotlite.testing import emulated_cuda
from aotlite.testing.laws.ops.runs import bound, run, tensor_of
from tests.cuda.helpers.places import tensor_on
from tests.samples import samples_of


def operands_of(op, sample):
    return op.operands(bound(op, sample, tensor_of))


def mixed(device):
    """A way to make tensors, the first on the device and the others on the CPU."""
    made = []

    def make(array):
        made.append(array)
        return tensor_on(device, array) if len(made) == 1 else tensor_of(array)

    return make


def sample_with(op, wanted):
    for sample in samples_of(op.name):
        try:
            if wanted(operands_of(op, sample)):
                run(op, bound(op, sample, tensor_of))
                return sample
        except al.AotliteError:
            continue
    return None


def test_every_op_refuses_operands_of_two_devices():
    """Operands with dimensions, that is; of an indexed tensor, indices are copied."""
    device, refused = emulated_cuda(), 0
    for op in OPS.values():
        indexed = op.name in ("index", "index_put", "index_put_")
        drawn = isinstance(op, PureOp) and op.cost is Cost.RANDOM
        if isinstance(op, (EffectOp, TokenOp)) or indexed or drawn or not samples_of(op.name):
            continue
        sample = sample_with(op, lambda found: len(found) > 1 and all(t.shape for t in found))
        if sample is None:
            continue
        with pytest.raises(al.DeviceError, match=r": operands are on emulated:0 and cpu"):
            run(op, bound(op, sample, mixed(device)))
        refused += 1
    assert refused > 100


def test_numbers_on_the_cpu_mix_with_tensors_in_elementwise_ops():
    device, mixes = emulated_cuda(), 0
    for op in OPS.values():
        if op.cost is not Cost.POINTWISE or not isinstance(op, PureOp):
            continue
        sample = sample_with(
            op,
            lambda found: len(found) > 1 and found[0].shape and not any(t.shape for t in found[1:]),
        )
        if sample is None:
            continue
        (expected, *_), (found, *_) = (
            run(op, bound(op, sample, make)) for make in (tensor_of, mixed(device))
        )
        assert (device, expected.tolist()) == (found.device, found.tolist()), op.name
        mixes += 1
    assert mixes > 15


def test_the_error_says_what_to_do(device):
    with pytest.raises(al.DeviceError) as caught:
        al.ones(3) + al.ones(3, device=device)
    text = f"add: operands are on cpu and {device}, expected one device"
    assert text == str(caught.value)
    assert f"Move one: x.to('{device}')." in caught.value.__notes__[0]


def test_a_number_on_the_cpu_keeps_its_gradient_there(device):
    number = al.tensor(3.0, requires_grad=True)
    x = al.tensor([1.0, 2.0], device=device)
    (x * number).sum().backward()
    assert (3.0, "cpu") == (number.grad.item(), str(number.grad.device))


def test_a_number_on_the_cpu_is_not_written_by_one_of_a_device(device):
    with pytest.raises(al.DeviceError, match=r"^add: operands are on cpu and"):
        al.tensor(1.0).add_(al.tensor(2.0, device=device))


def test_indices_on_the_cpu_pick_and_write_on_the_device(device):
    x = al.arange(6, device=device)
    index = al.tensor([4, 1])
    assert [4, 1] == x[index].tolist()
    x[index] = al.tensor([0, 0], device=device)
    assert [0, 0, 2, 3, 0, 5] == x.tolist()
    assert [2, 3, 5] == x[al.tensor([False, False, True, True, False, True])].tolist()


def test_a_captured_function_mixes_as_the_eager_one_does(device):
    def function(x, number):
        return (x * number).exp()

    x, number = al.tensor([0.5, 1.0], device=device), al.tensor(2.0)
    compiled = al.compile(function, backend="reference")
    assert function(x, number).tolist() == compiled(x, number).tolist()
    with pytest.raises(al.DeviceError, match=r"^mul: operands are on"):
        al.compile(function, backend="reference")(x, al.ones(2))


class Doubled(al.autograd.Function):
    """Whose backward gives a gradient on the CPU."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad.cpu() * 2


def compiled(x):
    return al.compile(lambda x: x * 2, backend="reference")(x)


def hooked(x):
    y = x * 2
    y.register_hook(lambda grad: grad.cpu())
    return y


PLAIN = (lambda x: x * 2, compiled, Doubled.apply, hooked)


@pytest.mark.parametrize("way", PLAIN, ids=["eager", "compiled", "Function", "hook"])
def test_gradients_are_where_the_results_are(way, device):
    """A kernel would be given memory of another device."""
    x = al.ones(3, device=device).requires_grad_()
    if way in PLAIN[:2]:
        for gradient in (lambda y: y.backward(al.ones(3)), lambda y: grad_of(y, x, al.ones(3))):
            with pytest.raises(al.DeviceError, match="^backward: the gradient is on cpu, expected"):
                gradient(way(x))
        way(x).sum().backward(al.tensor(3.0))  # a number is copied, as PyTorch does
        assert ([6.0] * 3, device) == (x.grad.tolist(), x.grad.device)
    else:
        with pytest.raises(al.DeviceError, match=rf" returned is on cpu, expected {device}"):
            way(x).sum().backward()
        assert x.grad is None


grad_of = al.autograd.grad


def test_places_for_results_are_on_the_results_device(device):
    x, there = al.ones(3, device=device), al.zeros(3)
    with pytest.raises(al.DeviceError, match=rf"^add: argument 'out' is on cpu, expected {device}"):
        al.add(x, x, out=there)
    with pytest.raises(al.DeviceError, match="^grad: the value is on cpu, expected"):
        x.grad = there
    assert [0.0] * 3 == there.tolist() and x.grad is None
