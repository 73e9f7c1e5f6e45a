"""Random programs that compute with sizes, on views of one base: compiled once, they are eager.

    python -m tests.end_to_end.view_size_programs --count 500 --seed 1 --kind overlap --history none

The programs are those of `size_programs`. Their arguments are views of one flat base: windows that
overlap or not, or the same elements in another order.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from functools import partial
from math import prod
from typing import Any

import numpy as np

import aotlite as al
from tests.end_to_end.drawn_size_programs import SizeProgram, draw
from tests.end_to_end.size_calls import Arguments
from tests.end_to_end.size_programs import check, compare_many, parser_of

KINDS = ("apart", "overlap", "begin", "turned")
"""Windows one behind the other, windows that overlap, windows that begin at one element, and these
with turned dimensions."""
HISTORIES = ("none", "leaf", "behind")
"""Of the base: no gradient, a leaf that requires grad, the result of an op on one."""


def arguments(kind: str, history: str, program: SizeProgram, sizes: dict[str, int]) -> Arguments:
    """The arguments of a program, as views of one base."""
    shapes = [[int(s) if s.isdigit() else sizes[s] for s in shape] for shape in program.shapes]
    starts, end = [], 0
    for index, shape in enumerate(shapes):
        start = {"apart": end, "overlap": index}.get(kind, 0)
        starts.append(start)
        end = max(end, start + prod(shape))
    numbers = np.random.default_rng(5).integers(-4, 5, end + 1).astype(np.float32) / 2
    leaf = al.tensor(numbers).requires_grad_(history != "none")
    base = leaf * 1.0 if history == "behind" else leaf
    made = Arguments()
    for index, (start, shape) in enumerate(zip(starts, shapes, strict=True)):
        flat = base[start : start + prod(shape)]
        if kind == "turned" and index % 2:
            made.append(flat.view(shape[::-1]).permute(*range(len(shape))[::-1]))
        else:
            made.append(flat.view(shape))
    made.leaves = (leaf,) if history != "none" else ()
    return made


def check_views(
    seed: int, most: int, kind: str, history: str, **options: Any
) -> tuple[Counter[str], str]:
    """Compares the program of a seed with views of one base at all sizes, as `check` does."""
    program = draw(seed)
    make: Any = partial(arguments, kind, history)
    most = most if len(program.symbols) < 3 else min(most, 2)
    return check(program, most, make=lambda *given: make(*given), **options)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--kind", choices=KINDS, default="apart", help="how the views lie")
    parser.add_argument("--history", choices=HISTORIES, default="none", help="of the base")

    def check_one(seed: int, given: argparse.Namespace) -> tuple[Counter[str], str] | None:
        if len(draw(seed).shapes) < 2:
            return None
        return check_views(seed, given.most, given.kind, given.history, backend=given.backend)

    return compare_many(parser, check_one, lambda given: f"{given.kind}, {given.history}")


if __name__ == "__main__":
    sys.exit(main())
