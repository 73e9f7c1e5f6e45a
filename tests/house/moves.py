"""Tables of moves, `old new` a line: the report is of the tree after them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from tests.house.imports import Edge


def read(paths: Iterable[Path]) -> dict[str, str]:
    """Old module -> new module, for the lines that move whole modules."""
    found = {}
    for path in paths:
        for line in path.read_text("utf-8").splitlines():
            words = line.partition("#")[0].split()
            if len(words) == 2 and not line.startswith("+") and ":" not in line:
                found[words[0].removesuffix(".__init__")] = words[1].removesuffix(".__init__")
    return found


def moved(edges: Iterable[Edge], moves: Mapping[str, str]) -> list[Edge]:
    found = []
    for edge in edges:
        source = moves.get(edge.source, edge.source)
        target = moves.get(edge.target, edge.target)
        if source != target:
            found.append(replace(edge, source=source, target=target))
    return found
