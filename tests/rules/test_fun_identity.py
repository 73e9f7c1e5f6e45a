"""Results that look alike stay two tensors, and one memory."""

import pytest

import aotlite as al

ALIKE = {
    "detach": lambda y: y.detach(),
    "alias": lambda y: y.alias(),
    "view": lambda y: y.view(y.shape),
    "slice": lambda y: y[:],
    "transposed twice": lambda y: y.t().t(),
    "expand": lambda y: y.expand(y.shape),
    "reshape": lambda y: y.reshape(y.shape),
    "detached view": lambda y: y.view(y.shape).detach(),
    "itself": lambda y: y.contiguous(),
}
SOURCES = {
    "an intermediate": lambda x: x * 2,
    "an argument": lambda x: x,
    "a written argument": lambda x: x.mul_(2),
    "a view of an argument": lambda x: x[:, :],
}


def world(function, requires_grad):
    """What a caller sees of both results, before and after a write of the second's memory."""
    leaf = al.ones(2, 2, requires_grad=requires_grad)
    x = leaf * 1
    first, second = function(x)
    found = [second is first, first is x, second is x]
    found += [[t.requires_grad, t.is_leaf, t.grad_fn is None] for t in (first, second)]
    found += [[t.base is first, t.base is x, t.base is None] for t in (first, second)]
    found += [first.storage is second.storage, first.storage is x.storage]
    with al.no_grad():
        second.add_(5)
    return [*found, first.tolist(), x.tolist(), first.version, second.version]


@pytest.mark.rules("FUN-15", "META-13", "FUN-14")
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("alike", ALIKE)
@pytest.mark.parametrize("requires_grad", [True, False])
def test_results_that_look_alike_are_what_they_are_in_eager(source, alike, requires_grad):
    def function(x):
        y = SOURCES[source](x)
        return y, ALIKE[alike](y)

    compiled = al.compile(function)
    expected = world(function, requires_grad)
    assert [expected] * 2 == [world(compiled, requires_grad) for _ in range(2)]


@pytest.mark.rules("FUN-15")
def test_a_detached_twin_is_not_left_to_the_backend():
    """The graph returns one value: ops that do nothing are not there to be dropped."""

    def function(x):
        y = x * 2
        return y, y.detach()

    compiled = al.compile(function)
    y, z = compiled(al.ones(2, requires_grad=True))
    assert (True, False) == (y.requires_grad, z.requires_grad)
    assert 1 == len({id(value) for value in compiled.forward_graph.outputs})
    assert ["mul"] == [node.target.name for node in compiled.forward_graph.calls]
