"""The printed forms of reports: lines, a table on a terminal, a Markdown page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
from rich.table import Table
from rich.text import Text

from aotlite.conformance.expected_failures import note
from aotlite.conformance.outcomes import Breaks, Dies, Faulty, Keeps, Lacks, Result, is_broken
from aotlite.conformance.rules import GROUPS

_PLAIN_WORDS = ("keeps", "absent", "not run", "yes", "no")
"""The words that are printed without emphasis, as they report no fault."""


PREFACE = """# Which library keeps which rule

`aotlite conformance {libraries} --markdown FILE` has written this page.

Each rule is tried on cases, the smallest first. A cell of the tables says:

- *keeps*: all cases hold.
- *breaks*: a case does not hold. The smallest one is shown below, with the reason.
- *absent*: the library lacks a function that the rule needs.
- *yes*, *no*: the library's choice, where either is right.
- *not run*: the library cannot run here.
- *crashes*, *hangs*: the library ended its process, or did not return in time.
- *fault*: the suite or the adapter made a mistake; it says nothing about the library.

*Refused or right* means: the library raises and writes nothing, or it has the result that it would
have if all operands were copied first. MEM-1 compares random chains of views and writes with
a model of memory in plain Python, and shrinks the first chain that fails.
`aotlite conformance --list` states the claim of each rule.

Compiled functions are those of `aotlite.compile`, of `jax.jit`, and of
`torch.compile(backend="aot_eager")`. The library `torch-aot-function` is PyTorch's AOTAutograd
without the frontend. In witnesses,
`custom(forward, backward)` is `apply` of a `torch.autograd.Function` of these two.
"""


@attrs.frozen
class Report:
    """The results of one library for all rules; `not_run` is the reason why it could not run."""

    library: str
    version: str
    results: tuple[Result, ...]
    not_run: str = ""

    @property
    def broken(self) -> tuple[Result, ...]:
        """The results of rules that the library breaks, crashes and hangs among them."""
        return tuple(each for each in self.results if is_broken(each))

    @property
    def kept(self) -> tuple[Result, ...]:
        """The results of rules that the library keeps."""
        return tuple(
            each for each in self.results if isinstance(each.outcome, Keeps) and not each.choice
        )

    @property
    def chosen(self) -> tuple[Result, ...]:
        """The results of rules that are a choice, and that the library can run."""
        return tuple(
            each
            for each in self.results
            if each.choice and isinstance(each.outcome, Keeps | Breaks)
        )

    @property
    def absent(self) -> tuple[Result, ...]:
        """The results of rules that need a function that the library lacks."""
        return tuple(each for each in self.results if isinstance(each.outcome, Lacks))

    @property
    def faulty(self) -> tuple[Result, ...]:
        """The results of rules at which the suite or the adapter made a mistake."""
        return tuple(each for each in self.results if isinstance(each.outcome, Faulty))

    def table(self) -> str:
        """A line for each rule, and below them the witness of each broken one."""
        return text(self)

    def markdown(self) -> str:
        """The Markdown page of this library alone."""
        return markdown([self])


def word(result: Result) -> str:
    """Returns the word of a table's cell; "yes" or "no" for a rule that is a choice."""
    match result.outcome:
        case Keeps():
            return "yes" if result.choice else "keeps"
        case Breaks():
            return "no" if result.choice else "breaks"
        case Lacks():
            return "absent"
        case Dies(how=how):
            return how.partition(" ")[0]
        case Faulty():
            return "fault"


def line(result: Result) -> str:
    """Returns the outcome of a rule on one line.

    >>> line(Result("TEN-2a", "narrow is a view", "views", Keeps(3, ("transpose",))))
    'keeps (3 cases; without transpose)'
    """
    match result.outcome:
        case Keeps(cases=cases, without=without):
            lacking = f"; without {', '.join(without)}" if without else ""
            return f"{word(result)} ({cases} {'case' if cases == 1 else 'cases'}{lacking})"
        case Breaks(what=what, got=got, expected=expected):
            return f"{word(result)}: {what} is {got}, expected {expected}"
        case Lacks(missing=missing):
            return f"absent: needs {', '.join(missing) or 'a case'}"
        case Dies(how=how, case=case, method=method):
            return f"{how} {f'in {method} ' if method else ''}at case {case}"
        case Faulty(place=place, said=said, case=case):
            return f"a fault of the suite or the adapter, {place}: {said}; at case {case}"


def summary(report: Report) -> str:
    """Returns the last line: the numbers of rules kept, broken and absent, and of choices."""
    if report.not_run:
        return f"{report.library}: not run: {report.not_run}"
    counts = f"keeps {len(report.kept)}, breaks {len(report.broken)}, absent {len(report.absent)}"
    chosen = f", choices {len(report.chosen)}" if report.chosen else ""
    faults = f", faults of the suite or the adapter {len(report.faulty)}" if report.faulty else ""
    return f"{title(report)}: {counts}{chosen}{faults}"


def title(report: Report) -> str:
    """Returns the library and its version."""
    return f"{report.library} {report.version}".strip()


def text(report: Report) -> str:
    """Returns a report in lines: rules, witnesses, summary."""
    return "\n".join([*_rule_lines(report), *_witness_lines(report), summary(report)])


def _rule_lines(report: Report) -> Iterator[str]:
    width = max((len(result.rule) for result in report.results), default=0)
    for result in report.results:
        yield f"{result.rule:{width}}  {result.title}: {line(result)}"


def _witness_lines(report: Report) -> Iterator[str]:
    for result in report.broken:
        yield ""
        yield f"{result.rule} {result.title}"
        yield from (f"    {each}" for each in witness(result).splitlines())
    for result in report.faulty:
        yield from ("", f"{result.rule} {result.title}", f"    # {line(result)}")
    if report.broken or report.faulty:
        yield ""


def witness(result: Result) -> str:
    """Returns the lines that show a breach; for a death, how and where it happened."""
    outcome = result.outcome
    return outcome.witness() if isinstance(outcome, Breaks) else f"# {line(result)}"


def rich_table(reports: Sequence[Report]) -> Table:
    """Returns a table with a row for each rule and a column for each library that ran."""
    styles = {"keeps": "green", "absent": "dim", "yes": "", "no": ""}
    ran = [report for report in reports if not report.not_run]
    table = Table("rule", "", *(title(report) for report in ran))
    for row in zip(*(report.results for report in ran), strict=True):
        words = [word(result) for result in row]
        cells = [Text(each, styles.get(each, "bold red")) for each in words]
        table.add_row(Text(row[0].rule), Text(row[0].title), *cells)
    return table


def markdown(reports: Sequence[Report]) -> str:
    """Returns a Markdown page: tables by group with a column for each library, then witnesses."""
    asked = " ".join(report.library for report in reports)
    shown = [PREFACE.format(libraries=asked), *(f"- {summary(report)}" for report in reports)]
    ran = [report for report in reports if not report.not_run]
    for group, heading in GROUPS.items():
        rows = list(_rows(ran, group))
        if rows:
            names = " | ".join(report.library for report in reports)
            shown += ["", f"## {heading}", "", f"| rule | | {names} |"]
            shown += ["|---" * (2 + len(reports)) + "|"]
            shown += [_markdown_row(row, reports) for row in rows]
    for report in ran:
        shown += list(_markdown_witnesses(report))
    return "\n".join(shown) + "\n"


def _rows(reports: Sequence[Report], group: str) -> Iterator[dict[str, Result]]:
    """Yields, for each rule of a group, a dict from library to result."""
    for row in zip(*(report.results for report in reports), strict=True):
        if row[0].group == group:
            yield {report.library: each for report, each in zip(reports, row, strict=True)}


def _markdown_row(row: dict[str, Result], reports: Sequence[Report]) -> str:
    first = next(iter(row.values()))
    cells = [
        word(row[report.library]) if report.library in row else "not run" for report in reports
    ]
    marked = [f"**{each}**" if each not in _PLAIN_WORDS else each for each in cells]
    return f"| {first.rule} | {first.title} | {' | '.join(marked)} |"


def _markdown_witnesses(report: Report) -> Iterator[str]:
    if report.broken:
        yield from ("", f"## What {title(report)} breaks")
    for result in report.broken:
        yield from ("", f"**{result.rule}** {result.title}", "", "```python")
        yield from witness(result).splitlines()
        yield "```"
        why = note(report.library, result.rule)
        if why:
            yield from ("", why)
    if report.faulty:
        yield from ("", f"## Where {title(report)} was not asked rightly", "")
    for result in report.faulty:
        yield f"- **{result.rule}** {result.title}: {line(result)}"
