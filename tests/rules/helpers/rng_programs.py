"""Programs that draw, and that read, set and restore the generator, as data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

import aotlite as al

Program = tuple[Any, ...]

DRAWS: dict[str, Callable[[Any], Any]] = {
    "rand": lambda x: al.rand(x.shape),
    "rand64": lambda x: al.rand(x.shape, dtype=al.float64).to(al.float32),
    "dropout": lambda x: al.nn.functional.dropout(al.ones(x.shape), 0.4),
    "bernoulli": lambda x: al.ones(x.shape).bernoulli_(0.3),
    "randint": lambda x: al.randint(-3, 9, x.shape).to(al.float32),
    "randperm": lambda x: al.randperm(x.numel()).to(al.float32).view(x.shape),
    "rand_like": lambda x: al.rand_like(x.detach()),
    "uniform_": lambda x: al.zeros(x.shape).uniform_(-1.0, 2.0),
}
"""Draws of the shape of an argument: those that are equal bit for bit wherever they run."""

_leaves = st.one_of(
    st.tuples(st.just("draw"), st.sampled_from(sorted(DRAWS))),
    st.just(("get",)),
    st.tuples(st.just("set"), st.integers(0, 3)),
    st.tuples(st.just("seed"), st.sampled_from([0, 7, -1, (1 << 64) - 1])),
    st.tuples(st.just("state"), st.sampled_from([(3, 8), (1 << 63, 0)])),
)
programs = st.lists(
    st.one_of(
        _leaves, st.tuples(st.just("fork"), st.lists(_leaves, min_size=1, max_size=3).map(tuple))
    ),
    min_size=1,
    max_size=6,
).map(tuple)
"""Draws, reads and writes of the generator's state; `set` goes to a state read before, if any."""


def run_program(program: Program, x: Any, states: list[Any]) -> Any:
    """`x` times all that a program draws; `states` are those that it has read."""
    for name, *rest in program:
        match name:
            case "draw":
                x = x * DRAWS[rest[0]](x)
            case "get":
                states.append(al.get_rng_state())
            case "set":
                if states:
                    al.set_rng_state(states[rest[0] % len(states)])
            case "seed":
                al.manual_seed(rest[0])
            case "state":
                al.set_rng_state(rest[0])
            case "fork":
                with al.random.fork_rng():
                    x = run_program(rest[0], x, states)
    return x


class Drawing(al.autograd.Function):
    """The identity, times what one program draws; its gradient times what another one does."""

    @staticmethod
    def forward(ctx: Any, x: Any, forward: Program, backward: Program) -> Any:
        ctx.states, ctx.program = [], backward
        return run_program(forward, x, ctx.states) * 1.0

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return run_program(ctx.program, grad, list(ctx.states)), None, None
