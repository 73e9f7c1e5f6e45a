"""The table that random programs must fill: view op x kind of write x kind of output x relation.

A program hits a cell if all four meet on one memory: the view op took a view of a tensor on it, a
write of the kind changed it (through any tensor), a result of the kind is on it ("new memory" and
"number": any result is), and the arguments on it have the relation.

    CELLS, NUMBER, POSSIBLE   the cells, their numbers, the numbers of those that can be hit
    impossible(cell)          why no program can hit a cell
    Watcher                   observes an eager run and lists the cells that it hit
    cells_of(program)         the numbers of the cells that the calls of a program hit

A watcher observes tensors alone, and no compiler. `Coverage` counts hits, for this table or another
one. Spec: specs/testing.md.
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from itertools import combinations, product
from typing import Any

import attrs

from aotlite.testing.engines import Engine, engine
from aotlite.testing.engines.base import EngineTensor
from aotlite.testing.engines.interpreter import body_of, setup_of
from aotlite.testing.programs.program import Program
from aotlite.testing.programs.steps import Call, Step
from aotlite.testing.programs.vocabulary import MULTI, VIEWS, kind_of_op

WRITES = (
    "pointwise", "copy", "fill", "setitem", "index", "no_grad", "detached", "hidden_alias",
    "geometry", "resize", "set", "tracked",
)  # fmt: skip
"""`tracked`: pointwise with an operand that requires grad. `no_grad`, `detached` and
`hidden_alias` are any ops under a `no_grad` in the body, through `detach()` and through
`hidden_alias()`."""
OUTPUTS = (
    "new memory", "input", "view of an input", "unsafe view", "two views of an intermediate",
    "view of a result", "twice", "detached", "multi-output view", "number",
)  # fmt: skip
RELATIONS = (
    "alone", "separate", "same object", "base and view", "overlapping siblings",
    "disjoint siblings", "detached aliases", "expanded", "other dtype", "two leaves",
    "made inside",
)  # fmt: skip

Cell = tuple[str, str, str, str]
CELLS: tuple[Cell, ...] = tuple(product(VIEWS, WRITES, OUTPUTS, RELATIONS))
NUMBER: dict[Cell, int] = {cell: i for i, cell in enumerate(CELLS)}


def impossible(cell: Cell) -> str | None:
    """Why no program can hit a cell; None if one can.

    >>> impossible(("t", "fill", "input", "alone")) is None
    True
    >>> impossible(("t", "fill", "input", "made inside"))
    "memory that is made inside is no argument's; if set_ makes it one's, no input"
    """
    _, _, output, relation = cell
    if relation == "made inside":
        if output in ("input", "view of an input"):
            return "memory that is made inside is no argument's; if set_ makes it one's, no input"
    elif output in ("unsafe view", "two views of an intermediate", "view of a result"):
        return "a view on an argument's memory is a view of an input"
    return None


POSSIBLE = tuple(number for number, cell in enumerate(CELLS) if impossible(cell) is None)


def cells_of(program: Program, on: str | Engine = "aotlite") -> set[int]:
    """The numbers of the cells that the calls of a program hit which do not raise.

    >>> call = Call([["make", [0, [2], "float64", False]]], ["$0"])
    >>> program = Program([["alias", ["$0"]], ["fill_", ["$1", 3]]], ["$1"], [call])
    >>> [CELLS[number] for number in cells_of(program)]
    [('alias', 'fill', 'view of an input', 'alone')]
    """
    library = engine(on)
    return set().union(*(_of_call(library, program, call) for call in program.calls))


def _of_call(library: Engine, program: Program, call: Call) -> set[int]:
    try:
        _, args = setup_of(library, call)
        watcher = Watcher(library, args, grad=call.grad)
        with nullcontext() if call.grad else library.no_grad():
            return watcher.cells(body_of(library, program, watcher)(*args))
    except Exception:  # a call that the library refuses hits nothing
        return set()


@attrs.define(eq=False)
class WatchedMemory:
    """The record of one memory in an eager run."""

    relations: set[str]
    views: set[str] = attrs.field(factory=set)
    writes: set[str] = attrs.field(factory=set)
    outputs: set[str] = attrs.field(factory=set)
    is_given: bool = True
    """Whether an argument is on it."""


@attrs.define(eq=False)
class WatchedTensor:
    """The record of one tensor in an eager run."""

    tensor: EngineTensor
    memory: WatchedMemory
    is_argument: bool = False
    is_root: bool = False
    is_part: bool = False
    """Whether the op that made it returns several views."""
    left: list[WatchedMemory] = attrs.field(factory=list)
    """The memories on which it was before a `set_`."""
    cut: str | None = None
    """"detached" or "hidden_alias", if such an op is between it and its memory's first tensor."""

    def memories(self) -> list[WatchedMemory]:
        """Its memory, and its former ones."""
        return [self.memory, *self.left]


class Watcher:
    """Observes an eager run of a body and lists the cells that it hits."""

    def __init__(self, library: Engine, args: list[Any], *, grad: bool = True) -> None:
        self.library = library
        self.grad = grad
        self.objects: dict[int, WatchedTensor] = {}
        self.memories: list[WatchedMemory] = []
        by_storage: dict[int, list[Any]] = {}
        for arg in args:
            by_storage.setdefault(library.storage_of(arg), []).append(arg)
        for family in by_storage.values():
            memory = self._memory(relations_of(library, family, len(args)))
            for arg in family:
                self.objects[id(arg)] = WatchedTensor(arg, memory, is_argument=True)

    def _memory(self, relations: set[str], *, is_given: bool = True) -> WatchedMemory:
        memory = WatchedMemory(relations, is_given=is_given)
        self.memories.append(memory)
        return memory

    # --- the steps
    def __call__(self, step: Step, args: list[object], result: object) -> None:
        op = step.op
        known = self.objects.get(id(args[0])) if args else None
        kind = kind_of_op(op)
        if kind is not None:
            assert known is not None
            self._write(known, kind, step, args)
            return
        parts = result if isinstance(result, (tuple, list)) else [result]
        for part in parts:
            if id(part) not in self.objects:
                self._made(part, known, "slice" if op == "getitem" else op)

    def _write(self, target: WatchedTensor, kind: str, step: Step, args: list[object]) -> None:
        if kind == "set":
            target.memory.writes.add(kind)
            target.left.append(target.memory)
            target.memory = self.objects[id(args[1])].memory
        elif kind not in ("geometry", "resize"):
            if target.cut is not None:
                kind = target.cut
            elif step.no_grad:
                kind = "no_grad"
            elif kind == "pointwise" and self.grad and any(map(self._is_tracked, args[1:])):
                kind = "tracked"
        target.memory.writes.add(kind)

    def _is_tracked(self, value: object) -> bool:
        tracked: bool = getattr(value, "requires_grad", False)
        return tracked

    def _made(self, part: Any, source: WatchedTensor | None, op: str) -> None:
        storage = self.library.storage_of(part)
        if source is None or storage != self.library.storage_of(source.tensor):
            memory = self._memory({"made inside"}, is_given=False)
            self.objects[id(part)] = WatchedTensor(part, memory, is_root=True)
            return
        if op in VIEWS:
            source.memory.views.add(op)
        cut = {"detach": "detached", "hidden_alias": "hidden_alias"}.get(op, source.cut)
        if source.cut == "hidden_alias":
            cut = source.cut
        self.objects[id(part)] = WatchedTensor(part, source.memory, is_part=op in MULTI, cut=cut)

    # --- the results
    def cells(self, results: list[object]) -> set[int]:
        """The numbers of the cells that the body with these results hit."""
        found = [self.objects[id(r)] for r in results if id(r) in self.objects]
        counts = Counter(id(each) for each in found)
        everywhere = {"number"} if len(found) < len(results) else set()
        if any(each.is_root for each in found):
            everywhere.add("new memory")
        for each in found:
            for memory in each.memories():
                memory.outputs |= _outputs(each, memory, found)
                if counts[id(each)] > 1:
                    memory.outputs.add("twice")
        return {
            NUMBER[cell]
            for memory in self.memories
            for cell in product(
                memory.views, memory.writes, memory.outputs | everywhere, memory.relations
            )
        }


def _outputs(
    result: WatchedTensor, memory: WatchedMemory, results: list[WatchedTensor]
) -> set[str]:
    """The kind of one result on a memory."""
    if result.is_argument:  # `set_` may have moved it to memory that the body made
        return {"input"} if memory.is_given else set()
    if result.is_root:
        return {"new memory"}
    if result.cut is not None:
        return {"detached"}
    if result.is_part:
        return {"multi-output view"}
    if memory.is_given:
        return {"view of an input"}
    there = [each for each in results if memory in each.memories()]
    if any(each.is_root for each in there):
        return {"view of a result"}
    return {"unsafe view" if len({id(o) for o in there}) == 1 else "two views of an intermediate"}


# -------------------------------------------------------------------------------- the arguments
def relations_of(library: Engine, family: list[EngineTensor], count: int) -> set[str]:
    """The relations of the arguments on one memory; `count` is the number of all arguments."""
    found = {"expanded"} if any(map(_overlaps_itself, family)) else set()
    for a, b in combinations(family, 2):
        found.add(_relation(library, a, b))
    if not found:
        found.add("alone" if count == 1 else "separate")
    return found


def _relation(library: Engine, a: EngineTensor, b: EngineTensor) -> str:
    if a is b:
        return "same object"
    if a.dtype != b.dtype:
        return "other dtype"
    if all(each.requires_grad and each.is_leaf for each in (a, b)):
        return "two leaves"
    bases = [library.base_of(each) for each in (a, b)]
    if bases[0] is b or bases[1] is a:
        return "base and view"
    if bases[0] is None or bases[0] is not bases[1]:
        return "detached aliases"
    if set(addresses(a)) & set(addresses(b)):
        return "overlapping siblings"
    return "disjoint siblings"


def addresses(tensor: EngineTensor) -> list[int]:
    """The offset of each element in the storage."""
    found = [tensor.storage_offset()]
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        found = [start + i * stride for start in found for i in range(size)]
    return found


def _overlaps_itself(tensor: EngineTensor) -> bool:
    found = addresses(tensor)
    return len(set(found)) < len(found)
