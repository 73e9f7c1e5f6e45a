"""The state of the house, printed: what each check counts, and where."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tests.house import circles, lazy
from tests.house.imports import Edge, edges, is_within
from tests.house.moves import moved
from tests.house.plan import floors, plan
from tests.house.sources import Scope, Tree


@dataclass
class State:
    """A tree, as it is or as moves will make it, of which one package is looked at."""

    tree: Tree
    package: str = "aotlite"
    moves: Mapping[str, str] = field(default_factory=dict)
    verbose: bool = False

    def __post_init__(self) -> None:
        self.edges = moved(edges(self.tree.product, plan()["tables"]), self.moves)
        self.modules = sorted(self.moves.get(each, each) for each in self.tree.product)

    def concerns(self, *modules: str) -> bool:
        return any(is_within(module, self.package) for module in modules)


def circle_lines(state: State) -> Iterator[str]:
    scopes = {
        "at the top": {Scope.TOP},
        "and in functions": {Scope.TOP, Scope.FUNCTION},
        "and for type checkers": set(Scope),
    }
    for name, wanted in scopes.items():
        found = circles.circles([edge for edge in state.edges if edge.scope in wanted])
        yield f"imports {name}: {sizes(found)}"
    for circle in circles.circles(state.edges):
        if state.concerns(*circle):
            yield from _circle(circle, state)


def sizes(found: list[list[str]]) -> str:
    listed = " ".join(str(len(circle)) for circle in found)
    return f"{len(found)} circles ({listed})" if found else "no circle"


def _circle(circle: list[str], state: State) -> Iterator[str]:
    yield f"circle of {len(circle)}: {shortened(circle, None if state.verbose else 12)}"
    closing = [each for each in circles.closing(circle, state.edges) if concerns(each, state)]
    yield f"  closed by {len(closing)} imports:"
    yield from (f"    {edge}" for edge in sorted(closing, key=str))


def concerns(edge: Edge, state: State) -> bool:
    return state.concerns(edge.source, edge.target)


def shortened(names: list[str], most: int | None) -> str:
    shown = " ".join(name.removeprefix("aotlite.") for name in names[:most])
    return shown + (f" ... and {len(names) - most} more" if most and len(names) > most else "")


def floor_lines(state: State) -> Iterator[str]:
    found = [each for each in floors().violations(state.edges) if concerns(each[2], state)]
    yield f"{len(found)} imports that do not go down"
    pairs = Counter((source, target) for source, target, _ in found)
    for (source, target), count in pairs.most_common():
        yield f"  {count:4} {source} -> {target}"
        for edge in sorted(str(each) for a, b, each in found if (a, b) == (source, target)):
            if state.verbose:
                yield f"         {edge}"


def unplaced_lines(state: State) -> Iterator[str]:
    found = [each for each in floors().unplaced(state.modules) if state.concerns(each)]
    packages = Counter(module.rpartition(".")[0] for module in found)
    yield f"{len(found)} modules in no room of the plan"
    for package, count in sorted(packages.items()):
        own = [each.rpartition(".")[2] for each in found if each.rpartition(".")[0] == package]
        yield f"  {count:4} {package}: {shortened(own, None if state.verbose else 8)}"


def lazy_lines(state: State) -> Iterator[str]:
    found = lazy.by_module(state.tree.product.values(), plan()["optional"])
    found = {state.moves.get(name, name): each for name, each in found.items()}
    found = {name: each for name, each in found.items() if state.concerns(name)}
    yield f"{sum(map(len, found.values()))} imports in functions, in {len(found)} modules"
    for module, each in sorted(found.items()):
        for one in sorted(each, key=lambda one: one.line):
            yield f"  {module}:{one.line}: {one.name or 'a name known when it runs'}"


SECTIONS: dict[str, Callable[[State], Iterator[str]]] = {
    "circles": circle_lines,
    "floors": floor_lines,
    "unplaced": unplaced_lines,
    "functions": lazy_lines,
}


def report(state: State, sections: list[str]) -> Iterator[str]:
    for name in sections or SECTIONS:
        yield f"== {name}"
        yield from SECTIONS[name](state)
