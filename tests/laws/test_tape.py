"""Differentiating a captured graph gives the gradients of its own tape, but for Python on it."""

import pytest

import aotlite as al
from aotlite.testing import laws
from aotlite.testing.laws.graphs import tape


class Clipped(al.autograd.Function):
    """Its gradient is not that of its ops."""

    @staticmethod
    def forward(ctx, x):
        return x * 2.0

    @staticmethod
    def backward(ctx, grad):
        return grad.clamp(-0.25, 0.25)


def hooked(x):
    y = x * 2.0
    y.register_hook(lambda grad: grad * 3.0)
    return y + 1.0


def without_history(x, y):
    with al.no_grad():
        z = x * y
    x = x * 1.0
    x.detach()[0].mul_(2.0)
    return (x * z).sum() + y.detach().sum()


def written_in_part(x, y):
    z = (x * 2.0).t()
    z[0].copy_(y)
    return z, z.sum()


def pair():
    return al.ones(3, requires_grad=True), al.arange(3.0).requires_grad_()


def test_the_corpus_obeys_the_law():
    assert 27 == laws.check_tape().cases


@pytest.mark.parametrize("function", [without_history, lambda x, y: x * y, lambda x, y: x.relu()])
def test_functions_without_python_on_the_tape_obey_the_law(function):
    assert ("T1",) == laws.check_tape(function, *pair()).laws


def test_writes_into_views_obey_the_law():
    x = al.ones(3, 2, requires_grad=True)
    assert 1 == laws.check_tape(written_in_part, x, al.zeros(3, requires_grad=True)).cases


@pytest.mark.parametrize("function", [Clipped.apply, hooked], ids=["custom function", "hook"])
def test_python_on_the_tape_is_lost_and_found_by_the_law(function):
    with pytest.raises(
        laws.LawError, match="^T1 .interpreted under the tape = its own tape.: "
    ) as c:
        laws.check_tape(function, pair()[0])
    assert "grad_primals_0 is " in str(c.value)
    assert "the captured graph:\ndef " in c.value.report


def test_an_interpreter_that_forgets_grad_modes_breaks_the_law(monkeypatch):
    """The law's own runner is the plant here: ops of a no_grad block get a history."""
    monkeypatch.delattr(tape._UnderTape, "call")
    with pytest.raises(laws.LawError, match="^T1"):
        laws.check_tape(without_history, *pair())


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x, y: x.detach(), "laws: <lambda> has no gradient, expected arguments that requ"),
        (lambda x, y: None, "laws: <lambda> has no gradient, expected arguments that require g"),
    ],
)
def test_a_function_without_gradients_is_refused(function, text):
    with pytest.raises(al.ArgumentError) as caught:
        laws.check_tape(function, al.ones(3), al.ones(3))
    assert str(caught.value).startswith(text)


def test_the_arguments_themselves_are_what_it_runs_on():
    """A matrix that has a root: numbers drawn anyhow would have none."""
    x = (al.eye(3) * 2.0).requires_grad_()
    assert 1 == laws.check_tape(lambda x: al.linalg.cholesky(x).sum(), x).cases
    assert 1 == laws.check_tape(lambda pair: pair["x"] * 2.0, {"x": x}).cases


def test_a_geometry_in_place_is_refused():
    with pytest.raises(al.ArgumentError, match="^laws: turned changes a geometry in place, exp"):
        laws.check_tape(turned, al.ones(2, 3, requires_grad=True))


def turned(x):
    y = x * 2.0
    return y.t_()


def test_arguments_that_overlap_are_refused():
    x = al.ones(4) * al.ones(1, requires_grad=True)

    def write(a, b):
        a.mul_(2.0)
        return a.sum() * b.sum()

    with pytest.raises(
        al.ArgumentError, match="^laws: arguments of write overlap, expected memory"
    ):
        laws.check_tape(write, x, x[1:])
