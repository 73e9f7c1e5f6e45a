"""Tangents arrive in any layout, or not at all: gradients, and their absence, are eager's."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.ir.geometry.overlap import has_internal_overlap
from aotlite.ir.graph.role import Tangent

RESULTS = {
    "as it is": lambda x: x * 3,
    "transposed": lambda x: x.t() * 3,
    "expanded": lambda x: x.sum(0).exp().expand(2, 3),
    "every second": lambda x: (x.repeat(1, 2) * 3)[:, ::2],
    "permuted": lambda x: x.unsqueeze(1).permute(2, 0, 1).contiguous().permute(1, 2, 0) * 2,
    "column": lambda x: x.exp()[:, 1:2],
    "number": lambda x: x.exp().sum(),
}
LAYOUTS = {
    "contiguous": lambda g: g,
    "turned": lambda g: g.transpose(0, -1).contiguous().transpose(0, -1),
    "gaps": lambda g: al.stack([g, g], -1)[..., 0],
    "one number": lambda g: al.full((), 2.0, dtype=g.dtype).expand(g.shape),
    "offset": lambda g: al.cat([al.zeros(1, dtype=g.dtype), g.reshape(-1)])[1:].view(g.shape),
    "other dtype": lambda g: g.to(al.float32),
}


def numbered(shape):
    count = 1
    for size in shape:
        count *= size
    return (al.arange(count, dtype=al.float64) + 1).view(shape)


def gradient(function, layout):
    x = (numbered((2, 3)) / 8).requires_grad_()
    y = function(x)
    tangent = LAYOUTS[layout](numbered(y.shape)) if y.ndim else al.full((), 3.0)
    before = tangent.tolist()
    y.backward(tangent)
    assert before == tangent.tolist()
    assert x.grad.storage is not tangent.storage
    return x.grad.tolist(), x.grad.stride()


@pytest.mark.rules("TAN-2", "TAN-3", "TAN-9")
@pytest.mark.parametrize("result", RESULTS)
def test_a_tangent_in_any_layout_gives_eagers_gradient(result):
    """One compiled function serves all layouts, each of which is left as it was."""
    compiled = al.compile(RESULTS[result])
    for layout in LAYOUTS:
        assert gradient(RESULTS[result], layout) == gradient(compiled, layout), layout
    assert 1 == len(compiled.entries)


@pytest.mark.rules("TAN-2")
@pytest.mark.parametrize("result", RESULTS)
def test_the_backward_expects_the_layout_of_its_result(result):
    """Row-major order where the result overlaps itself."""
    compiled = al.compile(RESULTS[result])
    x = numbered((2, 3)).requires_grad_()
    y = compiled(x)
    y.sum().backward()
    (tangent,) = [n for n in compiled.backward_graph.placeholders if isinstance(n.role, Tangent)]
    overlaps = has_internal_overlap(y.shape, y.stride())
    expected = numbered(y.shape).stride() if overlaps else y.stride()
    assert (y.shape, expected) == (tangent.meta.shape, tangent.meta.stride)


@pytest.mark.rules("TAN-7", "TAN-8", "TAN-1")
@settings(max_examples=40)
@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=3), min_size=1, max_size=4),
    st.data(),
)
def test_inputs_that_no_tangent_reaches_have_no_gradient(reads, data):
    """Each result reads some of three inputs; any choice of results is differentiated."""
    chosen = data.draw(st.lists(st.integers(0, len(reads) - 1), min_size=1, unique=True))

    def function(*inputs):
        return [sum(inputs[i].sin() for i in read) for read in reads]

    found = []
    for each in (function, al.compile(function)):
        inputs = [numbered((2,)).requires_grad_() for _ in range(3)]
        results = each(*inputs)
        sum(results[k].sum() * (k + 1) for k in chosen).backward()
        found.append([None if x.grad is None else x.grad.tolist() for x in inputs])
    assert found[0] == found[1]
    reached = {i for k in chosen for i in reads[k]}
    assert [i in reached for i in range(3)] == [each is not None for each in found[1]]
