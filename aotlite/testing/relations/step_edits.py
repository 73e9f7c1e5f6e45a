"""`Loose`: the body of a program in a form in which steps are moved, inserted and dropped.

Names like "$3" depend on the position of a step. In the loose form an argument of a step is a `Use`
of another step, or of an argument of the body, independent of positions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from aotlite.testing.programs.program import Program
from aotlite.testing.programs.steps import Call, Step, is_name
from aotlite.testing.programs.vocabulary import kind_of_op


@attrs.define(eq=False)
class Node:
    """A step."""

    op: str
    args: tuple[Any, ...]
    no_grad: bool = False


@attrs.frozen
class Use:
    """A value: of a node, or of the argument with a number; or a part of it."""

    source: Node | int
    part: int | None = None


Change = Callable[[Use], Any]


def replaced(value: object, change: Change) -> Any:
    """A step's argument with its uses changed."""
    if isinstance(value, tuple):
        return tuple(replaced(item, change) for item in value)
    return change(value) if isinstance(value, Use) else value


def instead(old: Use, new: Use) -> Change:
    """The change that replaces one use by another."""
    return lambda use: new if use == old else use


@attrs.define(eq=False)
class Loose:
    """A body whose steps have no numbers."""

    arity: int
    nodes: list[Node]
    results: tuple[Any, ...]
    calls: tuple[Call, ...]

    @staticmethod
    def of(program: Program) -> Loose:
        """The body of a program; the result of a write has the name of its target."""
        nodes: list[Node] = []
        values: list[Use] = [Use(number) for number in range(program.arity)]

        def read(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(read, value))
            if not is_name(value):
                return value
            place, _, part = value[1:].partition(".")
            found = values[int(place)]
            return attrs.evolve(found, part=int(part)) if part else found

        for step in program.body:
            args = tuple(map(read, step.args))
            nodes.append(Node(step.op, args, step.no_grad))
            writes = kind_of_op(step.op) is not None and isinstance(args[0], Use)
            values.append(args[0] if writes else Use(nodes[-1]))
        return Loose(program.arity, nodes, tuple(map(read, program.results)), program.calls)

    def program(self) -> Program:
        """The program, with numbers."""
        places = {id(node): self.arity + i for i, node in enumerate(self.nodes)}

        def name(use: Use) -> str:
            source = use.source
            place = source if isinstance(source, int) else places[id(source)]
            return f"${place}" + ("" if use.part is None else f".{use.part}")

        steps = [Step(n.op, replaced(n.args, name), n.no_grad) for n in self.nodes]
        return Program(steps, replaced(self.results, name), self.calls)

    # --- changes
    def put(self, place: int, op: str, *args: object, no_grad: bool = False) -> Use:
        """Inserts a step before the one at `place`; returns its value."""
        node = Node(op, args, no_grad)
        self.nodes.insert(place, node)
        return Use(node)

    def rename(self, change: Change, start: int = 0, *, results: bool = True) -> None:
        """Changes the uses in the nodes from `start` on, and in the results."""
        for node in self.nodes[start:]:
            node.args = replaced(node.args, change)
        if results:
            self.results = replaced(self.results, change)

    def pass_more(self, what: Callable[[Call], object]) -> None:
        """Passes a value of each call's setup as a further last argument."""
        self.arity += 1
        self.calls = tuple(attrs.evolve(call, args=(*call.args, what(call))) for call in self.calls)

    def drop(self, place: int) -> None:
        """Drops an argument that is not used."""

        def moved(use: Use) -> Use:
            late = isinstance(use.source, int) and use.source > place
            return Use(use.source - 1, use.part) if late else use  # type: ignore[operator]

        self.rename(moved)
        self.arity -= 1
        self.calls = tuple(
            attrs.evolve(call, args=call.args[:place] + call.args[place + 1 :])
            for call in self.calls
        )


def uses_in(value: object) -> list[Use]:
    """The uses in an argument, or in a tuple of them."""
    found: list[Use] = []
    replaced(value, lambda use: found.append(use))
    return found
