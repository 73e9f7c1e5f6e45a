"""Random programs, each drawn towards a cell of the table of `aotlite.testing.coverage.cells`.

A program is a function of its seed and its target alone.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import attrs

from aotlite.testing.coverage.cells import CELLS, Cell, WatchedMemory
from aotlite.testing.engines.base import EngineTensor
from aotlite.testing.generate.argument_aliases import HISTORIES, Slot, arguments
from aotlite.testing.generate.bodies import Draft
from aotlite.testing.generate.calls import OF_ONE, another_call, given_to, made_call, ordered
from aotlite.testing.generate.choices import ANYTHING, Limits, Seeded, Source, times
from aotlite.testing.generate.exact_steps import has_exact_gradients
from aotlite.testing.programs.program import Program
from aotlite.testing.programs.steps import Call

ATTEMPTS = 8
OF_LEAVES = ("no_grad", "detached", "hidden_alias", "resize", "set", "geometry")
"""The kinds of write that a leaf that requires grad allows."""


def draw(seed: int, target: int | None = None, limits: Limits = ANYTHING) -> Program:
    """The random program of a seed, towards the cell with this number.

    It is exact (`aotlite.testing.observe.exact_numbers`), and nearly always hits the cell.
    """
    rng = Seeded(f"{seed}:{target}")
    target = rng.choice(limits.cells()) if target is None else target
    found = None
    for _ in range(ATTEMPTS):
        attempt = attempted(rng, CELLS[target], limits)
        if attempt is not None:
            found = attempt[0]
            if target in attempt[1]:
                break
    return draw(seed + 10**9, target, limits) if found is None else found


def attempted(rng: Source, cell: Cell, limits: Limits) -> tuple[Program, set[int]] | None:
    """Returns a program and the cells that its first call hits; None if its setup raises, or its
    numbers are not exact."""
    slots, extra = _slots(rng, cell, limits)
    order = rng.sample(range(len(slots) + len(extra)), len(slots) + len(extra))
    call = ordered(_first_call(rng, cell, slots, extra, limits), order)
    given = given_to(limits.library, call)
    if given is None:
        return None
    draft = Draft(rng, given[1], limits, call.grad)
    memory = _body(draft, cell, given[1][order.index(0)])
    if memory is None:
        return None
    with nullcontext() if call.grad else limits.library.no_grad():
        results = _results(draft, cell, memory)
    hits = set() if draft.has_raised else draft.watcher.cells(results)
    program = Program(draft.steps, [draft.name(value) for value in results], [call])
    if not (draft.has_raised or has_exact_gradients(limits.library, given[0], results)):
        return None
    if rng.chance(0.95):
        second = another_call(rng, program, slots + extra, order, limits)
        program = attrs.evolve(program, calls=[call, *second])
    return program, hits


# ------------------------------------------------------------------------------------ arguments
def _slots(rng: Source, cell: Cell, limits: Limits) -> tuple[list[Slot], list[Slot]]:
    """The arguments on the target's memory, and further ones."""
    relation = cell[3]
    shape, dtype = kind_of_slots(rng, cell, limits)
    count = 1 if relation in OF_ONE else rng.choice([2, 2, 2, 3])
    if relation == "two leaves" and cell[1] not in OF_LEAVES:
        count = 3
    same = relation == "same object" or not rng.chance(0.4)
    slots = [Slot(shape if same or not i else _shape(rng), dtype) for i in range(count)]
    others = [0, 0, 1] if "separate" in limits.relations else [0]
    more = 0 if relation == "alone" else 1 if relation == "separate" else rng.choice(others)
    other = "float64" if "float64" in limits.dtypes else dtype
    wanted = [shape if not rng.chance(0.3) else _shape(rng) for _ in range(more)]
    return slots, [Slot(each, other) for each in wanted]


def kind_of_slots(rng: Source, cell: Cell, limits: Limits) -> tuple[list[int], str]:
    """A shape and a dtype with which a program can hit the cell."""
    view, write, _, relation = cell
    shape = _shape(rng)
    dtype = rng.choices(limits.dtypes, [WEIGHTS[name] for name in limits.dtypes])[0]
    if view in ("view_as_real", "real", "imag"):
        dtype = "complex128"
    elif view == "view_as_complex":
        shape, dtype = [*shape[:2], 2], "float64"
        if relation == "expanded":
            shape = [rng.randint(2, 3), *shape[:1], 2]
    elif view == "diagonal" and len(shape) < 2:
        shape = [2, *(shape or [3])]
    elif view == "t":
        shape = shape[:2]
    if relation == "expanded" and not any(size > 1 for size in shape):
        shape = [2, *shape]
    if dtype == "int64" and (write == "tracked" or relation == "two leaves"):
        dtype = next((name for name in limits.dtypes if name != "int64"), dtype)
    return shape, dtype


WEIGHTS = {"float64": 16, "complex128": 2, "int64": 2, "float32": 1}


def _shape(rng: Source) -> list[int]:
    rank = rng.choices([0, 1, 2, 3], [4, 30, 46, 20])[0]
    return rng.choices([2, 3, 4, 1, 0], [50, 20, 8, 16, 6], k=rank)


def _first_call(
    rng: Source, cell: Cell, slots: list[Slot], extra: list[Slot], limits: Limits
) -> Call:
    _, write, _, relation = cell
    grad = write == "tracked" or not rng.chance(0.12)
    histories = [h for h in HISTORIES if write in OF_LEAVES or h != "leaf"]
    if write in ("resize", "set"):
        histories.append("plain")
    if write == "tracked":
        histories = ["grown"] if relation == "alone" else ["grown", "grown", "plain"]
    history = rng.choice(histories)
    return made_call(rng, arguments(rng, relation, slots, extra, limits, history), grad=grad)


# --------------------------------------------------------------------------- steps and results
def _body(draft: Draft, cell: Cell, focus: EngineTensor | None) -> WatchedMemory | None:
    """Draws the steps; returns the memory of the target's view and write."""
    view, write, _, relation = cell
    rng = draft.rng
    if relation == "made inside":
        focus = draft.pure(focus)
        if focus is None:
            return None
    memory = draft.watcher.objects[id(focus)].memory
    acts = [(draft.view, view), (draft.write, write)]
    acts += [(draft.view, draft.any_view()) for _ in times(rng, 2, 2)]
    acts += [(draft.write, rng.choice(draft.limits.writes)) for _ in times(rng, 1, 2)]
    for action, name in rng.sample(acts, len(acts)):
        if rng.chance(0.98):  # a source that shrinks leaves it out
            action(memory, name)
    for _ in times(rng, 3.6, 8):
        if draft.room() > 3:
            draft.act(memory)
    return memory


def _results(draft: Draft, cell: Cell, memory: WatchedMemory) -> list[Any]:
    """At most four results; one is of the target's kind."""
    rng, wanted = draft.rng, cell[2]
    found = draft.output(memory, wanted)
    outside = ("input", "view of an input")
    kinds = [k for k in draft.limits.outputs if memory.is_given or k not in outside] or [wanted]
    closed = wanted in ("unsafe view", "two views of an intermediate")
    for _ in times(rng, 1.5, 3):
        for each in draft.output(memory, rng.choice(kinds)):
            here = each is not None and id(each) in draft.watcher.objects
            if not (closed and here and memory in draft.watcher.objects[id(each)].memories()):
                found.append(each)
    return rng.sample(found[:4], len(found[:4]))
