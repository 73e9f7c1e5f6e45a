"""The printed state of the house: the counts of each check, and their places."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.house import allowances, circles
from tests.house.allowances import Allowances
from tests.house.checks import CHECKS, Check
from tests.house.house import Finding, House
from tests.house.imports import Edge, is_within
from tests.house.sources import Scope


@dataclass(frozen=True)
class View:
    """The printed part of the house: one package or all, in short or in full."""

    house: House
    package: str = "aotlite"
    verbose: bool = False

    def concerns(self, *modules: str) -> bool:
        return any(is_within(module, self.package) for module in modules)

    def edge(self, edge: Edge) -> bool:
        return self.concerns(edge.source, edge.target)

    def findings(self, check: Check) -> list[Finding]:
        """The findings of a check about the package; an import is also about the imported one."""
        found = check.find(self.house)
        whole = self.package == "aotlite"
        named = self.package.removeprefix("aotlite.")
        return [
            each
            for each in found
            if whole or self.concerns(each.module) or (check.name == "floors" and named in each.key)
        ]


def summary_lines(view: View) -> Iterator[str]:
    """One line for each check: its count in the package, and the number of places."""
    for check in CHECKS.values():
        found = view.findings(check)
        total, places = sum(each.amount for each in found), len({each.key for each in found})
        yield f"  {check.name:<11}{total:>7} in {places:>3} places   expected: {check.expected}"


def circle_lines(view: View) -> Iterator[str]:
    scopes = {
        "at the top": {Scope.TOP},
        "and in functions": {Scope.TOP, Scope.FUNCTION},
        "and for type checkers": set(Scope),
    }
    for name, wanted in scopes.items():
        edges = [edge for edge in view.house.edges if edge.scope in wanted]
        yield f"imports {name}: {sizes(circles.circles(edges))}"
    for circle in circles.circles(view.house.edges):
        if view.concerns(*circle):
            yield from _circle(circle, view)


def sizes(found: list[list[str]]) -> str:
    listed = " ".join(str(len(circle)) for circle in found)
    return f"{len(found)} circles ({listed})" if found else "no circle"


def _circle(circle: list[str], view: View) -> Iterator[str]:
    yield f"circle of {len(circle)}: {shortened(circle, None if view.verbose else 12)}"
    closing = [each for each in circles.closing(circle, view.house.edges) if view.edge(each)]
    yield f"  closed by {len(closing)} imports:"
    yield from (f"    {edge}" for edge in sorted(closing, key=str))


def shortened(names: list[str], most: int | None) -> str:
    shown = " ".join(name.removeprefix("aotlite.") for name in names[:most])
    return shown + (f" ... and {len(names) - most} more" if most and len(names) > most else "")


def check_lines(check: Check, view: View) -> Iterator[str]:
    """Totals by key, the largest first, each with its findings."""
    found = view.findings(check)
    totals: Counter[str] = Counter()
    for each in found:
        totals[each.key] += each.amount
    yield f"{sum(totals.values())} in {len(totals)} places; expected: {check.expected}"
    for key, count in totals.most_common():
        own = [each for each in found if each.key == key]
        if len(own) == 1 and own[0].text.startswith(key):
            yield f"  {count:5} {own[0].text}"
            continue
        yield f"  {count:5} {key}"
        if view.verbose or check.name == "functions":
            yield from (f"          {each.text}" for each in own)


def order_lines(view: View) -> Iterator[str]:
    """The direct members of the package, by floor as by their imports, without the plan."""
    depth = view.package.count(".") + 2

    def part(module: str) -> str:
        return (
            ".".join(module.split(".")[:depth]) if module != view.package else f"{module}.__init__"
        )

    inside = [
        (part(edge.source), part(edge.target))
        for edge in view.house.edges
        if view.concerns(edge.source) and view.concerns(edge.target)
    ]
    for floor in circles.generations(inside):
        rooms = (" <> ".join(each.removeprefix(f"{view.package}.") for each in c) for c in floor)
        yield "  " + "  ".join(rooms)


def allowance_lines(view: View) -> Iterator[str]:
    """The exceeded and the unneeded allowances of the whole tree."""
    found = list(complaints(view.house, allowed_in(view.house)))
    yield f"{len(found)} allowances are exceeded or no longer needed"
    yield from (f"  {each}" for each in found)


def allowed_in(house: House) -> dict[str, Allowances]:
    """The allowances of this checkout, whatever the tree of the house."""
    text = allowances.FILE.read_text("utf-8") if allowances.FILE.exists() else ""
    return allowances.read(text)


def complaints(house: House, allowed: Mapping[str, Allowances]) -> Iterator[str]:
    for check in CHECKS.values():
        of_check = allowed.get(check.name, Allowances())
        yield from allowances.complaints(check, check.counts(house), of_check)


SECTIONS: dict[str, Callable[[View], Iterator[str]]] = {
    "summary": summary_lines,
    "circles": circle_lines,
    **{
        name: lambda view, check=check: check_lines(check, view)  # type: ignore[misc]
        for name, check in CHECKS.items()
        if name != "circles"
    },
    "order": order_lines,
    "allowances": allowance_lines,
}


def report(view: View, sections: Sequence[str]) -> Iterator[str]:
    for name in sections or SECTIONS:
        yield f"== {name}"
        yield from SECTIONS[name](view)
