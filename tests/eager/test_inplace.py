"""In-place writes: what they change, count and refuse.

Rules TEN-7 to TEN-10, TEN-15 to TEN-18, TEN-24.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from tests.helpers.program_strategy import programs
from tests.helpers.programs import Aotlite, Program, execute

METADATA = {"t_", "transpose_", "squeeze_", "unsqueeze_", "as_strided_"}


def leaf(*values):
    return al.tensor([float(v) for v in values], dtype=al.float64, requires_grad=True)


def state(tensors):
    """The bytes of each storage, and what else an illegal step must leave alone."""
    return [
        (
            bytes(t.storage.buffer),
            t.version,
            t.shape,
            t.stride(),
            t.storage_offset(),
            t.requires_grad,
        )
        for t in tensors
    ]


@settings(max_examples=200, derandomize=True, database=None)
@given(programs())
def test_a_refused_step_leaves_everything_as_it_was(program):
    """Bytes, versions, geometry, requires_grad of all tensors, and grad mode."""
    values = []
    for step in program.setup:
        execute(Aotlite(), [step], values)
    values = [values[i] for i in program.inputs]
    for step in program.body:
        before = state(values)
        try:
            execute(Aotlite(), [step], values)
        except al.AotliteError:
            assert before == state(values)
            assert al.is_grad_enabled()
            return


@settings(max_examples=200, derandomize=True, database=None)
@given(programs())
def test_a_version_is_the_number_of_writes_of_the_storage(program):
    """TEN-10: data and geometry writes add 1 each, everything else 0."""
    values = []
    try:
        execute(Aotlite(), program.setup, values)
    except al.AotliteError:
        return
    values = [values[i] for i in program.inputs]
    for step in program.body:
        writes = step.op.endswith("_") and step.op != "requires_grad_" or step.op == "setitem"
        target = values[step.args[0].index]
        before, others = target.version, {t.storage: t.version for t in values}
        try:
            execute(Aotlite(), [step], values)
        except al.AotliteError:
            return
        others[target.storage] = before + writes
        assert others == {storage: storage.version for storage in others}


def evaluated(program, flat):
    """The sum of the outputs' squares, with the leaves' values taken from `flat` (float64)."""
    position = 0
    values = []
    leaves = []
    for step in program.setup:
        execute(Aotlite(), [step], values)
        if step.op == "fresh":
            count = values[-1].numel()
            if values[-1].requires_grad:
                values[-1].detach().copy_(
                    al.from_numpy(flat[position : position + count].copy()).view(values[-1].shape)
                )
                position += count
                leaves.append(values[-1])
    values = [values[i] for i in program.inputs]
    execute(Aotlite(), program.body, values)
    total = al.zeros((), dtype=al.float64)
    for i in program.outputs:
        total = total + (values[i] * values[i]).sum()
    return total, leaves, position


def smooth(program):
    """Without what cuts or bends derivatives: no_grad, detach, relu."""
    cuts = {"detach", "relu", "relu_", "requires_grad_"}
    return all(step.grad and step.op not in cuts for step in (*program.setup, *program.body))


def slope(program, point, index):
    """The central difference: truncation is h**2, rounding eps/h."""
    h = 1e-5
    up, down = point.copy(), point.copy()
    up[index] += h
    down[index] -= h
    return (evaluated(program, up)[0].item() - evaluated(program, down)[0].item()) / (2 * h)


def test_gradients_are_those_of_finite_differences():
    """TEN-16 to TEN-18, for programs whose every step is differentiable."""
    compared = 0

    @settings(max_examples=200, derandomize=True, database=None)
    @given(programs(max_steps=5).filter(smooth), st.randoms(use_true_random=False))
    def check(program: Program, random):
        nonlocal compared
        point = np.array([random.uniform(0.5, 2.0) for _ in range(64)])
        try:
            total, leaves, count = evaluated(program, point)
            if not total.requires_grad:
                return
            total.backward()
        except al.AotliteError:
            return
        grads = [0 * x.detach() if x.grad is None else x.grad for x in leaves]
        found = np.concatenate([grad.numpy().reshape(-1) for grad in grads])
        for i in range(count):
            expected = slope(program, point, i)
            scale = max(1.0, abs(total.item()), abs(expected))
            assert abs(expected - found[i]) <= 1e-4 * scale, f"{program}\nelement {i}"
            compared += 1

    check()
    assert compared > 200


def test_a_write_keeps_the_object_and_gives_it_a_new_node():
    """TEN-16."""
    x = leaf(1, 2)
    y = x * 1
    assert y is y.mul_(3)
    assert "MulBackward" == y.grad_fn.name()
    z = al.zeros(2, dtype=al.float64)
    z.add_(x)
    assert z.requires_grad and not z.is_leaf
    (y + z).sum().backward()
    assert [4, 4] == x.grad.tolist()


def test_a_write_through_a_view_rewrites_the_base():
    """TEN-17."""
    x, w = leaf(1, 2, 3, 4), leaf(5, 6)
    b = x * 1
    b[:2].mul_(w)
    b.sum().backward()
    assert [5, 6, 1, 1] == x.grad.tolist()
    assert [1, 2] == w.grad.tolist()


def test_a_write_through_a_view_can_make_the_base_require_grad():
    """TEN-17."""
    w = leaf(5, 6)
    b = al.zeros(4, dtype=al.float64)
    sibling = b[1:3]
    b[:2].copy_(w)
    assert b.requires_grad and sibling.requires_grad
    (sibling * 3).sum().backward()
    assert [0, 3] == w.grad.tolist()


@pytest.mark.parametrize(
    ("repeat", "expected"),
    [
        (lambda b: b.expand(2, 3)[1], ([5, 6, 7], [1, 2, 3])),
        (lambda b: b.unfold(0, 3, 1)[0], ([5, 6, 7], [1, 2, 3])),
        (lambda b: b.as_strided((2, 3), (0, 1), 0)[1], ([5, 6, 7], [1, 2, 3])),
    ],
    ids=["expand", "unfold", "as_strided"],
)
def test_a_write_into_one_copy_of_repeated_elements_has_its_gradient(repeat, expected):
    """TEN-17: step by step the inverse would put back another copy, which was not written."""
    x, w = leaf(1, 2, 3), leaf(5, 6, 7)
    b = x * 1
    repeat(b).mul_(w)
    b.sum().backward()
    assert expected == (x.grad.tolist(), w.grad.tolist())


def test_windows_that_overlap_can_be_written_one_at_a_time():
    """TEN-17."""
    x, w = leaf(1, 2, 3), leaf(5, 7)
    b = x * 1
    b.unfold(0, 2, 1)[1].mul_(w)
    (b * al.tensor([1.0, 10.0, 100.0], dtype=al.float64)).sum().backward()
    assert [1, 50, 700] == x.grad.tolist()
    assert [20, 300] == w.grad.tolist()


def test_a_window_between_the_elements_of_a_base_has_no_share_in_its_gradient():
    """TEN-17: the gradient handed in has a neighbor's values where the base has gaps."""
    w = leaf(5, 7, 11)
    base = al.tensor([1.0, 2, 3, 4, 5, 6], dtype=al.float64)[::2].detach()
    base.as_strided((3,), (1,), 1).mul_(w)
    base.backward(al.tensor([9.0] * 6, dtype=al.float64)[::2])
    assert [0, 27, 0] == w.grad.tolist()


def test_a_write_with_gradient_through_a_base_that_overlaps_itself_is_refused():
    """TEN-7, TEN-17."""
    base = al.zeros(3, dtype=al.float64).expand(2, 3).detach()
    with pytest.raises(al.AliasError, match=r"^copy_: the tensor is a view of .* overlaps itself"):
        base[0].copy_(leaf(1, 2, 3))
    assert (0, [[0] * 3] * 2) == (base.version, base.tolist())


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.mul_(2),
        lambda x: x.view(-1).add_(1),
        lambda x: x.zero_(),
        lambda x: x.t_(),
        lambda x: x[:1].squeeze_(),
        lambda x: x.__setitem__(0, 1),
    ],
)
def test_a_leaf_that_requires_grad_is_not_written_with_grad_on(write):
    """TEN-15, TEN-24."""
    x = leaf(1, 2)
    with pytest.raises(al.AutogradError, match="leaf that requires grad, expected a non-leaf"):
        write(x)
    assert (0, [1, 2]) == (x.version, x.tolist())
    with al.no_grad():
        write(x)
    assert x.is_leaf and x.requires_grad and 1 == x.version


@pytest.mark.rules("TEN-7", "TEN-8")
def test_a_destination_that_overlaps_itself_is_refused_but_for_one_value():
    """TEN-7, TEN-8."""
    row = al.ones(1).expand(3)
    windows = al.ones(3).as_strided((2, 2), (1, 1))
    for x in (row, windows):
        with pytest.raises(al.AliasError, match=r"^add_: the destination .* overlaps itself"):
            x.add_(1)
        with pytest.raises(al.AliasError, match=r"^copy_: the destination .* overlaps itself"):
            x.copy_(al.ones(1))
        x.zero_()
    assert [0, 0, 0] == row.tolist()


@pytest.mark.rules("TEN-7")
def test_an_operand_that_overlaps_in_part_is_refused():
    """TEN-7, TEN-8: exact, so interleaved slices pass."""
    a = al.arange(6, dtype=al.float32)
    with pytest.raises(
        al.AliasError, match=r"^add_: argument 'other' .* overlaps the destination .* in part"
    ):
        a[1:].add_(a[:-1])
    with pytest.raises(al.AliasError, match=r"^copy_: argument 'src'"):
        a[1:].copy_(a[:-1])
    with pytest.raises(al.AliasError, match=r"^copy_: argument 'src'"):
        a[1:].hidden_alias().copy_(a[:-1])
    assert 0 == a.version
    a[::2].add_(a[1::2])
    a.add_(a)
    assert [2, 2, 10, 6, 18, 10] == a.tolist()


def test_a_destination_keeps_its_shape_and_its_kind_of_dtype():
    """TEN-9."""
    with pytest.raises(
        al.ShapeError, match=r"^add_: the destination has shape \(2,\), expected \(3, 2\)"
    ):
        al.ones(2).add_(al.ones(3, 2))
    with pytest.raises(al.DTypeError, match="^add_: the destination has dtype int64, expected one"):
        al.tensor([1, 2]).add_(1.5)
    assert "float32" == al.ones(2).add_(al.ones(2, dtype=al.float64)).dtype.name


def test_integers_take_copies_and_no_history():
    """TEN-14: only floating and complex tensors can require grad."""
    numbers = al.tensor([0, 0])
    numbers.copy_(leaf(1.5, 2.5))
    assert ([1, 2], False) == (numbers.tolist(), numbers.requires_grad)


def test_a_copy_onto_itself_counts_and_changes_nothing():
    """TEN-10."""
    x = leaf(1, 2)
    y = x * 3
    node = y.grad_fn
    y.copy_(y)
    assert (1, node) == (y.version, y.grad_fn)
    row = al.ones(1).expand(3)
    row.copy_(row)
    assert 1 == row.version


def test_geometry_belongs_to_the_object():
    """TEN-24."""
    b = al.zeros(2, 3)
    v, w = b[:1], b[:1]
    v.unsqueeze_(0)
    assert ((1, 1, 3), (1, 3), (2, 3)) == (v.shape, w.shape, b.shape)
    assert 1 == b.version
    v.squeeze_(1)
    assert 2 == b.version


def test_read_only_memory_is_not_written():
    host = np.zeros(2)
    host.flags.writeable = False
    x = al.from_numpy(host)
    with pytest.raises(al.ArgumentError, match="^add_: the destination is read-only memory"):
        x[0].add_(1)
    assert 0 == x.version


def test_a_failing_kernel_leaves_the_destination_alone():
    x = al.ones(2)
    with pytest.raises(al.ArgumentError, match="clamp"):
        x.clamp_(None, None)
    assert (0, [1, 1]) == (x.version, x.tolist())
