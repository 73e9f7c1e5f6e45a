"""Freezes random arguments of random programs, changes them at random, and compares with eager.

    python -m tests.freezing.changes --programs 1000 --seed 0

A program is called after each of six changes. Compared are results, their strides, gradients of the
first and second order, the arguments after the call, and the number of ops that were refolded with
the size of the cones of what has changed. Half of the programs are chains of ops, half those of
`aotlite.testing`, with writes and aliases. Prints figures; exit status 1 if anything differs.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import attrs

import aotlite as al
from aotlite.freezing.fold_graph import computes, cone_of
from aotlite.ir.graph.role import Primal
from aotlite.testing.compiled import REFUSED
from aotlite.testing.engines import engine
from aotlite.testing.engines.interpreter import body_of, setup_of
from aotlite.testing.generate.random_programs import draw
from aotlite.testing.observe.differences import differences
from aotlite.testing.observe.observe_call import Setting, observe
from tests.freezing.frozen_programs import FrozenProgram

CHANGES = 6


@attrs.define
class Figures:
    """What a run has seen."""

    programs: int = 0
    calls: int = 0
    changes: Counter[str] = attrs.field(factory=Counter)
    folded_calls: int = 0
    """Calls with something folded."""
    refolded: int = 0
    """Ops that were run again after a change."""
    second_orders: int = 0
    refused: int = 0
    """Calls that the compiled function refuses, without effect, where eager runs (GEN-2)."""
    failures: list[str] = attrs.field(factory=list)

    def __str__(self) -> str:
        ways = ", ".join([f"{count} {way}" for way, count in sorted(self.changes.items())])
        return (
            f"{self.programs} programs, {self.calls} calls, of which {self.folded_calls} with "
            f"folded values and {self.refused} refused; {self.second_orders} second derivatives\n"
            f"changes: {ways}\n{self.refolded} ops refolded, each call as many as its cone has\n"
            f"{len(self.failures)} failures"
        )


# ---------------------------------------------------------------------------------------- chains
def run_chain(seed: int, figures: Figures, **options: Any) -> None:
    """A chain of ops: exact comparison, and the count of refolded ops."""
    program = FrozenProgram(seed, **options)
    before: list[bytes] = []
    for call in range(CHANGES):
        way = "first call" if not call else program.change()
        if call:
            figures.changes[way] += 1
        mine, its = program.rest()
        now = program.contents()
        got, expected = program.frozen(*mine), program.eager(*its)
        place = f"chain {seed}, call {call} after {way}"
        figures.calls += 1
        figures.failures += _compared(place, got, expected)
        figures.failures += _compared(f"{place}, arguments", mine, its)
        pairs = [program.pair(i) for i in range(len(program.mine))]
        figures.failures += _compared(f"{place}, frozen", *zip(*pairs, strict=True))
        figures.failures += _gradients(place, (got, mine), (expected, its), figures)
        figures.failures += _count(place, program, before, now, figures)
        before = now
    figures.programs += 1


def _count(
    place: str,
    program: FrozenProgram,
    before: Sequence[bytes],
    now: Sequence[bytes],
    figures: Figures,
) -> list[str]:
    """Compares the ops that ran with the cone of what has changed since the call before."""
    graphs = program.frozen.fold_graphs
    figures.folded_calls += bool(graphs)
    if len(program.frozen.compiled.entries) > 1:
        return []  # other arguments require grad than before: another entry ran
    changed = [i for i, content in enumerate(now) if not before or before[i] != content]
    cone = {node for g in graphs for i in changed for node in cone_of(g, _role(program, i))}
    refolded = program.frozen.refolded
    if not before:  # constants, which depend on nothing, count, too
        whole = {node for graph in graphs for node in graph.calls if computes(node)}
        is_right = len(cone) <= refolded <= len(whole)
    else:
        figures.refolded += refolded
        is_right = refolded == len(cone)
    return [] if is_right else [f"{place}: {refolded} ops refolded, the cone has {len(cone)}"]


def _role(program: FrozenProgram, index: int) -> Primal:
    """The role of frozen tensor number `index`."""
    if not program.in_module:
        return Primal(index)
    names = [p.path for p in program.frozen._known.structure.places]
    return Primal(names.index(f"w{index}"))


def _compared(place: str, mine: Sequence[Any], its: Sequence[Any]) -> list[str]:
    found = []
    for i, (a, b) in enumerate(zip(mine, its, strict=True)):
        if (a is None) != (b is None):
            found.append(f"{place}: value {i} is {a}, eager {b}")
        elif a is not None and _facts(a) != _facts(b):
            found.append(f"{place}: value {i} is {_facts(a)}, eager {_facts(b)}")
    return found


def _facts(tensor: al.Tensor) -> tuple[object, ...]:
    plain = tensor.detach()
    return repr(plain.tolist()), plain.stride(), tensor.requires_grad, str(tensor.dtype)


def _gradients(
    place: str,
    mine: tuple[Sequence[Any], Sequence[Any]],
    its: tuple[Sequence[Any], Sequence[Any]],
    figures: Figures,
) -> list[str]:
    """Compares the gradients of the first and the second order, or the errors in their place."""
    a, b = _orders(*mine), _orders(*its)
    if isinstance(a, type) or isinstance(b, type):
        return [] if a is b else [f"{place}, gradients: {a}, eager {b}"]
    figures.second_orders += len(b) > 1
    found = [] if len(a) == len(b) else [f"{place}: {len(a)} orders, eager {len(b)}"]
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        found += _compared(f"{place}, gradients {i + 1}", *_near(x, y))
    return found


def _orders(results: Sequence[Any], arguments: Sequence[Any]) -> Any:
    """The gradients of each order that there is; the class of the error that a backward raises."""
    wanted = [x for x in arguments if x.requires_grad]
    roots = [(r * r).sum() for r in results if r.requires_grad]
    orders: list[Any] = []
    try:
        while wanted and roots and len(orders) < 2:
            total = sum(roots[1:], roots[0])
            grads = al.autograd.grad(total, wanted, create_graph=True, allow_unused=True)
            orders.append(grads)
            roots = [(g * g).sum() for g in grads if g is not None and g.requires_grad]
    except al.AutogradError as error:
        return type(error)
    return orders


def _near(mine: Sequence[Any], its: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The gradients, rounded: sums of several uses are added in other orders."""

    def rounded(each: Any) -> Any:
        return None if each is None else (each.detach() * 1e8).round().add(0.0).contiguous()

    return [rounded(each) for each in mine], [rounded(each) for each in its]


# -------------------------------------------------------------------- programs of aotlite.testing
def run_drawn(seed: int, figures: Figures, **options: Any) -> None:
    """A program of `aotlite.testing`: views, writes and aliases, observed as eager is."""
    library = engine("aotlite")
    program = draw(seed)
    rng = Random(seed)
    call = program.calls[0]
    sets = [setup_of(library, call) for _ in range(2)]
    body = body_of(library, program)
    places = _frozen_places(rng, sets[0][1], grad=call.grad)
    if not places:
        return
    order = [*places, *[i for i in range(len(sets[0][1])) if i not in places]]

    def ordered(*args: Any) -> list[Any]:
        return body(*[args[order.index(i)] for i in range(len(order))])

    frozen = al.freeze(
        ordered, *[sets[0][1][i] for i in places], **{"backend": "reference", **options}
    )
    rest = order[len(places) :]
    for number in range(CHANGES - 2):
        if number:
            figures.changes[_written(rng, sets, places)] += 1
        worlds = []
        functions: list[Any] = [frozen, ordered]
        for (values, args), function in zip(sets, functions, strict=True):
            given = rest if function is frozen else order
            setting = Setting(values, [args[i] for i in given], call.grad, call.write)
            worlds.append(observe(library, setting, function))
        mine, its = worlds
        figures.calls += 1
        if isinstance(mine.error, (*REFUSED, al.FreezeError)) and type(mine.error) is not type(
            its.error
        ):
            figures.refused += 1  # or a write has made a frozen argument require grad (FRZ-8)
            if not mine.untouched:
                figures.failures.append(f"program {seed}: refused with effects: {mine.error!r}")
            break
        figures.folded_calls += bool(frozen.fold_graphs)
        found = differences(mine, its)
        figures.failures += [f"program {seed}, call {number}: {each}" for each in found[:1]]
        if found or its.error is not None:
            break
    figures.programs += 1


def _frozen_places(rng: Random, args: Sequence[Any], *, grad: bool) -> list[int]:
    """Random arguments that may be frozen: in grad mode those that do not require grad."""
    places = [i for i, each in enumerate(args) if not (grad and each.requires_grad)]
    return sorted(rng.sample(places, rng.randint(1, len(places)))) if places else []


def _written(rng: Random, sets: Sequence[Any], places: Sequence[int]) -> str:
    """Writes a random frozen argument, and its twin."""
    place = rng.choice(places)
    way = rng.choice(["add_", "mul_", "nothing"])
    for _, args in sets:
        if way != "nothing":
            with al.no_grad():
                try:
                    getattr(args[place].detach(), way)(1 if way == "add_" else -1)
                except al.AotliteError:  # memory that overlaps itself
                    way = "nothing"
    return f"{way} of an argument"


def run(count: int, seed: int = 0, **options: Any) -> Figures:
    """Runs so many programs, in turns chains and drawn ones, from a seed on."""
    figures = Figures()
    while figures.programs < count:
        one = run_drawn if seed % 2 else run_chain
        one(seed, figures, **options)
        seed += 1
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    figures = run(given.programs, given.seed)
    print(*figures.failures[:20], figures, sep="\n")
    return bool(figures.failures)


if __name__ == "__main__":
    sys.exit(main())
