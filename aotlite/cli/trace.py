"""`aotlite trace FILE`: sums a trace file up by compilation, or writes it as a Chrome trace."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterator, Sequence

from aotlite.ir.errors import ArgumentError, noted
from aotlite.ir.filesystem import atomic_files
from aotlite.ir.logs import NO_COMPILATION
from aotlite.pipeline.logs.chrome_traces import Record, chrome_text, records_in

_CALLS = ("call", "backward_call", "tape_call")
_MOST_REASONS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `aotlite trace`."""
    parser.add_argument("file", metavar="FILE", help="what a run with AOTLITE_TRACE=FILE wrote")
    parser.add_argument(
        "-o",
        "--out",
        metavar="FILE",
        help="write the events as JSON for chrome://tracing or https://ui.perfetto.dev",
    )
    parser.add_argument(
        "--compilation", metavar="ID", help="only the events of this compilation, such as 3"
    )


def command(args: argparse.Namespace) -> None:
    """Runs `aotlite trace`: prints the sums, or writes the Chrome trace."""
    try:
        records, wrong = records_in(args.file)
    except OSError as error:
        what = f"trace: {args.file!r} cannot be read ({error.strerror}), expected a trace file"
        raise ArgumentError(what) from error
    records = _chosen(records, args.compilation)
    if args.out is None:
        print("\n".join(_summary(records)))
    else:
        _write(args.out, chrome_text(records))
        print(f"{args.out}: {len(records)} events")
    if wrong:
        print(f"{wrong} lines are no events and were left out")


def _chosen(records: list[Record], compile_id: str | None) -> list[Record]:
    if compile_id is None:
        return records
    found = [each for each in records if _whole(each) == compile_id]
    if not found:
        known = ", ".join(dict.fromkeys(map(_whole, records)))
        raise ArgumentError(f"trace: no event is of compilation {compile_id!r}, expected {known}")
    return found


def _whole(record: Record) -> str:
    """The compilation of a record, whichever instance of its region it is of."""
    compile_id: str = record["compile_id"]
    return compile_id.partition(".")[0]


def _write(path: str, text: str) -> None:
    folder, name = os.path.split(os.path.abspath(path))
    try:
        atomic_files.write(folder, name, text)
    except OSError as error:
        what = f"trace: --out is {path!r}, expected a file that can be written"
        raise noted(ArgumentError(what), str(error)) from error


# ----------------------------------------------------------------------------------- the sums
def _summary(records: Sequence[Record]) -> Iterator[str]:
    """The compilations in order, a paragraph each."""
    by_id: dict[tuple[int, str], list[Record]] = {}
    for each in records:
        if _whole(each) != NO_COMPILATION:
            by_id.setdefault((each["process"], _whole(each)), []).append(each)
    if not by_id:
        yield "no compilation"
    many = len({process for process, _ in by_id}) > 1
    for (process, compile_id), of in by_id.items():
        yield from _paragraph(f"{compile_id} of process {process}" if many else compile_id, of)


def _paragraph(title: str, records: Sequence[Record]) -> Iterator[str]:
    compiled = [each for each in records if each["event"] == "compile"]
    names = [f" of {each['function']}" for each in records if "function" in each]
    spent = "".join([f": {_ms(_seconds([each]))}" for each in compiled])
    failed = "".join([f", failed: {each['error']}" for each in compiled if "error" in each])
    yield f"compilation {title}{names[0] if names else ''}{spent}{failed}"
    stages: dict[str, list[Record]] = {}
    for each in records:
        if each["event"] == "stage":
            stages.setdefault(str(each.get("stage")), []).append(each)
    if stages:
        times = [f"{name} {_ms(_seconds(of))}" for name, of in stages.items()]
        yield f"  stages: {', '.join(times)}"
    yield from _kernels(records)
    for each in records:
        if each["event"] == "recompile":
            reasons = each.get("reasons", [])
            yield from [f"  because {reason}" for reason in reasons[-_MOST_REASONS:]]
        elif each["event"] == "artifact" and each.get("saved_bytes") is not None:
            yield f"  saved for the backward: {each['saved_bytes']} bytes"
    for event in _CALLS:
        of = [each for each in records if each["event"] == event]
        if of:
            yield f"  {event}: {len(of)} times, {_ms(_seconds(of) / len(of))} each"


def _kernels(records: Sequence[Record]) -> Iterator[str]:
    compilers = [each for each in records if each["event"] == "compiler"]
    looks = Counter(each.get("outcome") for each in records if each["event"] == "cache")
    if compilers or looks:
        yield (
            f"  kernels: {len(compilers)} compiled in {_ms(_seconds(compilers))}; disk cache: "
            f"{looks['hit']} hits, {looks['miss']} misses"
        )


def _seconds(records: Sequence[Record]) -> float:
    return sum([each.get("seconds", 0.0) for each in records])


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms"
