"""CAG-6, CAG-7: a tape is run by what was compiled of an equal structure, and by nothing else."""

from __future__ import annotations

import itertools
import math
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

import aotlite as al
from aotlite.compiled_autograd import CompiledAutograd
from aotlite.compiled_autograd.fast_path.matcher import MISS
from aotlite.compiled_autograd.structure import look_at
from aotlite.eager.autograd.differentiable_views import edge_of

pytestmark = pytest.mark.rules("CAG-6", "CAG-7", "CAG-21")


def leaf(*shape: int, dtype: Any = al.float64) -> Any:
    return (
        (al.arange(max(1, al.empty(shape).numel())).to(dtype) + 1)[: al.empty(shape).numel()]
        .view(shape)
        .clone()
        .requires_grad_()
    )


class Doubled(al.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2


class Several(al.autograd.Function):
    """Of which one result is used: gradients of the others are absent."""

    @staticmethod
    def forward(ctx: Any, x: Any, count: int) -> Any:
        ctx.set_materialize_grads(False)
        return tuple([x * (k + 1) for k in range(count)])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * len(grads), None


def _hooked(result: Any, tensor: Any, times: int = 1) -> Any:
    for _ in range(times):
        tensor.register_hook(lambda grad: grad * 3)
    return result


def _written(x: Any) -> Any:
    y = x * 1
    y[0].mul_(5)
    return y


def _turned(x: Any) -> Any:
    """What was saved is seen otherwise when the backward comes."""
    y = x * 1
    z = y * y
    y.t_()
    return z


VARIANTS = {
    "times 2": lambda x, w: x * 2,
    "times 2.0": lambda x, w: x * 2.0,
    "times 3": lambda x, w: x * 3,
    "times true": lambda x, w: x * True,
    "times 1": lambda x, w: x * 1,
    "times 0.0": lambda x, w: x * 0.0,
    "times -0.0": lambda x, w: x * -0.0,
    "times nan": lambda x, w: x * float("nan"),
    "by w": lambda x, w: x * w,
    "by itself": lambda x, w: x * x,
    "by w detached": lambda x, w: x * w.detach(),
    "w by x detached": lambda x, w: x.detach() * w,
    "w by x": lambda x, w: w * x,
    "power 2": lambda x, w: x**2,
    "power 3": lambda x, w: x**3,
    "clamp 0": lambda x, w: x.clamp(min=0.0),
    "clamp 2": lambda x, w: x.clamp(min=2.0),
    "sum 0": lambda x, w: x.sum(0),
    "sum 1": lambda x, w: x.sum(1),
    "sum -1": lambda x, w: x.sum(-1),
    "mean": lambda x, w: x.mean(),
    "twice": lambda x, w: x + x,
    "twice by way of w": lambda x, w: x + w,
    "thrice": lambda x, w: x + x + x,
    "three of two": lambda x, w: x + w + x,
    "shared": lambda x, w: (lambda y: y * y)(x.sin()),
    "not shared": lambda x, w: x.sin() * x.sin(),
    "stacked": lambda x, w: al.stack([x, w]),
    "stacked twice": lambda x, w: al.stack([x, x]),
    "joined": lambda x, w: al.cat([x, w]),
    "joined by 1": lambda x, w: al.cat([x, w], 1),
    "split": lambda x, w: x.split(1)[0],
    "split and seen": lambda x, w: x.split(1)[1],
    "both halves": lambda x, w: x.split(1)[0] * x.split(1)[1],
    "largest": lambda x, w: x.topk(1)[0],
    "turned": lambda x, w: x.t(),
    "a view": lambda x, w: x.view(4),
    "matrices": lambda x, w: x @ w,
    "matrices turned": lambda x, w: x @ w.t(),
    "other order": lambda x, w: w @ x,
    "written": lambda x, w: _written(x),
    "turned in place": lambda x, w: _turned(x),
    "another dtype": lambda x, w: x.to(al.float32) * 2,
    "custom": lambda x, w: Doubled.apply(x),
    "custom twice": lambda x, w: Doubled.apply(Doubled.apply(x)),
    "first of two": lambda x, w: Several.apply(x, 2)[0] * w,
    "first of three": lambda x, w: Several.apply(x, 3)[0] * w,
    "a hook": lambda x, w: _hooked(x * 2, x),
    "two hooks": lambda x, w: _hooked(x * 2, x, 2),
    "a hook on w": lambda x, w: _hooked(x * w, w),
    "unused": lambda x, w: x * 2 + (w * 0).detach(),
    "only w": lambda x, w: w * 2,
    "of a leaf": lambda x, w: x,
}
KINDS = {
    "square": lambda: (leaf(2, 2), leaf(2, 2)),
    "larger": lambda: (leaf(4, 4).view(4, 4), leaf(4, 4)),
    "single": lambda: (leaf(2, 2, dtype=al.float32), leaf(2, 2, dtype=al.float32)),
    "one leaf": lambda: (leaf(2, 2), leaf(2, 2).detach()),
    "one tensor": lambda: (lambda x: (x, x))(leaf(2, 2)),
}


def run(name: str, kind: str, tapes: Any) -> Any:
    x, w = KINDS[kind]()
    try:
        y = VARIANTS[name](x, w)
        if not y.requires_grad:
            return "none"
    except (al.AotliteError, ValueError) as error:
        return type(error).__name__
    switch = al.compiled_autograd.disable() if tapes is None else al.compiled_autograd.enable(tapes)
    with switch:
        try:
            y.backward(al.ones(y.shape, dtype=y.dtype))
        except al.AotliteError as error:
            return type(error).__name__
    return [None if t.grad is None else (str(t.grad.meta), repr(t.grad.tolist())) for t in (x, w)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_variant_behind_every_other(kind: str) -> None:
    """Whatever was compiled before, each has its own gradients; three times, for the matchers."""
    tapes = CompiledAutograd.of("reference")
    expected = {name: run(name, kind, None) for name in VARIANTS}
    for _ in range(3):
        for name in VARIANTS:
            assert run(name, kind, tapes) == expected[name], name
    for name in Random(0).sample(list(VARIANTS), len(VARIANTS)):
        assert run(name, kind, tapes) == expected[name], name
    raised = sum(isinstance(each, str) for each in expected.values())  # what raises is not kept
    assert tapes.counters.captures <= len(VARIANTS) + 3 * raised


def test_a_matcher_takes_the_tapes_of_its_key_and_no_others() -> None:
    """Every pair of 53 variants, on five kinds of leaves: the tables ask what the key says."""
    asked = []
    for kind, name in itertools.product(KINDS, VARIANTS):
        x, w = KINDS[kind]()
        try:
            y = VARIANTS[name](x, w)
        except (al.AotliteError, ValueError):
            continue
        if y.requires_grad:
            asked.append((kind, name, x, w, [(edge_of(y), al.ones(y.shape, dtype=y.dtype))]))
    matchers = {}
    for kind, name, *_ in asked:
        tapes = CompiledAutograd.of("reference")
        for _ in range(3):
            run(name, kind, tapes)
        if tapes._recent:
            matchers[kind, name] = tapes._recent[0]
    assert len(matchers) > 150
    taken = 0
    for (kind, name), matcher in matchers.items():
        for other, variant, _, _, roots in asked:
            looked = look_at(roots, None, accumulate=True)
            found = _asked_only(matcher, roots)
            assert found == (looked.key == matcher.look.key), (kind, name, other, variant)
            taken += found
    assert taken >= len(matchers)


def _asked_only(matcher: Any, roots: Any) -> bool:
    """Whether a matcher takes this tape; one that would run it does not."""
    whole = matcher.whole
    if whole is not None:
        matcher.whole = SimpleNamespace(run=lambda *args, **options: None)
    try:
        return matcher.match(roots, None, True, True) is not MISS
    finally:
        matcher.whole = whole


def test_captures_are_counted_and_say_why() -> None:
    tapes = CompiledAutograd.of("reference")
    for name in ("times 2", "times 2", "times 3", "times 2", "a hook"):
        run(name, "square", tapes)
    counters = tapes.counters
    assert (counters.calls, counters.hits, counters.captures) == (5, 2, 3)
    first, second, third = tapes.reasons
    assert "it is the first one" in first
    assert "NodeCall 0 is mul of f64[2, 2], 3, and was mul of f64[2, 2], 2" in second
    assert "NodeCall 0 is mul of f64[2, 2], 2, and was mul of f64[2, 2], 3" in third
    run("times 2", "square", tapes)
    tapes.forget()
    run("times 2", "square", tapes)
    run("a hook", "square", tapes)
    assert "NodeCall 1 is a AccumulateGrad that the engine runs with hooks" in tapes.reasons[-1]


def test_values_hooks_and_leaves_are_not_part_of_a_structure() -> None:
    """CAG-6: other objects of the same kinds at the same places are no reason to capture."""
    tapes, seen = CompiledAutograd.of("reference"), []
    for number in range(5):
        x = (leaf(2, 2).detach() * number).requires_grad_()
        x.register_hook(lambda grad, number=number: seen.append(number))
        with al.compiled_autograd.enable(tapes):
            (x * x).sum().backward()
        assert x.grad.tolist() == (x * 2).tolist()
    assert seen == [0, 1, 2, 3, 4]
    assert tapes.counters.captures == 1


def test_nodes_of_equal_calls_share_what_tells_them() -> None:
    """Of an op, a view, a write and a view of a compiled function."""
    x, w = leaf(2, 2), leaf(2, 2)
    shown = al.compile(lambda x: x.t(), backend="reference")

    def calls() -> list[Any]:
        y = x * w
        y.add_(w)
        nodes = [(x * w).grad_fn, x.t().grad_fn, y.grad_fn, shown(x).grad_fn]
        return [node.call for node in nodes]

    first, second = calls(), calls()
    assert list(map(id, first)) == list(map(id, second))
    assert first[1] is first[3]
    assert first[0] is not (x.detach() * w).grad_fn.call


def test_leaves_of_every_layout_get_gradients_that_lie_as_the_engine_lays_them() -> None:
    def grads(tapes: Any) -> list[Any]:
        turned = leaf(2, 3).detach().t().requires_grad_()
        gaps = leaf(4, 4).detach()[::2].requires_grad_()
        none, plain = al.empty(0, 2).requires_grad_(), leaf(2)
        leaves: Any = (turned, gaps, none, plain)
        for _ in range(2):
            loss = sum((each * each).sum() for each in leaves)
            switch = al.compiled_autograd
            with switch.disable() if tapes is None else switch.enable(tapes):
                loss.backward()
        return [(each.grad.meta, each.grad.tolist(), each.grad._version) for each in leaves]

    tapes = CompiledAutograd.of("reference")
    expected = grads(None)
    for _ in range(3):
        assert grads(tapes) == expected
    assert tapes._recent[0].whole is not None


@pytest.mark.rules("CAG-6", "CAG-21")
def test_a_number_that_changes_at_each_step_is_left_to_the_engine_in_the_end(caplog: Any) -> None:
    """Each is a structure of its own; kernels are not compiled without end."""
    tapes = CompiledAutograd.of("reference", recompile_limit=5)
    w: Any = al.tensor([1.0, 2.0], requires_grad=True)
    with al.compiled_autograd.enable(tapes), caplog.at_level("WARNING"):
        for step in range(20):
            w.grad = None
            (w * (0.5 + step)).sin().sum().backward()
            expected = [(0.5 + step) * math.cos(x * (0.5 + step)) for x in (1.0, 2.0)]
            assert expected == pytest.approx(w.grad.tolist(), rel=1e-4)
        (w * 0.5).sin().sum().backward()
    counters = tapes.counters
    assert (5, 15, 1) == (counters.captures, counters.skipped, counters.hits)
    assert 1 == caplog.text.count("left to the engine")
    tapes.forget()
    with al.compiled_autograd.enable(tapes):
        (w * 77.0).sin().sum().backward()
    assert 1 == tapes.counters.captures
