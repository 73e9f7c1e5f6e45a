"""What saved-tensor hooks keep is checked for writes as in eager: copies never, regions do it."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import pytest

import aotlite as al

FUNCTIONS: dict[str, Any] = {
    "reads both": lambda x, w: (x * w).sin(),
    "keeps its result": lambda x, w: (x * w).exp(),
    "gives a view": lambda x, w: (x * w).exp().view(2, 1),
    "needs no value": lambda x, w: (x + w) * 2,
    "asks in vain": lambda x, w: Asking.apply(x, w) * 2,
    "asks in vain for its own": lambda x, w: Asking.apply(x + 1, w * 2),
}


class Asking(al.autograd.Function):
    """Its backward asks for what was saved, and computes nothing of it."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        _ = ctx.saved_tensors
        return grad * 2, None


def copied(run: Any, x: Any, w: Any) -> Any:
    with al.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        return run(x, w)


def written_inside(run: Any, x: Any, w: Any) -> Any:
    """A region that writes what it gives, after that was saved."""

    def region(x: Any) -> Any:
        return run(x, w).mul_(2)

    return al.checkpoint(region, x)


WAYS: dict[str, Any] = {
    "copied": copied,
    "in a region": lambda run, x, w: al.checkpoint(run, x, w),
    "in two regions": lambda run, x, w: al.checkpoint(lambda *a: al.checkpoint(run, *a), x, w),
    "of a region's values": lambda run, x, w: al.checkpoint(lambda x: run(x * 1, w) * 3, x),
    "written inside": written_inside,
}


def seen(run: Any, way: Any, written: str, *, again: bool) -> Any:
    """The gradient, or the class of the error; of two backwards if `again`."""
    x, w = al.tensor([1.0, 2.0]).requires_grad_(), al.tensor([3.0, -1.0])
    made = {"argument": w, "result": way(run, x, w)}
    with al.no_grad() if written == "argument" else contextlib.nullcontext():
        if written in made:
            made[written].mul_(2)
    try:
        for retain in [True, False] if again else [False]:
            made["result"].sum().backward(retain_graph=retain)
    except al.AutogradError:
        return al.AutogradError, x.grad
    assert x.grad is not None
    return x.grad.tolist()


@pytest.mark.rules("SAV-2", "SAV-7", "CKP-5", "CKP-9")
@pytest.mark.parametrize("partition", ["default", "min_cut"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_writes_under_hooks_are_errors_where_eager_has_them(name: str, partition: str) -> None:
    """Twelve functions are compiled, which takes a second."""
    f = FUNCTIONS[name]
    compiled = al.compile(f, backend="reference", partition=partition)
    cases = itertools.product(WAYS, ("nothing", "argument", "result"), (False, True))
    for way, written, again in cases:
        expected = seen(f, WAYS[way], written, again=again)
        found = seen(compiled, WAYS[way], written, again=again)
        assert (way, written, again, expected) == (way, written, again, found)


@pytest.mark.rules("SAV-2", "SAV-7")
@pytest.mark.parametrize("pack", [lambda t: t, lambda t: {"kept": (t, 1)}])
def test_hooks_that_keep_the_memory_itself_get_no_other_values(pack: Any) -> None:
    """Eager computes with what was written; compiled, values are computed again from it."""

    def unpack(kept: Any) -> Any:
        return kept["kept"][0] if isinstance(kept, dict) else kept

    x, w = al.ones(2).requires_grad_(), al.ones(2)
    with al.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = al.compile(lambda x, w: (x * w).sin(), backend="reference")(x, w)
    w.add_(1)
    with pytest.raises(al.AutogradError, match="is at version 1, expected version 0"):
        y.sum().backward()
