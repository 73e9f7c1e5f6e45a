"""Programs on a device: autograd, writes through views, draws, modules, optimizers, captures."""

import pytest

import aotlite as al
from aotlite import nn, optim
from aotlite.ir.arrays import host_array
from aotlite.testing import emulated_cuda


def same(expected, found):
    """Bits on the emulated device, values on a GPU."""
    assert expected.shape == found.shape and expected.dtype is found.dtype
    mine, its = host_array(expected.detach()._data), host_array(found.detach()._data)
    if found.device.type == "emulated":
        return mine.tobytes() == its.tobytes()
    return abs(mine - its).max() < 1e-5


def attention(q, k, v):
    scores = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
    return (scores @ v).tanh()


def writes(x, y, _):
    rows = x.clone()
    rows[1:].mul_(2)
    rows.t()[0].copy_(y[0])
    rows.view(-1)[::2].add_(1)
    return rows.index_add(0, al.tensor([0, 0], device=x.device), y[:2])


def shapes(x, y, z):
    parts = al.cat([x, y], 1).split(2, 1)
    return al.stack([p.roll(1, 0).flip(1) for p in parts]).amax(0) - z[:, :2].cumsum(0)


PROGRAMS = [attention, writes, shapes]


def operands(device, requires_grad=True):
    al.manual_seed(3)
    made = [al.randn(4, 4).to(device) for _ in range(3)]
    return [x.requires_grad_() for x in made] if requires_grad else made


@pytest.mark.parametrize("program", PROGRAMS)
def test_values_and_gradients_are_those_of_the_cpu(program, device):
    results = []
    for place in ("cpu", device):
        inputs = operands(place)
        result = program(*inputs)
        (result * result).sum().backward()
        results.append([result, *[x.grad for x in inputs if x.grad is not None]])
    assert len(results[0]) == len(results[1]) > 1
    assert all(map(same, *results))
    assert {device} == {x.device for x in results[1]}


@pytest.mark.thinned(6)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("grad", [False, True])
def test_a_compiled_program_is_the_eager_one(program, grad, device):
    compiled = al.compile(program, backend="reference")
    for _ in range(12):  # from the interpreter to the straight form
        expected, found = (f(*operands(device, grad)) for f in (program, compiled))
        assert same(expected, found)
    if grad:
        both = []
        for function in (program, compiled):
            inputs = operands(device)
            function(*inputs).sum().backward()
            both.append([x.grad for x in inputs if x.grad is not None])
        assert all(map(same, *both))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_draws_are_those_of_the_cpu(dtype, device):
    options = {"dtype": getattr(al, dtype)}
    for draw in (
        lambda **o: al.rand(5, 3, **o),
        lambda **o: al.randn(7, **o),
        lambda **o: al.empty(6, **o).uniform_(-1, 1),
        lambda **o: al.randint(0, 10, (4,), device=o["device"]),
        lambda **o: al.randperm(9, device=o["device"]),
        lambda **o: al.full((8,), 0.5, **o).bernoulli(),
        lambda **o: al.ones(3, 5, **o).multinomial(2),
    ):
        found = []
        for place in ("cpu", device):
            al.manual_seed(7)
            found.append(draw(device=place, **options))
        assert same(*found)


def network(dropout):
    return nn.Sequential(
        nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(dropout), nn.Linear(8, 3)
    )


@pytest.mark.parametrize("make", [optim.SGD, optim.AdamW], ids=["SGD", "AdamW"])
@pytest.mark.parametrize("compiles", [False, True])
def test_training_is_that_of_the_cpu(make, compiles, device):
    losses = []
    for place in ("cpu", device):
        al.manual_seed(0)
        model = network(0.25)
        optimizer = make(model.to(place).parameters(), lr=0.1)
        x = al.randn(5, 6).to(place)
        labels = al.tensor([0, 2, 1, 1, 0], device=place)
        forward = al.compile(model, backend="reference") if compiles else model
        found = []
        for _ in range(4):
            loss = nn.functional.cross_entropy(forward(x), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss)
        losses.append(found)
    assert all(map(same, *losses))
    assert losses[1][-1].item() < losses[1][0].item()


def test_a_module_moves_and_its_parameters_stay_the_same_objects(device):
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    before = list(model.parameters())
    model(al.ones(4, 2)).sum().backward()
    grads = [parameter.grad.tolist() for parameter in before]
    assert model is model.to(device, al.float64)
    assert all(map(lambda a, b: a is b, before, model.parameters()))
    for parameter, grad in zip(before, grads, strict=True):
        assert (device, al.float64, True) == (
            parameter.device, parameter.dtype, parameter.is_leaf
        )  # fmt: skip
        assert (device, grad) == (parameter.grad.device, parameter.grad.tolist())
    counts = [b for b in model.buffers() if b.dtype is al.int64]
    assert counts and {device} == {b.device for b in model.buffers()}
    model.zero_grad()
    model(al.ones(4, 2, dtype=al.float64, device=device)).sum().backward()
    assert "cpu" == str(next(model.cpu().parameters()).device)


def test_states_are_loaded_across_devices(device):
    there, here = network(0).to(device), network(0)
    there.load_state_dict(here.state_dict())
    assert all(map(same, here.parameters(), there.parameters()))
    with pytest.raises(al.ArgumentError, match="expected a floating or complex one"):
        here.to(al.int64)


def test_a_module_on_the_second_device_computes_there():
    second = emulated_cuda(1)
    model = network(0.5).to(second)
    result = al.compile(model, backend="reference")(al.ones(2, 6, device=second))
    result.sum().backward()
    assert {second} == {result.device, *[p.grad.device for p in model.parameters()]}


def test_aliases_on_a_device_are_told_apart(device):
    """What shares memory, and where, is asked of addresses."""

    def function(a, b):
        a.add_(1)
        return b * 2

    x = al.arange(6, device=device).to(al.float32)
    compiled = al.compile(function, backend="reference")
    for a, b in ((x[:3], x[2:]), (x[:3], x[3:]), (x, x.hidden_alias()), (x.hidden_alias(), x[1:])):
        expected = (a + 1, b.clone())
        assert function(a.clone(), a.clone()).tolist() == ((expected[0] - 1) * 2).tolist()
        found = compiled(a, b)
        assert (b * 2).tolist() == found.tolist()


def test_states_of_a_device_are_files_like_others(device, tmp_path):
    model = network(0).to(device)
    nn.save_state(model.state_dict(), tmp_path / "state.npz")
    loaded = nn.load_state(tmp_path / "state.npz")
    assert all(map(same, model.cpu().state_dict().values(), loaded.values()))


def test_a_verified_program_is_right_on_the_device(device):
    compiled = al.compile(attention, backend="reference", verify=True)
    inputs = operands(device)
    compiled(*inputs).sum().backward()
    assert {device} == {x.grad.device for x in inputs}


def test_a_region_is_computed_again_with_the_same_draws(device):
    def region(x):
        return nn.functional.dropout(x * 2, 0.5).tanh()

    grads = []
    for run in (region, lambda x: al.checkpoint(region, x)):
        al.manual_seed(1)
        x = al.ones(8, device=device, requires_grad=True)
        run(x).sum().backward()
        grads.append(x.grad)
    assert same(*grads)


def test_callbacks_get_copies_on_the_host(device, capsys):
    from aotlite import effects

    def function(x):
        effects.print("{}", x.sum())
        return x + 1

    assert [2.0, 2.0] == al.compile(function, backend="reference")(
        al.ones(2, device=device)
    ).tolist()
    assert "2.0\n" == capsys.readouterr().out
