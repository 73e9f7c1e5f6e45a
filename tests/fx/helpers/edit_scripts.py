"""Random edits of a graph, done alike by `aotlite.fx`, by torch.fx, and by lists of Python."""

from __future__ import annotations

import random
from typing import Any

UNARY, BINARY = ("neg", "exp", "sigmoid"), ("add", "mul", "sub")


class ListGraph:
    """The naive model: a list of [name, op, arguments]; arguments are entries or numbers."""

    def __init__(self) -> None:
        self.nodes: list[list[Any]] = []

    def at(self, entry: list[Any]) -> int:
        return next(place for place, each in enumerate(self.nodes) if each is entry)

    def insert(self, place: int, op: str, args: list[Any]) -> list[Any]:
        self.nodes.insert(place, [op, args])
        return self.nodes[place]

    def users(self, entry: list[Any]) -> list[list[Any]]:
        return [each for each in self.nodes if any(value is entry for value in each[1])]

    def needs(self, entry: list[Any], other: list[Any]) -> bool:
        """Whether `entry` is `other`, or is computed from it."""
        return entry is other or any(
            self.needs(value, other) for value in entry[1] if isinstance(value, list)
        )

    def shown(self) -> list[tuple[str, tuple[Any, ...]]]:
        return [
            (op, tuple([self.at(v) if isinstance(v, list) else v for v in args]))
            for op, args in self.nodes
        ]


class FxSide:
    """The same edits by a module `fx` and its functions of ops."""

    def __init__(self, fx: Any, ops: Any) -> None:
        self.fx, self.ops = fx, ops
        self.graph = fx.Graph()
        self.nodes: dict[int, Any] = {}
        """`id` of an entry of the model -> the node."""

    def shown(self) -> list[tuple[str, tuple[Any, ...]]]:
        places = {node: place for place, node in enumerate(self.graph.nodes)}
        shown = []
        for node in self.graph.nodes:
            name = node.target.__name__ if node.op == "call_function" else node.op
            args = node.args[0] if node.op == "output" else node.args
            shown.append((name, tuple([places.get(v, v) for v in args])))
        return shown

    def users(self) -> list[list[int]]:
        places = {node: place for place, node in enumerate(self.graph.nodes)}
        return [sorted(places[user] for user in node.users) for node in self.graph.nodes]


class EditScript:
    """Draws edits and does each of them on the model and on every side."""

    def __init__(self, seed: int, *sides: FxSide) -> None:
        self.rng = random.Random(seed)
        self.model = ListGraph()
        self.sides = sides
        for name in ("x", "y"):
            entry = self.model.insert(len(self.model.nodes), "placeholder", [])
            for side in sides:
                side.nodes[id(entry)] = side.graph.placeholder(name, "f32[4]")
        calls = [self._call(len(self.model.nodes)) for _ in range(self.rng.randrange(2, 7))]
        results = [self.rng.choice(calls), calls[-1]]
        entry = self.model.insert(len(self.model.nodes), "output", results)
        for side in sides:
            found = tuple([side.nodes[id(each)] for each in results])
            side.nodes[id(entry)] = side.graph.output(found)

    def _call(self, place: int, *, later: bool = False) -> list[Any]:
        """A new call before this place, of entries in front of it."""
        before = self.model.nodes[:place]
        op = self.rng.choice((*UNARY, *BINARY))
        count = 1 if op in UNARY else 2
        args: list[Any] = [self.rng.choice([e for e in before if e[0] != "output"])]
        if count == 2:
            args.append(self.rng.choice([*args, 2.0, self.rng.choice(before)]))
        point = before[-1] if later else None
        following = self.model.nodes[place] if place < len(self.model.nodes) else None
        entry = self.model.insert(place, op, args)
        for side in self.sides:
            given = tuple([side.nodes[id(v)] if isinstance(v, list) else v for v in args])
            if point is not None:
                where = side.graph.inserting_after(side.nodes[id(point)])
            elif following is not None:
                where = side.graph.inserting_before(side.nodes[id(following)])
            else:
                side.nodes[id(entry)] = side.graph.call_function(getattr(side.ops, op), given)
                continue
            with where:
                side.nodes[id(entry)] = side.graph.call_function(getattr(side.ops, op), given)
        return entry

    def _calls(self) -> list[list[Any]]:
        return [e for e in self.model.nodes if e[0] not in ("placeholder", "output")]

    def _values(self) -> list[list[Any]]:
        return [e for e in self.model.nodes if e[0] != "output"]

    # --- edits
    def step(self) -> None:
        """One random edit."""
        edits = (self.insert, self.replace_uses, self.replace_input, self.erase)
        self.rng.choice((*edits, self.move, self.change_argument, self.change_target, self.clean))()

    def insert(self) -> None:
        place = self.rng.randrange(2, len(self.model.nodes))
        self._call(place, later=self.rng.random() < 0.5)

    def replace_uses(self) -> None:
        old, new = self.rng.choice(self._values()), self.rng.choice(self._values())
        users = [user for user in self.model.users(old) if user is not new]
        if old is new or any(self._too_early(new, user) for user in users):
            return
        for user in users:
            user[1] = [new if value is old else value for value in user[1]]
        for side in self.sides:
            target = side.nodes[id(new)]
            side.nodes[id(old)].replace_all_uses_with(
                target, delete_user_cb=lambda user, target=target: user is not target
            )

    def replace_input(self) -> None:
        user = self.rng.choice([e for e in self.model.nodes if e[0] != "placeholder"])
        old = self.rng.choice([v for v in user[1] if isinstance(v, list)])
        new = self.rng.choice(self._values())
        if self._too_early(new, user):
            return
        user[1] = [new if value is old else value for value in user[1]]
        for side in self.sides:
            nodes = [side.nodes[id(each)] for each in (user, old, new)]
            nodes[0].replace_input_with(nodes[1], nodes[2])

    def _too_early(self, value: list[Any], user: list[Any]) -> bool:
        return self.model.at(value) >= self.model.at(user)

    def erase(self) -> None:
        dead = [entry for entry in self._calls() if not self.model.users(entry)]
        if dead:
            entry = self.rng.choice(dead)
            del self.model.nodes[self.model.at(entry)]
            for side in self.sides:
                side.graph.erase_node(side.nodes[id(entry)])

    def move(self) -> None:
        if not self._calls():
            return
        entry, beside = self.rng.choice(self._calls()), self.rng.choice(self._calls())
        later = self.rng.random() < 0.5
        places = [self.model.at(v) for v in entry[1] if isinstance(v, list)]
        users = [self.model.at(user) for user in self.model.users(entry)]
        goal = self.model.at(beside) + later
        if entry is beside or not max(places) < goal <= min(users, default=goal):
            return
        self.model.nodes.pop(self.model.at(entry))
        self.model.nodes.insert(self.model.at(beside) + later, entry)
        for side in self.sides:
            move = side.nodes[id(beside)].append if later else side.nodes[id(beside)].prepend
            move(side.nodes[id(entry)])

    def change_argument(self) -> None:
        binary = [entry for entry in self._calls() if entry[0] in BINARY]
        if not binary:
            return
        entry = self.rng.choice(binary)
        value = self.rng.choice([3.0, *self.model.nodes[: self.model.at(entry)]])
        entry[1] = [entry[1][0], value]
        for side in self.sides:
            given = side.nodes[id(value)] if isinstance(value, list) else value
            side.nodes[id(entry)].update_arg(1, given)

    def change_target(self) -> None:
        if not self._calls():
            return
        entry = self.rng.choice(self._calls())
        entry[0] = self.rng.choice(UNARY if entry[0] in UNARY else BINARY)
        for side in self.sides:
            side.nodes[id(entry)].target = getattr(side.ops, entry[0])

    def clean(self) -> None:
        if self.rng.random() < 0.8:
            return
        for entry in reversed(self._calls()):
            if not self.model.users(entry):
                del self.model.nodes[self.model.at(entry)]
        for side in self.sides:
            side.graph.eliminate_dead_code()
