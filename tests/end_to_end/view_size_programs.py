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
from tests.end_to_end.size_programs import Arguments, check

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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100, help="programs (default 100)")
    parser.add_argument("--seed", type=int, default=0, help="of the first program (default 0)")
    parser.add_argument("--most", type=int, default=4, help="the largest size (default 4)")
    parser.add_argument("--kind", choices=KINDS, default="apart", help="how the views lie")
    parser.add_argument("--history", choices=HISTORIES, default="none", help="of the base")
    parser.add_argument("--backend", default="reference")
    parser.add_argument("--show", type=int, default=5, help="differences to print (default 5)")
    given = parser.parse_args()
    total: Counter[str] = Counter()
    different = 0
    for seed in range(given.seed, given.seed + given.count):
        if len(draw(seed).shapes) < 2:
            continue
        how = given.most, given.kind, given.history
        try:
            seen, difference = check_views(seed, *how, backend=given.backend)
        except Exception as error:
            seen, difference = Counter(), f"{type(error).__name__}: {error}"
        total.update(seen)
        if difference:
            different += 1
            if different <= given.show:
                print(f"seed {seed}\n{draw(seed).text}{difference}\n", flush=True)
    kind = f"{given.kind}, {given.history}"
    print(f"{kind}: {given.count} programs, {different} differ; {dict(total)}")
    return different > 0


if __name__ == "__main__":
    sys.exit(main())
