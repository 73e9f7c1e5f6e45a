"""What functionalized code computes: every alias sees every write, and constants stay."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.ir.graph.role import Primal

SHAPE = (2, 3, 2)
VIEWS = {
    "transpose": (lambda a: a.transpose(0, -1), lambda a: a.swapaxes(0, -1)),
    "first": (lambda a: a.select(0, 0), lambda a: a[0]),
    "last": (lambda a: a[..., -1], lambda a: a[..., -1]),
    "rest": (lambda a: a[1:], lambda a: a[1:]),
    "every second": (lambda a: a[..., ::2], lambda a: a[..., ::2]),
    "unsqueeze": (lambda a: a.unsqueeze(1), lambda a: np.expand_dims(a, 1)),
    "unbind": (lambda a: a.unbind(0)[-1], lambda a: a[-1]),
    "expand": (lambda a: a.expand(2, *a.shape), None),
}
WRITABLE = sorted(VIEWS.keys() - {"expand"})


@st.composite
def chains(draw):
    """Names of views that one may take one after the other; never of more than 3 dimensions."""
    shape, names = np.empty(SHAPE), []
    for _ in range(draw(st.integers(0, 3))):
        fitting = [n for n in WRITABLE if _fits(n, shape)]
        names.append(draw(st.sampled_from(fitting)))
        shape = VIEWS[names[-1]][1](shape)
    return tuple(names)


def _fits(name, array):
    if name == "unsqueeze":
        return 0 < array.ndim < 4
    return array.ndim > 1 and (name not in ("first", "unbind") or array.shape[0] > 0)


def seen(value, names, side):
    for name in names:
        value = VIEWS[name][side](value)
    return value


@pytest.mark.rules("FUN-2", "FUN-4", "FUN-6", "FUN-17")
@settings(max_examples=60)
@given(st.lists(chains(), min_size=2, max_size=4), st.data())
def test_every_alias_sees_every_write_of_its_storage(taken, data):
    """Views are taken first and read last; NumPy, whose views are memory, says what they see."""
    count = len(taken)
    writes = data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=3))
    inside = data.draw(st.booleans())

    def function(x):
        base = x * 1 if inside else x
        views = [seen(base, names, 0) for names in taken]
        same = [views[i].mul_(3).sub_(i + 1) is views[i] for i in writes]
        return [view * 2 for view in [base, *views]], same

    x = al.arange(12, dtype=al.float64).view(*SHAPE).clone()
    memory = np.arange(12.0).reshape(SHAPE)
    results, same = al.compile(function)(x)
    views = [seen(memory, names, 1) for names in taken]
    for i in writes:
        views[i][...] = views[i] * 3 - (i + 1)
    assert [(v * 2).tolist() for v in [memory, *views]] == [each.tolist() for each in results]
    assert all(same)
    unchanged = np.arange(12.0).reshape(SHAPE)
    assert (unchanged if inside else memory).tolist() == x.tolist()
    assert (0 if inside else 2 * len(writes)) == x.version


DTYPES = [al.bool, al.uint8, al.int64, al.float16, al.float32, al.float64, al.complex64]


@pytest.mark.rules("FUN-5")
@pytest.mark.parametrize("source", DTYPES, ids=str)
@pytest.mark.parametrize("target", DTYPES, ids=str)
def test_copy_casts_and_broadcasts_and_does_not_read_what_it_overwrites(target, source):
    """Of any dtype to any; the graph has no use for the input that it overwrites."""
    y = al.tensor([0, 1, 2]).to(source)
    x, twin = (al.ones(2, 3, dtype=target) for _ in range(2))
    compiled = al.compile(lambda x, y: x.copy_(y) is x)
    assert compiled(x, y)
    twin.copy_(y)
    assert (twin.tolist(), twin.dtype, 1) == (x.tolist(), x.dtype, x.version)
    (overwritten,) = [n for n in compiled.forward_graph.placeholders if n.role == Primal(0)]
    assert not [n for n in compiled.forward_graph.calls if overwritten in n.args]


@pytest.mark.rules("FUN-5")
@pytest.mark.parametrize("write", [lambda x: x.fill_(2.0), lambda x: x.zero_()])
def test_what_is_overwritten_may_be_anything(write):
    x = al.tensor([float("nan"), float("inf")])
    al.compile(write)(x)
    assert [0.0, 0.0] == (x * 0).tolist()


@pytest.mark.rules("FUN-27")
@settings(max_examples=30)
@given(
    st.lists(st.integers(-3, 3), min_size=1, max_size=3),
    st.lists(st.sampled_from(["add", "view", "copy"]), max_size=3),
    st.booleans(),
)
@example([1], [], True)
def test_constants_are_as_new_at_each_call(numbers, writes, returned):
    """Whatever the function does to them, and whoever writes the results."""

    def function(x):
        constant = al.tensor([float(n) for n in numbers])
        for write in writes:
            if write == "add":
                constant.add_(x)
            elif write == "view":
                constant[:1].mul_(2)
            elif write == "copy":
                constant.copy_(x * 2)
        return constant if returned else constant + x

    compiled = al.compile(function)
    for k in range(4):
        x = al.tensor(float(k))
        result = compiled(x)
        assert function(x).tolist() == result.tolist()
        result.mul_(100)
    assert 1 == len(compiled.entries)


GEOMETRY = {
    "t_": lambda x: x.t_(),
    "transpose_": lambda x: x.transpose_(0, -1),
    "unsqueeze_": lambda x: x.unsqueeze_(1),
    "squeeze_": lambda x: x.squeeze_(),
    "write": lambda x: x.add_(1),
    "view": lambda x: x[..., :1],
    "turned": lambda x: x.transpose(0, -1),
    "computed": lambda x: x * 2,
}


def facts(x):
    return (
        (x.shape, x.stride(), x.storage_offset(), x.numel(), x.ndim, str(x.dtype)),
        (x.is_contiguous(), x.requires_grad, x.is_leaf, x.size(-1), len(x), x._base is None),
    )


@pytest.mark.rules("FUN-30")
@settings(max_examples=60)
@given(st.lists(st.sampled_from(sorted(GEOMETRY)), max_size=5), st.booleans(), st.booleans())
def test_questions_are_answered_as_things_stand_then(steps, inside, no_grad):
    """Inside of a captured function, after each step."""
    noted = []

    def function(x):
        x = x * 1 if inside else x
        for step in steps:
            if (step == "t_" and x.ndim > 2) or x.ndim == 0:
                continue
            GEOMETRY[step](x) if step.endswith("_") else None
            x = x if step.endswith("_") else GEOMETRY[step](x)
            noted.append(facts(x)) if x.ndim else None
        return x

    found = []
    for run in (function, al.compile(function)):
        noted = []
        x = al.arange(6, dtype=al.float64).view(2, 3).clone()
        with al.set_grad_enabled(not no_grad):
            run(x)
        found.append((noted, facts(x)))
    assert found[0] == found[1]
