"""Random programs on wrappers: drawn, compared with the wrappers' meanings, and shrunk.

A program is plain data (`aotlite.testing.programs`); its maker decides the classes of its tensors:
a function, or a nesting (`wrapper_models.maker`). Programs use only numbers that the classes hold,
and views and writes that they accept; other numbers are tested by the laws of ops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any

import attrs

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.ir.errors import SubclassError, UnsupportedError
from aotlite.testing.compiled import REFUSED
from aotlite.testing.coverage.cells import CELLS, OUTPUTS, RELATIONS, WRITES
from aotlite.testing.engines import Engine
from aotlite.testing.engines.interpreter import body_of, setup_of
from aotlite.testing.generate.choices import Limits, Seeded
from aotlite.testing.generate.random_programs import attempted
from aotlite.testing.observe.differences import differences
from aotlite.testing.observe.observation import Observation
from aotlite.testing.observe.observe_call import observe_call
from aotlite.testing.programs.program import Program
from aotlite.testing.programs.vocabulary import OF_COMPLEX, VIEWS
from aotlite.testing.subclasses.kinds import Meanings
from aotlite.testing.subclasses.masked_model import MaskedModel
from aotlite.testing.subclasses.wrapper_engines import Meant, Wrapped

APART = ("hidden_alias", "view_dtype", *OF_COMPLEX)
"""Views that wrappers may refuse."""


@attrs.frozen(eq=False)
class Making:
    """The maker of programs' tensors, and their meanings."""

    make: Callable[[Tensor], Tensor]
    meanings: Meanings
    worlds: int = 1
    """The largest number of worlds."""
    holds: Callable[[Any], bool] | None = None
    """Whether the classes hold a dense value of one world exactly; None for all."""
    writes: frozenset[str] | None = None
    """The in-place ops of programs; None for all."""
    sizes: tuple[int, ...] = (2, 3, 4, 1, 0)
    """The sizes of dimensions, the likely ones first."""

    def wrapped(self, world: int = 0) -> Wrapped:
        """The engine of wrappers, observed in one world."""
        return Wrapped(self.make, self.meanings, world, signed=not self.is_lossy)

    def meant(self, world: int = 0) -> Meant:
        """Returns the engine of their meanings in a world."""
        return Meant(self.make, self.meanings, world, signed=not self.is_lossy)

    @property
    def is_lossy(self) -> bool:
        """Whether the classes hold only some numbers, and zeros without sign."""
        return self.holds is not None or self.writes is not None


class _Careful(Wrapped):
    """The engine on which programs are drawn; it refuses writes of numbers that are not held."""

    def __init__(self, making: Making) -> None:
        super().__init__(making.make, making.meanings)
        self.making = making

    def call(self, op: str, args: Sequence[object]) -> Any:
        if not _may(self.making, op):
            raise UnsupportedError(f"{op}: it is not in the making's writes, expected one that is")
        found = super().call(op, args)
        if _writes(op) and not all(map(self.making.holds or bool, self.meanings.worlds(found))):
            raise UnsupportedError(f"{op}: what it writes is not held, expected numbers that are")
        return found


def _writes(op: str) -> bool:
    return (op.endswith("_") and op != "requires_grad_") or op == "setitem"


def _may(making: Making, op: str) -> bool:
    return making.writes is None or not _writes(op) or op in making.writes


class _Sized(Seeded):
    """The choices of a seed, with sizes that the classes accept."""

    sizes: tuple[int, ...] = (2, 3, 4, 1, 0)

    def choices(self, population: Any, weights: Any = None, **more: Any) -> Any:
        if list(population) == [2, 3, 4, 1, 0]:
            population = self.sizes
        return super().choices(population, weights, **more)


def limits_for(making: Making) -> Limits:
    """Returns the limits of programs on wrappers."""
    return Limits(
        views=tuple(view for view in VIEWS if view not in APART),
        writes=tuple(w for w in WRITES if w not in ("hidden_alias", "geometry", "resize", "set")),
        outputs=OUTPUTS,
        relations=tuple(r for r in RELATIONS if r != "other dtype"),
        dtypes=("float64", "float32", "int64"),
        library=_Careful(making),
    )


@cache
def _cells() -> Sequence[int]:
    """The cells of programs on wrappers, the same for all classes."""
    return limits_for(Making(lambda x: x, Meanings(()))).cells()


def draw_program(seed: int, making: Making) -> Program | None:
    """The random program of a seed; None if the classes accept none of the attempts."""
    limits = limits_for(making)
    rng = _Sized(f"{seed}:subclasses")
    rng.sizes = making.sizes
    for _ in range(8):
        target = rng.choice(_cells())
        found = attempted(rng, CELLS[target], limits)
        if found is not None and _is_fit(found[0], making):
            return _without_writes(found[0]) if making.is_lossy else found[0]
    return None


def _without_writes(program: Program) -> Program:
    """The program without writes after the call, whose numbers may not be held."""
    return attrs.evolve(program, calls=[attrs.evolve(call, write=None) for call in program.calls])


def _is_fit(program: Program, making: Making) -> bool:
    """Whether an argument is a wrapper, and all written numbers are held in each world."""
    if not making.is_lossy:
        return _has_wrapper(program, making)
    kept: list[bool] = []

    def watch(step: Any, args: list[object], result: object) -> None:
        if _writes(step.op):
            dense = result.filled() if isinstance(result, MaskedModel) else result
            kept.append(_may(making, step.op) and (making.holds is None or making.holds(dense)))

    for world in range(making.worlds):
        library = making.meant(world)
        for call in program.calls:
            try:
                args = setup_of(library, call)[1]
                with nullcontext() if call.grad else library.no_grad():
                    body_of(library, program, watch)(*args)
            except Exception:
                return False
    return all(kept) and _has_wrapper(program, making)


def _has_wrapper(program: Program, making: Making) -> bool:
    try:
        return any(is_wrapper(each) for each in setup_of(making.wrapped(), program.calls[0])[1])
    except Exception:
        return False


# --------------------------------------------------------------------------------- comparing
class Refused(Exception):
    """Raised if a class refuses an op of the program."""


def eager_differences(program: Program, making: Making) -> list[str]:
    """Returns the differences between wrappers and their meanings; raises `Refused`."""
    for world in range(making.worlds):
        mine = _played(program, making.wrapped(world))
        its = _played(program, making.meant(world))
        found = _compared(mine, its, f"world {world}, " if making.worlds > 1 else "")
        if found:
            return found
    return []


def compiled_differences(
    program: Program, making: Making, compile: Callable[..., object]
) -> list[str]:
    """Returns the differences between the compiled body and the body, both on wrappers (S7)."""
    for world in range(making.worlds):
        library = making.wrapped(world)
        compiled = _played(program, library, compile(program.function_of(library)))
        found = _compared(compiled, _played(program, library), "compiled, ")
        if found:
            return found
    return []


def _played(program: Program, library: Engine, function: Any = None) -> list[Observation]:
    body = program.function_of(library) if function is None else function
    return [observe_call(library, program, k, body) for k in range(len(program.calls))]


def _compared(mine: list[Observation], its: list[Observation], where: str) -> list[str]:
    for number, (a, b) in enumerate(zip(mine, its, strict=True)):
        refused = isinstance(a.error, SubclassError) or (
            isinstance(a.error, REFUSED) and a.untouched and where == "compiled, "
        )
        if refused and b.error is None:
            raise Refused(str(a.error)) from a.error
        if b.error is not None:  # the steps before an error are not compared
            found = [] if type(a.error) is type(b.error) else [f"error: {a.error!r}, {b.error!r}"]
        else:
            found = differences(a, b)
        if found:
            return [f"{where}call {number}: {each}" for each in found]
    return []


def programs(making: Making, seeds: Iterator[int] | range) -> Iterator[tuple[int, Program]]:
    """The programs of seeds that fit the classes."""
    for seed in seeds:
        program = draw_program(seed, making)
        if program is not None:
            yield seed, program
