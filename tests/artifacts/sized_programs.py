"""Random programs that compute with sizes, whose entries with symbols are restored.

`python -m tests.artifacts.sized_programs --programs 1000` draws programs, and calls each at several
sizes: compiled cold, then with restored entries, then with a bundle. Each call is compared with
eager: values, writes, aliases, gradients of two orders. The restored run has the graphs and
conditions of the cold one. A bundle serves a call iff an entry of the function that was saved does.
"""

from __future__ import annotations

import collections
import os
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs

import aotlite as al
from aotlite.pipeline.arguments import call_of
from aotlite.pipeline.size_regions.region import SizeRegion
from tests.artifacts.drivers import empty_cache, options, report
from tests.artifacts.looked_up import outcomes
from tests.end_to_end.drawn_size_programs import TRIED, SizeProgram, draw
from tests.end_to_end.size_calls import OPTIONS, Call, is_same

SIZES = (0, 1, 2, 3, 4, 5, 6, 8, 9, 16)
REFUSED = (al.UnsupportedError, al.AliasError)


@attrs.define
class Figures:
    """What was counted."""

    programs: int = 0
    refused: int = 0
    kept: int = 0
    """Entries with symbols that were kept."""
    bypassed: int = 0
    restored: int = 0
    asked: int = 0
    """Calls of bundles, each loaded anew."""
    served: int = 0
    reasons: collections.Counter[str] = attrs.field(factory=collections.Counter)
    wrong: list[str] = attrs.field(factory=list)

    def text(self) -> str:
        """The figures in a line."""
        return (
            f"{self.programs} programs, {self.refused} refused; {self.kept} entries with symbols "
            f"kept, {self.bypassed} not; {self.restored} restored; bundles served {self.served} of "
            f"{self.asked} calls: {len(self.wrong)} wrong"
        )


def vectors(program: SizeProgram, dice: random.Random, count: int) -> list[dict[str, int]]:
    """Vectors of sizes: the first is the one at which the program was drawn."""
    others = [{name: dice.choice(SIZES) for name in program.symbols} for _ in range(count)]
    return [{name: TRIED[name] for name in program.symbols}, *others]


def _done(function: Any, arguments: list[al.Tensor]) -> Any:
    """What a call does, and its gradients of two orders."""
    call = Call(function, arguments)
    return call.facts(), call.gradients(), _of_second_order(call)


def _of_second_order(call: Call) -> Any:
    leaves = [x for x in call.arguments if x.requires_grad and x.is_leaf]
    roots = [y for y in call.results if y.requires_grad and not y.is_leaf]
    if call.error is not None or not leaves or not roots:
        return None
    try:
        loss = sum([(y * y).sum() for y in roots], al.zeros(()))
        first = al.autograd.grad(loss, leaves, create_graph=True, allow_unused=True)
        squares = [(g * g).sum() for g in first if g is not None and g.requires_grad]
        if not squares:
            return None
        second = al.autograd.grad(sum(squares, al.zeros(())), leaves, allow_unused=True)
    except al.AotliteError as error:
        return type(error).__name__
    # A region may give zeros where eager has no gradient, as a write covers all of a tensor.
    pairs = zip(second, leaves, strict=True)
    return [(al.zeros(x.shape) if g is None else g.detach()).numpy() for g, x in pairs]


def _words(compiled: Any) -> list[Any]:
    """The entries, but for their numbers and instances."""
    return [
        (
            str(each.partition.forward),
            str(each.partition.backward),
            str(each.meta),
            str(each.convention),
            [str(guard) for guard in row.guards],
            (row.arguments, row.names, row.bounds, row.proof),
            {str(at): flag for at, flag in each.symbols.items()},
        )
        for each, row in zip(compiled.entries, compiled.regions(), strict=True)
    ]


class Differs(Exception):
    """A restored call that is not eager's."""


def _run(program: SizeProgram, sizes: list[dict[str, int]], made: Any, expected: list[Any]) -> Any:
    for values, wanted in zip(sizes, expected, strict=True):
        found = _done(made, program.arguments(values))
        if not is_same(wanted, found):
            raise Differs(f"at {values}: {found}, expected {wanted}")
    return made


def check(seed: int, folder: Path, figures: Figures, backend: str) -> None:
    """The program of a seed: cold, restored, and as a bundle. Each has a cache of its own, since
    all have one name."""
    figures.programs += 1
    os.environ["AOTLITE_CACHE"] = str(folder / f"{seed}")
    dice, program = random.Random(seed), draw(seed)
    options: dict[str, Any] = {"dynamic": dice.choice((None, None, True)), "backend": backend}
    options |= dice.choice(OPTIONS) | {"artifact_cache": True, "recompile_limit": 1000}
    sizes = vectors(program, dice, 3)
    eager = program.function()
    expected = [_done(eager, program.arguments(each)) for each in sizes]
    runs, of_runs = [], []
    try:
        for _ in range(2):
            with outcomes() as found:
                runs.append(
                    _run(program, sizes, al.compile(program.function(), **options), expected)
                )
            of_runs.append(found)
    except REFUSED:
        figures.refused += 1
        return
    except Differs as error:
        figures.wrong.append(f"{seed}, run {len(runs)}, {options}: {error}\n{program.text}")
        return
    cold, warm = of_runs
    _count(runs[0], figures)
    figures.restored += sum(isinstance(x.guarded, SizeRegion) for x in runs[1].entries)
    if warm.count("hit") != cold.count("kept"):
        figures.wrong.append(f"{seed}: {cold} then {warm}: {warm.why}\n{program.text}")
    if "bypass" in cold:
        return
    if _words(runs[0]) != _words(runs[1]):
        figures.wrong.append(f"{seed}: {_words(runs[0])}\n\n{_words(runs[1])}\n{program.text}")
    if runs[0].entries:
        _check_bundle(seed, program, runs[0], folder, figures, dice)


def _count(compiled: Any, figures: Figures) -> None:
    for entry in compiled.entries:
        if isinstance(entry.guarded, SizeRegion):
            is_kept = not isinstance(entry.kept, str)
            figures.kept += is_kept
            figures.bypassed += not is_kept
        if isinstance(entry.kept, str):
            figures.reasons[entry.kept] += 1


def _check_bundle(
    seed: int,
    program: SizeProgram,
    live: Any,
    folder: Path,
    figures: Figures,
    dice: random.Random,
) -> None:
    path = folder / f"{seed}.bundle"
    live.save(path)
    eager = program.function()
    for values in vectors(program, dice, 4):
        call = call_of(tuple(program.arguments(values)), {})
        is_served = live._valid(call) is not None
        ready = al.load(path, program.function(), compiles=False)
        try:
            found = _done(ready, program.arguments(values))
        except al.GuardError as error:
            found = error
        figures.asked += 1
        refuses = isinstance(found, al.GuardError) or found[0][0] == "GuardError"
        figures.served += not refuses
        if refuses is is_served and not (refuses and shares(program)):
            figures.wrong.append(f"{seed} at {values}: {found}, live {is_served}\n{program.text}")
        elif not refuses and not is_same(_done(eager, program.arguments(values)), found):
            figures.wrong.append(f"{seed} at {values}, of a bundle: {found}\n{program.text}")


def shares(program: SizeProgram) -> bool:
    """Whether inputs share memory: the places of these count as they were (CACHE-10)."""
    return "halves" in program.forms


def run(seeds: Iterable[int], folder: Path, backend: str = "reference") -> Figures:
    """Runs the programs of these seeds; returns the figures."""
    figures = Figures()
    for seed in _said(seeds, figures):
        check(seed, folder, figures, backend)
    return figures


def _said(seeds: Iterable[int], figures: Figures) -> Iterator[int]:
    for count, seed in enumerate(seeds):
        if count and count % 100 == 0 and __name__ == "__main__":
            print(figures.text(), flush=True)
        yield seed


def main() -> None:
    """The command."""
    parser = options(__doc__, "programs", 300)
    parser.add_argument("--backend", default="reference")
    args = parser.parse_args()
    with empty_cache() as folder:
        figures = run(range(args.seed, args.seed + args.programs), folder, args.backend)
    report(figures, figures.reasons, args.show)


if __name__ == "__main__":
    main()
