"""Programs saved, loaded and called, against the compiled function in place; and changed files.

    python -m tests.programs.drawn_programs --count 1000 --changes 10000

prints how many calls had no difference (values, writes, aliases, versions, gradients), and what
became of files in which bytes or values of their texts were changed.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from contextlib import nullcontext
from typing import Any

import attrs

from aotlite.ir.errors import AotliteError, ArgumentError, FormatError
from aotlite.programs import ExportedProgram, program
from aotlite.programs.archive import Archive, unpacked
from aotlite.programs.files import packed, program_of
from aotlite.testing.compiled import REFUSED, compile_by_reference
from aotlite.testing.engines.interpreter import setup_of
from aotlite.testing.generate.bodies import LIBRARY
from aotlite.testing.generate.random_programs import draw
from aotlite.testing.observe.differences import differences
from aotlite.testing.observe.observe_call import observe_call
from aotlite.testing.programs.program import Program
from tests.rules.helpers.record_programs import changed


@attrs.frozen
class Saved:
    """One call of a drawn program, with the file of the program for it."""

    drawn: Program
    number: int
    data: bytes

    def loaded(self, data: bytes | None = None) -> ExportedProgram:
        return ExportedProgram(
            *program_of(self.data if data is None else data), backend="reference"
        )

    def observed(self, body: Any) -> Any:
        return observe_call(LIBRARY, self.drawn, self.number, body)


def saved(seed: int) -> list[Saved]:
    """The calls of a seed's program; those that compilation refuses are left out."""
    drawn = draw(seed)
    function, found = drawn.function_of(LIBRARY), []
    for number, call in enumerate(drawn.calls):
        _, args = setup_of(LIBRARY, call)
        with nullcontext() if call.grad else LIBRARY.no_grad():
            try:
                made = program(function, *args)
            except AotliteError:
                continue
        found.append(Saved(drawn, number, packed(made.records, made.state)))
    return found


def faults(each: Saved) -> list[str]:
    """The differences of a call of the loaded program from one of the compiled function."""
    compiled = compile_by_reference(each.drawn.function_of(LIBRARY))
    mine, its = each.observed(each.loaded()), each.observed(compiled)
    if isinstance(its.error, REFUSED) and isinstance(mine.error, ArgumentError):
        return [] if mine.untouched else ["a refused call has written"]
    return differences(mine, its)


# ------------------------------------------------------------------------------------ changed files
def flipped(data: bytes, rng: random.Random) -> bytes:
    """The bytes of a file with some of them changed, or cut off."""
    if rng.random() < 0.3:
        return data[: rng.randrange(len(data))]
    made = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
    return bytes(made)


def rewritten(data: bytes, rng: random.Random) -> bytes:
    """A file of other records, as somebody could write it: its digest is right."""
    archive = unpacked(data)
    return Archive(changed(archive.document, rng), archive.arrays).packed("0")


def fate(each: Saved, data: bytes) -> str:
    """What becomes of a changed file: refused, or loaded; a program that is another one is called,
    and may raise errors of aotlite."""
    try:
        loaded = each.loaded(data)
    except FormatError:
        return "refused"
    if packed(loaded.records, loaded.state) == each.data:
        return "the same"
    call = each.drawn.calls[each.number]
    _, args = setup_of(LIBRARY, call)
    with nullcontext() if call.grad else LIBRARY.no_grad():
        try:
            loaded(*args)
        except AotliteError:
            return "another program, which refuses the call"
    return "another program"


def main(count: int, changes: int, seed: int) -> Counter[str]:
    """Compares calls and reads changed files; prints what is wrong."""
    found: Counter[str] = Counter()
    kept: list[Saved] = []
    for number in range(seed, seed + count):
        found["programs"] += 1
        for each in saved(number):
            wrong = faults(each)
            found["calls"] += 1
            if wrong:
                found["calls with differences"] += 1
                print(f"seed {number}, call {each.number}: {wrong[:2]}", flush=True)
            kept = [*kept, each][-50:]
    rng = random.Random(seed)
    for k in range(changes):
        each = rng.choice(kept)
        how = flipped if k % 2 else rewritten
        made, begin = how(each.data, rng), time.perf_counter()
        try:
            words = fate(each, made)
        except Exception as error:
            words = "raises something else"
            print(f"{how.__name__}: {type(error).__name__}: {error}"[:300], flush=True)
        found[f"{how.__name__} files: {words}"] += 1
        found["files that take a second"] += time.perf_counter() - begin > 1
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--changes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    total = main(chosen.count, chosen.changes, chosen.seed)
    print(dict(total))
    bad = "calls with differences", "files that take a second", "flipped files: another program"
    errors = [f"{how} files: raises something else" for how in ("flipped", "rewritten")]
    sys.exit(any(total[each] for each in (*bad, *errors)))
