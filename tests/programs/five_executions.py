"""Drawn programs with aliases and writes, run in five ways on the same arguments, and compared.

    python -m tests.programs.five_executions --programs 1000 --seed 0 --demo 20

in place      the compiled function
file          `program(...)`, saved, loaded, called
numpy         the file of `to_python`
onnxruntime   each graph (forward, backward, that of the backward) left by `to_onnx`, run there
xla           each graph left by `to_stablehlo`, run by XLA

In the last two, stage 10 carries inputs to the graphs, and writes and views back. The demo's step
leaves whole: there, the convention alone says what is state and what is updated.

Each is compared with eager, so that five that agree with it agree with each other. Compared are
values, writes, shapes, sharing of memory and gradients. Drawn programs compute with exact numbers
(`aotlite.testing.observe.exact_numbers`): every bit is compared. Every second one has sines of its
results behind them, which are not exact: there, floats are equal to 1e-5, all others to the bit.
Gradients of gradients are compared too.
Prints, for each way, how many calls agree, differ, or are refused, and why.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import numpy as np

from aotlite.export import load, program
from aotlite.ir.errors import AotliteError, ArgumentError, ExportError
from aotlite.testing.compiled import REFUSED, compile_by_reference
from aotlite.testing.engines.interpreter import setup_of
from aotlite.testing.fuzzing.oracles import Compiled, Sides
from aotlite.testing.generate.bodies import LIBRARY
from aotlite.testing.generate.random_programs import draw
from aotlite.testing.observe.differences import differences, is_exact
from aotlite.testing.observe.exact_numbers import array_of
from aotlite.testing.observe.observation import Observation
from aotlite.testing.observe.observe_call import observe_call, shows_bits
from aotlite.testing.programs.program import Program
from aotlite.testing.programs.steps import Step
from tests.interchange.random_programs import BACKENDS, LIMITS, is_of_zero
from tests.programs.demo_in_five import trained
from tests.programs.gradients_of_gradients import derivative_differences
from tests.python_export.random_programs import outcome
from tests.python_export.second_order import derivatives_by_file

TOLERANCE = 1e-5
SECOND = ", order 2"
RUNTIMES = {"onnxruntime": "onnx", "xla": "xla"}
WAYS = ("in place", "file", "numpy", *RUNTIMES)
JUDGE = Compiled(LIBRARY, refusals=(*REFUSED, ExportError))
Body = Callable[..., Any]


@attrs.frozen
class Result:
    """What became of one call in one way."""

    kind: str
    """agrees, sign of zero (ICH-10), raises as eager, refused, differs."""
    why: str = ""


# --------------------------------------------------------------------------------- the programs
def drawn_for_all(seed: int) -> Program:
    """A seed's program; one of an odd seed has the sines of its results behind them."""
    drawn = draw(seed, None, LIMITS)
    return with_sines(drawn) if seed % 2 and not shows_bits(drawn) else drawn


def with_sines(drawn: Program) -> Program:
    """The program with the sine of each result that is a tensor as a further result."""
    its = observe_call(LIBRARY, drawn, 0, drawn.function_of(LIBRARY))
    if its.error is not None:
        return drawn
    pairs = zip(drawn.results, its.plain, strict=True)
    added = [Step("sin", (result,)) for result, plain in pairs if plain is None]
    first = drawn.arity + len(drawn.body)
    names = [f"${first + k}" for k in range(len(added))]
    return attrs.evolve(drawn, body=(*drawn.body, *added), results=(*drawn.results, *names))


# --------------------------------------------------------------------------------- the five ways
def through_a_file(function: Body, order: int, *args: Any) -> Any:
    """Calls the program of a function for these arguments, as its file has it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "drawn.aotlite"
        program(function, *args, order=order).save(path)
        loaded = load(path, backend="reference")
    return loaded(*args)


def bodies(function: Body, ways: Sequence[str], order: int = 1) -> dict[str, Body]:
    """The ways that take and return tensors; they serve all calls of a program."""
    made: dict[str, Body] = {"in place": compile_by_reference(function)}
    made["file"] = partial(through_a_file, function, order)
    for way in RUNTIMES.keys() & set(ways):
        made[way] = compile_by_reference(function, backend=BACKENDS[RUNTIMES[way]])
    return {way: made[way] for way in ways if way in made}


def results_of(drawn: Program, ways: Sequence[str]) -> Iterator[tuple[str, int, Result]]:
    """(way, call, result) of each call in each way."""
    function = drawn.function_of(LIBRARY)
    found = bodies(function, ways)
    for number in range(len(drawn.calls)):
        its = observe_call(LIBRARY, drawn, number, function)
        refused = False
        for way, body in found.items():
            mine = observe_call(LIBRARY, drawn, number, body)
            other_words = way == "file" and refused and isinstance(mine.error, ArgumentError)
            if other_words and mine.untouched:
                result = Result("refused", "the compiled function refuses the call, too")
            else:
                result = compared(drawn, number, mine, its)
            refused = refused or (way == "in place" and result.kind == "refused")
            yield way, number, result
        if "numpy" in ways:
            yield "numpy", number, by_numpy(drawn, number, exact=is_exact(its))


def compared(drawn: Program, number: int, mine: Observation, its: Observation) -> Result:
    """The result of a call that was observed as `mine`, where eager's is `its`."""
    verdict = JUDGE.verdict(drawn, number, Sides(mine, its, []))
    if verdict.reason is not None:
        return Result("refused", verdict.reason)
    found = verdict.found
    if found and its.error is None and mine.error is None and not is_exact(its):
        found = differences(rounded(mine, its), its)
    if found:
        return Result("sign of zero" if all(map(is_of_zero, found)) else "differs", found[0])
    return Result("agrees" if its.error is None else "raises as eager")


def rounded(mine: Observation, its: Observation) -> Observation:
    """`mine` with the numbers of `its` where floats are equal to 1e-5."""

    def near(a: Any, b: Any) -> Any:
        if a is None or b is None or a.dtype != b.dtype:
            return a
        pair = array_of(a.values, a.dtype), array_of(b.values, b.dtype)
        return attrs.evolve(a, values=b.values) if is_near(*pair) else a

    def of(found: list[Any], eager: list[Any]) -> list[Any]:
        return list(map(near, found, eager)) if len(found) == len(eager) else found

    return attrs.evolve(
        mine,
        called=of(mine.called, its.called),
        grads=of(mine.grads, its.grads),
        written=of(mine.written, its.written),
    )


def is_near(mine: np.ndarray, its: np.ndarray) -> bool:
    """Whether floats are equal to 1e-5; others are not rounded."""
    if mine.shape != its.shape or its.dtype.kind != "f":
        return False
    return bool(np.allclose(mine, its, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True))


def by_numpy(drawn: Program, number: int, *, exact: bool) -> Result:
    """The result of a call of the file of `to_python`."""
    with nullcontext() if drawn.calls[number].grad else LIBRARY.no_grad():
        found = outcome(drawn, number, 0.0 if exact else TOLERANCE)
    if found.found:
        return Result("differs", found.found[0])
    kinds = {"compared": "agrees", "raised": "raises as eager"}
    kind = kinds.get(found.kind, "refused")
    return Result(kind, found.why if kind == "refused" else "")


# ---------------------------------------------------------------------- gradients of gradients
def second_results(drawn: Program, ways: Sequence[str]) -> Iterator[tuple[str, int, Result]]:
    """(way, call, result) of first and second derivatives of the calls that have some."""
    function = drawn.function_of(LIBRARY)
    for number, call in enumerate(drawn.calls):
        both = bodies(function, ways, order=2)
        for way, body in {**both, **({"numpy": function} if "numpy" in ways else {})}.items():
            if not call.grad:
                continue
            by: dict[str, Any] = {"found_by": derivatives_by_file} if way == "numpy" else {}
            setup = partial(setup_of, LIBRARY, call)
            try:
                found = derivative_differences(setup, body, function, **by)
            except JUDGE.refusals as error:
                yield way, number, Result("refused", str(error).splitlines()[0])
                continue
            except AotliteError as error:
                yield way, number, Result("differs", f"{type(error).__name__}: {error}")
                continue
            if found is not None:
                yield way, number, Result("differs", found[0]) if found else Result("agrees")


# ------------------------------------------------------------------------------------ the command
def tally(programs: int, seed: int, ways: Sequence[str]) -> dict[str, Counter[str]]:
    """The counts of each way, and of its second derivatives; prints what differs, and progress."""
    counts: dict[str, Counter[str]] = {}
    facts: Counter[str] = Counter()
    begin, shown = time.perf_counter(), time.perf_counter()
    for done, number in enumerate(range(seed, seed + programs), 1):
        drawn = drawn_for_all(number)
        facts += facts_of(drawn)
        for label, each in (("", results_of), (SECOND, second_results)):
            for way, call, result in each(drawn, ways):
                counted = counts.setdefault(way + label, Counter())
                counted[result.kind] += 1
                if result.kind == "refused":
                    counted[f"because {result.why}"] += 1
                if result.kind == "differs":
                    where = f"seed {number}, call {call}, {way}{label}"
                    print(f"{where}: {result.why[:300]}", flush=True)
        if time.perf_counter() - shown > 10 or done == programs:
            shown = time.perf_counter()
            print(f"{done} programs, {shown - begin:.0f} s", flush=True)
    print(", ".join([f"{count} {name}" for name, count in facts.items()]))
    rows = [way + label for label in ("", SECOND) for way in ways if way + label in counts]
    return {row: counts[row] for row in rows}


def facts_of(drawn: Program) -> Counter[str]:
    """How many calls of a program there are, and what they have in eager."""
    found: Counter[str] = Counter(programs=1)
    writes = any(step.op.endswith("_") or step.op == "setitem" for step in drawn.body)
    for number in range(len(drawn.calls)):
        its = observe_call(LIBRARY, drawn, number, drawn.function_of(LIBRARY))
        found["calls"] += 1
        found["with writes"] += writes
        found["with shared memory"] += len({each.storage for each in its.called}) < len(its.called)
        found["with gradients"] += any(its.grads)
        found["with exact numbers"] += is_exact(its)
    return found


KINDS = ("agrees", "sign of zero", "raises as eager", "refused", "differs")


def table(counts: dict[str, Counter[str]]) -> str:
    """A row for each way; below, the commonest reasons for refusals."""
    lines = [f"{'calls':24}" + "".join(f"{kind:>17}" for kind in KINDS)]
    for way, counted in counts.items():
        lines.append(f"{way:24}" + "".join(f"{counted[kind]:17}" for kind in KINDS))
    for way, counted in counts.items():
        reasons = [(n, name) for name, n in counted.most_common() if name.startswith("because ")]
        lines += [f"{way}: {n} {name[:150]}" for n, name in reasons[:5]]
    return "\n".join(lines)


def main() -> int:
    """Prints differences, progress and the table; the status is 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs.five_executions")
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--demo", type=int, default=0, metavar="STEPS")
    given = parser.parse_args()
    counts = tally(given.programs, given.seed, given.ways)
    print(table(counts))
    bad = any(counted["differs"] for counted in counts.values())
    if given.demo:
        for way, (losses, state) in trained(given.demo, given.ways).items():
            print(f"demo, {given.demo} steps, {way}: losses {losses:.1e}, model {state:.1e}")
            bad |= max(losses, state) > TOLERANCE
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
