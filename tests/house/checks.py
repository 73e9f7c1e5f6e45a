"""The counting checks, each with its expectation; allowances.toml has the allowed counts."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.house import budgets, names, op_names, path, structure, untyped
from tests.house.house import Finding, House


@dataclass(frozen=True)
class Check:
    """A count by key that may only fall."""

    name: str
    find: Callable[[House], Iterator[Finding]]
    expected: str
    step: int = 1
    """The unit of allowances, so that a change of few lines does not change them."""
    may_grow: bool = False
    """Whether new code may need more; the complaint then says how to raise the number."""

    @property
    def slack(self) -> int:
        """The unneeded allowance that is no complaint."""
        return 0 if self.step == 1 else self.step

    def counts(self, house: House) -> dict[str, int]:
        found: dict[str, int] = {}
        for each in self.find(house):
            found[each.key] = found.get(each.key, 0) + each.amount
        return found

    def allowance(self, count: int) -> int:
        """The least allowance for a count."""
        return -(-count // self.step) * self.step


PATH_LINES = (
    f"a reading path of at most {path.LINES} lines: shorten one of its files, or move what a "
    "feature needs to a file of a seam (house.toml lists both)"
)

CHECKS = {
    check.name: check
    for check in (
        Check("circles", structure.in_circles, "no circle of modules"),
        Check("floors", structure.against_floors, "imports of lower floors"),
        Check("rooms", structure.without_room, "each module in a room of house.toml"),
        Check("empty", structure.empty_rooms, "rooms of house.toml that are there"),
        Check("functions", structure.in_functions, "imports at the top, but of optional packages"),
        Check("lines", budgets.lines, "a package within its budget", 100, True),
        Check("files", budgets.files, f"at most {budgets.FILES} files in a package"),
        Check("stages", budgets.stages, f"at most {budgets.STAGE_LINES} lines", 10),
        Check("fields", budgets.fields, f"records of at most {budgets.FIELDS} fields"),
        Check("classes", names.classes, "no two public classes of one name"),
        Check("words", names.words, "words of specs/glossary.md or of house.toml"),
        Check("any", untyped.anything, "fewer uses of Any", may_grow=True),
        Check("untyped", untyped.parameters, "records annotated by their class"),
        Check("op_names", op_names.tables, "what is asked of ops, not a list of them"),
        Check("path", path.leads_off, "a reading path without ways off it but its seams"),
        Check("path_names", path.unmet, "a path and seams that are there"),
        Check("path_lines", path.lines, PATH_LINES, 50),
    )
}
