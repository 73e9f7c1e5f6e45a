"""The report of the CPU benchmark: a table of rows, and a verdict for each bar.

Times come from several runs; a ratio is taken in each run, from minima of that run, and the median
counts. If the runs' ratios differ by more than 15 % of it, or are fewer than three, the verdict is
"undecided".
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
from rich.console import Console

from benchmarks.common import table
from benchmarks.kernels.columns import COLUMNS, FRAMEWORKS, OURS, ROWS, WRITTEN

SPREAD = 0.15
COUNTS = 3
MEAN, ANY, C_GENERATED, C_BEST, TWIN = 0.75, 1.05, 1.15, 1.05, 1.15
"""The bars: a mean of all rows, each row, generated code against ours, ours against the best, a
mean of twins against their row."""

PASSED, FAILED, UNDECIDED = "passed", "failed", "undecided"

Seconds = Mapping[str, Sequence[float]]
"""Column -> seconds a call, one for each run."""
Entry = tuple[str, str]
"""A row's name and a direction."""
Results = Mapping[Entry, Mapping[str, Any]]
"""Entry -> the figures of its runs: seconds, roofline, failed, errors, faults."""


@attrs.frozen
class Ratio:
    """One ratio in each run."""

    counts: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median, which counts."""
        return statistics.median(self.counts)

    @property
    def spread(self) -> float:
        """The spread of the runs, as a part of the median."""
        least, most = min(self.counts), max(self.counts)
        return 0.0 if least == most else (most - least) / (self.median or 1.0)

    def verdict(self, asked: float) -> str:
        """Whether it is at most `asked`; undecided if the runs do not agree."""
        if len(self.counts) < COUNTS or self.spread > SPREAD:
            return UNDECIDED
        return PASSED if self.median <= asked else FAILED


@attrs.frozen
class Bar:
    """A bar, and whether it holds."""

    name: str
    asked: float
    ratio: Ratio
    by_spread: bool = True
    """Whether three runs must agree; False for a bar of a median or a value."""

    @property
    def verdict(self) -> str:
        """passed, failed or undecided."""
        if self.by_spread:
            return self.ratio.verdict(self.asked)
        return PASSED if self.ratio.median <= self.asked else FAILED

    def line(self) -> str:
        """The bar in one line."""
        ratio = self.ratio
        runs = f" (spread {ratio.spread:.0%} of {len(ratio.counts)} runs)"
        return (
            f"{self.verdict:9} {self.name}: {ratio.median:.3f}, asked at most {self.asked:.3g}"
            f"{runs if self.by_spread else ''}"
        )


# ------------------------------------------------------------------------------------------ ratios
def best_framework(seconds: Seconds) -> list[float] | None:
    """The seconds of the fastest framework in each run; None if none was measured."""
    found = [seconds[column] for column in FRAMEWORKS if column in seconds]
    return [min(run) for run in zip(*found, strict=True)] if found else None


def ratio(over: Sequence[float] | None, under: Sequence[float] | None) -> Ratio | None:
    """The ratios of all runs; None if a figure is missing."""
    if not over or not under:
        return None
    return Ratio(tuple(a / b for a, b in zip(over, under, strict=True)))


def mean(ratios: Sequence[Ratio]) -> Ratio:
    """The geometric mean of all, in each run.

    >>> mean([Ratio((1.0, 2.0)), Ratio((4.0, 2.0))]).counts
    (2.0, 2.0)
    """
    finite = [each.counts for each in ratios if math.inf not in each.counts]
    if len(finite) < len(ratios):
        return Ratio((math.inf,) * COUNTS)
    return Ratio(
        tuple(round(statistics.geometric_mean(run), 6) for run in zip(*finite, strict=True))
    )


def _to_best(of: Mapping[str, Any], column: str) -> Ratio | None:
    """The ratio to the best framework; infinite if aotlite failed."""
    if column == OURS and OURS in of["failed"]:
        return Ratio((math.inf,) * COUNTS)
    return ratio(of["seconds"].get(column), best_framework(of["seconds"]))


# -------------------------------------------------------------------------------------------- bars
def bars(results: Results) -> list[Bar]:
    """The bars with measurements, in order."""
    table_rows = {row.name: row for row in ROWS}
    own = {entry: of for entry, of in results.items() if entry[0] in table_rows}
    to_best = {e: r for e, of in own.items() if (r := _to_best(of, OURS)) is not None}
    found = []
    if to_best:  # a row of ours that failed makes the mean infinite
        found.append(
            Bar(
                "geometric mean of the rows, of the best framework", MEAN, mean([*to_best.values()])
            )
        )
    for entry, each in to_best.items():
        found.append(
            Bar(f"{_named(entry)}, of the best framework", table_rows[entry[0]].asked, each)
        )
    return [*found, *_of_written(own), *_of_twins(results, to_best)]


def _of_written(own: Results) -> Iterator[Bar]:
    for entry, of in own.items():
        generated = ratio(of["seconds"].get(OURS), of["seconds"].get(WRITTEN))
        if generated is not None:
            yield Bar(f"{_named(entry)}, generated of hand-written C", C_GENERATED, generated)
    for entry, of in own.items():
        written = _to_best(of, WRITTEN)
        if written is not None:
            yield Bar(f"{_named(entry)}, hand-written C of the best framework", C_BEST, written)


def _of_twins(results: Results, to_best: Mapping[Entry, Ratio]) -> Iterator[Bar]:
    for entry, own in to_best.items():
        name, direction = entry
        twins = [
            found
            for (row, way), of in results.items()
            if row.startswith(f"{name}~") and way == direction
            if (found := _to_best(of, OURS)) is not None
        ]
        if twins:
            pairs = zip(mean(twins).counts, own.counts, strict=True)
            of_own = Ratio(tuple(twin / row for twin, row in pairs))
            yield Bar(f"{_named(entry)}, {len(twins)} twins of the row", TWIN, of_own)


def _named(entry: Entry) -> str:
    return f"{entry[0]} {entry[1]}"


# ---------------------------------------------------------------------------------------- printing
def report(results: Results, console: Console) -> None:
    """Prints the table, what failed, and the bars with their count."""
    columns = [c for c in COLUMNS if any(c in of["seconds"] for of in results.values())]
    ratios = ("of best", "spread", "C of best", "of C", "roofline", "of roofline")
    made = table(
        "\nmilliseconds a call, the least of all runs", "row", "direction", *columns, *ratios
    )
    for (name, direction), of in results.items():
        made.add_row(name, direction, *_times(of, columns), *_ratios(of))
    console.print(made)
    for entry, of in results.items():
        for column, why in of["failed"].items():
            console.print(f"{_named(entry)}: {column} is left out: {why}", markup=False)
    report_bars(bars(results), console)


def report_bars(found: Sequence[Bar], console: Console) -> None:
    """Prints a line for each bar, and the number of passed ones."""
    for bar in found:
        console.print(bar.line(), markup=False)
    counts = {v: sum(bar.verdict == v for bar in found) for v in (PASSED, FAILED, UNDECIDED)}
    console.print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))


def _times(of: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    seconds = of["seconds"]
    return [f"{min(seconds[c]) * 1e3:.4g}" if c in seconds else "-" for c in columns]


def _ratios(of: Mapping[str, Any]) -> list[str]:
    seconds = of["seconds"]
    ours, written = _to_best(of, OURS), _to_best(of, WRITTEN)
    generated = ratio(seconds.get(OURS), seconds.get(WRITTEN))
    roof = min(of["roofline"], default=None)
    measured = seconds.get(OURS) or seconds.get(WRITTEN)
    return [
        _text(ours),
        "-" if ours is None else f"{ours.spread:.0%}",
        _text(written),
        _text(generated),
        "-" if roof is None else f"{roof * 1e3:.4g}",
        f"{roof / min(measured):.0%}" if roof and measured else "-",
    ]


def _text(found: Ratio | None) -> str:
    return "-" if found is None else f"{found.median:.2f}"
