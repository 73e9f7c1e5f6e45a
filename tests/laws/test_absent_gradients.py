"""Gradients of ops with several results of which only some are differentiated (OPS-4, TAN-8)."""

from itertools import combinations

import numpy as np
import pytest

import aotlite as al
from aotlite.ir.op import OPS, Source
from aotlite.testing.laws.ops.gradient import forward, gradients, leaves_of, weights_of
from aotlite.testing.laws.ops.runs import bound, is_viewing, vjp_of
from tests.samples import samples_of

SEVERAL = [
    op
    for op in OPS.values()
    if len(op.schema.returns) > 1 and vjp_of(op) is not None and not is_viewing(op)
]


def choices(count):
    """The subsets of so many results, neither none nor all."""
    return [set(c) for size in range(1, count) for c in combinations(range(count), size)]


def subset_gradients(op, sample, chosen, *, zeros):
    """The gradients if only the chosen results have one; with zeros for the others, or none."""
    args = bound(op, sample)
    leaves = leaves_of(args)
    outs = forward(op, args)
    pairs = [
        (out, weight if i in chosen else al.zeros_like(weight))
        for i, (out, weight) in enumerate(zip(outs, weights_of(outs), strict=True))
        if zeros or i in chosen
    ]
    return gradients(*[[o for o, _ in pairs], leaves, [w for _, w in pairs]])


@pytest.mark.rules("TAN-8")
@pytest.mark.parametrize("op", SEVERAL, ids=lambda op: op.name)
def test_an_absent_gradient_counts_as_zeros_do(op):
    """A formula may leave out the terms of an absent gradient; on numbers, zeros give the same."""
    for sample in [each for each in samples_of(op.name) if each.smooth]:
        count = len(forward(op, bound(op, sample)))
        for chosen in choices(count):
            expected = subset_gradients(op, sample, chosen, zeros=True)
            found = subset_gradients(op, sample, chosen, zeros=False)
            for one, other in zip(expected, found, strict=True):
                assert (one is None) == (other is None)
                if one is not None:
                    assert (one.shape, one.dtype) == (other.shape, other.dtype)
                    np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_formulas_that_know_of_absent_gradients_are_tried():
    told = {
        op.name
        for op in OPS.values()
        for formula in (vjp_of(op).formulas.values() if vjp_of(op) else ())
        if formula.reads(Source.GRAD_OR_NONE)
    }
    assert {"batch_norm_train", "aminmax"} <= told <= {op.name for op in SEVERAL}


def normed(x, weight, bias):
    return al.ops.batch_norm_train(x, weight, bias)


@pytest.mark.rules("TAN-8")
@pytest.mark.parametrize("chosen", [*choices(3), {0, 1, 2}], ids=str)
def test_batch_norm_of_any_choice_of_results_is_eagers(chosen):
    found = []
    for function in (normed, al.compile(normed, verify=2)):
        numbers = np.random.default_rng(1).normal(size=(4, 3, 2))
        leaves = [al.tensor(each) for each in (numbers, numbers[0, :, 0], numbers[1, :, 1])]
        results = function(*[leaf.requires_grad_() for leaf in leaves])
        al.autograd.backward(*zip(*[(results[i], results[i].cos()) for i in chosen], strict=True))
        found.append([leaf.grad if leaf.grad is None else leaf.grad.tolist() for leaf in leaves])
    assert found[0] == found[1]


def test_training_batch_norm_computes_nothing_for_its_statistics():
    """No zeros stand for the gradients of mean and variance, which nothing differentiates."""
    compiled = al.compile(lambda x: al.nn.functional.batch_norm(x, None, None, training=True))
    compiled(al.ones(4, 3).requires_grad_())
    assert "full" not in [node.target.name for node in compiled.backward_graph.calls]


@pytest.mark.rules("DBL-2")
@pytest.mark.parametrize("partition", ["default", "min_cut"])
@pytest.mark.parametrize("chosen", [{0}, {1}, {0, 2}], ids=str)
def test_second_derivatives_of_batch_norm_are_eagers(partition, chosen):
    """What a call saves for them are the results that formulas read: mean and variance."""

    def gradient_of_gradients(function):
        numbers = np.random.default_rng(1).normal(size=(4, 3, 2))
        leaves = [al.tensor(each) for each in (numbers, numbers[0, :, 0], numbers[1, :, 1])]
        results = function(*[leaf.requires_grad_() for leaf in leaves])
        firsts = al.autograd.grad(
            [(results[i] * results[i]).sum() for i in chosen],
            leaves,
            create_graph=True,
            allow_unused=True,
        )
        sum((each * each).sum() for each in firsts if each is not None).backward()
        return leaves

    compiled = al.compile(normed, partition=partition)
    for one, other in zip(*map(gradient_of_gradients, (normed, compiled)), strict=True):
        assert (one.grad is None) == (other.grad is None)
        if one.grad is not None:
            # The compiled call adds up what arrives at its two tape nodes in another order.
            np.testing.assert_allclose(other.grad.numpy(), one.grad.numpy(), rtol=1e-9)
