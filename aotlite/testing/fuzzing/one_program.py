"""One program, eager and compiled, in this process: its outcome, and its smallest form."""

from __future__ import annotations

from typing import Any

from aotlite.backends.reference import ReferenceBackend
from aotlite.testing.compiled import REFUSED as REFUSED
from aotlite.testing.fuzzing import oracles
from aotlite.testing.fuzzing.oracles import Compiled
from aotlite.testing.fuzzing.outcomes import Outcome
from aotlite.testing.generate.bodies import LIBRARY
from aotlite.testing.generate.random_programs import draw
from aotlite.testing.observe.observation import Observation
from aotlite.testing.programs.program import Program
from aotlite.testing.shrinking import smallest


def options_of(seed: int) -> dict[str, Any]:
    """The options of a seed's program: mostly none, else each option in turn."""
    if seed % 50 == 0:
        return {"verify": 2}
    match seed % 20:
        case 1:
            return {"fast_paths": False}
        case 2:
            return {"backend": ReferenceBackend(0)}
        case 3:
            return {"partition": "min_cut"}
        case 4:
            return {"keep_inference_input_mutations": True}
    return {}


def outcome(program: Program, options: dict[str, object]) -> Outcome:
    """Runs all calls of a program on one compiled function and eagerly; returns the outcome."""
    return Compiled(LIBRARY).outcome(program, options)


def eager_call(program: Program, number: int) -> tuple[Observation, list[int]]:
    """Returns the observation of an eager call in aotlite, and the cells that it hit."""
    return oracles.eager_call(program, number, LIBRARY)


def report(seed: int, target: int | None) -> str:
    """Returns the shrunk program of a seed as a script, and its differences."""
    options = options_of(seed)
    program = smallest(draw(seed, target), seconds=60, **options)
    found = outcome(program, options).found
    return "\n".join([f"# seed {seed}, target {target}", *found, program.to_script(**options)])
