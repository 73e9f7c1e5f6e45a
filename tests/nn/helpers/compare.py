"""Comparisons with PyTorch: tensors, calls with their gradients, states of modules.

The tolerance 1e-12 (relative to the largest element) is for sums in another order.
"""

import numpy as np

import aotlite as al


def same(expected, got, tolerance=1e-12):
    """Whether two tensors agree to so much of the largest element, and in dtype."""
    expected, got = expected.detach().numpy(), got.detach().numpy()
    assert (expected.shape, expected.dtype) == (got.shape, got.dtype)
    scale = abs(expected).max(initial=1e-300)
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * scale)


def both(torch, *shape, seed=0, grad=True):
    """The same random tensor in PyTorch and here."""
    values = np.random.default_rng([seed, *shape]).standard_normal(shape)
    theirs = torch.tensor(values, requires_grad=grad)
    return theirs, al.tensor(values, requires_grad=grad)


def same_call(torch, theirs, ours, *shapes):
    """Whether both functions give one value and, for random cotangents, one gradient an operand."""
    operands = [both(torch, *shape, seed=i) for i, shape in enumerate(shapes)]
    expected, got = theirs(*[t for t, _ in operands]), ours(*[a for _, a in operands])
    same(expected, got)
    cotangent = both(torch, *expected.shape, seed=99, grad=False)
    (expected * cotangent[0]).sum().backward()
    (got * cotangent[1]).sum().backward()
    for t, a in operands:
        same(t.grad, a.grad)


def share_state(ours, theirs):
    """Gives PyTorch's module the state of ours."""
    import torch

    theirs.load_state_dict({n: torch.tensor(v.numpy()) for n, v in ours.state_dict().items()})


def same_states(theirs, ours):
    """Whether both modules have one state."""
    expected, got = theirs.state_dict(), ours.state_dict()
    assert list(expected) == list(got)
    for name, value in expected.items():
        same(value, got[name])
