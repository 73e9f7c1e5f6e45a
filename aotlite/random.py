"""The default generator's functions under the name that PyTorch has them: `aotlite.random`."""

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
