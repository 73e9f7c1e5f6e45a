"""The rules of pages, tests and code, as plain functions of their texts.

A page of `specs/rules` has one heading a rule, `### FUN-7 · Writes go back by inverses`. A test
that shows a rule carries `@pytest.mark.rules("FUN-7")`. Code cites rules by number in comments.
"""

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from functools import cached_property

from attrs import define, field, frozen

AREAS = {
    "GEN": 14,
    "FUN": 38,
    "META": 33,
    "DUP": 5,
    "ALI": 8,
    "SYN": 13,
    "RT": 12,
    "TAN": 9,
    "BOX": 3,
    "SAV": 7,
    "GRD": 6,
    "RNG": 12,
    "TOK": 8,
    "SUB": 24,
    "SEQ": 5,
    "JNT": 15,
    "DBL": 3,
    "CAG": 30,
    "CUG": 6,
    "HOOK": 6,
    "LOG": 5,
    "FRZ": 8,
}
"""The last rule of each area that has a page; they are numbered from 1 without holes."""

REASONS = ("reuse of saved memory", "moves between devices", "export", "control flow")
"""The reasons for which a rule may be pending."""

HEADING = re.compile(r"^### (?:([A-Z]+)-(\d+) · )?(.*)$", re.MULTILINE)
BULLET = re.compile(r"^- \*\*([A-Z]+-\d+)\*\*", re.MULTILINE)
PENDING = re.compile(r"^Pending: (.*)$", re.MULTILINE)
RANGE = re.compile(r"\b([A-Z]{2,4})-(\d+)(?:\.\.| to )\1-(\d+)\b")
DRAWS = re.compile(r"\bgiven\(|\bholds\(|\brow_blocks\(|[rR]andom|\bseed\b")
"""Texts that occur in tests with random data alone."""
SINGLE = re.compile(r"\b[A-Z]{2,4}-\d+\b")


@frozen
class Rule:
    """A heading of a rule page, and the text below it."""

    area: str
    number: int
    title: str
    page: str
    body: str

    @property
    def name(self) -> str:
        return f"{self.area}-{self.number}"

    @property
    def waits_for(self) -> tuple[str, ...]:
        """The reasons of its lines `Pending: ...`; empty if it holds."""
        return tuple(each for line in PENDING.findall(self.body) for each in line.split(", "))

    @property
    def anchor(self) -> str:
        """The anchor of its heading in a rendered page."""
        heading = f"{self.name} · {self.title}".lower()
        return re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")


@frozen
class Shown:
    """A test with the rules that its marks name."""

    file: str
    test: str
    rules: tuple[str, ...]
    is_drawn: bool = field(kw_only=True)
    """Whether its data is random, by Hypothesis or from a seed."""


@define(frozen=True, slots=False)
class Texts:
    """The texts of the repository by file name."""

    pages: dict[str, str]
    """The pages of `specs/rules`."""
    specs: dict[str, str]
    """All other pages of the specs, which state rules of further areas as `- **TEN-7** ...`."""
    tests: dict[str, str]
    code: dict[str, str]
    notes: dict[str, str]
    """Decisions, differences and limits, by a short name."""

    @cached_property
    def rules(self) -> list[Rule]:
        """The rules of all pages, by area, in the order of the pages."""
        found = [rule for name, text in self.pages.items() for rule in rules_of(name, text)]
        areas = list(AREAS)
        return sorted(found, key=lambda rule: areas.index(rule.area) if rule.area in areas else -1)

    @cached_property
    def shown(self) -> list[Shown]:
        return [each for name, text in self.tests.items() for each in shown_in(name, text)]

    @cached_property
    def other_rules(self) -> dict[str, str]:
        """Rules of further areas, with the page that states them."""
        return {
            rule: name
            for name, text in self.specs.items()
            for rule in BULLET.findall(text)
            if rule.split("-")[0] not in AREAS
        }


def rules_of(page: str, text: str) -> Iterator[Rule]:
    """The rules that a page states, in its order; a heading without a number is no rule."""
    headings = list(HEADING.finditer(text))
    ends = [each.start() for each in headings[1:]] + [len(text)]
    for heading, end in zip(headings, ends, strict=True):
        area, number, title = heading.groups()
        if area is not None:
            yield Rule(area, int(number), title.strip(), page, text[heading.end() : end])


@functools.cache
def cited(text: str) -> frozenset[str]:
    """Every rule that a text names, with those in ranges (`RT-1..RT-4`, `RT-1 to RT-4`)."""
    within = {
        f"{area}-{number}"
        for area, first, last in RANGE.findall(text)
        for number in range(int(first), int(last) + 1)
    }
    return frozenset(within.union(SINGLE.findall(text)))


def shown_in(file: str, text: str) -> Iterator[Shown]:
    """The marked tests of a file: by decorators, by `pytestmark`, by their class or parameters."""
    if "mark.rules" not in text:
        return
    tree = ast.parse(text)
    names = _assigned(tree)
    yield from _shown(file, tree.body, _pytestmark(tree.body, names), names)


def _shown(
    file: str, body: list[ast.stmt], around: list[ast.Call], names: dict[str, ast.expr]
) -> Iterator[Shown]:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            marks = _marks(statement.decorator_list, names) + _pytestmark(statement.body, names)
            yield from _shown(file, statement.body, around + marks, names)
        elif isinstance(statement, ast.FunctionDef) and statement.name.startswith("test_"):
            marks = around + _marks(statement.decorator_list, names)
            if marks:
                rules = tuple(dict.fromkeys(name for call in marks for name in _named(call)))
                drawn = DRAWS.search(ast.unparse(statement)) is not None
                yield Shown(file, statement.name, rules, is_drawn=drawn)


def marks_without_test(file: str, text: str) -> Iterator[str]:
    """The lines of marks that mark no test, or that name a rule otherwise than by a literal."""
    if "mark.rules" not in text:
        return
    tree = ast.parse(text)
    names = _assigned(tree)
    seen = {id(call) for call in _pytestmark(tree.body, names)}
    nodes = list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            seen |= {id(call) for call in _pytestmark(node.body, names)}
        if isinstance(node, ast.ClassDef) or (
            isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        ):
            seen |= {id(call) for call in _marks(node.decorator_list, names)}
    calls = {id(node.func): node for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and _is_mark(node):
            call = calls.get(id(node))
            if call is None or id(call) not in seen or not _is_literal(call):
                yield f"{file}:{node.lineno}"


def _is_literal(call: ast.Call) -> bool:
    literal = all(isinstance(a, ast.Constant) and isinstance(a.value, str) for a in call.args)
    return bool(call.args) and literal and not call.keywords


def _assigned(tree: ast.Module) -> dict[str, ast.expr]:
    """The module's variables: tables of parameters may hold marks."""
    return {
        target.id: statement.value
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }


def _pytestmark(body: list[ast.stmt], names: dict[str, ast.expr]) -> list[ast.Call]:
    values = [
        statement.value
        for statement in body
        if isinstance(statement, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in statement.targets)
    ]
    return _marks(values, names)


def _marks(decorators: Iterable[ast.expr], names: dict[str, ast.expr]) -> list[ast.Call]:
    """The marks anywhere in these expressions, and in the variables that they name."""
    found = []
    for decorator in decorators:
        for node in ast.walk(decorator):
            if isinstance(node, ast.Call) and _is_mark(node.func):
                found.append(node)
            elif isinstance(node, ast.Name) and node.id in names:
                found += _marks([names[node.id]], {})
    return found


def _is_mark(node: ast.expr) -> bool:
    is_named = isinstance(node, ast.Attribute) and node.attr == "rules"
    return is_named and ast.unparse(node).endswith("mark.rules")


def _named(call: ast.Call) -> Iterator[str]:
    for argument in call.args:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            yield argument.value
