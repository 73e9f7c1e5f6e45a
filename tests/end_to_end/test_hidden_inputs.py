"""What a compiled function knows of Python: tensors, numbers and flags it reaches outside its
arguments.
"""

import gc
import weakref

import pytest

import aotlite as al
from aotlite import nn, optim

SCALE = al.tensor([2.0, 3.0])
BIAS = al.tensor([5.0, 5.0])
TABLE = {"inner": [al.tensor([1.0, 1.0])]}


class Holder:
    """A plain object, of which a capture knows nothing."""

    def __init__(self, tensor):
        self.tensor = tensor


class Scaled(nn.Module):
    """A module with a parameter, a number, a flag, and tensors in containers."""

    def __init__(self, size=2):
        self.weight = nn.Parameter(al.ones(size))
        self.factor = 2.0
        self.double = False
        self.unused = 1
        self.parts = [al.ones(size), {"deep": al.full((size,), 4.0)}]

    def forward(self, x):
        y = x * self.weight * self.factor
        if self.double:
            y = y * 2.0
        return y + self.parts[0] + self.parts[1]["deep"]


def test_what_the_testing_package_compiles_counts_as_a_users_function():
    """Functions of aotlite's own are not looked into; those that its tools compile are."""
    factor = 2.0

    def scaled(x):
        return x * factor

    scaled.__module__ = "aotlite.testing.somewhere"
    compiled = al.compile(scaled)
    assert [2.0] == compiled(al.ones(1)).tolist()
    factor = 3.0
    assert [3.0] == compiled(al.ones(1)).tolist()


def test_a_closure_tensor_is_read_again_at_each_call():
    """CAP-3: its bytes now, and also another tensor in the same cell."""
    w = al.tensor([1.0, 2.0])
    compiled = al.compile(lambda x: x * w)
    x = al.tensor([3.0, 4.0])
    assert [3.0, 8.0] == compiled(x).tolist()
    w.fill_(10.0)
    assert [30.0, 40.0] == compiled(x).tolist()
    w = al.tensor([-1.0, 0.0])
    assert [-3.0, 0.0] == compiled(x).tolist()
    assert 1 == len(compiled.entries)
    w = al.tensor(2.0)
    assert [6.0, 8.0] == compiled(x).tolist()
    assert 2 == len(compiled.entries)


def test_globals_defaults_and_containers_are_hidden_inputs():
    def f(x, *, bias=BIAS):
        return x * SCALE + TABLE["inner"][0] + bias

    compiled = al.compile(f)
    assert [8.0, 9.0] == compiled(al.ones(2)).tolist()
    before = TABLE["inner"][0]
    try:
        TABLE["inner"][0] = al.tensor([0.0, 0.0])
        assert [7.0, 8.0] == compiled(al.ones(2)).tolist()
    finally:
        TABLE["inner"][0] = before
    assert 1 == len(compiled.entries)


def test_a_written_hidden_input_is_written_at_each_call():
    count = al.tensor(0.0)

    def f(x):
        count.add_(1.0)
        return x + count

    compiled = al.compile(f)
    assert [1.0, 2.0, 3.0] == [compiled(al.tensor(0.0)).item() for _ in range(3)]
    assert 3.0 == count.item()
    assert 3 == count.version


def test_a_hidden_input_gets_gradients():
    w = al.tensor([2.0, 3.0], requires_grad=True)
    compiled = al.compile(lambda x: (x * w).sum())
    compiled(al.tensor([5.0, 7.0])).backward()
    assert [5.0, 7.0] == w.grad.tolist()


def test_a_module_argument_serves_any_module_of_its_form():
    compiled = al.compile(lambda m, x: m(x))
    one, other = Scaled(), Scaled()
    other.weight.detach().fill_(3.0)
    assert [7.0, 7.0] == compiled(one, al.ones(2)).tolist()
    assert [11.0, 11.0] == compiled(other, al.ones(2)).tolist()
    assert 1 == len(compiled.entries)
    assert [7.0] * 3 == compiled(Scaled(3), al.ones(3)).tolist()
    assert 2 == len(compiled.entries)


def test_an_entry_does_not_keep_a_module_argument_alive():
    compiled = al.compile(lambda m, x: m(x))
    module = Scaled()
    compiled(module, al.ones(2))
    alive = weakref.ref(module)
    del module
    gc.collect()
    assert alive() is None
    assert [7.0, 7.0] == compiled(Scaled(), al.ones(2)).tolist()
    assert 1 == len(compiled.entries)


@pytest.mark.rules("GRD-1")
def test_numbers_and_flags_read_from_a_module_are_guarded():
    """CAP-5: those that were read; others may change freely."""
    compiled = al.compile(lambda m, x: m(x))
    module = Scaled()
    compiled(module, al.ones(2))
    module.unused = 99
    assert [7.0, 7.0] == compiled(module, al.ones(2)).tolist()
    assert 1 == len(compiled.entries)
    module.factor = 3.0
    assert [8.0, 8.0] == compiled(module, al.ones(2)).tolist()
    module.double = True
    assert [11.0, 11.0] == compiled(module, al.ones(2)).tolist()
    module.factor, module.double = 2.0, False
    assert [7.0, 7.0] == compiled(module, al.ones(2)).tolist()
    assert 3 == len(compiled.entries)


def test_a_number_is_told_from_its_equals_of_another_type():
    compiled = al.compile(lambda m, x: x * m.factor)
    module = Scaled()
    module.factor = 2
    assert "int64" == compiled(module, al.tensor([1, 2])).dtype.name
    module.factor = 2.0
    assert "float32" == compiled(module, al.tensor([1, 2])).dtype.name


def test_a_changed_container_of_a_module_compiles_again():
    compiled = al.compile(lambda m, x: sum((p for p in m.parts if isinstance(p, al.Tensor)), x))
    module = Scaled()
    assert [2.0, 2.0] == compiled(module, al.ones(2)).tolist()
    module.parts.append(al.full((2,), 10.0))
    assert [12.0, 12.0] == compiled(module, al.ones(2)).tolist()


def test_a_closure_module_is_found_again_by_its_place():
    module = Scaled()
    compiled = al.compile(lambda x: module(x))
    assert [7.0, 7.0] == compiled(al.ones(2)).tolist()
    module = Scaled()
    module.weight.detach().fill_(0.0)
    assert [5.0, 5.0] == compiled(al.ones(2)).tolist()
    assert 1 == len(compiled.entries)


def test_a_module_itself_and_its_method_can_be_compiled():
    module = Scaled()
    whole, method = al.compile(module), al.compile(module.forward)
    assert [7.0, 7.0] == whole(al.ones(2)).tolist() == method(al.ones(2)).tolist()
    module.factor = 0.0
    assert [5.0, 5.0] == whole(al.ones(2)).tolist() == method(al.ones(2)).tolist()


@pytest.mark.rules("DUP-5")
def test_one_tensor_reached_by_two_ways_must_stay_one():
    """CAP-3: a parameter that is an argument too is one input; two objects compile again."""
    compiled = al.compile(lambda m, w: m.weight.detach().add_(1.0) + w)
    module = Scaled()
    assert [4.0, 4.0] == compiled(module, module.weight).tolist()
    other = Scaled()
    assert [3.0, 3.0] == compiled(other, al.ones(2, requires_grad=True)).tolist()


def test_the_gradient_of_a_tensor_is_guarded_to_be_there_or_not():
    """CAP-4."""
    w = al.tensor([1.0, 2.0], requires_grad=True)

    def f(x):
        return x if w.grad is None else x + w.grad

    compiled = al.compile(f)
    assert [0.0, 0.0] == compiled(al.zeros(2)).tolist()
    (w * w).sum().backward()
    assert [2.0, 4.0] == compiled(al.zeros(2)).tolist()
    w.grad.mul_(2.0)
    assert [4.0, 8.0] == compiled(al.zeros(2)).tolist()
    w.grad = None
    assert [0.0, 0.0] == compiled(al.zeros(2)).tolist()
    assert 2 == len(compiled.entries)


def test_an_optimizer_step_compiles_and_skips_what_has_no_gradient():
    a, b = nn.Parameter(al.ones(2)), nn.Parameter(al.ones(2))
    optimizer = optim.SGD([a, b], lr=0.5)
    step = al.compile(lambda o: o.step())
    (a * 2.0).sum().backward()
    step(optimizer)
    assert ([0.0, 0.0], [1.0, 1.0]) == (a.tolist(), b.tolist())
    (a + b).sum().backward()
    step(optimizer)
    assert ([-1.5, -1.5], [0.5, 0.5]) == (a.tolist(), b.tolist())
    assert 2 == len(step.entries)


def test_the_learning_rate_is_a_tensor_and_compiles_nothing_again():
    a = nn.Parameter(al.ones(2))
    optimizer = optim.SGD([a], lr=0.5)
    step = al.compile(lambda o: o.step())
    a.sum().backward()
    step(optimizer)
    optimizer.lr = 0.25
    step(optimizer)
    assert [0.25, 0.25] == a.tolist()
    assert 1 == len(step.entries)


def test_a_tensor_without_a_place_is_refused_with_its_line():
    """CAP-8."""
    holder = Holder(al.ones(2))

    def f(x):
        return x + holder.tensor

    with pytest.raises(al.UnsupportedError, match="neither an argument nor found") as caught:
        al.compile(f)(al.ones(2))
    assert any("return x + holder.tensor" in note for note in caught.value.__notes__)
    assert any("pass the tensor as an argument" in note for note in caught.value.__notes__)


def _setting(name, value):
    return lambda m, x: (setattr(m, name, value), x)[1]


def _deleting(name):
    return lambda m, x: (delattr(m, name), x)[1]


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (_setting("count", 1), "writing attribute 'count' of a Scaled"),
        (_deleting("factor"), "writing attribute 'factor' of a Scaled"),
    ],
)
def test_a_write_that_a_graph_cannot_hold_is_refused_with_its_line(body, what):
    """CAP-6: and nothing is changed."""
    module = Scaled()
    with pytest.raises(al.UnsupportedError, match=what) as caught:
        al.compile(body)(module, al.ones(2))
    assert any('test_hidden_inputs.py", line' in note for note in caught.value.__notes__)
    assert 2.0 == module.factor
    assert not hasattr(module, "count")
    assert module.weight.grad is None
    assert module.weight.requires_grad


@pytest.mark.parametrize("name", ["base", "version"])
def test_what_a_call_cannot_be_told_by_is_not_read(name):
    with pytest.raises(al.UnsupportedError, match=f"reading the {name} of a tensor from outside"):
        al.compile(lambda x: x * (2.0 if getattr(x, name) is None else 3.0))(al.ones(2))


def test_objects_made_during_the_capture_may_be_written():
    def f(x):
        module = Scaled()
        module.factor = 5.0
        return module(x)

    assert [10.0, 10.0] == al.compile(f)(al.ones(2)).tolist()


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda x: x if x.sum() > 0 else -x, "bool\\(\\) of a tensor"),
        (lambda x: x * x.sum().item(), "item\\(\\) of a tensor"),
        (lambda x: x * int(x.sum()), "int\\(\\) of a tensor"),
        (lambda x: x * float(x.sum()), "float\\(\\) of a tensor"),
        (lambda x: x * len(x.tolist()), "tolist\\(\\) of a tensor"),
        (lambda x: al.tensor(x.numpy()), "numpy\\(\\) of a tensor"),
    ],
)
def test_a_request_for_a_value_is_refused_with_its_line(ask, what):
    """CAP-7."""
    with pytest.raises(al.UnsupportedError, match=what) as caught:
        al.compile(ask)(al.ones(2))
    assert any('test_hidden_inputs.py", line' in note for note in caught.value.__notes__)


def test_bool_of_a_tensor_suggests_where():
    with pytest.raises(al.UnsupportedError) as caught:
        al.compile(lambda x: x if x.sum() > 0 else -x)(al.ones(2))
    assert any("where" in note for note in caught.value.__notes__)


def test_metadata_of_a_hidden_tensor_is_read_as_it_is_during_the_run():
    """A buffer that a write makes differentiable says so in the rest of the function."""
    buffer = al.zeros(2)
    w = al.ones(2, requires_grad=True)

    def f(x):
        before = buffer.requires_grad
        buffer.mul_(w)
        return x * (1.0 if before else 2.0) * (3.0 if buffer.requires_grad else 5.0)

    assert [6.0, 6.0] == al.compile(f)(al.ones(2)).tolist()
    assert buffer.requires_grad


@pytest.mark.rules("GRD-1")
def test_another_offset_does_not_compile_again_unless_it_was_read():
    data = al.arange(12.0).view(6, 2)
    compiled = al.compile(lambda x: x.t().mul(2.0)[0])
    results = [compiled(data[i : i + 2]).tolist() for i in range(0, 6, 2)]
    assert [[0.0, 4.0], [8.0, 12.0], [16.0, 20.0]] == results
    assert 1 == len(compiled.entries)
    reader = al.compile(lambda x: x * x.storage_offset())
    assert [[0.0, 0.0], [4.0, 6.0]] == [reader(data[i]).tolist() for i in range(2)]


@pytest.mark.rules("GRD-2")
def test_parts_that_do_not_overlap_share_an_entry_at_any_distance():
    """GRD-2: that they share a storage is part of the key, where they lie in it is not."""
    data = al.arange(12.0)
    compiled = al.compile(lambda a, b: a.mul_(2.0).sum() + b.sum())
    assert 1.0 * 2 + 5.0 == compiled(data[0:2], data[2:4]).item()
    assert 2 * (4.0 + 5.0) + 13.0 == compiled(data[4:6], data[6:8]).item()
    assert 2 * (2.0 + 3.0) + 21.0 == compiled(data[2:4], data[10:12]).item()
    assert 1 == len(compiled.entries)
    compiled(data[0:2], al.ones(2))
    assert 2 == len(compiled.entries)


def test_a_method_put_into_an_instance_is_noticed():
    """It stands before the class's; nothing of the instance was read under its name before."""
    module = nn.Linear(2, 2)
    compiled = al.compile(lambda x: module(x))
    x = al.ones(1, 2)
    compiled(x)
    module.forward = lambda x: x * 10
    assert [[10.0, 10.0]] == compiled(x).tolist()
    module.forward = lambda x: x * 20
    assert [[20.0, 20.0]] == compiled(x).tolist()
    del module.forward
    assert module(x).tolist() == compiled(x).tolist()
    assert 3 == len(compiled.entries)
