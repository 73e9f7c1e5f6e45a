"""Runs rules on an adapter, in this process: `check`, and one rule at a time for the child."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, cast

from aotlite.conformance.adapter import Adapter
from aotlite.conformance.error_source import is_ours, place_of
from aotlite.conformance.outcomes import Breaks, Faulty, Keeps, Lacks, Outcome, Result
from aotlite.conformance.report import Report
from aotlite.conformance.rules import NEEDS, Rule, RuleBroken, select
from aotlite.conformance.signatures import checked
from aotlite.conformance.unsupported import Absent, is_missing
from aotlite.conformance.witnesses.recording import Recorder


def check(adapter: Adapter | type[Adapter], rules: Sequence[str] | None = None) -> Report:
    """What a library makes of the rules, found out in this process.

    `rules` are ids or groups, None for all. A library that may crash or hang is better asked by
    `aotlite conformance module:Class`, which gives it a process of its own. *Err* `ArgumentError`
    for an unknown rule, and for a method that no rule would call, or not with its parameters.
    """
    asked = checked(adapter() if isinstance(adapter, type) else adapter)
    results = [result_of(rule, run_rule(rule, asked)) for rule in select(rules)]
    return Report(name_of(asked), asked.version, tuple(results))


def name_of(adapter: Adapter) -> str:
    """How reports call an adapter's library: its name, or else its class's."""
    return adapter.name or type(adapter).__name__


def result_of(rule: Rule, outcome: Outcome) -> Result:
    """An outcome under its rule's names."""
    return Result(rule.id, rule.title, rule.group, outcome, rule.choice)


def run_rule(
    rule: Rule, adapter: Adapter, begin: Callable[[str], None] = lambda _: None
) -> Outcome:
    """What becomes of one rule; `begin` hears of each case before it runs.

    A mistake in making cases, or in making them smaller, is a `Faulty` as one in a case is.
    """
    last = "()"

    def began(case: str) -> None:
        nonlocal last
        last = case
        begin(case)

    try:
        return _run_rule(rule, adapter, began)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and not is_ours(error):
            raise  # the library ends the process
        return faulty(error, last)


def faulty(error: BaseException, case: str) -> Faulty:
    """The outcome of a rule at whose case the suite or the adapter made a mistake."""
    return Faulty(place_of(error), told(error), case)


def _run_rule(rule: Rule, adapter: Adapter, begin: Callable[[str], None]) -> Outcome:
    needed = [name for name in NEEDS.get(rule.group, ()) if is_missing(adapter, name)]
    if needed:
        return Lacks(tuple(needed))
    missing: dict[str, None] = {}
    kept = 0
    for case in rule.cases():
        begin(repr(case))
        match run_case(rule, adapter, case):
            case None:
                kept += 1
            case Absent() as absent:
                missing[str(absent)] = None
            case Breaks() as breach:
                return shrunk(rule, adapter, case, breach, begin)
    return Keeps(kept, tuple(missing)) if kept else Lacks(tuple(missing))


def shrunk(
    rule: Rule, adapter: Adapter, case: Any, breach: Breaks, begin: Callable[[str], None]
) -> Breaks:
    """The breach of the smallest case that can be reached by making `case` smaller."""
    for candidate in rule.smaller(case) if rule.smaller else ():
        begin(repr(candidate))
        match run_case(rule, adapter, candidate):
            case Breaks() as found:
                return shrunk(rule, adapter, candidate, found, begin)
    return breach


def run_case(rule: Rule, adapter: Adapter, case: Any) -> Breaks | Absent | None:
    """The breach, what is absent, or None where the case holds.

    *Err* whatever the suite or the adapter raises by mistake, here or where a witness is written.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _run_case(rule, adapter, case)


def _run_case(rule: Rule, adapter: Adapter, case: Any) -> Breaks | Absent | None:
    recorder = Recorder(adapter)
    try:
        rule.check(cast(Adapter, recorder), case)
    except Absent as absent:
        return absent
    except RuleBroken as broken:
        found = broken.what, _text(broken.got), _text(broken.expected)
        return Breaks(repr(case), tuple(recorder.lines()), *found)
    except Exception as error:
        if is_ours(error):
            raise
        return Breaks(repr(case), tuple(recorder.lines()), "the last line", told(error), "no error")
    return None


def told(error: BaseException) -> str:
    """An error in one line that any file takes, also where it cannot say what it is.

    >>> told(ValueError("no \\udc80"))
    'ValueError: no \\\\udc80'
    """
    try:
        text = str(error)
    except Exception:
        text = "(its text cannot be made)"
    return _text(f"{type(error).__name__}: {text}".splitlines()[0])


def _text(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text.encode(errors="backslashreplace").decode()
