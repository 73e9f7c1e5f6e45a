"""The differences between the observations of a program in aotlite and in PyTorch (GEN-11).

`aotlite.testing.pytorch.expected_differences` has the differences that rules demand, by name; any
other difference is a bug.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from aotlite.testing.engines import engine
from aotlite.testing.engines.interpreter import body_of
from aotlite.testing.engines.pytorch import TorchEngine
from aotlite.testing.observe.differences import differences
from aotlite.testing.observe.observation import Observation, TensorSnapshot
from aotlite.testing.observe.observe_call import observe_call
from aotlite.testing.programs.program import Program

OURS = engine("aotlite")


CLASSES = {
    "ShapeError": ("RuntimeError", "ValueError", "IndexError"),
    "ArgumentError": ("RuntimeError", "ValueError", "TypeError"),
    "DTypeError": ("RuntimeError", "TypeError", "NotImplementedError"),
    "IndexOutOfRangeError": ("IndexError",),
    "AliasError": ("RuntimeError",),
    "AutogradError": ("RuntimeError",),
    "UnsupportedError": ("RuntimeError",),
}
"""aotlite's class of errors -> the corresponding classes of PyTorch."""


def is_same_error(ours: str, theirs: str) -> bool:
    """Whether the class of PyTorch's error corresponds to that of aotlite's."""
    return theirs in CLASSES.get(ours, ())


def worlds(torch: object, program: Program, number: int) -> tuple[Observation, Observation]:
    """Returns the observations of one eager call in aotlite and in PyTorch."""
    theirs = TorchEngine(torch)
    mine = observe_call(OURS, program, number, body_of(OURS, program))
    return mine, observe_call(theirs, program, number, body_of(theirs, program))


def compared(mine: Observation, its: Observation) -> list[str]:
    """Returns the differences between aotlite's observation and PyTorch's.

    Inputs of calls that raise are not compared, as eager code has written them before the error.
    """
    if (mine.error is None) != (its.error is None):
        return [f"error: {mine.error!r}, PyTorch {its.error!r}"]
    if mine.error is not None:
        names = type(mine.error).__name__, type(its.error).__name__
        return [] if is_same_error(*names) else [f"class: {mine.error!r}, PyTorch {its.error!r}"]
    return differences(unsigned(mine), _in_our_words(unsigned(its), mine))


def unsigned(world: Observation) -> Observation:
    """The observation without signs of zeros, which in PyTorch depend on the index in a vector."""
    return attrs.evolve(
        world,
        called=[attrs.evolve(each, values=_plus_zero(each)) for each in world.called],
        written=[attrs.evolve(each, values=_plus_zero(each)) for each in world.written],
    )


def _plus_zero(seen: TensorSnapshot) -> bytes:
    name = _dtype(seen.dtype)
    if not name.startswith(("float", "complex")):
        return seen.values
    parts = np.frombuffer(seen.values, {"float32": "f4", "complex64": "f4"}.get(name, "f8"))
    return (parts + 0.0).tobytes()


def _in_our_words(its: Observation, mine: Observation) -> Observation:
    """PyTorch's observation with aotlite's names of dtypes and of corresponding errors."""
    return attrs.evolve(
        its,
        backward=_error(mine.backward, its.backward),
        write=_error(mine.write, its.write),
        called=_all_seen(mine.called, its.called),
        written=_all_seen(mine.written, its.written),
        grads=[g and attrs.evolve(g, dtype=_dtype(g.dtype)) for g in its.grads],
    )


def _all_seen(mine: list[TensorSnapshot], its: list[TensorSnapshot]) -> list[TensorSnapshot]:
    if len(mine) != len(its):
        return its
    return [_seen(a, b) for a, b in zip(mine, its, strict=True)]


def _seen(mine: TensorSnapshot, its: TensorSnapshot) -> TensorSnapshot:
    leaf, node = _error(mine.leaf, its.leaf), _error(mine.node, its.node)
    return attrs.evolve(its, dtype=_dtype(its.dtype), leaf=leaf, node=node)


def _error(mine: Any, its: Any) -> Any:
    both = isinstance(mine, str) and isinstance(its, str)
    return mine if both and is_same_error(mine, its) else its


def _dtype(name: str) -> str:
    return name.removeprefix("torch.")


# ------------------------------------------------------------------------- PyTorch's own compiler
def aot_difference(torch: object, program: Program) -> str:
    """The kind of the first difference between PyTorch's compiled function and its eager mode.

    Each call has its own compiled function. "refused" if only a compiled call raises, "same" if
    there is no difference.
    """
    from torch._functorch.aot_autograd import aot_function
    from torch._functorch.compilers import nop

    theirs = TorchEngine(torch)
    body = body_of(theirs, program)
    told = "same"
    for number in range(len(program.calls)):
        eager = observe_call(theirs, program, number, body)
        compiled = observe_call(theirs, program, number, aot_function(body, nop))
        if eager.error is not None:
            found = [] if compiled.error is not None else ["no error"]
        elif compiled.error is not None:
            told = "refused"
            continue
        else:
            found = differences(unsigned(compiled), unsigned(eager))
        if found:
            return min((_kind(line) for line in found), key=KINDS.index)
    return told


KINDS = ("values", "gradient", "error", "identity", "memory", "strides", "history", "counts")
"""The kinds of differences, the worst first."""


def _kind(line: str) -> str:
    words = {
        **dict.fromkeys(("values", "shape", "dtype", "plain"), "values"),
        **dict.fromkeys(("no", "backward", "write"), "error"),
        **dict.fromkeys(("storage", "base", "offset"), "memory"),
        **dict.fromkeys(("requires_grad", "leaf", "node"), "history"),
        "gradient": "gradient",
        "objects": "identity",
        "stride": "strides",
        "version": "counts",
    }
    return words[line.split()[0].rstrip(":")]
