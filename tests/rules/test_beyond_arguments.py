"""Flaws of PyTorch where arguments are one memory, each by its smallest program (DUP, ALI)."""

import pytest


@pytest.mark.rules("TEN-8", "TEN-7")
def test_a_write_of_a_tensor_that_overlaps_itself_is_refused(way):
    """#174371: PyTorch takes only stride 0 for a sure overlap."""
    x = way.arange(3)
    call = way.compiled(lambda x: x.as_strided((2, 2), (1, 1)).add_(1))
    got = way.outcome(lambda: call(x).tolist())
    told = got, x.tolist()
    eager, compiled = ([[1, 3], [3, 3]], [1, 3, 3]), ([[1, 2], [2, 3]], [1, 2, 3])
    way.shows(told, ("raises RuntimeError", [0, 1, 2]), pytorch=compiled, eager=eager)


@pytest.mark.rules("DUP-3")
def test_one_tensor_twice_written_under_no_grad(way):
    """PyTorch counts a tangent too many, and ends with an error of its own."""
    a = way.leaf([1.0, 2.0])

    def write(x, y):
        with way.lib.no_grad():
            x.mul_(2)
        return x * y

    call = way.compiled(write)
    got = way.outcome(lambda: call(a, a).sum().backward())
    told = got, a.tolist(), a.grad if a.grad is None else a.grad.tolist()
    way.shows(told, (None, [2, 4], [4, 8]), pytorch=("raises IndexError", [1, 2], None))


@pytest.mark.rules("ALI-5")
def test_even_and_odd_elements_are_disjoint(way):
    """PyTorch takes two leaves on them for overlapping, and refuses them."""
    memory = way.tensor([1.0, 2.0, 3.0, 4.0])
    even, odd = memory[::2].detach().requires_grad_(), memory[1::2].detach().requires_grad_()

    def step(x, y):
        with way.lib.no_grad():
            x.add_(10)
        return (x * y).sum()

    call = way.compiled(step)
    got = way.outcome(lambda: call(even, odd).item())
    here, pytorch = (74, [11, 2, 13, 4]), ("raises AssertionError", [1, 2, 3, 4])
    way.shows((got, memory.tolist()), here, pytorch=pytorch)
