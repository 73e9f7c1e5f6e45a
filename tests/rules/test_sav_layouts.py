"""SAV-4, SAV-6: what compilers say of saved values, and what they are told of them."""

import numpy as np
import pytest

import aotlite as al
from aotlite.ir.graph import Node
from aotlite.ir.graph.role import Saved
from aotlite.ir.op import ViewOp


class Transposing:
    """A backend whose saved values lie in column-major order, which it says."""

    name = "transposing"

    def __init__(self, order=None):
        self.order = order or (lambda stride, shape: _column_major(shape))
        self.seen = []

    def compile(self, graph):
        from aotlite.backends.reference import REFERENCE

        inner = REFERENCE.compile(graph)
        pairs = list(zip(graph.output_roles, graph.outputs, strict=True))
        results = {value for role, value in pairs if not isinstance(role, Saved)}
        strides = [None if value in results else self.stride(role, value) for role, value in pairs]

        def run(windows):
            results = inner(windows)
            return [
                window if stride is None else _laid_out(value.meta, window, stride)
                for value, window, stride in zip(graph.outputs, results, strides, strict=True)
            ]

        run.output_strides = strides
        self.seen.append((graph, dict(zip(graph.output_roles, strides, strict=True))))
        return run

    def stride(self, role, value):
        if not isinstance(role, Saved) or type(value) is not Node or _is_window(value):
            return None
        return self.order(value.meta.stride, value.meta.shape)


def _is_window(value):
    return value.op != "call" or isinstance(value.target, ViewOp)


def _column_major(shape):
    stride, found = 1, []
    for size in shape:
        found.append(stride)
        stride *= max(size, 1)
    return tuple(found)


def _laid_out(meta, window, stride):
    arrays = meta.device.arrays
    source = arrays.strided(window[0], meta.dtype, meta.shape, meta.stride, window[1])
    span = 1 + sum((n - 1) * s for n, s in zip(meta.shape, stride, strict=True))
    flat = np.zeros(span, meta.dtype.numpy)
    arrays.copy(arrays.strided(flat, meta.dtype, meta.shape, stride, 0), source)
    return flat, 0


PROGRAMS = {
    "pointwise": lambda x, w: (x.exp() * w).sin().sum(),
    "a view of it is used": lambda x, w: (x.exp().view(-1) * w.view(-1)).sin().sum(),
    "products": lambda x, w: ((x.exp() @ w.t()).exp() @ x.sin()).sum(),
    "reductions": lambda x, w: (x.softmax(1) * w.exp()).logsumexp(0).sum(),
    "a result is saved, too": lambda x, w: (x * w).exp(),
    "windows": lambda x, w: (x.exp().as_strided((2, 2), (1, 2), 1) * w[:2, :2]).exp().sum(),
    "a view in the backward": lambda x, w: (
        x.exp().view(-1)[2:].sin() * w.exp().view(-1)[2:]
    ).sum(),
    "a written intermediate": lambda x, w: (x * 2).mul_(w).exp().sum(),
}


@pytest.mark.rules("SAV-6")
@pytest.mark.parametrize("spread", [1, 3], ids=["dense", "with gaps"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("partition", ["default", "min_cut"])
def test_a_backward_takes_saved_values_in_the_layout_that_the_forward_reports(
    name, spread, partition
):
    """Its inputs have the strides of what arrives, and gradients are eager's."""
    backend = Transposing(lambda _, shape: tuple(s * spread for s in _column_major(shape)))
    compiled = al.compile(PROGRAMS[name], backend=backend, verify=2, partition=partition)
    found = []
    for run in (PROGRAMS[name], compiled):
        x = al.linspace(-1, 1, 12).view(3, 4).clone().requires_grad_()
        w = al.linspace(0, 2, 12).view(3, 4).clone().requires_grad_()
        y = run(x, w)
        y.sum().backward()
        grads = [(t.grad.stride(), t.grad.tolist()) for t in (x, w)]
        found.append((y.tolist(), y.stride(), *grads))
    assert found[0][:2] == found[1][:2]
    for eager, compiled in zip(found[0][2:], found[1][2:], strict=True):
        assert eager[0] == compiled[0]
        np.testing.assert_allclose(compiled[1], eager[1], rtol=1e-5)
    (forward, forward_strides), (backward, _) = backend.seen
    reported = {
        role: forward_strides.get(role) or value.meta.stride
        for role, value in zip(forward.output_roles, forward.outputs, strict=True)
        if isinstance(role, Saved)
    }
    taken = {n.role: n.meta.stride for n in backward.placeholders if isinstance(n.role, Saved)}
    assert reported == taken


@pytest.mark.rules("SAV-6", "LOW-6")
@pytest.mark.parametrize("stride", [(0, 1), (1,), (1, -3), (1, 1)])
def test_strides_that_no_saved_value_can_have_are_refused(stride):
    backend = Transposing(lambda *_: stride)
    with pytest.raises(al.BackendError, match="^backend: 'transposing' reports strides"):
        al.compile(lambda x: x.exp().sin().sum(), backend=backend)(al.ones(3, 4).requires_grad_())


@pytest.mark.rules("SAV-4")
def test_compilers_are_told_which_saved_values_nobody_else_has():
    told = {}

    def shown(graph, inputs):
        told.update({each.role: each.donated for each in inputs})
        return al.compilers.nop(graph, inputs)

    def f(x, w):
        kept = x.exp()
        alone = (x * 2).sin()
        return (kept * alone * w).sin(), kept

    compiled = al.aot_function(f, al.compilers.nop, bw_compiler=shown)
    x, w = al.ones(2).requires_grad_(), al.ones(2).requires_grad_()
    y, _ = compiled(x, w)
    y.sum().backward()
    saved = {r: d for r, d in told.items() if isinstance(r, Saved)}
    values = {value.name: value.owner for value in compiled.partition.saved}
    assert {True, False} == set(saved.values())
    for role, donated in saved.items():
        assert donated == (values[f"{role.name}"] is None)
    assert set(compiled.partition.donated) == {role for role, yes in saved.items() if yes}


@pytest.mark.rules("SAV-4", "SAV-5")
def test_saved_values_survive_a_backward_that_retains_them():
    """Nothing is given away for that call, whatever could be."""
    x = al.linspace(0, 1, 4).requires_grad_()
    y = al.compile(lambda x: x.exp().sin().sum())(x)
    (first,) = al.autograd.grad(y, x, retain_graph=True)
    (second,) = al.autograd.grad(y, x)
    assert first.tolist() == second.tolist()
