"""`aotlite.random`: the functions of the default generator, under PyTorch's name."""

from aotlite.eager.rng.generator import (
    default_generator,
    fork_rng,
    get_rng_state,
    initial_seed,
    manual_seed,
    set_rng_state,
)

__all__ = [
    "default_generator",
    "fork_rng",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "set_rng_state",
]
