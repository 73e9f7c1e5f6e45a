"""Random programs that compute with sizes: compiled once, compared with eager at all sizes.

    python -m tests.end_to_end.size_programs --count 2000 --seed 1

Each program is a text of some lines. It is compiled with `dynamic=True`, and called with all sizes
of {0..most}^k: values, strides, aliases, writes, plain results and errors must be eager's at each.
A long run says what it has found so far every 100 programs; with `--resume FILE` it goes on there.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import numpy as np

import aotlite as al
from aotlite.eager.subclass.protocol import flatten, is_wrapper
from tests.end_to_end.drawn_size_programs import TRIED, SizeProgram, draw


# ------------------------------------------------------------------------------------- comparison
class Arguments(list[al.Tensor]):
    """Arguments, with the tensors whose gradients are compared."""

    leaves: tuple[al.Tensor, ...] = ()


def observed(function: Callable[..., Any], arguments: Sequence[al.Tensor]) -> Any:
    """What a call does: results, strides, aliases, writes, gradients; or its error."""
    try:
        results = function(*arguments)
    except Exception as error:
        return type(error).__name__, str(error).partition("\n")[0]
    tensors = [*arguments, *[each for each in results if isinstance(each, al.Tensor)]]
    seen = [_seen(each) for each in arguments]
    seen += [_seen(each, _is_alone(each, tensors)) for each in tensors[len(arguments) :]]
    plain = [(type(r).__name__, r) for r in results if not isinstance(r, al.Tensor)]
    shared = [a.storage is b.storage for a, b in itertools.combinations(tensors, 2)]
    same = [a is b for a, b in itertools.combinations(tensors, 2)]
    bases = [next((k for k, t in enumerate(tensors) if t is x._base), -1) for x in tensors]
    return seen, plain, shared, same, bases, _gradients(tensors, arguments)


def _is_alone(result: al.Tensor, tensors: Sequence[al.Tensor]) -> bool:
    """Whether a result shares no memory: its offset is not observable then (META-10)."""
    return all(each is result or each.storage is not result.storage for each in tensors)


def _seen(tensor: al.Tensor, alone: bool = False) -> Any:
    try:
        return _facts(tensor, alone)
    except al.AotliteError as error:  # of a view that was written since
        return type(error).__name__, str(error).partition("\n")[0]


def _facts(tensor: al.Tensor, alone: bool = False) -> Any:
    offset = None if alone else tensor.storage_offset()
    geometry = tuple(tensor.shape), tensor.stride(), offset, tensor._version
    return (*geometry, str(tensor.dtype), tensor.requires_grad, _numbers(tensor))


def _numbers(tensor: al.Tensor) -> Any:
    """The numbers; of a wrapper its class, spec, and what its parts are."""
    if is_wrapper(tensor):
        names, spec = flatten(tensor)
        return type(tensor).__name__, str(spec), [_facts(getattr(tensor, name)) for name in names]
    return np.array(tensor.detach().tolist(), dtype=np.float64)


def _gradients(tensors: Sequence[al.Tensor], arguments: Sequence[al.Tensor]) -> Any:
    leaves = [each for each in arguments if each.requires_grad and each.is_leaf]
    leaves += arguments.leaves if isinstance(arguments, Arguments) else ()
    try:
        roots = [each for each in tensors if each.requires_grad and not each.is_leaf]
        if not leaves or not roots:
            return None
        found = al.autograd.grad([(each * each).sum() for each in roots], leaves, allow_unused=True)
    except al.AotliteError as error:  # of several written operands it may name another one
        return type(error).__name__, str(error).partition("\n")[0].partition(" f32[")[0]
    return [None if each is None else (tuple(each.shape), _values(each)) for each in found]


def _values(gradient: al.Tensor) -> Any:
    """The numbers alone: strides of gradients are the engine's matter."""
    if is_wrapper(gradient):
        names, spec = flatten(gradient)
        parts = [_values(getattr(gradient, name)) for name in names]
        return type(gradient).__name__, str(spec), parts
    return _numbers(gradient)


def is_same(a: Any, b: Any) -> bool:
    """Whether two observations are equal, numbers up to rounding."""
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and bool(np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(is_same, a, b))
    return bool(a == b) and type(a) is type(b)


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
    make: Callable[[SizeProgram, dict[str, int]], list[al.Tensor]] = SizeProgram.arguments,
    **options: Any,
) -> tuple[Counter[str], str]:
    """Compares a program at all sizes; what was seen, and the first difference, empty if none.
    `make` makes the arguments."""
    seen: Counter[str] = Counter()
    compiled = al.compile(program.function(), dynamic=True, recompile_limit=1000, **options)
    difference = _difference(program, compiled, most, seen, make)
    if difference:
        return seen, difference
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
            return seen, _difference(program, compiled, most, Counter(), make)
    return seen, ""


def _difference(
    program: SizeProgram,
    compiled: Any,
    most: int,
    seen: Counter[str],
    make: Callable[[SizeProgram, dict[str, int]], list[al.Tensor]],
) -> str:
    """The first difference of a compiled program from eager at all sizes; empty if none."""
    eager = program.function()
    for sizes in all_sizes(program, most):
        expected = observed(eager, make(program, sizes))
        found = observed(compiled, make(program, sizes))
        seen["points"] += 1
        if isinstance(found[0], str) and found[0] == "UnsupportedError" and found != expected:
            seen["refused"] += 1
        elif not is_same(expected, found):
            return f"at {sizes}:\n  eager    {expected}\n  compiled {found}"
    return ""


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
    seed: int, most: int, of_three: int, backend: str, *, witnesses: bool, floats: bool = False
) -> Outcome:
    """Compares the program of a seed at all sizes; an error is a difference."""
    program = draw(seed, floats=floats)
    try:
        largest = most if len(program.symbols) < 3 else of_three
        seen, difference = check(program, largest, witnesses=witnesses, backend=backend)
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
    one = partial(outcome, **how, witnesses=given.witnesses, floats=given.floats)
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
    parser.add_argument("--floats", action="store_true", help="programs that compute floats")
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
