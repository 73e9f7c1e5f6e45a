"""The guard that makes an entry invalid for a call, in words (GRD-4).

Used only when somebody asks why an entry is refused: a user, or `api` at the recompile limit.
Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import attrs

from aotlite.stages.records.guards.snapshots import PLAIN

GUARD_ERRORS = (AttributeError, KeyError, IndexError, TypeError, ValueError, ArithmeticError)
"""The errors that an access path raises if other objects lie there than before."""


@attrs.frozen
class GuardCheck:
    """One guard: `test` is an expression, or a statement where `is_statement`."""

    test: str
    subject: str
    """Its subject, in words."""
    shown: str | None = None
    """An expression for the value found."""
    expected: str = "the same"
    is_statement: bool = False
    culprit: str | None = None
    """An expression for the place that fails, if the check covers several."""
    explain: Callable[[], tuple[GuardCheck, ...]] | None = None
    """The single checks that the test combines."""


MOST_BITS = 256
"""Longer ints are no literals: Python refuses literals of more than some thousand digits."""
ONE_OBJECT = "which arguments are one object"
"""The subject of checks of objects."""


@attrs.frozen
class GuardFailure:
    """Why an entry is not valid for a call."""

    subject: str
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.subject} is {self.found}, expected {self.expected}"


class GuardedCalls(Protocol):
    """The calls that an entry takes: a `GuardedFunction`, or a region of sizes."""

    @property
    def call(self) -> Callable[[Any], object]:
        """The function of flat arguments: the results, or MISS if the entry is not valid."""

    @property
    def source(self) -> str:
        """The source of the function."""

    def why_not(self, leaves: Sequence[object]) -> GuardFailure | None:
        """The reason why the entry is not valid for these flat arguments; None if it is valid."""


def what_fails(
    checks: Sequence[GuardCheck], scope: Mapping[str, object], leaves: Sequence[object]
) -> GuardFailure | None:
    """The first check that does not hold for these arguments; None if all hold."""
    here = {**scope, "leaves": leaves, **{f"a{i}": leaf for i, leaf in enumerate(leaves)}}
    for check in checks:
        try:
            if check.is_statement:
                exec(check.test, here)
                continue
            holds = eval(check.test, here)
        except GUARD_ERRORS:
            holds = False
        if not holds and check.explain is not None:
            one_by_one = check.explain()  # which adds to the scope
            return what_fails(one_by_one, {**here, **scope}, leaves)
        if not holds:
            subject = _evaluated(check.culprit, here, check.subject)
            found = _evaluated(check.shown, here, "something else")
            return GuardFailure(subject, found, check.expected)
    return None


def one_by_one(
    names: Sequence[str], subjects: Sequence[str], marks: Sequence[str], expected: Sequence[str]
) -> tuple[GuardCheck, ...]:
    """The single checks of marked tensors: of the facts of each, and that they are different
    objects. All are given by the names of variables and constants."""
    found = []
    for name, subject, mark, what in zip(names, subjects, marks, expected, strict=True):
        test = f"facts_of({name}) is {mark}.facts"
        found.append(GuardCheck(test, subject, f"words({name})", what))
    different = f"len({{{', '.join(names)}}}) == {len(names)}"
    return (*found, GuardCheck(different, ONE_OBJECT, None, "none"))


def _evaluated(expression: str | None, here: dict[str, object], otherwise: str) -> str:
    """The value of the expression as text; `otherwise` if there is none, or it raises."""
    try:
        return otherwise if expression is None else str(eval(expression, here))[:200]
    except GUARD_ERRORS:
        return otherwise


def outlined(value: object) -> str:
    """A container of plain values as Python prints it; another value by its type and length."""
    kind = type(value).__name__
    if not isinstance(value, (list, tuple, dict)):
        return f"a {kind}"
    items = [*value, *(value.values() if isinstance(value, dict) else ())]
    if len(items) <= 20 and all(type(item) in PLAIN for item in items):
        return repr(value)[:120]
    return f"a {kind} of {len(value)}"


def changed_words(before: Sequence[str], number: int, values: Sequence[object]) -> str:
    """The value that changed, and what it was before."""
    now, then = outlined(values[number]), before[number]
    return f"{now} with another form or other contents" if now == then else f"{now}, not {then}"


def exact_test(name: str, value: Any) -> str | None:
    """A quick test for equal type and bits; None for values without one."""
    kind = type(value)
    if value is None or kind is bool:
        return f"{name} is {value}"
    if kind is int and value.bit_length() > MOST_BITS:
        return None
    if kind in (int, str, bytes) or (kind is float and value == value and value not in (0.0,)):
        text = repr(value)
        if len(text) <= 80 and "inf" not in text:
            return f"type({name}) is {kind.__name__} and {name} == {text}"
    return None
