"""Random programs, each drawn towards a cell of the table of `aotlite.testing.cells`.

A program depends on nothing but its seed and its target.
"""

from __future__ import annotations

from contextlib import nullcontext
from random import Random
from typing import Any

import attrs

from aotlite.testing.cells import CELLS, OUTPUTS, POSSIBLE, RELATIONS, VIEWS, WRITES, Cell
from aotlite.testing.draws.arguments import HISTORIES, Slot, arguments
from aotlite.testing.draws.drafts import LIBRARY, STEPS, Draft, Memory
from aotlite.testing.programs import Call, Program, Step, body_of, setup_of

ATTEMPTS = 8
OF_ONE = ("alone", "separate", "expanded", "made inside")
"""Relations of a memory on which one argument lies, or none."""
OF_LEAVES = ("no_grad", "detached", "hidden", "resize", "set", "geometry")
"""Kinds of write that a leaf that requires grad allows."""


def draw(seed: int, target: int | None = None) -> Program:
    """The random program of a seed, towards the cell with this number."""
    rng = Random(f"{seed}:{target}")
    target = rng.choice(POSSIBLE) if target is None else target
    found = None
    for _ in range(ATTEMPTS):
        attempt = _attempt(rng, CELLS[target])
        if attempt is not None:
            found = attempt[0]
            if target in attempt[1]:
                break
    return draw(seed + 10**9, target) if found is None else found


def _attempt(rng: Random, cell: Cell) -> tuple[Program, set[int]] | None:
    """A program and the cells that its first call hits; None where its setup does not run."""
    slots, extra = _slots(rng, cell)
    order = rng.sample(range(len(slots) + len(extra)), len(slots) + len(extra))
    call = _ordered(_first_call(rng, cell, slots, extra), order)
    args = _given(call)
    if args is None:
        return None
    draft = Draft(rng, args, call.grad)
    memory = _body(draft, cell, args[order.index(0)])
    if memory is None:
        return None
    with nullcontext() if call.grad else LIBRARY.no_grad():
        results = _results(draft, cell, memory)
    hits = set() if draft.has_raised else draft.watcher.cells(results)
    program = Program(draft.steps, [draft.name(value) for value in results], [call])
    second = _second_call(rng, program, slots + extra, order)
    if second is not None:
        program = attrs.evolve(program, calls=[call, second])
    return program, hits


# ------------------------------------------------------------------------------------ arguments
def _slots(rng: Random, cell: Cell) -> tuple[list[Slot], list[Slot]]:
    """Arguments for the target's memory, and further ones."""
    view, write, _, relation = cell
    dtypes = ["float64", "complex128", "int64", "float32"]
    shape, dtype = _shape(rng), rng.choices(dtypes, [16, 2, 2, 1])[0]
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
        dtype = "float64"
    count = 1 if relation in OF_ONE else rng.choice([2, 2, 2, 3])
    if relation == "two leaves" and write not in OF_LEAVES:
        count = 3
    same = relation == "same object" or rng.random() < 0.6
    slots = [Slot(shape if same or not i else _shape(rng), dtype) for i in range(count)]
    more = 0 if relation == "alone" else 1 if relation == "separate" else rng.choice([0, 0, 1])
    return slots, [Slot(shape if rng.random() < 0.7 else _shape(rng)) for _ in range(more)]


def _shape(rng: Random) -> list[int]:
    rank = rng.choices([0, 1, 2, 3], [4, 30, 46, 20])[0]
    return rng.choices([2, 3, 4, 1, 0], [50, 20, 8, 16, 6], k=rank)


def _first_call(rng: Random, cell: Cell, slots: list[Slot], extra: list[Slot]) -> Call:
    _, write, _, relation = cell
    grad = write == "tracked" or rng.random() < 0.88
    histories = [h for h in HISTORIES if write in OF_LEAVES or h != "leaf"]
    if write in ("resize", "set"):
        histories.append("plain")
    if write == "tracked":
        histories = ["grown"] if relation == "alone" else ["grown", "grown", "plain"]
    made = arguments(rng, relation, slots, extra, rng.choice(histories))
    return _call(rng, made, grad=grad)


def _call(rng: Random, made: tuple[list[Step], list[str]], *, grad: bool) -> Call:
    write = rng.randrange(4), rng.choice(["mul_", "add_", "fill_"])
    return Call(*made, grad=grad, write=write)


def _ordered(call: Call, order: list[int]) -> Call:
    return attrs.evolve(call, args=[call.args[i] for i in order])


def _given(call: Call) -> list[Any] | None:
    """The live values of a call's arguments, None if the setup does not run."""
    try:
        return setup_of(LIBRARY, call)[1]
    except Exception:
        return None


def _second_call(rng: Random, program: Program, slots: list[Slot], order: list[int]) -> Call | None:
    """A call with other arguments, which mostly runs to its end."""
    for _ in range(4):
        wanted = slots
        if rng.random() < 0.08:
            wanted = [Slot([3 if n == 2 else n for n in s.shape], s.dtype) for s in slots]
        count = rng.randint(1, len(wanted))
        relation = rng.choice(["alone", "expanded"] if count == 1 else RELATIONS[2:-1])
        made = arguments(rng, relation, wanted[:count], wanted[count:])
        call = _ordered(_call(rng, made, grad=rng.random() < 0.85), order)
        args = _given(call)
        if args is not None and (rng.random() < 0.04 or _runs(program, call, args)):
            return call
    return None


def _runs(program: Program, call: Call, args: list[Any]) -> bool:
    try:
        with nullcontext() if call.grad else LIBRARY.no_grad():
            body_of(LIBRARY, program)(*args)
    except Exception:
        return False
    return True


# --------------------------------------------------------------------------- steps and results
def _body(draft: Draft, cell: Cell, focus: Any) -> Memory | None:
    """Draws the steps; the memory on which the target's view and write were."""
    view, write, _, relation = cell
    rng = draft.rng
    if relation == "made inside":
        focus = draft.pure(focus)
        if focus is None:
            return None
    memory = draft.watcher.objects[id(focus)].memory
    acts = [(draft.view, view), (draft.write, write)]
    acts += [(draft.view, rng.choice(VIEWS[:-1])) for _ in range(rng.choice([0, 1, 1, 2]))]
    acts += [(draft.write, rng.choice(WRITES)) for _ in range(rng.choice([0, 0, 1, 2]))]
    for action, name in rng.sample(acts, len(acts)):
        action(memory, name)
    for _ in range(rng.choice([0, 1, 2, 4, 6])):
        if len(draft.steps) < STEPS - 3:
            draft.act(memory)
    return memory


def _results(draft: Draft, cell: Cell, memory: Memory) -> list[Any]:
    """At most four results, of which one is of the target's kind."""
    rng, wanted = draft.rng, cell[2]
    found = draft.output(memory, wanted)
    kinds = [k for k in OUTPUTS if memory.is_given or k not in ("input", "view of an input")]
    closed = wanted in ("unsafe view", "two views of an intermediate")
    for _ in range(rng.choice([0, 1, 1, 2, 2])):
        for each in draft.output(memory, rng.choice(kinds)):
            here = each is not None and id(each) in draft.watcher.objects
            if not (closed and here and memory in draft.watcher.objects[id(each)].memories()):
                found.append(each)
    return rng.sample(found[:4], len(found[:4]))
