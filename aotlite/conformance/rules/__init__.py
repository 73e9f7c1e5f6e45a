"""The class `Rule`, the decorator that declares rules, and the functions that list them.

A rule is a claim about any array library. Its cases are ordered from the smallest, so that the
first case that fails is the smallest witness. Each group of rules has a module in `_MODULES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any, TypeVar

import attrs

from aotlite.conformance.adapter import Adapter
from aotlite.conformance.error_source import demand_theirs
from aotlite.conformance.unsupported import Absent
from aotlite.ir.errors import ArgumentError

_MODULES: dict[str, str] = {
    "memory.views": "Views share memory",
    "memory.geometry": "Geometry of views",
    "mutation.writes": "Writes in place",
    "mutation.overlap": "Overlapping writes",
    "memory.index": "Advanced indexing",
    "functional": "Functional ops",
    "memory.copies": "Copies",
    "memory.dtypes": "Views of another dtype",
    "mutation.errors": "Refused writes change nothing",
    "immutable": "Immutable arrays",
    "memory.exchange": "Exchange with NumPy, DLPack and buffers",
    "mutation.random_chains": "Random chains of views and writes",
    "differentiation.autograd": "Gradients of in-place writes",
    "differentiation.gradients": "Gradients",
    "differentiation.vjp": "Gradients in the functional form",
    "mutation.versions": "Version counters",
    "compiled.compilation": "Compiled functions",
    "compiled.training": "Compiled functions with gradients",
    "compiled.environment": "Compiled functions: outside variables, side effects, donation",
}
"""Module under this package -> the title of its group of rules in reports, in order."""

GROUPS: dict[str, str] = {path.rpartition(".")[2]: title for path, title in _MODULES.items()}
"""Group (the last part of its module's name) -> its title."""

NEEDS: dict[str, tuple[str, ...]] = {
    "autograd": ("requires_grad_",),
    "gradients": ("requires_grad_", "backward"),
    "vjp": ("vjp",),
    "versions": ("write_count",),
    "compilation": ("compile",),
    "training": ("compile",),
    "environment": ("compile",),
}
"""Group -> the methods without which none of its rules runs."""

Check = Callable[[Adapter, Any], None]
T = TypeVar("T")


@attrs.frozen
class Rule:
    """A claim and its check: `check(adapter, case)` raises `RuleBroken` if the claim is false."""

    id: str
    title: str
    claim: str
    check: Check
    cases: Callable[[], Iterable[object]]
    group: str
    smaller: Callable[[Any], Iterable[object]] | None = None
    """Returns the smaller variants of a random case, with which a failure is shrunk; else None."""
    choice: bool = False
    """Whether a library is free to keep the rule: reports say "yes" or "no", never "breaks"."""


def rule(
    id: str,
    title: str,
    cases: Callable[[], Iterable[object]] | Sequence[object] = ((),),
    *,
    smaller: Callable[[Any], Iterable[object]] | None = None,
    choice: bool = False,
) -> Callable[[Check], Rule]:
    """Returns a decorator that makes a `Rule` of a check; the check's docstring is the claim.

    `cases`: a sequence, or a function that returns one, smallest first; the check gets each case.
    `choice`: a library is right whether it keeps the rule or not.
    """

    def declare(check: Check) -> Rule:
        group = check.__module__.rpartition(".")[2]
        enumerate_cases = cases if callable(cases) else lambda: cases
        claim = " ".join((check.__doc__ or "").split())
        return Rule(id, title, claim, check, enumerate_cases, group, smaller, choice)

    return declare


class RuleBroken(AssertionError):
    """Raised if a rule does not hold. `what` names the compared value."""

    def __init__(self, what: str, got: object, expected: object) -> None:
        super().__init__(f"{what} is {got}, expected {expected}")
        self.what, self.got, self.expected = what, got, expected


def expect(got: object, expected: object, what: str) -> None:
    """Raises `RuleBroken` unless `got` equals `expected`."""
    if got != expected:
        raise RuleBroken(what, got, expected)


def attempt(call: Callable[..., object], *arguments: object) -> Exception | None:
    """Calls a function. Returns the library's error, or None if the call succeeds.

    Raises `ToolFault` if the error comes from the suite or the adapter.
    """
    try:
        call(*arguments)
    except (Absent, RuleBroken):
        raise
    except Exception as error:
        demand_theirs(error)
        return error
    return None


def refuses(call: Callable[..., object], *arguments: object) -> bool:
    """Whether a library refuses a call, by any error."""
    return attempt(call, *arguments) is not None


def maybe(call: Callable[..., T], *arguments: object) -> T | None:
    """Returns the result of a call; None if the library lacks the method."""
    try:
        return call(*arguments)
    except Absent:
        return None


def all_rules() -> tuple[Rule, ...]:
    """Every rule, in the order of the groups and of their modules."""
    return tuple(rule for path in _MODULES for rule in _rules_of(path))


def _rules_of(path: str) -> Iterator[Rule]:
    module = import_module(f"{__name__}.{path}")
    for value in vars(module).values():
        if isinstance(value, Rule) and value.group == path.rpartition(".")[2]:
            yield value


def select(names: Sequence[str] | None) -> tuple[Rule, ...]:
    """Returns the rules of these ids or groups, in order; all rules for None."""
    rules = all_rules()
    if names is None:
        return rules
    known = {name for rule in rules for name in (rule.id, rule.group)}
    for name in names:
        if name not in known:
            raise ArgumentError(
                f"conformance: rule is {name!r}, expected an id or a group of `--list`"
            )
    return tuple(rule for rule in rules if rule.id in names or rule.group in names)
