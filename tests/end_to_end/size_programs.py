"""Random programs that compute with sizes: compiled once, compared with eager at all sizes.

    python -m tests.end_to_end.size_programs --count 2000 --seed 1

Each program is a text of some lines. It is compiled with `dynamic=True`, and called with all sizes
of {0..most}^k: values, strides, aliases, writes, plain results and errors must be eager's at each.
With `--lines all` the ways in which programs are compiled and called are drawn, too (`size_calls`).
A long run says what it has found so far every 100 programs; with `--resume FILE` it goes on there.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import attrs

import aotlite as al
from aotlite.ir.graph import Graph
from aotlite.ir.op import OPS
from aotlite.ir.provenance.location import place_of
from aotlite.pipeline.arguments import call_of
from tests.end_to_end.drawn_size_programs import TRIED, SizeProgram, draw
from tests.end_to_end.size_calls import PLAINLY, Caller, Way, is_same, written
from tests.end_to_end.size_program_lines import ALL, FLOATS, PLAIN

Make = Callable[[SizeProgram, dict[str, int]], list[al.Tensor]]
LINES = {"all": ALL, "plain": PLAIN, "floats": FLOATS}
REFUSALS = ("UnsupportedError", "GuardError")
"""A function that fixes a named size is an error."""
OF_VALUES = ("IndexOutOfRangeError", "ArgumentError")
"""Errors of values, which a capture does not know: see `docs/limits.md`."""


def all_sizes(program: SizeProgram, most: int) -> Iterator[dict[str, int]]:
    """The sizes at which it was drawn, then all others up to `most`."""
    symbols = program.symbols
    yield {name: TRIED[name] for name in symbols}
    for values in itertools.product(range(most + 1), repeat=len(symbols)):
        yield dict(zip(symbols, values, strict=True))


def check(
    program: SizeProgram,
    most: int,
    *,
    witnesses: bool = False,
    way: Way = PLAINLY,
    make: Make = SizeProgram.arguments,
    **options: Any,
) -> tuple[Counter[str], str]:
    """Compares a program at all sizes; what was seen, and the first difference, empty if none.
    `make` makes the arguments."""
    seen: Counter[str] = Counter()
    named = {"dynamic_shapes": named_shapes(program)} if way.named else {}
    options = {"recompile_limit": 1000, **way.options, **named, **options}
    compiled = al.compile(program.function(), dynamic=way.dynamic, **options)
    difference = _difference(program, compiled, most, seen, way, make)
    if difference:
        return seen, f"{way}\n{difference}"
    for entry in compiled.entries:
        late = getattr(getattr(entry.guarded, "sizes", None), "table", None)
        if late is not None and late.late:
            return seen, f"asked after the guards were made: {late.late}"
    regions = compiled.regions()
    seen["programs"] += 1
    seen["entries"] += len(regions)
    seen["guards"] += sum(len(region.guards) for region in regions)
    seen["served"] += sum(len(region.sizes) for region in regions)
    if witnesses:
        needs, is_open = needs_of_guards(compiled)
        seen.update(needs)
        for each in is_open:
            print(f"open: {each}", flush=True)
        if needs["dead"]:  # regions are larger now
            return seen, _difference(program, compiled, most, Counter(), way, make)
    return seen, ""


def _difference(
    program: SizeProgram, compiled: Any, most: int, seen: Counter[str], way: Way, make: Make
) -> str:
    """The first difference of a compiled program from eager at all sizes; empty if none."""
    callers = [Caller(each, way, draws=program.draws) for each in (program.function(), compiled)]
    without = attrs.evolve(program, requires_grad=(False,) * len(program.shapes))
    for turn, sizes in enumerate(all_sizes(program, most)):
        called = without if way.turns == "detached" and turn % 2 else program
        given = [make(called, sizes) for _ in callers]
        expected, found = (
            caller.observe(arguments, turn)
            for caller, arguments in zip(callers, given, strict=True)
        )
        seen["points"] += 1
        seen["raised"] += _is_error(expected[0])
        if is_same(expected, found):
            continue
        fresh = partial(make, called, sizes)
        why = _known_difference(program, compiled, expected, found, fresh)
        if not why:
            return f"at {sizes}:\n  eager    {expected}\n  compiled {found}"
        seen[why] += 1
        for caller in callers:
            caller.earlier = None
        if _is_error(found[0]) and not is_same(written(given[1]), written(make(called, sizes))):
            return f"at {sizes}: arguments are written, though the call raised {found[0]}"
    return ""


def named_shapes(program: SizeProgram) -> dict[str, dict[int, al.Dim]]:
    """A name for each size that is a symbol."""
    return {
        f"a{place}": {k: al.Dim(each) for k, each in enumerate(shape) if each in program.symbols}
        for place, shape in enumerate(program.shapes)
    }


def _is_error(facts: Any) -> bool:
    return isinstance(facts[0], str)


def _known_difference(
    program: SizeProgram,
    compiled: Any,
    expected: list[Any],
    found: list[Any],
    arguments: Callable[[], list[al.Tensor]],
) -> str:
    """Why a call may differ from eager's: it is refused, or raises other errors of values."""
    if any(each and each[0] in REFUSALS for each in found):
        return "refused"
    pairs = enumerate(zip(expected, found, strict=False))
    at = next((k for k, (mine, its) in pairs if not is_same(mine, its)), 0)
    if not expected[at] or not _is_error(expected[at]) or not _is_of_values(*expected[at]):
        return ""
    if found[at] and _is_error(found[at]):
        return "earlier"
    given = arguments()
    if at > 1:  # a second call with the same arguments
        program.function()(*given)
    forwards = _serving(compiled, given)
    op = expected[at][1].partition(":")[0]
    op = op if any(name.startswith(op) for name in OPS) else ""
    line = _raising_line(program, given)
    return "" if all(line in _lines(each, op) for each in forwards) else "dead"


def _serving(compiled: Any, arguments: list[al.Tensor]) -> list[Graph]:
    """The forwards of the entries that serve these arguments, with gradients and without."""
    call = call_of(tuple(arguments), {})
    entries = []
    for mode in (al.enable_grad(), al.no_grad()):
        with mode:
            entries.append(compiled._valid(call))
    return [entry.partition.forward for entry in entries if entry is not None]


def _lines(forward: Graph, op: str) -> list[int]:
    """The lines of the program in whose place ops of this name stand in a graph."""
    return [
        place_of(node.location).line
        for node in forward.nodes
        if node.op == "call" and node.location is not None and node.target.name.startswith(op)
    ]


def _is_of_values(kind: str, text: str) -> bool:
    """Whether an error is about values: that of `masked_scatter` is about how many there are."""
    return kind in OF_VALUES or (kind == "ShapeError" and text.startswith("masked_scatter: "))


def _raising_line(program: SizeProgram, arguments: list[al.Tensor]) -> int | None:
    """The line of the program that raises in eager."""
    try:
        program.function()(*arguments)
    except al.AotliteError as error:
        frames = traceback.extract_tb(error.__traceback__)
        return next(each.lineno for each in frames if each.name == "program")
    return None


def needs_of_guards(compiled: Any) -> tuple[Counter[str], list[str]]:
    """How many guards have a witness, are implied by others, or are open; and the open ones.

    `dead` are those that were dropped as the program is the same without them."""
    seen: Counter[str] = Counter()
    is_open = []
    for region in compiled.regions(witnesses=True):
        if region.unknown:
            seen["unrepeatable"] += 1
            is_open.append(region.unknown)
        for need in region.needs:
            is_kept = any(need.guard is guard for guard in region.guards)
            kind = "witness" if need.witness is not None else "open" if need.is_open else "implied"
            kind = kind if need.far is None else "far"
            seen[kind if is_kept else "dead" if need.is_dead else "dropped"] += 1
            if kind == "open":
                is_open.append(f"{need!r} {region.arguments}")
    return seen, is_open


@attrs.frozen
class Outcome:
    """What one program has shown."""

    seed: int
    seen: Counter[str]
    difference: str


def outcome(
    seed: int, most: int, of_three: int, backend: str, *, witnesses: bool, lines: str = "all"
) -> Outcome:
    """Compares the program of a seed at all sizes; an error is a difference."""
    program = draw(seed, LINES[lines])
    way = Way.drawn(seed) if lines == "all" else PLAINLY
    try:
        largest = most if len(program.symbols) < 3 else of_three
        seen, difference = check(program, largest, witnesses=witnesses, way=way, backend=backend)
    except Exception as error:
        seen, difference = Counter(), f"{type(error).__name__}: {error}"
    if witnesses and seen["open"]:
        print(f"seed {seed} {program}\n{program.text}", flush=True)
    return Outcome(seed, seen, difference and f"seed {seed}\n{program.text}{difference}\n")


class Totals:
    """What all programs have shown, in a file that a later run goes on with."""

    def __init__(self, file: Path | None, first: int) -> None:
        self.file = file
        self.first = self.next = first
        self.total: Counter[str] = Counter()
        self.different: list[int] = []
        if file is not None and file.exists():
            found = json.loads(file.read_text())
            self.first, self.next = found["first"], found["next"]
            self.total, self.different = Counter(found["total"]), found["different"]

    def add(self, found: Outcome) -> None:
        self.next = found.seed + 1
        self.total.update(found.seen)
        self.different += [found.seed] if found.difference else []

    def report(self) -> str:
        """The counts so far, which are written into the file, too."""
        if self.file is not None:
            facts = {"first": self.first, "next": self.next, "different": self.different}
            self.file.write_text(json.dumps({**facts, "total": self.total}))
        counts = f"{len(self.different)} differ; {dict(self.total)}"
        return f"{self.next - self.first} programs, {counts}"


def compare_many(
    parser: argparse.ArgumentParser,
    check_one: Callable[[int, argparse.Namespace], tuple[Counter[str], str] | None],
    kind: Callable[[argparse.Namespace], str],
) -> int:
    """The command of a module whose programs have arguments of another kind: compares `--count`
    programs, and prints what differs. `check_one` gives None for a seed without a program."""
    parser.add_argument("--count", type=int, default=100, help="programs (default 100)")
    parser.add_argument("--seed", type=int, default=0, help="of the first program (default 0)")
    parser.add_argument("--most", type=int, default=4, help="the largest size (default 4)")
    parser.add_argument("--backend", default="reference")
    parser.add_argument("--show", type=int, default=5, help="differences to print (default 5)")
    given = parser.parse_args()
    total: Counter[str] = Counter()
    different = 0
    for seed in range(given.seed, given.seed + given.count):
        try:
            seen, difference = check_one(seed, given) or (Counter(), "")
        except Exception as error:
            seen, difference = Counter(), f"{type(error).__name__}: {error}"
        total.update(seen)
        if difference:
            different += 1
            if different <= given.show:
                print(f"seed {seed}\n{draw(seed).text}{difference}\n", flush=True)
    print(f"{kind(given)}: {given.count} programs, {different} differ; {dict(total)}")
    return different > 0


def parser_of(text: str | None) -> argparse.ArgumentParser:
    """A parser with a module's text as its help, whose lines stay."""
    return argparse.ArgumentParser(description=text, formatter_class=argparse.RawTextHelpFormatter)


def main() -> int:
    given = _parser().parse_args()
    totals = Totals(given.resume, given.seed)
    seeds = range(totals.next, totals.first + given.count)
    of_three = given.most if given.most_of_three is None else given.most_of_three
    how = {"most": given.most, "of_three": of_three, "backend": given.backend}
    one = partial(outcome, **how, witnesses=given.witnesses, lines=given.lines)
    with ExitStack() as stack:
        found: Iterator[Outcome] = map(one, seeds)
        if given.jobs > 1:
            pool = stack.enter_context(multiprocessing.get_context("spawn").Pool(given.jobs))
            found = pool.imap(one, seeds, chunksize=8)
        for each in found:
            totals.add(each)
            if each.difference and len(totals.different) <= given.show:
                print(each.difference, flush=True)
            if (totals.next - totals.first) % given.report_every == 0:
                print(totals.report(), flush=True)
    print(totals.report())
    return bool(totals.different)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(__doc__)
    parser.add_argument("--count", type=int, default=200, help="programs (default 200)")
    parser.add_argument("--seed", type=int, default=0, help="of the first program (default 0)")
    parser.add_argument("--most", type=int, default=8, help="the largest size (default 8)")
    parser.add_argument("--most-of-three", type=int, help="that of three sizes (default: the same)")
    parser.add_argument("--backend", default="reference")
    parser.add_argument("--witnesses", action="store_true", help="look for those of all guards")
    parser.add_argument(
        "--lines", choices=LINES, default="all", help="what programs do (default: all)"
    )
    parser.add_argument("--show", type=int, default=5, help="differences to print (default 5)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    parser.add_argument(
        "--report-every", type=int, default=100, help="programs between two reports (default 100)"
    )
    parser.add_argument(
        "--resume", type=Path, help="a file of what was found so far: the run goes on after it"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
