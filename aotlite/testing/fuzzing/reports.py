"""Formats the report of a campaign: the failures with scripts and pictures, figures, last line."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import rich.table
from rich.table import Table

from aotlite.ir.errors import AotliteError
from aotlite.ir.filesystem import atomic_files
from aotlite.testing.coverage.cells import CELLS
from aotlite.testing.coverage.counts import ENOUGH
from aotlite.testing.fuzzing.one_program import options_of
from aotlite.testing.fuzzing.outcomes import Failure
from aotlite.testing.fuzzing.plan import EAGER, Plan
from aotlite.testing.fuzzing.statistics import Tally

TAB = "    "


def text_of(plan: Plan, failure: Failure) -> str:
    """Returns the text of a failure: its seed, its differences, the script, the drawing."""
    parts = [head(plan, failure), *(TAB + line for line in failure.found)]
    if failure.program is not None:
        parts += ["", textwrap.indent(script_of(plan, failure), TAB)]
    if failure.picture:
        parts += ["", textwrap.indent(failure.picture, TAB)]
    return "\n".join(parts)


def head(plan: Plan, failure: Failure) -> str:
    """Returns the line that identifies a failing program."""
    cell = " x ".join(CELLS[failure.target])
    small = "" if failure.is_small or failure.program is None else ", not shrunk"
    drawn = "" if failure.program is not None else ", and the drawing of it did not end"
    return f"program {failure.seed} towards {cell}{_options_text(plan, failure)}{small}{drawn}:"


def _options_text(plan: Plan, failure: Failure) -> str:
    options = _options(plan, failure)
    words = ", ".join(f"{name}={_shown(value)}" for name, value in options.items())
    return f", compiled with {words}" if words else ""


def _shown(value: object) -> str:
    return repr(value) if isinstance(value, (str, int, float)) else type(value).__name__


def _options(plan: Plan, failure: Failure) -> dict[str, object]:
    fixed = plan.fixed_options()
    return options_of(failure.seed) if fixed is None else fixed


def script_of(plan: Plan, failure: Failure) -> str:
    """Returns the failure's program as Python: code of the library if possible, else data."""
    assert failure.program is not None
    try:
        return _script(plan, failure)
    except AotliteError as error:
        text = repr(failure.program).replace("Step(", "\n    Step(").replace("Call(", "\n    Call(")
        names = "from aotlite.testing import Call, Program, Step"
        return f"# {error}\n{names}\n\nprogram = {text}\nprint(program.run({_engine(plan)!r}))\n"


def _engine(plan: Plan) -> str:
    return plan.engine if plan.against == EAGER else plan.against


def _script(plan: Plan, failure: Failure) -> str:
    assert failure.program is not None
    if plan.against == "numpy":
        return failure.program.to_numpy()
    if "torch" in (plan.engine, plan.against):
        return failure.program.to_torch(compiled=plan.against == EAGER)
    options = {} if plan.against != EAGER else _options(plan, failure)
    if plan.function is None or not plan.function.rpartition(":")[0].endswith(".py"):
        return failure.program.to_script(compile=plan.function, **options)
    file, _, name = plan.function.rpartition(":")
    path = Path(file).absolute()
    text = failure.program.to_script(compile=f"{path.stem}:{name}", **options)
    return f"import sys\n\nsys.path.insert(0, {str(path.parent)!r})\n{text}"


def write_script(plan: Plan, failure: Failure, folder: Path) -> Path | None:
    """Writes a failure's script, with its report as comments; returns the file."""
    if failure.program is None:
        return None
    said = "\n".join([head(plan, failure), *failure.found])
    parts = [_comment(said), script_of(plan, failure), *filter(None, [_comment(failure.picture)])]
    name = f"program_{failure.seed}.py"
    atomic_files.write(folder, name, "\n\n".join(part.rstrip("\n") for part in parts) + "\n")
    return folder / name


def _comment(text: str) -> str:
    return textwrap.indent(text, "# ", lambda line: True) if text else ""


# -------------------------------------------------------------------------------- the figures
def figures(tally: Tally) -> rich.table.Table:
    """The figures of a run as a table for a terminal."""
    table = Table("random programs about aliasing", "")
    rows = [
        ("programs", tally.programs),
        ("calls", tally.counts["calls"]),
        ("steps", tally.counts["steps"]),
        ("calls that raise in eager", tally.counts["raised"]),
        ("calls refused, excused or left out", tally.reasons.total()),
        ("failures", len(tally.failed)),
        ("cells aimed at", len(tally.targets)),
        ("cells hit", tally.hit()),
        (f"cells hit by {ENOUGH} programs or more", tally.hit(ENOUGH)),
        ("seconds of processor time", round(tally.seconds)),
    ]
    for name, value in rows:
        table.add_row(name, f"{value:,}")
    return table


def lines(plan: Plan, tally: Tally, show: int) -> Iterator[str]:
    """Yields the reasons of calls that were not compared, and the failures.

    `show` of them are in full, of the shrunk ones if there are any.
    """
    yield from tally.notes
    for reason, count in tally.reasons.most_common():
        yield f"{count} x {reason}"
    small = [each for each in tally.failures if each.is_small]
    rest = [each for each in tally.failures if not each.is_small]
    full = (small or rest)[:show]
    for failure in [each for each in tally.failures if each not in full]:
        yield f"{head(plan, failure)} {failure.found[0]}"
    for number, failure in enumerate(full, 1):
        yield f"\nfailure {number} of {len(tally.failed)}: {text_of(plan, failure)}"


def cell_lines(tally: Tally, count: int = 20) -> Iterator[str]:
    """The reasons of impossible cells, and the rarest cells."""
    for reason, cells in tally.coverage.impossible().items():
        yield f"{cells:,} cells impossible: {reason}"
    rarest = sorted(tally.targets, key=tally.coverage.hits.__getitem__)[:count]
    for number in rarest:
        yield f"{tally.coverage.hits[number]} x {' | '.join(CELLS[number])}"
