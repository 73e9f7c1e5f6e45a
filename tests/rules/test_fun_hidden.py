"""Hidden writes: bytes change, and nothing that autograd knows of."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al

STEPS = {
    "rebind": lambda x: x.hidden_alias().copy_(x.detach() * 2 + 1),
    "zero": lambda x: x.hidden_alias().zero_(),
    "part": lambda x: x.hidden_alias()[:1].add_(5),
    "through a view": lambda x: x.view(-1).hidden_alias().mul_(3),
    "detached": lambda x: x.detach().mul_(2),
    "no grad": lambda x: _without_grad(x),
    "seen": lambda x: x.mul_(1.5),
}
HIDDEN = {"rebind", "zero", "part", "through a view"}


def _without_grad(x):
    with al.no_grad():
        x.add_(7)


@pytest.mark.rules("FUN-37", "FUN-19", "FUN-23")
@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4),
    st.sampled_from(["plain", "leaf", "inner"]),
    st.booleans(),
)
def test_hidden_writes_reach_the_bytes_and_nothing_else(steps, kind, keeps):
    """Values, versions, histories and gradients are eager's, and ops see the new bytes."""
    if kind == "leaf":
        steps = [step for step in steps if step != "seen"]

    def function(x):
        before = x * 3
        for step in steps:
            STEPS[step](x)
        return before, x + 1, x

    found = []
    compiled = al.compile(function, keep_inference_input_mutations=keeps)
    for each in (function, compiled, compiled):
        leaf = al.arange(1.0, 5.0).requires_grad_(kind != "plain")
        x = leaf * 1 if kind == "inner" else leaf
        node = x.grad_fn
        before, after, same = each(x)
        note = [same is x, x.version, (x.grad_fn is node), x.requires_grad, x.tolist()]
        note += [before.tolist(), after.tolist()]
        if kind != "plain":
            (before.sum() + after.sum()).backward()
            note.append(leaf.grad.tolist())
        found.append(note)
    assert found[0] == found[1] == found[2]
    counted = [step for step in steps if step not in HIDDEN]
    assert len(counted) == found[1][1]
