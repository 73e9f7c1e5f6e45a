"""The runner of rules on an adapter, in this process: `check`, and `run_rule` for the child."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import cast

from aotlite.conformance.adapter import Adapter
from aotlite.conformance.error_source import is_ours, place_of
from aotlite.conformance.outcomes import Breaks, Faulty, Keeps, Lacks, Outcome, Result
from aotlite.conformance.report import Report
from aotlite.conformance.rules import NEEDS, Rule, RuleBroken, select
from aotlite.conformance.signatures import checked
from aotlite.conformance.unsupported import Absent, is_missing
from aotlite.conformance.witnesses.recording import Recorder


def check(adapter: Adapter | type[Adapter], rules: Sequence[str] | None = None) -> Report:
    """Runs the rules on a library, in this process, and returns the report.

    `rules` are ids or groups; None means all. For a library that may crash or hang use
    `aotlite conformance module:Class`, which gives it a process of its own. *Err* `ArgumentError`
    for an unknown rule, and for a method of the adapter that no rule calls, or not with its
    parameters.
    """
    asked = checked(adapter() if isinstance(adapter, type) else adapter)
    results = [result_of(rule, run_rule(rule, asked)) for rule in select(rules)]
    return Report(name_of(asked), asked.version, tuple(results))


def name_of(adapter: Adapter) -> str:
    """Returns the name of an adapter's library in reports: its `name`, or else its class's."""
    return adapter.name or type(adapter).__name__


def result_of(rule: Rule, outcome: Outcome) -> Result:
    """Returns an outcome with its rule's id, title and group."""
    return Result(rule.id, rule.title, rule.group, outcome, rule.choice)


def run_rule(
    rule: Rule, adapter: Adapter, begin: Callable[[str], None] = lambda _: None
) -> Outcome:
    """Runs one rule and returns its outcome. `begin` is called with each case before it runs.

    A fault while cases are made or shrunk is a `Faulty`, as one in a case is.
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
    """Returns the outcome of a fault of the suite or the adapter at a case."""
    return Faulty(place_of(error), error_text(error), case)


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
    rule: Rule, adapter: Adapter, case: object, breach: Breaks, begin: Callable[[str], None]
) -> Breaks:
    """Returns the breach of the smallest case that shrinking `case` reaches."""
    for candidate in rule.smaller(case) if rule.smaller else ():
        begin(repr(candidate))
        match run_case(rule, adapter, candidate):
            case Breaks() as found:
                return shrunk(rule, adapter, candidate, found, begin)
    return breach


def run_case(rule: Rule, adapter: Adapter, case: object) -> Breaks | Absent | None:
    """Runs one case. Returns the breach, what is absent, or None if the case holds.

    *Err* any fault of the suite or the adapter, here or where a witness is written.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _run_case(rule, adapter, case)


def _run_case(rule: Rule, adapter: Adapter, case: object) -> Breaks | Absent | None:
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
        return Breaks(
            repr(case), tuple(recorder.lines()), "the last line", error_text(error), "no error"
        )
    return None


def error_text(error: BaseException) -> str:
    """Returns an error on one line that any file can hold, even if its `str` fails.

    >>> error_text(ValueError("no \\udc80"))
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
