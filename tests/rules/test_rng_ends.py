"""The end of a generator's stream: a draw that would pass it raises, and nothing has moved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aotlite as al

END = 1 << 63
BACKENDS = ["reference", "cpu", "loops"]


@pytest.fixture(autouse=True)
def _state_is_put_back() -> Any:
    """Others draw after these tests."""
    with al.random.fork_rng():
        yield


DRAWS: dict[str, Any] = {
    "rand": lambda: al.rand(3),
    "float64": lambda: al.rand(3, dtype=al.float64),
    "randn": lambda: al.randn(2),
    "randint": lambda: al.randint(0, 5, (2,)),
    "randperm": lambda: al.randperm(3),
    "dropout": lambda: al.nn.functional.dropout(al.ones(4), 0.5),
    "uniform_": lambda: al.ones(3).uniform_(),
    "bernoulli": lambda: al.bernoulli(al.full((3,), 0.5)),
}


@pytest.mark.rules("RNG-4", "RNG-12")
@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_a_draw_beyond_the_stream_raises_before_it_draws(draw: Any) -> None:
    """The state is one that can be set, before and after; the last place that fits is drawn."""
    al.set_rng_state((3, 0))
    draw()
    used = al.get_rng_state()[1]
    last = END - 4 - used
    al.set_rng_state((3, last))
    draw()
    assert al.get_rng_state() == (3, END - 4)
    al.set_rng_state((3, last + 4))
    with pytest.raises(al.RngError, match="are drawn, expected to stay below 2.*63") as caught:
        draw()
    assert "(RNG-4, RNG-12)" in caught.value.__notes__[0]
    state = al.get_rng_state()
    al.set_rng_state(state)
    assert state == (3, last + 4)


@pytest.mark.rules("RNG-4")
def test_a_generator_of_ones_own_stays_where_it_is() -> None:
    generator = al.Generator(seed=1, offset=END - 4)
    with pytest.raises(al.RngError, match="^rand: the offset is 9223372036854775804 and 4 are"):
        al.rand(2, generator=generator)
    assert generator.get_state() == (1, END - 4)
    assert generator.set_state(generator.get_state()) is generator


def written(x: Any) -> Any:
    x.add_(1)
    return x * al.rand(2), al.rand(6)


def moved(x: Any) -> Any:
    """The graph says where the generator is left."""
    x.add_(1)
    state = al.get_rng_state()
    noise = al.rand(6)
    al.set_rng_state(state)
    return x * al.rand(2), noise, al.rand(5)


@pytest.mark.rules("RNG-3", "RNG-4")
@pytest.mark.thinned(3)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", [written, moved])
@given(left=st.integers(0, 8))
def test_a_compiled_call_beyond_the_stream_does_nothing(
    function: Any, backend: str, left: int
) -> None:
    """RNG-3: inputs are as they were, and so is the state. What fits is eager's."""
    compiled = al.compile(function, backend=backend)
    al.set_rng_state((1, 0))
    compiled(al.zeros(2))
    x, y = al.zeros(2), al.zeros(2)
    start = (1, END - 4 * left)
    if not left:
        start = (1, END - 4)
    al.set_rng_state(start)
    try:
        expected = [each.tolist() for each in function(y)]
    except al.RngError:
        al.set_rng_state(start)
        with pytest.raises(al.RngError, match="2.*63"):
            compiled(x)
        assert al.get_rng_state() == start
        assert (x.version, x.tolist()) == (0, [0.0, 0.0])
        return
    after = al.get_rng_state()
    al.set_rng_state(start)
    assert [each.tolist() for each in compiled(x)] == expected
    assert al.get_rng_state() == after


@pytest.mark.rules("RNG-4", "RNG-6")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_state_that_a_function_sets_near_the_end_is_told_of_where_it_draws(backend: str) -> None:
    def function(x: Any) -> Any:
        x.add_(1)
        al.set_rng_state((5, END - 8))
        return al.rand(2) + al.rand(2)

    x = al.zeros(2)
    al.set_rng_state((1, 0))
    with pytest.raises(al.RngError, match="^rand: the offset is 9223372036854775804 and 4 are"):
        al.compile(function, backend=backend)(x)
    assert (al.get_rng_state(), x.version) == ((1, 0), 0)


class Noisy(al.autograd.Function):
    """Its backward draws."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * al.rand(2)


@pytest.mark.rules("RNG-4", "RNG-5")
def test_a_backward_beyond_the_stream_leaves_gradients_and_state() -> None:
    for function in (Noisy.apply, al.compile(Noisy.apply)):
        x = al.ones(2).requires_grad_()
        al.set_rng_state((1, 0))
        out: Any = function(x)
        al.set_rng_state((1, END - 4))
        with pytest.raises(al.RngError, match="expected to stay below 2"):
            out.sum().backward()
        assert (al.get_rng_state(), x.grad) == ((1, END - 4), None)


@pytest.mark.rules("RNG-4", "RNG-12")
@pytest.mark.parametrize("backend", BACKENDS)
@given(offset=st.integers(1, 6).map(lambda k: END - 4 * k), count=st.integers(0, 6))
def test_an_offset_that_is_advanced_stays_below_the_end(
    backend: str, offset: int, count: int
) -> None:
    """The op that graphs move on by, in every kernel."""
    compiled = al.compile(lambda x: al.ops.advance_offset(x, 4 * count), backend=backend)
    given_ = al.from_numpy(np.array(offset, "uint64"))
    if offset + 4 * count < END:
        assert compiled(given_).item() == offset + 4 * count
    else:
        with pytest.raises(al.RngError, match=f"^advance_offset: .* is {offset + 4 * count}"):
            compiled(given_)
