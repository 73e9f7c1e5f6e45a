"""Writes random programs as files of NumPy, and compares them with eager.

    python -m tests.python_export.random_programs --count 1000

Prints how many were compared, and which were refused and why; exit status 1 if anything differs.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from typing import Any

import attrs
import numpy as np

import aotlite as al
from aotlite.ir.errors import AotliteError, UnsupportedError
from aotlite.testing import draw
from aotlite.testing.engines import engine
from aotlite.testing.engines.interpreter import setup_of
from aotlite.testing.programs.program import Program
from tests.python_export.comparison import (
    Arrays,
    cotangent,
    differences,
    eager_call,
    eager_gradients,
    module_of,
    written_call,
)


@attrs.define
class Outcome:
    """What became of one call of a program."""

    kind: str
    """compared, gradients, raised, refused by capture, refused by to_python."""
    why: str = ""
    found: list[str] = attrs.field(factory=list)
    writes: bool = False
    aliases: bool = False
    gradients: bool = False


def outcome(program: Program, number: int = 0, tolerance: float = 0.0) -> Outcome:
    """Compares one call of a program, eager and by its file: bits, or floats to `tolerance`."""
    library = engine("aotlite")
    call = program.calls[number]
    function = program.function_of(library)

    def fresh() -> list[Any]:
        with al.enable_grad():  # a call without is made of arguments with histories
            return list(setup_of(library, call)[1])

    with np.errstate(all="ignore"):
        try:
            its, results = eager_call(function, fresh())
        except (AotliteError, RuntimeError) as error:
            return Outcome("raised", str(error))
    try:
        text, why = _written(function, fresh)
    except AotliteError as error:
        kind = "refused by to_python" if "to_python" in str(error) else "refused by capture"
        return Outcome(kind, _in_short(error))
    module = module_of(text)
    has_backward = hasattr(module, "body_with_backward") or "_with_backward(" in text
    name = next(n for n in vars(module) if n.endswith("_with_backward")) if has_backward else ""
    entry = getattr(module, name or _entry_name(text))
    seen, rest = written_call(entry if has_backward else lambda *a: (entry(*a),), fresh())
    done = Outcome("compared", why, found=differences(seen, its, tolerance=tolerance))
    done.writes = "[...] = updated" in text
    done.aliases = "result_" in text
    if not done.found and rest:
        done.gradients = True
        done.found = _gradient_differences(function, fresh, entry, results, tolerance)
    return done


def _written(function: Any, fresh: Any) -> tuple[str, str]:
    """The text of the file, and why it has no backward, where that is refused."""
    compiled = al.compile(function, backend="reference")
    try:
        return compiled.to_python(args=fresh()), ""
    except UnsupportedError as error:
        if not any("backward=False" in note for note in getattr(error, "__notes__", ())):
            raise
        return compiled.to_python(args=fresh(), backward=False), _in_short(error)


def _in_short(error: Exception) -> str:
    return re.sub(r"\d+|'.*?'", "_", str(error).splitlines()[0])[:90]


def _entry_name(text: str) -> str:
    return re.findall(r"^def (\w+)\(", text, re.M)[-1]


def _gradient_differences(
    function: Any, fresh: Any, entry: Any, results: Any, tolerance: float
) -> list[str]:
    try:
        its = eager_gradients(function, fresh())
    except AotliteError:
        return []  # eager's own backward raises
    arrays = Arrays()
    values, pullback = entry(*[arrays.of(arg) for arg in fresh()])
    names = pullback.__code__.co_varnames[: pullback.__code__.co_argcount]
    given = {}
    for index, value in enumerate(values):
        if f"d_output_{index}" in names and getattr(results[index], "requires_grad", False):
            given[f"d_output_{index}"] = cotangent(np.asarray(value), index)
    mine = pullback(**given)
    found = []
    parameters = entry.__code__.co_varnames[: entry.__code__.co_argcount]
    for place, gradient in its.items():
        got = mine.get(_name_of(parameters, place))
        want = np.zeros(()) if gradient is None else gradient
        have = np.zeros(()) if got is None else got
        pair = have + np.zeros_like(want), want + np.zeros_like(have)
        if not np.allclose(*pair, rtol=tolerance, atol=tolerance, equal_nan=True):
            found.append(f"gradient {place}: {have.tolist()}, expected {want.tolist()}")
    return found


def _name_of(parameters: Any, place: int) -> str:
    return parameters[place] if place < len(parameters) else ""


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    different = 0
    compared = 0
    seed = given.seed
    while compared < given.count:
        program = draw(seed)
        seed += 1
        done = outcome(program)
        counts[done.kind] += 1
        compared += done.kind == "compared"
        if done.kind == "compared":
            counts["with writes"] += done.writes
            counts["with aliases"] += done.aliases
            counts["with gradients"] += done.gradients
            counts["without their backward"] += bool(done.why)
        if done.why and done.kind != "raised":
            reasons[done.why] += 1
        if done.found:
            different += 1
            print(f"seed {seed - 1}: {done.found[:3]}")
    for name, count in counts.most_common():
        print(f"{count:6} {name}")
    for name, count in reasons.most_common(30):
        print(f"{count:6} {name}")
    print(f"{compared} compared, {different} different")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
