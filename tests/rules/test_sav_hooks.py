"""SAV-7: saved-tensor hooks that are given as an option are parts of the graphs."""

import numpy as np
import pytest

import aotlite as al
from aotlite.ir.graph.role import Saved

PROGRAMS = {
    "a chain": lambda x, w: (x.exp() * w).sin().sum(),
    "products": lambda x, w: ((x.exp() @ w.t()).exp() @ x.sin()).sum(),
    "a saved result": lambda x, w: (x * w).exp(),
    "a written input": lambda x, w: x.mul(2).mul_(w).exp(),
    "views": lambda x, w: (x.exp().view(-1)[2:] * w.t().reshape(-1)[2:]).sin(),
}

SAME = {
    "itself": (lambda t: t, lambda t: t),
    "a copy": (lambda t: t.clone(), lambda t: t),
    "transposed": (lambda t: t.t().clone(), lambda t: t.t()),
    "in another order": (lambda t: t.t().contiguous(), lambda t: t.t()),
    "in two parts": (lambda t: (t * 0.5, t * 0.5), lambda kept: kept[0] + kept[1]),
    "with a number": (lambda t: (t * 4, 4), lambda kept: kept[0] / kept[1]),
    "only a number": (lambda t: (t, None, 3), lambda kept: kept[0]),
}
MODES = ("donated", "no_static", "all")


def trained(f, **options):
    run = al.compile(f, **options) if options else f
    x = al.linspace(-1, 1, 12).view(3, 4).clone().requires_grad_()
    w = al.linspace(0.5, 2, 12).view(3, 4).clone().requires_grad_()
    y = run(x, w)
    y.sum().backward()
    assert x.grad is not None
    assert w.grad is not None
    return [(t.tolist(), t.stride()) for t in (y, x.grad, w.grad)]


@pytest.mark.rules("SAV-7")
@pytest.mark.thinned(4)
@pytest.mark.parametrize("partition", ["default", "min_cut"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("hooks", SAME)
def test_hooks_that_lose_nothing_change_nothing(hooks, mode, partition):
    for f in PROGRAMS.values():
        options = {"saved_hooks": SAME[hooks], "saved_hooks_mode": mode, "partition": partition}
        for eager, compiled in zip(trained(f), trained(f, **options), strict=True):
            assert eager[1] == compiled[1]
            np.testing.assert_allclose(compiled[0], eager[0], rtol=1e-6)


@pytest.mark.rules("SAV-7")
@pytest.mark.parametrize(
    ("mode", "packed"), [("donated", {"exp"}), ("no_static", {"exp", "primals_1"}), ("all", None)]
)
def test_the_mode_says_which_values_are_packed(mode, packed):
    """The first argument is static: the same memory at every call."""
    seen = []
    hooks = (lambda t: seen.append(t.meta.shape) or t.to(al.float64), lambda t: t.to(al.float32))
    compiled = al.aot_function(
        lambda p, x: ((x * p).exp() * 2).sum(),
        al.compilers.nop,
        num_params_buffers=1,
        saved_hooks=hooks,
        saved_hooks_mode=mode,
    )
    p, x = al.ones(2).requires_grad_(), al.ones(2).requires_grad_()
    compiled(p, x).backward()
    wide = {v.name for v in compiled.partition.saved if v.meta.dtype is al.float64}
    assert wide == (packed or {"exp", "primals_0", "primals_1"})
    assert len(wide) == len(seen)
    assert p.grad.tolist() == x.grad.tolist() == pytest.approx([2 * np.e] * 2)


@pytest.mark.rules("SAV-7")
def test_unpacking_is_done_by_the_backward_graph():
    """What is packed with a loss has the loss: the gradient is computed from what is unpacked."""
    hooks = (lambda t: t * 0, lambda t: t + 5)
    compiled = al.compile(lambda x: x.exp().sum(), saved_hooks=hooks, saved_hooks_mode="all")
    x = al.ones(2).requires_grad_()
    compiled(x).backward()
    assert [5.0, 5.0] == x.grad.tolist()
    forward, backward = compiled.partition.forward, compiled.partition.backward
    assert [str(r) for r in forward.output_roles][-1].startswith("saved_")
    assert "add" in [node.target.name for node in backward.calls]
    assert 1 == sum(isinstance(node.role, Saved) for node in backward.placeholders)


@pytest.mark.rules("SAV-7", "TAN-8", "SAV-5")
def test_packed_values_serve_every_backward_and_every_choice_of_results():
    hooks = (lambda t: t.to(al.float64), lambda t: t.to(al.float32))
    both = al.compile(lambda a, b: (a.sin(), b.exp()), saved_hooks=hooks, saved_hooks_mode="all")
    a, b = al.zeros(2).requires_grad_(), al.zeros(2).requires_grad_()
    first, second = both(a, b)
    first.sum().backward(retain_graph=True)
    assert ([1.0, 1.0], None) == (a.grad.tolist(), b.grad)
    (first.sum() + second.sum()).backward()
    assert ([2.0, 2.0], [1.0, 1.0]) == (a.grad.tolist(), b.grad.tolist())


WRONG = {
    "it returned": (lambda t: [object()], lambda t: t),
    "it raised ZeroDivisionError": (lambda t: t * (1 / 0), lambda t: t),
    "it calls add_": (lambda t: t.add_(1), lambda t: t),
    "of the unpack hook: it returned f16": (lambda t: t.to(al.float16), lambda t: t),
    "of the unpack hook: it returned None": (lambda t: t, lambda t: None),
}


@pytest.mark.rules("SAV-7", "GEN-2")
@pytest.mark.parametrize("text", WRONG)
def test_wrong_hooks_are_named_and_nothing_has_happened(text):
    x = al.ones(2).requires_grad_()
    compiled = al.compile(lambda x: x.exp().sum(), saved_hooks=WRONG[text], saved_hooks_mode="all")
    with pytest.raises(al.ArgumentError, match=f"^saved_hooks: .*{text}"):
        compiled(x)
    assert 0 == x._version


@pytest.mark.rules("SAV-7")
def test_options_that_are_no_hooks_are_refused():
    with pytest.raises(al.ArgumentError, match="saved_hooks is 3, expected two functions"):
        al.compile(lambda x: x, saved_hooks=3)
    with pytest.raises(al.ArgumentError, match="saved_hooks_mode is 'some', expected donated"):
        al.compile(lambda x: x, saved_hooks_mode="some")
