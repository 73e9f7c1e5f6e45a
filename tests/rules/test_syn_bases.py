"""Inputs that overlap while one is written: compiled as eager, for random windows (SYN)."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aotlite as al

SIZE = 17
HISTORIES = ("plain", "inner", "leaf", "detached", "leaves")
"""Of the members: views of a plain tensor, of one with a history, of a leaf; detached aliases of
one memory; views that are leaves of their own."""


@attrs.frozen
class Window:
    """A member: a window on the memory, of its own dtype."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    start: int

    def of(self, memory: Any) -> Any:
        return memory.as_strided(self.shape, self.stride, self.start)


@attrs.frozen
class Body:
    """What is done to the members: (op, member, other) each; `+` reads, others write."""

    steps: tuple[tuple[str, int, int], ...]
    result: int

    def __call__(self, *members: Any) -> Any:
        total = members[0].sum() * 0
        for op, i, j in self.steps:
            match op:
                case "read":
                    total = total + (members[i] * members[i]).sum()
                case "scale":
                    members[i].mul_(2)
                case "mix":
                    members[i].add_(members[j].sum())
                case "quiet":
                    with al.no_grad():
                        members[i].add_(1)
                case "part":
                    members[i].view_as(members[i])[..., :1].mul_(3)
                case "turn":
                    members[i].t_()
        return total, members[self.result], members[self.result][..., :1]


@st.composite
def windows(draw: Any) -> Window:
    """Windows without two elements in one place."""
    shape = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=2)))
    strides: Any = {1: [(1,), (2,), (3,)], 2: [(3, 1), (1, 3), (4, 1), (6, 2)]}[len(shape)]
    stride = draw(st.sampled_from(strides))
    reach = sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
    return Window(shape, stride, draw(st.integers(0, max(SIZE - 1 - reach, 0))))


@st.composite
def bodies(draw: Any, count: int) -> Body:
    ops = st.sampled_from(("read", "scale", "mix", "quiet", "part", "turn"))
    member = st.integers(0, count - 1)
    steps = draw(st.lists(st.tuples(ops, member, member), min_size=1, max_size=5))
    return Body(tuple(steps), draw(member))


def members_of(history: str, found: list[Window]) -> tuple[list[Any], list[Any]]:
    """(members, leaves and memory to look at)."""
    memory = al.arange(SIZE, dtype=al.float64).clone()
    match history:
        case "plain":
            return [w.of(memory) for w in found], [memory]
        case "inner":
            memory.requires_grad_()
            inner = memory * 1
            return [w.of(inner) for w in found], [memory, inner]
        case "leaf":
            memory.requires_grad_()
            return [w.of(memory) for w in found], [memory]
        case "detached":
            memory.requires_grad_()
            inner = memory * 1
            first, *rest = found
            return [first.of(inner), *[w.of(inner.detach()) for w in rest]], [memory, inner]
    views = [w.of(memory).requires_grad_() for w in found]
    return views, [memory, *views]


def observed(function: Any, history: str, found: list[Window]) -> Any:
    """All that can be seen of a call and of backwards; of one that raises, the error's class.

    A compiled call that raises has changed nothing.
    """
    members, others = members_of(history, found)
    before = [(each.tolist(), each.version) for each in (*others, *members)]
    try:
        results = function(*members)
    except (al.AutogradError, al.AliasError) as error:
        if not isinstance(function, Body):
            assert before == [(each.tolist(), each.version) for each in (*others, *members)]
        return type(error)
    seen = [
        (each.tolist(), each.shape, each.stride(), each.requires_grad, each.is_leaf, each.version)
        for each in (*results, *members, *others)
    ]
    same = [[a is b for b in members] for a in results]
    gradients: list[Any] = []
    for each in (*results, *members, *others):
        if each.requires_grad and not each.is_leaf:
            try:
                (each * each).sum().backward(retain_graph=True)
            except al.AutogradError as error:
                gradients.append(type(error))
                continue
        gradients.append([None if o.grad is None else o.grad.tolist() for o in others])
    return seen, same, gradients


@pytest.mark.rules("SYN-1", "SYN-2", "SYN-4", "SYN-5", "SYN-6", "SYN-8", "SYN-9")
@given(st.data(), st.sampled_from(HISTORIES), st.integers(2, 3))
def test_overlapping_members_are_as_in_eager(data: Any, history: str, count: int) -> None:
    found = [data.draw(windows()) for _ in range(count)]
    body = data.draw(bodies(count))
    compiled = al.compile(body, verify=2)
    assert observed(compiled, history, found) == observed(body, history, found)
    again = [attrs.evolve(window, start=max(window.start - 1, 0)) for window in found]
    assert observed(compiled, history, again) == observed(body, history, again)


@pytest.mark.rules("SYN-3", "SYN-10")
@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=7))
def test_bases_come_first_in_the_order_of_their_first_members(drawn: Any) -> None:
    """Members are slices of one of two memories; those of a third tensor are apart."""
    memories = [al.arange(6.0).clone() for _ in range(2)]
    arguments = [
        memories[which][int(late) : 4 + int(late)] if which < 2 else al.ones(4)
        for which, late in drawn
    ]

    def write_all(*given: Any) -> Any:
        for each in given:
            each.add_(1)
        return [each * 1 for each in given]

    calling = al.inspect.stages_of(write_all, *arguments)["convention"]
    groups = [[i for i, (w, _) in enumerate(drawn) if w == which] for which in range(2)]
    merged = sorted(group for group in groups if len(group) > 1)
    found = [[member.role.index for member in base.members] for base in calling.bases]
    assert merged == found
    rest = [i for i in range(len(drawn)) if all(i not in group for group in merged)]
    names = [f"synthetic_base_{k}" for k in range(len(merged))] + [f"primals_{i}" for i in rest]
    assert names == [str(role) for role in calling.inputs]
    expected = write_all(*[each.clone() for each in arguments]) if not merged else None
    results = al.compile(write_all)(*arguments)
    if expected is not None:
        assert [each.tolist() for each in expected] == [each.tolist() for each in results]


def bytes_of(tensor: Any) -> Any:
    return tensor.clone().view(-1).view(al.int8).tolist()


@pytest.mark.rules("SYN-6", "ALI-5")
@given(st.data())
def test_members_of_different_dtypes_share_bytes(data: Any) -> None:
    kinds = st.sampled_from((al.float64, al.int32, al.int8, al.complex128, al.float32))
    picks = [(data.draw(kinds), data.draw(st.integers(0, 4))) for _ in range(2)]

    def body(a: Any, b: Any) -> Any:
        a[1:].fill_(3)
        read = b * 1
        b[..., :1].copy_(b[..., 1:2])
        return read, a * 1, a, b[1:]

    def members() -> tuple[Any, list[Any]]:
        memory = al.arange(16, dtype=al.float64).clone()
        seen = [memory.view(kind) for kind, _ in picks]
        cut = zip(seen, picks, strict=True)
        return memory, [each[start : start + 5].alias() for each, (_, start) in cut]

    one, mine = members()
    two, its = members()
    found = al.compile(body, verify=2)(*mine)
    expected = body(*its)
    assert one.view(al.int64).tolist() == two.view(al.int64).tolist()
    for a, b in zip(found, expected, strict=True):
        assert (
            a.clone().view(-1).view(al.int8).tolist() == b.clone().view(-1).view(al.int8).tolist()
        )
    assert one.version == two.version


@pytest.mark.rules("SYN-11")
def test_written_members_are_copied_back_one_by_one() -> None:
    compiled = al.compile(lambda a, b: (a.zero_(), b.sum())[1])
    big = al.ones(1000)
    assert 1.0 == compiled(big[:9], big[1:10]).item()
    assert ([0.0] * 9 + [1.0], 1) == (big[:10].tolist(), big.version)
    copies = [line for line in compiled.source.splitlines() if "[...] =" in line]
    assert 1 == len(copies)


@pytest.mark.rules("SYN-7", "META-16")
def test_one_tangent_a_family() -> None:
    def f(x: Any, y: Any) -> Any:
        x.add_(1)
        y.mul_(2)
        return x + 1

    b = al.ones(6).requires_grad_() * 1
    meta = al.inspect.stages_of(f, b, b.view(3, 2))["analyze"]
    assert ["updated_family_0", "output_0"] == [str(each) for each in meta.tangents]

    def g(x: Any, y: Any) -> Any:
        v = x[0]
        with al.no_grad():
            y.mul_(3)
        return v

    leaf: Any = al.ones(6).requires_grad_()
    b = leaf * 1
    al.compile(g)(b, b.view(3, 2))
    b.sum().backward()
    assert [1.0] * 6 == leaf.grad.tolist()


def _saves_and_overwrites(a: Any, b: Any) -> None:
    a.exp_()
    b.mul_(2)


def _saves_quietly_overwritten(a: Any, b: Any) -> Any:
    made = a.exp()
    result = made * 1
    with al.no_grad():
        made.add_(1)
        b.mul_(2)
    return result


@pytest.mark.rules("SYN-7", "JNT-15")
@pytest.mark.parametrize("function", [_saves_and_overwrites, _saves_quietly_overwritten])
def test_the_error_of_a_backward_that_leads_to_a_base_is_raised(function: Any) -> None:
    for run in (function, al.compile(function)):
        leaf = al.ones(6).requires_grad_()
        base = leaf * 1
        a, b = base[:4], base[2:]
        result = run(a, b)
        for each in (a, b, base) if result is None else (result,):
            with pytest.raises(al.AutogradError, match="modified in place"):
                al.autograd.grad(each.sum(), leaf, allow_unused=True, retain_graph=True)


@pytest.mark.rules("SYN-5", "GEN-2")
def test_a_member_that_is_met_too_late_is_refused_before_anything() -> None:
    class Holder:
        @property
        def view(self) -> Any:
            return VIEWS[0]

    holder = Holder()
    leaf = al.ones(4).requires_grad_()
    inner = leaf * 1
    VIEWS[:] = [inner[1:]]

    def f(x: Any) -> Any:
        x.mul_(2)
        return holder.view.sum()

    with pytest.raises((al.AliasError, al.UnsupportedError)):
        al.compile(f)(inner)
    assert ([1.0] * 4, 0) == (inner.tolist(), inner.version)


VIEWS: list[Any] = []
