"""Plays random programs eagerly and compiled; what one chunk of them gave."""

from __future__ import annotations

import gc
import re
import resource
import time
from collections import Counter
from typing import Any

import attrs

import aotlite as al
from aotlite.backends.reference import ReferenceBackend
from aotlite.ir.errors import AliasError, UnsupportedError
from aotlite.testing.cells import Watcher
from aotlite.testing.draws.drafts import LIBRARY
from aotlite.testing.draws.whole import draw
from aotlite.testing.programs import Program, body_of, script
from aotlite.testing.shrinking import shrunk
from aotlite.testing.worlds import World, differences, play_call

MEMORY = 6 * 2**30
"""Bytes of address space for a process that runs programs."""

REFUSED = (AliasError, UnsupportedError)
"""What a compiled call may raise where eager goes on, before any effect (GEN-2)."""


@attrs.define
class Outcome:
    """What became of one program."""

    calls: int = 0
    raised: int = 0
    refused: list[str] = attrs.field(factory=list)
    cells: list[int] = attrs.field(factory=list)
    """Those that calls hit which were compared whole."""
    found: list[str] = attrs.field(factory=list)
    """What differs."""


def options_of(seed: int) -> dict[str, Any]:
    """The options of a seed's program: most have none, and each is met."""
    if seed % 50 == 0:
        return {"verify": 2}
    match seed % 20:
        case 1:
            return {"fast_paths": False}
        case 2:
            return {"backend": ReferenceBackend(0)}
        case 3:
            return {"partition": "min_cut"}
        case 4:
            return {"keep_inference_input_mutations": True}
    return {}


def outcome(program: Program, options: dict[str, Any]) -> Outcome:
    """Plays all calls of a program on one compiled object, and each eagerly."""
    compiled = al.compile(body_of(LIBRARY, program), **options)
    result = Outcome()
    for number in range(len(program.calls)):
        its, cells = eager_call(program, number)
        mine = play_call(LIBRARY, program, number, compiled)
        result.calls += 1
        result.raised += its.error is not None
        refused = _refusal(mine, its)
        if refused is not None:
            result.refused.append(refused)
            continue
        result.found += [f"call {number}: {each}" for each in differences(mine, its)]
        if result.found:
            break
        result.cells += cells
    return result


def eager_call(program: Program, number: int) -> tuple[World, list[int]]:
    """The world after an eager call, and the cells that it hit."""
    grad = program.calls[number].grad
    seen: list[Any] = []

    def body(*args: Any) -> list[Any]:
        watcher = Watcher(LIBRARY, list(args), grad=grad)
        results = body_of(LIBRARY, program, watcher)(*args)
        seen.extend(watcher.cells(results))
        return results

    return play_call(LIBRARY, program, number, body), seen


def _refusal(mine: World, its: World) -> str | None:
    """What a compiled call was refused with, without names and numbers."""
    refused = isinstance(mine.error, REFUSED) and type(mine.error) is not type(its.error)
    if not refused or not mine.untouched:
        return None
    text = re.sub(r"\S*\[.*?\](\[.*?\])?|\(.*?\)|\b\d+\b", "_", str(mine.error).split("\n")[0])
    return f"{type(mine.error).__name__}: {text[:150]}"


# ------------------------------------------------------------------------------------- the chunks
@attrs.frozen
class Chunk:
    """Programs to run: seeds from the first on, each with its target."""

    number: int
    first: int
    targets: tuple[int, ...]


def guard_memory() -> None:
    """Keeps a process that runs programs within its share of memory."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def run_chunk(chunk: Chunk) -> dict[str, Any]:
    """A chunk's line of the ledger."""
    start = time.monotonic()
    counts: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    cells: Counter[int] = Counter()
    different: list[dict[str, Any]] = []
    for seed, target in enumerate(chunk.targets, chunk.first):
        program = draw(seed, target)
        result = outcome(program, options_of(seed))
        counts.update(programs=1, calls=result.calls, raised=result.raised)
        counts.update(steps=len(program.body))
        refused.update(result.refused)
        if result.found:
            different.append({"seed": seed, "target": target, "found": result.found[:3]})
        else:
            # A program counts once for a cell, whichever of its calls hit it.
            cells.update(set(result.cells))
    gc.collect()
    return {
        "chunk": chunk.number,
        "first": chunk.first,
        "seconds": round(time.monotonic() - start, 1),
        **counts,
        "refused": refused,
        "different": different,
        "cells": sorted(cells.items()),
    }


# -------------------------------------------------------------------------------- the differences
def kind_of(found: list[str]) -> str:
    """What the first difference is about, without names and numbers."""
    return re.sub(r"call \d+: |\[.*|\d+", "", found[0])[:60] if found else ""


def smallest(seed: int, target: int | None) -> Program:
    """The program of a seed that differs, without what does not matter for that."""
    program, options = draw(seed, target), options_of(seed)
    wanted = kind_of(outcome(program, options).found)

    def fails(smaller: Program) -> bool:
        try:
            return kind_of(outcome(smaller, options).found) == wanted != ""
        except Exception:  # a program that lacks what it needs
            return False

    return shrunk(program, fails)


def report(seed: int, target: int | None) -> str:
    """The smallest program of a difference as text, and what differs."""
    program = smallest(seed, target)
    found = outcome(program, options_of(seed)).found
    head = f"# seed {seed}, target {target}, {options_of(seed)}"
    return "\n".join([head, *found, script(program)])
