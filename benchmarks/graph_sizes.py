"""Counts the ops that compilers make of views and writes, in aotlite and PyTorch.

`python -m benchmarks.graph_sizes` compiles the programs of `benchmarks/alias_programs.py` with
`aotlite.compile` and with PyTorch's `aot_function`, both with their default partition, and prints
for each how many ops the forward and the backward graph have, and the sums.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

import aotlite as al
from benchmarks.alias_programs import PROGRAMS, AliasProgram, overlapping_reads, row_writes
from benchmarks.common import installed_peers, machine_console, table

COUNTS = (16, 64)
"""The counts of programs that repeat a pattern."""

REASONS = {
    "expanded_then_written": (
        "PyTorch has one op for the gradient of a part; here it is zeros and a scatter, of which "
        "zeros of one shape are shared"
    ),
    "view_written_without_history": "the same: the gradient of a part is zeros and a scatter",
}
"""Program -> the reason why it is larger in aotlite than in PyTorch."""


@attrs.frozen
class Size:
    """The numbers of ops of the forward and the backward graph."""

    forward: int
    backward: int

    @property
    def both(self) -> int:
        return self.forward + self.backward

    def __str__(self) -> str:
        return f"{self.forward} + {self.backward}"


@attrs.frozen
class Row:
    """One program: its sizes in aotlite and PyTorch, and why one is missing."""

    name: str
    ours: Size | None
    theirs: Size | None
    failed: str | None = None


# ------------------------------------------------------------------------------------- measuring
def ours(of: AliasProgram) -> Size:
    """The size of aotlite's graphs of a program."""
    compiled = al.compile(lambda *args: of.body(al, *args))
    compiled(*of.arguments(al))
    backward = compiled.backward_graph
    return Size(len(compiled.forward_graph.calls), 0 if backward is None else len(backward.calls))


def theirs(of: AliasProgram) -> Size:
    """The size of PyTorch's graphs of a program."""
    import torch
    from torch._functorch.aot_autograd import aot_function, make_boxed_func

    sizes: list[int] = []

    def counted(module: Any, _: Any) -> Any:
        sizes.append(sum(node.op == "call_function" for node in module.graph.nodes))
        return make_boxed_func(module.forward)

    compiled = aot_function(
        lambda *args: of.body(torch, *args), fw_compiler=counted, bw_compiler=counted
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = compiled(*of.arguments(torch))
        if len(sizes) == 1:
            _run_backward(torch, results)
    return Size(sizes[0], sum(sizes[1:]))


def _run_backward(torch: Any, results: Any) -> None:
    """PyTorch may compile a backward only when it is called."""
    listed = results if isinstance(results, (tuple, list)) else [results]
    wanted = [each for each in listed if each.grad_fn is not None]
    if wanted:
        torch.autograd.backward(wanted, [torch.ones_like(each) for each in wanted])


def measured(name: str, of: AliasProgram, *, with_torch: bool) -> Row:
    """The row of a program, with the reason if a library refuses it."""
    found: list[Size | None] = []
    failed = None
    for library, count in (("aotlite", ours), ("torch", theirs if with_torch else None)):
        size, why = _tried(count, of)
        found.append(size)
        failed = failed or (why and f"{library}: {why}")
    return Row(name, found[0], found[1], failed)


def _tried(
    count: Callable[[AliasProgram], Size] | None, of: AliasProgram
) -> tuple[Size | None, str | None]:
    if count is None:
        return None, None
    try:
        return count(of), None
    except Exception as error:  # one refusal must not hide the other rows
        return None, f"{type(error).__name__}: {str(error).splitlines()[0]}"


def rows(*, with_torch: bool) -> Iterator[Row]:
    """The rows of all programs, those that repeat a pattern last."""
    for name, of in PROGRAMS.items():
        yield measured(name, of, with_torch=with_torch)
    for make in (row_writes, overlapping_reads):
        for count in COUNTS:
            yield measured(f"{make.__name__}:{count}", make(count), with_torch=with_torch)


# -------------------------------------------------------------------------------------- printing
def sums(found: Sequence[Row]) -> tuple[int, int, int]:
    """The number of programs that both compile without repetition, and their ops in either."""
    both = [row for row in found if row.ours and row.theirs and ":" not in row.name]
    return (
        len(both),
        sum(row.ours.both for row in both if row.ours),
        sum(row.theirs.both for row in both if row.theirs),
    )


def _remarks(found: Sequence[Row]) -> Iterator[str]:
    for row in found:
        if row.failed:
            yield f"{row.name}: {row.failed}"
        elif row.ours and row.theirs and row.ours.both > row.theirs.both:
            yield f"{row.name} is larger here: {REASONS.get(row.name, 'no reason is known')}"


def _cells(size: Size | None) -> tuple[str, str]:
    return ("-", "-") if size is None else (str(size), str(size.both))


def main(arguments: Sequence[str] | None = None) -> None:
    """Counts and prints."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.graph_sizes", description=__doc__)
    parser.add_argument("--ours-only", action="store_true", help="leave PyTorch out")
    parser.add_argument("--json", type=Path, help="write the sizes to this file")
    options = parser.parse_args(arguments)
    console = machine_console()
    peers = [] if options.ours_only else installed_peers(["torch"], console)
    found = list(rows(with_torch=bool(peers)))
    printed = table(
        "Ops of forward + backward", "program", "aotlite", "sum", "torch", "sum of torch"
    )
    for row in found:
        printed.add_row(row.name, *_cells(row.ours), *_cells(row.theirs))
    console.print(printed)
    count, here, there = sums(found)
    if peers:
        console.print(f"{count} programs that both compile: {here} ops here, {there} there")
    for remark in _remarks(found):
        console.print(remark)
    if options.json:
        options.json.write_text(json.dumps([attrs.asdict(row) for row in found]), "utf-8")


if __name__ == "__main__":
    main()
