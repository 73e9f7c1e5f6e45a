"""Runs random scripts eagerly and compiled, in several modes, and compares after every line.

    python -m tests.end_to_end.random_programs --count 5000 --seed 0 --mode all --jobs 2

Prints a table; exit status 1 if anything differs. A script that differs is printed, shrunk.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from multiprocessing import get_context
from typing import Any

import attrs
from rich.console import Console
from rich.progress import track
from rich.table import Table

import aotlite as al
from aotlite.backends.reference import ReferenceBackend
from aotlite.ir.errors import (
    AliasError,
    ArgumentError,
    IndexOutOfRangeError,
    LinAlgError,
    UnsupportedError,
)
from aotlite.ir.op import OPS
from tests.end_to_end.helpers.observing import View, differences
from tests.end_to_end.helpers.random_sessions import random_script
from tests.end_to_end.helpers.scripts import Line, Log, Moment, Script, eager_form, play, shrunk

MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "general": {"fast_paths": False},
    "straight": {"backend": ReferenceBackend(0)},
    "min_cut": {"partition": "min_cut"},
    "verified": {"verify": 2},
}
"""Options by mode: the last one is run for every tenth script only."""
SAMPLED = ("verified", 10)

REFUSALS = (
    "overlap in memory",
    "overlaps itself, expected a base with",
    "cannot be captured",
    "and both get gradients, expected one",
    "reaches outside the",
    "has a history of its own",
    "after as_strided_, expected uses before",
    "depends on a leaf that the function makes",
    "while it was captured, expected a function that leaves in place",
)
"""What compiled functions may refuse where eager goes on, always before any effect (GEN-2)."""
MISSED_VERSION = "SAV-2: no error of the backward through a view beside a write"
"""A known difference (`docs/differences.md`): where inputs share memory."""
FREED = "one backward node: grad of some inputs lets go what gradients of others would read"
"""Eager's lets go of the nodes that lead to the inputs asked for (`docs/limits.md`)."""

ALL_GRADIENTS = "one backward node: grad of some inputs checks what the gradients of all would read"
"""Eager's reads only what the gradients that are asked for need (`docs/limits.md`)."""

DEAD = "an op whose result nothing uses does not run, and so does not raise for its values"
"""A known difference (`docs/differences.md`), as PyTorch's compilers have it."""

EARLIER = "errors that a capture meets come before those of values, which it does not know"
"""A known difference: where both raise."""


@attrs.define
class Outcome:
    """What became of one script in one mode."""

    calls: int = 0
    entries: int = 0
    """How many entries the calls compiled."""
    refused: str | None = None
    raised: bool = False
    """The last line raised, eagerly as compiled."""
    found: list[str] = attrs.field(factory=list)


def outcome(script: Script, eager: Log, options: dict[str, Any]) -> Outcome:
    """Plays a script compiled and compares with its eager log."""
    compiled = play(script, partial(al.compile, **options))
    function = compiled.function
    result = Outcome(entries=len(getattr(function, "entries", ())))
    result.found = differences(compiled.start, eager.start)
    before = compiled.start
    for line, mine, its in zip(script.session, compiled.moments, eager.moments, strict=False):
        result.calls += line.kind == "call"
        result.refused = _refusal(mine.error, its.error)
        if line.kind == "call" and result.refused is None:
            result.refused = _known_order(function, mine.error, its.error)
        if line.kind == "backward":
            result.refused = _known_difference(line, mine.error, its.error, eager)
        found = _line_differences(line, mine, its, before, refused=result.refused is not None)
        result.found += [f"after `{line.text}`: {each}" for each in found]
        if result.found or result.refused:
            break
        result.raised = its.error is not None and line.kind in ("call", "backward")
        before = mine.view
    return result


def _line_differences(
    line: Line, mine: Moment, its: Moment, before: View, *, refused: bool
) -> list[str]:
    """What differs after one line: an error of the compiled function leaves all as it was."""
    found = []
    if mine.error is not None and line.kind == "call":
        found = [f"touched: {each}" for each in differences(mine.view, before)]
    if refused:
        return found
    if type(mine.error) is not type(its.error):
        return [*found, f"error: compiled {mine.error!r}, eager {its.error!r}"]
    # An eager call or backward that raises has done a part of its work.
    halfway = its.error is not None and line.kind in ("call", "backward")
    return found if halfway else [*found, *differences(mine.view, its.view)]


def _refusal(compiled: Exception | None, eager: Exception | None) -> str | None:
    if not isinstance(compiled, (UnsupportedError, AliasError)) or type(compiled) is type(eager):
        return None
    return next((text for text in REFUSALS if text in str(compiled)), None)


def _known_order(function: Any, compiled: Exception | None, eager: Exception | None) -> str | None:
    """Why eager's call may raise an error of values, and the compiled one another or none."""
    if compiled is None:
        return DEAD if _is_dead(function, eager) else None
    of_values = (LinAlgError, IndexOutOfRangeError, ArgumentError)
    both = isinstance(eager, of_values) and type(compiled) is not type(eager)
    return EARLIER if both and isinstance(compiled, al.AotliteError) else None


def _is_dead(function: Any, eager: Exception | None) -> bool:
    """Whether eager's error is of an op, or one of its forms, that no graph has."""
    if not isinstance(eager, al.AotliteError):
        return False
    op = str(eager).partition(":")[0]
    graphs = [entry.partition.forward for entry in getattr(function, "entries", ())]
    known = any(name.startswith(op) for name in OPS)
    return known and not any(
        node.op == "call" and node.target.name.startswith(op)
        for graph in graphs
        for node in graph.nodes
    )


def _known_difference(
    line: Line, compiled: Exception | None, eager: Exception | None, log: Log
) -> str | None:
    """Why a backward may raise in one world only."""
    if compiled is None and isinstance(eager, al.AutogradError) and _sharing(log):
        return MISSED_VERSION
    if eager is None and "the values saved for the backward are freed" in str(compiled):
        return FREED
    if eager is None and "al.autograd.grad(" in line.text and "modified in place" in str(compiled):
        return ALL_GRADIENTS
    return None


def _sharing(log: Log) -> bool:
    """Whether two of a script's tensors ever lay on one storage."""
    return any(
        count > 1
        for moment in log.moments
        for count in Counter(each.storage for each in moment.view.tensors).values()
    )


# ------------------------------------------------------------------------------------- the tally
@attrs.define
class Tally:
    """Counts over all scripts of one mode."""

    programs: int = 0
    calls: int = 0
    entries: int = 0
    raised: int = 0
    refused: Counter[str] = attrs.field(factory=Counter)
    different: list[tuple[int, list[str]]] = attrs.field(factory=list)

    def add(self, seed: int, result: Outcome) -> None:
        """Counts one script."""
        self.programs += 1
        self.calls += result.calls
        self.entries += result.entries
        self.raised += result.raised
        if result.refused is not None:
            self.refused[result.refused] += 1
        if result.found:
            self.different.append((seed, result.found))


def outcomes(seed: int, modes: tuple[str, ...]) -> tuple[int, dict[str, Outcome]]:
    """The seed, and what became of its script in each mode."""
    script = random_script(seed)
    eager = play(script, eager_form)
    chosen = [mode for mode in modes if mode != SAMPLED[0] or seed % SAMPLED[1] == 0]
    return seed, {mode: outcome(script, eager, MODES[mode]) for mode in chosen}


def run(
    seeds: Iterable[int],
    modes: tuple[str, ...],
    *,
    jobs: int = 1,
    progress: Callable[[Iterator[Any]], Iterable[Any]] = iter,
) -> dict[str, Tally]:
    """Runs the scripts of all seeds; a tally for each mode."""
    tallies = {mode: Tally() for mode in modes}
    for seed, found in progress(_results(seeds, modes, jobs)):
        for mode, result in found.items():
            tallies[mode].add(seed, result)
    return tallies


def _results(seeds: Iterable[int], modes: tuple[str, ...], jobs: int) -> Iterator[Any]:
    work = partial(outcomes, modes=modes)
    if jobs == 1:
        yield from map(work, seeds)
        return
    with get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(work, seeds, chunksize=10)


def smallest(seed: int, mode: str) -> Script:
    """The script of a seed that differs in a mode, without the lines that do not matter."""
    whole = random_script(seed)
    wanted = _kinds(outcome(whole, play(whole, eager_form), MODES[mode]).found)

    def fails(script: Script) -> bool:
        try:
            eager = play(script, eager_form)
            if any(isinstance(m.error, (NameError, SyntaxError)) for m in eager.moments):
                return False
            return wanted == _kinds(outcome(script, eager, MODES[mode]).found)
        except Exception:
            return False

    return shrunk(whole, fails)


def _kinds(found: list[str]) -> str:
    """What the first difference is about, without names and numbers."""
    first = found[0] if found else ""
    return re.sub(r"`.*?`|\w+\.(?=\w+:)|\d+", "", first, flags=re.DOTALL)[:40]


# --------------------------------------------------------------------------------- the command
def table_of(tallies: dict[str, Tally]) -> Table:
    """The figures."""
    table = Table("mode", "programs", "calls", "entries", "refused", "raised", "differences")
    for mode, tally in tallies.items():
        figures = (tally.programs, tally.calls, tally.entries, tally.refused.total(), tally.raised)
        table.add_row(mode, *map(str, figures), str(len(tally.different)))
    return table


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(description="Random programs, compiled and eager, compared.")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--mode", nargs="+", default=["all"], choices=[*MODES, "all"])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--show", type=int, default=3, help="scripts to print per mode")
    given = parser.parse_args(arguments)
    console = Console(soft_wrap=True)
    modes = tuple(MODES) if "all" in given.mode else tuple(given.mode)
    seeds = range(given.seed, given.seed + given.count)
    bar = partial(track, total=given.count, console=Console(stderr=True))
    tallies = run(seeds, modes, jobs=given.jobs, progress=bar)
    console.print(table_of(tallies))
    for mode, tally in tallies.items():
        for reason, count in tally.refused.most_common():
            console.print(f"{mode}: {count} refused: {reason}", markup=False)
        for seed, found in tally.different:
            console.print(f"\n{mode}: seed {seed}: {found[0]}", markup=False)
        for seed, _ in tally.different[: given.show]:
            console.print(f"\n# {mode}, seed {seed}\n{smallest(seed, mode)}", markup=False)
    return 1 if any(tally.different for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
