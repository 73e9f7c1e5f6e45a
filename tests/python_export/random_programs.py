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
from tests.programs.gradients_of_gradients import leaves_of
from tests.python_export.comparison import (
    Arrays,
    cotangent,
    differences,
    eager_call,
    leaves,
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

    def setup() -> tuple[list[Any], list[Any]]:
        with al.enable_grad():  # a call without is made of arguments with histories
            return setup_of(library, call)

    def fresh() -> list[Any]:
        return list(setup()[1])

    with np.errstate(all="ignore"):
        try:
            its, _ = eager_call(function, fresh())
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
        done.found = _gradient_differences(function, setup, entry, tolerance)
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


def _gradient_differences(function: Any, setup: Any, entry: Any, tolerance: float) -> list[str]:
    """How gradients of the leaves behind the arguments differ, through the file and in eager."""
    values, args = setup()
    arrays = Arrays()
    results, pullback = entry(*[arrays.of(arg) for arg in args])
    names = pullback.__code__.co_varnames[: pullback.__code__.co_argcount]
    given = {name: _cotangent(name, results, args) for name in names}
    try:
        its = _eager_gradients(function, setup, given)
    except (AotliteError, RuntimeError):
        return []  # eager's own backward raises
    found = pullback(**{name: of for name, of in given.items() if name in its.reached})
    values, args = setup()
    parameters = entry.__code__.co_varnames[: entry.__code__.co_argcount]
    named = dict(zip(parameters, leaves(args), strict=False))
    named |= {f"{name}._base": getattr(each, "_base", None) for name, each in named.items()}
    pairs = [(named[name], of) for name, of in found.items() if of is not None]
    through = al.autograd.grad(
        [tensor for tensor, _ in pairs],
        leaves_of(values),
        [al.from_numpy(np.array(of)) for _, of in pairs],
        allow_unused=True,
    )
    mine = [None if each is None else each.detach().numpy() for each in through]
    return _unequal(mine, its.gradients, tolerance)


def _cotangent(name: str, results: Any, args: Any) -> np.ndarray:
    """That of a result, `d_output_0`, or of an argument after the call, `d_updated_primals_0`."""
    place = int(name.rpartition("_")[2])
    if name.startswith("d_output_"):
        return cotangent(np.asarray(leaves(results)[place]), place)
    return cotangent(leaves(args)[place].detach().numpy(), place + 1)


@attrs.frozen
class _Gradients:
    """The gradients of leaves in eager."""

    gradients: list[np.ndarray | None]
    reached: list[str]
    """The names of the cotangents that eager takes."""


def _eager_gradients(function: Any, setup: Any, given: dict[str, np.ndarray]) -> _Gradients:
    values, args = setup()
    behind = leaves_of(values)
    results = leaves(function(*args))
    sums: dict[int, tuple[Any, Any]] = {}
    reached = []
    for name, of in given.items():
        place = int(name.rpartition("_")[2])
        tensor = (results if name.startswith("d_output_") else leaves(args))[place]
        if not _has_history(tensor):
            continue
        reached.append(name)
        grad = al.from_numpy(of.copy())
        before = sums.get(id(tensor))
        sums[id(tensor)] = (tensor, grad if before is None else before[1] + grad)
    pairs = list(sums.values())
    tensors, grads = [each for each, _ in pairs], [each for _, each in pairs]
    found = al.autograd.grad(tensors, behind, grads, allow_unused=True)
    return _Gradients([None if x is None else x.detach().numpy() for x in found], reached)


def _has_history(tensor: Any) -> bool:
    """Whether a tensor takes a gradient; one whose history must not be asked for does not."""
    if not isinstance(tensor, al.Tensor) or not tensor.requires_grad:
        return False
    try:
        return tensor.is_leaf or tensor.grad_fn is not None
    except (AotliteError, RuntimeError):
        return False


def _unequal(mine: Any, its: Any, tolerance: float) -> list[str]:
    found = []
    for place, (a, b) in enumerate(zip(mine, its, strict=True)):
        if a is None and b is None:
            continue
        have, want = (np.zeros(()) if each is None else each for each in (a, b))
        pair = have + np.zeros_like(want), want + np.zeros_like(have)
        if not np.allclose(*pair, rtol=tolerance, atol=tolerance, equal_nan=True):
            found.append(f"gradient {place}: {have.tolist()}, expected {want.tolist()}")
    return found


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
