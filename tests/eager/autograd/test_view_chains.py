"""Chains of views of complex and real memory, written and differentiated: as in PyTorch, and
compiled as in eager.
"""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.ir.geometry.overlap import has_internal_overlap

STEPS = {
    "real": lambda m, x: x.real,
    "imag": lambda m, x: x.imag,
    "as_real": lambda m, x: m.view_as_real(x),
    "as_complex": lambda m, x: m.view_as_complex(x),
    "transpose": lambda m, x: x.transpose(0, -1),
    "select": lambda m, x: x.select(-1, 0),
    "last": lambda m, x: x.select(0, -1),
    "slice": lambda m, x: x[1:],
    "even": lambda m, x: x[..., ::2],
    "unsqueeze": lambda m, x: x.unsqueeze(1),
    "flatten": lambda m, x: x.flatten(),
    "pairs": lambda m, x: x.unflatten(-1, (-1, 2)),
    "expand": lambda m, x: x.expand(2, *x.shape),
    "window": lambda m, x: x.as_strided((2,), (1,), 2),
    "movedim": lambda m, x: x.movedim(0, -1),
    "squeeze": lambda m, x: x.squeeze(),
    "chunk": lambda m, x: x.tensor_split(2)[0],
}
CHAINS = st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5)


def host(is_complex):
    values = np.arange(1.0, 17.0).reshape(4, 4)
    return values - 1j * values[::-1] if is_complex else values


def shown(module, x, chain):
    """The view at the end of a chain of those steps that make sense on it."""
    taken = []
    for name in chain:
        if x.is_complex() and name == "as_complex":
            continue
        if not x.is_complex() and name in ("imag", "as_real"):
            continue
        if x.is_complex() and name == "real" or x.ndim or name in ("unsqueeze", "expand"):
            try:
                x = STEPS[name](module, x)
            except (RuntimeError, ValueError, IndexError):
                continue
            taken.append(name)
    return x, taken


def geometry(x):
    return tuple(x.shape), tuple(x.stride()), x.storage_offset(), str(x.dtype).split(".")[-1]


def result(module, base, chain, write):
    """The base after a write through the chain, a number of it and of a view, and the geometry."""
    x = base * 1
    view, taken = shown(module, x, chain)
    place = geometry(view)
    if write:
        view.mul_(3)
    later, _ = shown(module, x, chain[:2])
    loss = (x.abs() ** 2).sum() + 2 * (view.abs() ** 3).sum() + (later.abs() ** 2).sum()
    return x, loss, (place, tuple(taken))


@pytest.mark.torch
@settings(deadline=None, max_examples=150)
@given(CHAINS, st.booleans(), st.booleans())
def test_chains_of_views_are_those_of_torch(torch, chain, is_complex, write):
    ours = al.tensor(host(is_complex)).requires_grad_()
    theirs = torch.tensor(host(is_complex)).requires_grad_()
    with al.no_grad():
        end, _ = shown(al, ours.detach(), chain)
    assume(not (write and has_internal_overlap(end.shape, end.stride())))
    # Of a window on a view, PyTorch drops the gradient of what lies outside the view.
    assume("window" not in chain[1:])
    x, loss, place = result(al, ours, chain, write)
    their_x, their_loss, their_place = result(torch, theirs, chain, write)
    assert their_place == place
    assert np.array_equal(their_x.detach().numpy(), x.detach().numpy())
    loss.backward()
    their_loss.backward()
    assert np.allclose(theirs.grad.numpy(), ours.grad.numpy(), rtol=1e-12)


@pytest.mark.rules("FUN-3", "FUN-7")
@settings(deadline=None, max_examples=60)
@given(CHAINS.filter(lambda chain: "window" not in chain), st.booleans(), st.booleans())
def test_chains_of_views_compiled_are_those_of_eager(chain, is_complex, write):
    end, _ = shown(al, al.tensor(host(is_complex)), chain)
    assume(not (write and has_internal_overlap(end.shape, end.stride())))

    def function(base):
        x, loss, _ = result(al, base, chain, write)
        return x, loss, shown(al, base, chain)[0]

    images = []
    for run in (function, al.compile(function)):
        base = al.tensor(host(is_complex)).requires_grad_()
        x, loss, view = run(base)
        loss.backward()
        images.append((x.tolist(), loss.item(), base.grad.tolist(), geometry(view), view.base))
        assert view.base is None or view.base is base
    (*eager, _), (*compiled, _) = images
    assert eager[0] == compiled[0] and eager[3] == compiled[3]
    assert np.allclose(eager[1], compiled[1]) and np.allclose(eager[2], compiled[2])
