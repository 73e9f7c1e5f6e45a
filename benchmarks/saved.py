"""Counts what twenty training programs save for the backward, and the ops of their graphs.

    python -m benchmarks.saved                     a table for each partition
    python -m benchmarks.saved PARTITION --json    one JSON object, which `benchmarks.against` reads

For each program of `benchmarks/training_programs.py`, compiled for the reference backend: the bytes
that are saved beyond the memory of inputs and results, the number of saved values, those of which
the backward graph reads nothing, and the numbers of ops of the forward and the backward graph.
`python -m benchmarks.against COMMIT saved --rounds 1` compares them with another commit's.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

import attrs

import aotlite as al
from aotlite.inspect import saved_bytes
from aotlite.ir.graph.role import Saved
from benchmarks.common import table, wide_console
from benchmarks.training_programs import PROGRAMS, TrainingProgram

PARTITIONS = ("default", "min_cut")


@attrs.frozen
class Counts:
    """What one compiled program saves and runs; the names of fields are those of columns."""

    saved_bytes: int
    saved_values: int
    unread_values: int
    forward_ops: int
    backward_ops: int


def counts(of: TrainingProgram, partition: str) -> Counts:
    """The counts of a program, after its first call."""
    compiled = al.compile(of.body, backend="reference", partition=partition)
    compiled(*of.arguments())
    cut, backward = compiled.partition, compiled.backward_graph
    assert backward is not None, "a training program has a backward"
    saved = [node for node in backward.placeholders if isinstance(node.role, Saved)]
    used = {value for node in backward.nodes for value in node.inputs()}
    return Counts(
        saved_bytes(cut),
        len(cut.saved),
        sum(node not in used for node in saved),
        len(compiled.forward_graph.calls),
        len(backward.calls),
    )


def rows(partition: str) -> dict[str, int]:
    """Row -> figure, for all programs: `batch norm default: backward ops`."""
    found: dict[str, int] = {}
    for name, of in PROGRAMS.items():
        for field, count in attrs.asdict(counts(of, partition)).items():
            found[f"{name} {partition}: {field.replace('_', ' ')}"] = count
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """Counts and prints."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.saved",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("partitions", nargs="*", metavar="PARTITION", help=f"of {PARTITIONS}")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    wanted = options.partitions or PARTITIONS
    if options.json:
        print(json.dumps({row: n for each in wanted for row, n in rows(each).items()}))
        return
    console = wide_console()
    for partition in wanted:
        columns = [field.name.replace("_", " ") for field in attrs.fields(Counts)]
        made = table(f"partition {partition}", "program", *columns)
        every = {name: attrs.astuple(counts(of, partition)) for name, of in PROGRAMS.items()}
        sums: tuple[Any, ...] = tuple(map(sum, zip(*every.values(), strict=True)))
        for name, found in (every | {"sum": sums}).items():
            made.add_row(name, *map(str, found))
        console.print(made)


if __name__ == "__main__":
    main()
