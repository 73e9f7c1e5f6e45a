"""The summary of verdicts: a table by stratum, with Wilson's interval, and the survivors."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator
from math import sqrt

from rich.table import Table

from tests.mutation.child import Verdict
from tests.mutation.ledger import Ledger
from tests.mutation.sites import Mutant, source_of
from tests.mutation.targets import STRATA

_KINDS = ("caught", "hang", "crash", "equivalent", "survived")


def wilson(hits: int, count: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's 95 % interval of a proportion.

    Source: E. B. Wilson, JASA 22 (1927) 209-212.
    """
    if not count:
        return 0.0, 1.0
    share, room = hits / count, z * z / count
    middle = (share + room / 2) / (1 + room)
    half = z * sqrt(share * (1 - share) / count + room / (4 * count)) / (1 + room)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def kind_of(mutant: Mutant, verdict: Verdict, equivalent: dict[str, str]) -> str:
    """The kind of a verdict; a survivor with a reason is "equivalent"."""
    return "equivalent" if not verdict.is_caught and mutant.key in equivalent else verdict.kind


def table_of(ledger: Ledger, equivalent: dict[str, str]) -> Table:
    """The figures by stratum: caught by a false property, by a hang, by a crash."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in STRATA}
    for mutant in ledger.mutants:
        verdict = ledger.verdicts.get(mutant.key)
        if verdict is not None:
            counts[mutant.stratum][kind_of(mutant, verdict, equivalent)] += 1
    table = Table("stratum", "mutants", *_KINDS, "rate", "95 % interval")
    for name, found in counts.items():
        table.add_row(*_row(name, found))
    table.add_section()
    table.add_row(*_row("all", sum(counts.values(), Counter())))
    return table


def _row(name: str, found: Counter[str]) -> list[str]:
    hits = found["caught"] + found["hang"] + found["crash"]
    count = hits + found["survived"]
    low, high = wilson(hits, count)
    rate = f"{hits / count:.1%}" if count else "-"
    figures = [str(found.total()), *(str(found[kind]) for kind in _KINDS)]
    return [name, *figures, rate, f"{low:.1%} to {high:.1%}"]


def diff_of(mutant: Mutant, context: int = 0) -> str:
    """The change as a diff without head."""
    before, after = source_of(mutant.file), mutant.source() or ""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), n=context, lineterm="", fromfile="", tofile=""
    )
    return "\n".join(line for line in list(lines)[2:] if context or not line.startswith("@@"))


def described(number: int, mutant: Mutant, verdict: Verdict | None) -> Iterator[str]:
    """A mutant, its change and its outcome, in lines."""
    place = f"{mutant.file}:{mutant.line} in {mutant.function or 'the module'}"
    yield f"{number}  {place}  {mutant.operator}"
    yield f"   {mutant.key}"
    yield from (f"   {line}" for line in diff_of(mutant).splitlines())
    if verdict is not None:
        ran = f"{verdict.cases} of {verdict.of} cases passed, {verdict.seconds} s"
        yield f"   {verdict.kind}: {ran}. {verdict.by} {verdict.text}".rstrip()
