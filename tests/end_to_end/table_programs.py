"""Random programs of the whole op table, compiled and eager, compared after every line.

    python -m tests.end_to_end.table_programs --programs 2000 --seed 0 --mode all --jobs 2

Ops are called as their samples call them, on what the program has at hand. Prints a table, and the
ops that no capture met; exit status 1 if anything differs. A program that differs is shrunk.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from multiprocessing import get_context
from typing import Any

import attrs
from rich.console import Console
from rich.progress import track

import aotlite as al
from aotlite.backends.reference import ReferenceBackend
from aotlite.ir.graph import Graph
from aotlite.ir.graph.text.source import graph_from_source
from aotlite.ir.op import OPS, DataOp
from aotlite.ir.serialize import dumps, loads
from tests.end_to_end.helpers.scripts import Line, Script, eager_form, play, shrunk
from tests.end_to_end.helpers.table_bodies import table_script
from tests.end_to_end.random_programs import MODES, Outcome, Tally, outcome, table_of


class Rereading(ReferenceBackend):
    """The reference backend, on each graph as it is after it was saved or printed, and read."""

    def compile(self, graph: Graph) -> Any:
        loaded = loads(dumps(graph))
        text = graph.print_readable(print_output=False)
        printed = graph_from_source(text, constants=graph.constants)
        assert graph.code == loaded.code == printed.code
        return super().compile(loaded if len(graph.nodes) % 2 else printed)


ALL_MODES: dict[str, dict[str, Any]] = {
    **MODES,
    "reread": {"backend": Rereading()},
    "decomposed": {"decompositions": al.decompositions.core_table()},
    "writing": {"keep_inference_input_mutations": True},
}
SAMPLED = {"verified": 10, "reread": 5, "decomposed": 5, "writing": 5}
"""Modes that are run for every so many programs only, where there are other ones."""


def outcomes(seed: int, modes: tuple[str, ...]) -> tuple[int, dict[str, Outcome], frozenset[str]]:
    """The seed, what became of its script in each mode, and the ops that graphs had."""
    script = table_script(seed)
    eager = play(script, eager_form)
    met: set[str] = set()

    def observe(stage: str, made: Any) -> None:
        met.update(n.target.name for n in getattr(made, "nodes", ()) if n.op == "call")

    alone = len(modes) == 1
    chosen = [mode for mode in modes if alone or seed % SAMPLED.get(mode, 1) == 0]
    found = {
        mode: outcome(script, eager, {**ALL_MODES[mode], "observer": observe}) for mode in chosen
    }
    return seed, found, frozenset(met)


def run(
    seeds: Iterable[int], modes: tuple[str, ...], *, jobs: int = 1, progress: Any = iter
) -> tuple[dict[str, Tally], set[str]]:
    """Runs the programs of all seeds: a tally for each mode, and the ops that graphs had."""
    tallies = {mode: Tally() for mode in modes}
    met: set[str] = set()
    for seed, found, ops in progress(_results(seeds, modes, jobs)):
        met |= ops
        for mode, result in found.items():
            tallies[mode].add(seed, result)
    return tallies, met


def _results(seeds: Iterable[int], modes: tuple[str, ...], jobs: int) -> Iterator[Any]:
    work = partial(outcomes, modes=modes)
    if jobs == 1:
        yield from map(work, seeds)
        return
    with get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(work, seeds, chunksize=10)


def smallest(seed: int, mode: str) -> Script:
    """The program of a seed that differs in a mode, without what does not matter."""
    whole, options = table_script(seed), ALL_MODES[mode]
    wanted = _kinds(outcome(whole, play(whole, eager_form), options).found)

    def fails(script: Script) -> bool:
        try:
            eager = play(script, eager_form)
            if any(isinstance(m.error, (NameError, SyntaxError)) for m in eager.moments):
                return False
            return wanted == _kinds(outcome(script, eager, options).found)
        except Exception:
            return False

    for result in re.findall(r"\b[avp]\d+(?:\[-?\d+\])?", whole.result):
        if fails(one := attrs.evolve(whole, result=f"({result},)")):
            whole = one
            break
    found = shrunk(whole, fails)
    for place in reversed(range(found.head.count(",") + 1)):
        if fails(fewer := _without_input(found, place)):
            found = fewer
    return shrunk(found, fails)


def _without_input(script: Script, place: int) -> Script:
    """The script without a parameter, and what its calls give for it."""

    def less(text: str) -> str:
        start, end = text.index("f(") + 2, text.rindex(")")
        names = text[start:end].split(", ")
        return f"{text[:start]}{', '.join(names[:place] + names[place + 1 :])}{text[end:]}"

    session = [Line(e.kind, less(e.text)) if e.kind == "call" else e for e in script.session]
    return attrs.evolve(script, head=less(script.head), session=tuple(session))


def _kinds(found: list[str]) -> str:
    """What the first difference is about, without names and numbers."""
    first = found[0] if found else ""
    return re.sub(r"`.*?`|\w+\.(?=\w+:)|\d+", "", first, flags=re.DOTALL)[:40]


def unmet(met: set[str]) -> list[str]:
    """The ops that a capture takes and no graph had."""
    return sorted(n for n, op in OPS.items() if not isinstance(op, DataOp) and n not in met)


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(description="Random programs of the op table.")
    parser.add_argument("--programs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--mode", nargs="+", default=["all"], choices=[*ALL_MODES, "all"])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--show", type=int, default=3, help="programs to print per mode")
    given = parser.parse_args(arguments)
    console = Console(soft_wrap=True)
    modes = tuple(ALL_MODES) if "all" in given.mode else tuple(given.mode)
    seeds = range(given.seed, given.seed + given.programs)
    bar = partial(track, total=given.programs, console=Console(stderr=True))
    tallies, met = run(seeds, modes, jobs=given.jobs, progress=bar)
    console.print(table_of(tallies))
    missing = unmet(met)
    console.print(f"{len(met)} ops met; not met: {', '.join(missing) or 'none'}", markup=False)
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
