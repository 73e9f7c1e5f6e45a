"""AdamW: what its steps are by definition and in PyTorch, compiled steps, state, refusals."""

import copy
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite import nn, optim
from aotlite.ir.errors import ArgumentError, DTypeError
from tests.nn.helpers.compare import same, share_state

FEW = settings(max_examples=40)

options = st.fixed_dictionaries(
    {},
    optional={
        "lr": st.sampled_from([0.0, 1e-3, 0.1]),
        "betas": st.sampled_from([(0.0, 0.0), (0.5, 0.9), (0.9, 0.999)]),
        "eps": st.sampled_from([1e-8, 0.1]),
        "weight_decay": st.sampled_from([0.0, 0.01, 0.5]),
        "amsgrad": st.booleans(),
        "maximize": st.booleans(),
    },
)
histories = st.lists(
    st.lists(st.sampled_from([None, 0.0, 1.0, -2.0, 1e-3]), min_size=2, max_size=2),
    min_size=1,
    max_size=5,
)
"""The gradients of two parameters at each step; None for one that has none."""


def leaf(*values, dtype=al.float64):
    """A leaf with these values and this gradient: ones."""
    tensor = al.tensor([float(v) for v in values], dtype=dtype, requires_grad=True)
    tensor.grad = al.ones(len(values), dtype=dtype)
    return tensor


# --------------------------------------------------------------------------------- the definition
@FEW
@given(
    st.lists(st.floats(-10, 10).filter(lambda g: abs(g) > 1e-3), min_size=1, max_size=4),
    st.booleans(),
    st.booleans(),
)
def test_the_first_step_goes_the_learning_rate_against_each_sign(gradients, amsgrad, maximize):
    w = leaf(*[0.0] * len(gradients))
    w.grad = al.tensor(gradients, dtype=al.float64)
    optim.AdamW([w], lr=0.5, eps=0.0, amsgrad=amsgrad, maximize=maximize).step()
    up = 0.5 if maximize else -0.5
    np.testing.assert_allclose(w.detach().numpy(), up * np.sign(gradients), rtol=1e-12)


@FEW
@given(options, histories, st.floats(0.1, 10))
def test_steps_without_eps_do_not_see_the_size_of_gradients(options, history, factor):
    found = []
    for scale in (1.0, factor):
        w = leaf(1.0)
        optimizer = optim.AdamW([w], **{**options, "eps": 1e-300})
        for gradients in history:
            w.grad = al.tensor([(gradients[0] or 0.5) * scale], dtype=al.float64)
            optimizer.step()
        found.append(w.item())
    assert found[0] == pytest.approx(found[1], rel=1e-9)


@FEW
@given(st.floats(0, 1), st.floats(0, 0.9))
def test_weights_decay_apart_from_the_gradient(decay, lr):
    w = leaf(2.0)
    w.grad = al.zeros(1, dtype=al.float64)
    optim.AdamW([w], lr=lr, weight_decay=decay).step()
    assert w.item() == pytest.approx(2 * (1 - lr * decay), rel=1e-15)


def test_a_parameter_without_gradient_is_skipped_and_counted_apart():
    w, late = leaf(1), leaf(1)
    late.grad = None
    optimizer = optim.AdamW([w, late], lr=0.5, weight_decay=0.0)
    optimizer.step()
    assert late.tolist() == [1.0] and late.version == 0
    late.grad = al.ones(1, dtype=al.float64)
    optimizer.step()
    assert [count.item() for count in optimizer.steps] == [2.0, 1.0]
    assert late.item() == pytest.approx(0.5)  # the first step of its own


def test_float32_parameters_are_corrected_in_float64():
    w = leaf(1, dtype=al.float32)
    optimizer = optim.AdamW([w], lr=0.5)
    optimizer.step()
    assert optimizer.steps[0].dtype is al.float64
    assert w.dtype is optimizer.exp_avgs[0].dtype is al.float32
    assert w.item() == pytest.approx(0.995 - 0.5, rel=1e-6)


# ---------------------------------------------------------------------------------------- PyTorch
@pytest.mark.torch
@FEW
@given(options, histories, st.booleans())
@example({"amsgrad": True, "betas": (0.5, 0.9)}, [[1.0, None], [1e-3, 1.0], [0.0, 0.0]], True)
def test_adamw_is_pytorchs(torch, options, history, grouped):
    start = np.array([[0.5, -1.5], [2.0, 0.0]])
    ours = [al.tensor(row, requires_grad=True) for row in start]
    theirs = [torch.tensor(row, requires_grad=True) for row in start]
    own = {"weight_decay": 0.3, "betas": (0.8, 0.9)}
    arrange = lambda leaves: (
        [{"params": [leaves[0]]}, {"params": leaves[1], "lr": 0.2, **own}] if grouped else leaves
    )
    optimizer, reference = (
        optim.AdamW(arrange(ours), **options),
        torch.optim.AdamW(arrange(theirs), **options),
    )
    slopes = np.array([1.0, -0.25])
    for gradients in history:
        for mine, other, size in zip(ours, theirs, gradients, strict=True):
            mine.grad = None if size is None else al.tensor(size * slopes)
            other.grad = None if size is None else torch.tensor(size * slopes)
        optimizer.step(), reference.step()
        for expected, got in zip(theirs, ours, strict=True):
            same(expected, got)
    for i, tensor in enumerate(theirs):
        for name, expected in reference.state[tensor].items():
            same(expected.double(), optimizer.state_dict()[_ours(name, i)])


def _ours(name, i):
    return {"step": f"steps.{i}"}.get(name, f"{name}s.{i}")


def block(layers, dtype):
    """A block of a transformer of either library."""

    class Block(layers.Module):
        def __init__(self):
            super().__init__()
            self.rows = layers.Embedding(7, 4, padding_idx=0, dtype=dtype)
            self.norm = layers.LayerNorm(4, dtype=dtype)
            self.attention = layers.MultiheadAttention(4, 2, batch_first=True, dtype=dtype)
            self.rest = layers.Sequential(
                layers.LayerNorm(4, dtype=dtype),
                layers.Linear(4, 8, dtype=dtype),
                layers.GELU(),
                layers.Linear(8, 7, dtype=dtype),
            )

        def forward(self, words):
            x = self.rows(words)
            y = self.norm(x)
            return self.rest(x + self.attention(y, y, y, need_weights=False)[0])

    return Block()


@pytest.mark.torch
@pytest.mark.parametrize("amsgrad", [False, True])
def test_training_a_transformer_follows_pytorch(torch, amsgrad):
    ours, theirs = block(nn, al.float64), block(torch.nn, torch.float64)
    share_state(ours, theirs)
    optimizer = optim.AdamW(ours.parameters(), lr=0.01, amsgrad=amsgrad)
    reference = torch.optim.AdamW(theirs.parameters(), lr=0.01, amsgrad=amsgrad)
    for step in range(4):
        words = np.random.default_rng(step).integers(0, 7, (3, 5))
        target = torch.tensor(words).flatten()
        expected = torch.nn.functional.cross_entropy(
            theirs(torch.tensor(words)).flatten(0, 1), target
        )
        got = loss(ours, al.tensor(words))
        same(expected, got)
        reference.zero_grad(), optimizer.zero_grad()
        expected.backward(), got.backward()
        reference.step(), optimizer.step()
    for name, value in theirs.state_dict().items():
        np.testing.assert_allclose(ours.state_dict()[name].numpy(), value.numpy(), atol=1e-9)


# ---------------------------------------------------------------------------------------- compiled
def loss(model, words):
    return nn.functional.cross_entropy(model(words).flatten(0, 1), words.flatten())


def update(optimizer):
    optimizer.step()


def trained(model, options, functions, steps=4):
    """Losses and final states of a training whose learning rate falls on the way."""
    loss, update = functions
    decayed = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed}, {"params": rest, "weight_decay": 0.0}]
    optimizer = optim.AdamW(groups, **options)
    losses = []
    for step in range(steps):
        value = loss(model, al.tensor(np.random.default_rng(step).integers(0, 7, (3, 5))))
        optimizer.zero_grad()
        value.backward()
        if step == 2:
            optimizer.param_groups[0].lr = 0.001
        update(optimizer)
        losses.append(value.item())
    states = {**model.state_dict(), **optimizer.state_dict()}
    return losses, {name: tensor.tolist() for name, tensor in states.items()}


@pytest.mark.parametrize("dtype", [al.float32, al.float64])
@pytest.mark.parametrize("options", [{}, {"lr": 0.1, "amsgrad": True, "maximize": True}], ids=str)
def test_one_compiled_step_serves_all_and_is_eagers(options, dtype):
    al.manual_seed(0)
    model = block(nn, dtype)
    functions = al.compile(loss), al.compile(update)
    expected = trained(copy.deepcopy(model), options, (loss, update))
    assert expected == trained(model, options, functions)
    assert [len(function.entries) for function in functions] == [1, 1]


@FEW
@given(options, histories)
def test_compiled_steps_are_eagers_for_every_option(options, history):
    def run(update):
        leaves = [leaf(0.5, -1.5), leaf(2.0, 0.0)]
        optimizer = optim.AdamW(leaves, **options)
        for gradients in history:
            for tensor, size in zip(leaves, gradients, strict=True):
                tensor.grad = None if size is None else al.tensor([size, -size], dtype=al.float64)
            update(optimizer)
        state = {name: tensor.tolist() for name, tensor in optimizer.state_dict().items()}
        return [tensor.tolist() for tensor in leaves], state

    compiled = al.compile(update)
    assert run(update) == run(compiled)
    assert len(compiled.entries) == len({tuple(g is None for g in step) for step in history})


def test_an_option_that_is_assigned_compiles_a_variant():
    w = leaf(1.0)
    optimizer, compiled = optim.AdamW([w], lr=0.5, weight_decay=0.0), al.compile(update)
    compiled(optimizer)
    optimizer.param_groups[0].weight_decay = 1.0
    before = w.item()
    w.grad.zero_()
    optimizer.exp_avgs[0].zero_()
    compiled(optimizer)
    assert len(compiled.entries) == 2
    assert w.item() == pytest.approx(before * 0.5)


# ------------------------------------------------------------------------------------------- state
def test_a_state_continues_another_optimizers_training(tmp_path):
    found = []
    for cut in (False, True):
        w = leaf(1, 2)
        optimizer = optim.AdamW([w], lr=0.5, amsgrad=True)
        optimizer.step()
        if cut:
            nn.save_state(optimizer.state_dict(), tmp_path / "adamw.npz")
            optimizer = optim.AdamW([w], lr=0.1, amsgrad=True)
            optimizer.load_state_dict(nn.load_state(tmp_path / "adamw.npz"))
        w.grad = w.detach() * 3
        optimizer.step()
        found.append(w.tolist())
    assert found[0] == found[1]
    names = ["lr", "steps.0", "exp_avgs.0", "exp_avg_sqs.0", "max_exp_avg_sqs.0"]
    assert list(optimizer.state_dict()) == names


def test_a_state_that_does_not_fit_is_listed():
    one, two = optim.AdamW([leaf(0)]), optim.AdamW([leaf(0)], amsgrad=True)
    with pytest.raises(ArgumentError, match="fit AdamW, .*; missing: max_exp_avg_sqs.0"):
        two.load_state_dict(one.state_dict())
    with pytest.raises(ArgumentError, match="fit AdamW, .*; unexpected: max_exp_avg_sqs.0"):
        one.load_state_dict(two.state_dict())


def test_groups_have_learning_rates_of_their_own():
    optimizer = optim.AdamW([{"params": [leaf(0)]}, {"params": leaf(0), "lr": 0.5}], lr=0.25)
    assert [group.lr.item() for group in optimizer.param_groups] == [0.25, 0.5]
    rate = optimizer.param_groups[1].lr
    optimizer.param_groups[1].lr = 0.125
    assert optimizer.param_groups[1].lr is rate and rate.item() == 0.125
    assert list(optimizer.state_dict())[:3] == ["lr.0", "lr.1", "steps.0"]
    for read_or_write in (lambda: optimizer.lr, lambda: optimizer.set_lr(1.0)):
        with pytest.raises(ArgumentError, match=r"lr is that of 2 groups, expected .*groups\[i\]."):
            read_or_write()
    with pytest.raises(ArgumentError, match="AdamW: lr is -1.0, expected a finite number of at le"):
        optimizer.param_groups[0].lr = -1.0


def test_an_optimizer_of_one_group_has_its_learning_rate():
    optimizer = optim.AdamW([leaf(0)], lr=0.25)
    optimizer.lr = 0.5
    assert optimizer.lr is optimizer.param_groups[0].lr
    assert optim.SGD([leaf(0)], lr=0.25).param_groups[0].lr.item() == 0.25


def test_an_optimizer_prints_its_options():
    plain = "betas=(0.9, 0.999), eps=1e-08, weight_decay=0.01, amsgrad=False, maximize=False"
    assert repr(optim.AdamW([leaf(0)])) == f"AdamW(lr=0.001, {plain})"
    two = optim.AdamW([{"params": [leaf(0)]}, {"params": [leaf(0)], "lr": 1}])
    assert repr(two) == f"AdamW(\n  (0): lr=0.001, {plain}\n  (1): lr=1.0, {plain}\n)"


# ---------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1.0}, "AdamW: lr is -1.0, expected a finite number of at least 0"),
        ({"lr": al.ones(2)}, r"AdamW: lr has shape \(2,\), expected a number or 0 dimensions"),
        ({"betas": 0.9}, "AdamW: betas is 0.9, expected two numbers"),
        ({"betas": (0.9,)}, r"AdamW: betas is \(0.9,\), expected two numbers"),
        ({"betas": (0.9, 1.0)}, r"AdamW: betas is \(0.9, 1.0\), expected numbers below 1"),
        ({"betas": (-0.1, 0.9)}, "AdamW: a beta is -0.1, expected a finite number of at least 0"),
        ({"betas": (al.tensor(0.9), 0.9)}, "AdamW: a beta is tensor.*, expected a finite number"),
        ({"eps": -1e-8}, "AdamW: eps is -1e-08, expected a finite number of at least 0"),
        ({"weight_decay": math.nan}, "AdamW: weight_decay is nan, expected a finite number"),
        ({"amsgrad": 1}, "AdamW: amsgrad is 1, expected True or False"),
        ({"maximize": None}, "AdamW: maximize is None, expected True or False"),
    ],
)
def test_an_option_out_of_range_is_refused(options, message):
    with pytest.raises(ArgumentError, match=message):
        optim.AdamW([leaf(0)], **options)
    with pytest.raises(ArgumentError, match=message):
        optim.AdamW([{"params": [leaf(0)], **options}])


def test_parameters_that_do_not_fit_are_refused():
    w = leaf(1)
    with pytest.raises(ArgumentError, match="AdamW: params is one tensor, expected several, e.g. "):
        optim.AdamW(w)
    with pytest.raises(ArgumentError, match="AdamW: params is one group, expected several, e.g. "):
        optim.AdamW({"params": [w]})
    with pytest.raises(ArgumentError, match="AdamW: params is empty, expected at least one tensor"):
        optim.AdamW([])
    with pytest.raises(ArgumentError, match="AdamW: a tensor is twice in params, expected each on"):
        optim.AdamW([{"params": [w]}, {"params": [w]}])
    with pytest.raises(ArgumentError, match="AdamW: group 0 is .*, expected a mapping with 'param"):
        optim.AdamW([{"lr": 1.0}])
    with pytest.raises(ArgumentError, match="AdamW: group 1 is .*, expected a mapping with 'param"):
        optim.AdamW([{"params": [w]}, leaf(1)])
    with pytest.raises(ArgumentError, match="AdamW: group 0 has the option 'momentum', expected o"):
        optim.AdamW([{"params": [w], "momentum": 0.9}])
    with pytest.raises(DTypeError, match=r"AdamW: params\[0\] has dtype complex64, expected a flo"):
        optim.AdamW([al.tensor([1j], requires_grad=True)])


def test_amsgrad_cannot_be_turned_on_after_construction():
    w = leaf(1)
    optimizer = optim.AdamW([w])
    optimizer.param_groups[0].amsgrad = True
    with pytest.raises(ArgumentError, match="AdamW: amsgrad is True and there are no largest squa"):
        optimizer.step()
    assert w.version == optimizer.steps[0].version == optimizer.exp_avgs[0].version == 0
