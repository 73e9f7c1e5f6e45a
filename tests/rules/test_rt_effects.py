"""What a call does besides computing: histories, views and written results, combined at random."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al

WRITES = {
    "seen": lambda x: x.mul_(3),
    "part": lambda x: x[:1].add_(2),
    "view": lambda x: x.t().mul_(2),
    "copy": lambda x: x.copy_(x.sin()),
    "no grad": lambda x: _without_grad(x),
    "detached": lambda x: x.detach().mul_(5),
}
WITHOUT_HISTORY = {"no grad", "detached"}


def _without_grad(x):
    with al.no_grad():
        x.add_(7)


def made(kind):
    """A leaf, and what is passed: itself, something computed from it, or a part of that."""
    leaf = (al.arange(4.0).view(2, 2) + 1).requires_grad_(kind != "plain")
    if kind in ("leaf", "plain"):
        return leaf, leaf
    inner = leaf * 1
    return leaf, inner if kind == "inner" else inner.view(4).view(2, 2)


@pytest.mark.rules("RT-2", "RT-4", "FUN-20", "META-16")
@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(sorted(WRITES)), min_size=1, max_size=3),
    st.sampled_from(["plain", "leaf", "inner", "part"]),
)
def test_a_written_input_has_the_history_that_eager_gives_it(writes, kind):
    """A new one exactly if some write is seen by the tape; gradients flow through it."""
    if kind == "leaf":
        writes = [write for write in writes if write in WITHOUT_HISTORY]

    def function(x):
        for write in writes:
            WRITES[write](x)
        return x * 2

    found = []
    for each in (function, al.compile(function)):
        leaf, x = made(kind)
        before = x.grad_fn
        result = each(x)
        note = [x.tolist(), x.version, x.is_leaf, x.requires_grad, x.grad_fn is before]
        if kind != "plain":
            loss = result.sum() + (x * x).sum()
            note.append(verdict(loss.backward))
            note.append(None if note[-1] != "done" else leaf.grad.tolist())
        found.append(note)
    assert found[0] == found[1]
    if kind == "inner":  # of a part eager makes the node anew whenever its memory was written
        assert (set(writes) <= WITHOUT_HISTORY) == found[1][4]


VIEWS = {
    "t": lambda x: x.t(),
    "first": lambda x: x[0] if x.ndim else x,
    "flat": lambda x: x.reshape(-1),
    "unsqueeze": lambda x: x.unsqueeze(0),
    "part": lambda x: x.unbind(0)[-1] if x.ndim else x,
    "slice": lambda x: x[..., :1] if x.ndim else x,
    "detach": lambda x: x.detach(),
    "no grad": lambda x: _view_without_grad(x),
}


def _view_without_grad(x):
    with al.no_grad():
        return x.view(x.shape)


def seen_through(x, names):
    for name in names:
        x = x.reshape(1, -1) if name == "t" and x.ndim > 2 else x
        x = VIEWS[name](x)
    return x


def verdict(action, *args):
    try:
        action(*args)
    except al.AutogradError:
        return "AutogradError"
    return "done"


@pytest.mark.draws(long=400)
@pytest.mark.rules("RT-6", "RT-7", "RT-8", "RT-12", "FUN-16", "META-10")
@settings(max_examples=66)
@given(
    st.lists(st.lists(st.sampled_from(sorted(VIEWS)), max_size=3), min_size=1, max_size=3),
    st.sampled_from(["an argument", "an intermediate", "a written argument"]),
    st.integers(0, 2),
    st.booleans(),
)
def test_results_are_the_views_that_eager_returns_and_written_as_they(chains, source, k, fast):
    """Names of nodes, bases and storages; then one result is written, and gradients are taken."""

    def function(x):
        y = {"an intermediate": lambda: x * 2, "a written argument": lambda: x.mul_(2)}
        y = y.get(source, lambda: x)()
        return [seen_through(y, names) for names in chains]

    found = []
    for each in (function, al.compile(function, fast_paths=fast)):
        leaf, x = made("inner")
        results = each(x)
        note = [facts(result, x, results) for result in results]
        target = results[k % len(results)]
        note.append(verdict(lambda target=target: target.mul_(3)))
        note += [[each.array.tolist(), each.version] for each in [x, *results]]
        tracked = [result for result in results if result.requires_grad]
        if tracked:
            note.append(verdict(lambda t=tracked: sum(each.sum() for each in t).backward()))
            note.append(None if leaf.grad is None else leaf.grad.tolist())
        found.append(note)
    assert found[0] == found[1]


def facts(result, x, results):
    shared = [result.storage is other.storage for other in [x, *results]]
    alone = sum(shared) == 1
    node = result.grad_fn
    # META-10: what nobody else sees is no view, and has the node of what computed it.
    named = None if node is None or alone or _is_computed(node) else node.name()
    based = None if alone else [result.base is x, result.base is None]
    return [result.requires_grad, node is None, named, based, shared, result.is_leaf]


def _is_computed(node):
    return node.name() in ("MulBackward", "CompiledBackward")


@pytest.mark.rules("RT-9")
@settings(max_examples=30)
@given(st.lists(st.booleans(), min_size=1, max_size=4))
def test_histories_that_no_gradient_needs_may_be_used_up(detaches):
    """Inputs that the function only reads through `detach()` are no ends of the tape node."""

    def function(first, *inputs):
        read = [x.detach() if d else x for x, d in zip(inputs, detaches, strict=True)]
        return first * sum(read)

    found = []
    for each in (function, al.compile(function)):
        leaves = [al.ones(2, requires_grad=True) for _ in range(len(detaches) + 1)]
        inputs = [leaf * leaf for leaf in leaves]
        for x, used_up in zip(inputs[1:], detaches, strict=True):
            if used_up:
                x.sum().backward()
        note = verdict(lambda inputs=inputs, each=each: each(*inputs).sum().backward())
        found.append([note, [None if x.grad is None else x.grad.tolist() for x in leaves]])
    assert found[0] == found[1]
    assert found[1][0] == "done"
