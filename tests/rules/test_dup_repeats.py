"""One tensor at several places of a call: one input, one record, one gradient."""

import pytest

import aotlite as al


@pytest.mark.rules("DUP-1")
def test_a_repeat_is_no_input_of_the_graph():
    compiled = al.compile(lambda x, y, z: x * y + z)
    a, b = al.tensor([3.0], requires_grad=True), al.tensor([5.0], requires_grad=True)
    compiled(a, b, a).backward()
    assert (6.0, 3.0) == (a.grad.item(), b.grad.item())
    assert ["primals_0", "primals_1"] == [str(each.role) for each in compiled.meta.inputs]
