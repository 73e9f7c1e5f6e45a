"""`RegionReport`: the calls of functions that are marked as regions, and which of them are alike.

Made from the captured graph, and shown as `1 capture, regions`. Rules: REG-22, REG-23. Spec:
`specs/equal_regions.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from aotlite.ir.graph import Graph, Node
from aotlite.ir.provenance.scope import REGION
from aotlite.stages.records.base import Record


@attrs.frozen
class RegionCall(Record):
    """One call of a function that is marked as a region."""

    name: str
    mark: str
    """Its name and number, such as `block[3]`."""
    ops: int
    of: str = ""
    """The first call that is alike; empty if that is this one."""

    def __str__(self) -> str:
        if self.of:
            return f"{self.mark}: as {self.of}."
        return f"{self.mark}: {self.ops} op{'s' * (self.ops != 1)}."


@attrs.frozen
class RegionReport(Record):
    """The calls of all marked functions, in the order of their first ops. Prints as sentences."""

    calls: tuple[RegionCall, ...]

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for name in dict.fromkeys(call.name for call in self.calls):
            calls = [call for call in self.calls if call.name == name]
            forms = sum(not call.of for call in calls)
            counts = f"{len(calls)} call{'s' * (len(calls) != 1)}"
            yield f"Region {name}, {counts} of {forms} form{'s' * (forms != 1)}:"
            yield from [f"  {call}" for call in calls]


def region_report(graph: Graph) -> RegionReport:
    """The calls of marked functions in a captured graph; of calls without ops nothing is there."""
    nodes: dict[str, list[Node]] = {}
    for node in graph.calls:
        marks = str(node.tags.get(REGION, "")).split("/")
        for mark in marks if marks != [""] else ():
            nodes.setdefault(mark, []).append(node)
    first: dict[tuple[str, Any], str] = {}
    calls = []
    for mark, own in nodes.items():
        name = mark.rpartition("[")[0]
        of = first.setdefault((name, _form(own)), mark)
        calls.append(RegionCall(name, mark, len(own), "" if of == mark else of))
    return RegionReport(tuple(calls))


def _form(nodes: list[Node]) -> tuple[Any, ...]:
    """What is equal for two calls that are alike: ops, metas, other arguments with their types, and
    which operands are which, those from outside in the order in which they are met (REG-22)."""
    numbers: dict[Node, int] = {}

    def word(value: object) -> object:
        if type(value) is Node:
            known = value in numbers
            number = numbers.setdefault(value, len(numbers))
            return number if known else (number, value.meta)
        if type(value) is tuple:
            return tuple([word(each) for each in value])
        return type(value), repr(value)

    words = []
    for node in nodes:
        args = word(node.args)
        numbers[node] = len(numbers)
        words.append((node.target, args, node.meta, node.grad_mode))
    return tuple(words)
