"""PyTorch as a library for the programs of `alias_data`, and what differs from aotlite's eager.

What a rule demands to differ is a named excuse, in `alias_excuses`; anything else is a bug. Rules:
GEN-11.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from tests.end_to_end.alias_data import Aotlite, Program, body_of
from tests.end_to_end.alias_worlds import Seen, World, differences, play_call

OURS = Aotlite()


class PyTorch:
    """PyTorch's eager library."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.tensor_type = torch.Tensor

    def make(self, values: list[Any], shape: Sequence[int], dtype: str, *, grad: bool) -> Any:
        made = self.torch.tensor(values, dtype=self.dtype(dtype))
        made = made if tuple(made.shape) == tuple(shape) else made.view(tuple(shape)).clone()
        return made.requires_grad_() if grad else made

    def full(self, shape: Sequence[int], number: Any, dtype: str) -> Any:
        return self.torch.full(tuple(shape), number, dtype=self.dtype(dtype))

    def dtype(self, name: str) -> Any:
        return getattr(self.torch, name)

    def function(self, name: str) -> Any:
        return getattr(self.torch, name)

    def alias(self, tensor: Any) -> Any:
        return self.torch.ops.aten.alias(tensor)

    def hidden_alias(self, tensor: Any) -> Any:
        return tensor.data

    def resize(self, tensor: Any, shape: Sequence[int]) -> Any:
        memory = tensor.untyped_storage()
        size = memory.nbytes()
        tensor.resize_(tuple(shape))
        if memory.nbytes() > size:
            # By a tensor that counts writes of its own: nobody has written yet.
            self.torch.empty(0, dtype=self.torch.uint8).set_(memory)[size:].zero_()
        return tensor

    def no_grad(self) -> Any:
        return self.torch.no_grad()

    def backward(self, tensors: list[Any], gradients: list[Any]) -> None:
        self.torch.autograd.backward(tensors, gradients)

    def storage_of(self, tensor: Any) -> int:
        return tensor.untyped_storage()._cdata

    def version_of(self, tensor: Any) -> int:
        return tensor._version

    def base_of(self, tensor: Any) -> Any:
        return tensor._base

    def bytes_of(self, tensor: Any) -> bytes:
        # Memory that NumPy sees cannot be resized any more.
        return tensor.resolve_conj().clone().numpy().tobytes()


CLASSES = {
    "ShapeError": ("RuntimeError", "ValueError", "IndexError"),
    "ArgumentError": ("RuntimeError", "ValueError", "TypeError"),
    "DTypeError": ("RuntimeError", "TypeError"),
    "IndexOutOfRangeError": ("IndexError",),
    "AliasError": ("RuntimeError",),
    "AutogradError": ("RuntimeError",),
    "UnsupportedError": ("RuntimeError",),
}
"""PyTorch's classes of errors that are ours."""


def is_same_error(ours: str, theirs: str) -> bool:
    """Whether PyTorch's error is of a class that stands for ours."""
    return theirs in CLASSES.get(ours, ())


def worlds(torch: Any, program: Program, number: int) -> tuple[World, World]:
    """One call of a program here and in PyTorch, as eager runs it."""
    theirs = PyTorch(torch)
    mine = play_call(OURS, program, number, body_of(OURS, program))
    return mine, play_call(theirs, program, number, body_of(theirs, program))


def compared(mine: World, its: World) -> list[str]:
    """What differs between our world and PyTorch's; empty if nothing does.

    Inputs of calls that raise are not compared: eager code has written what came before the error.
    """
    if (mine.error is None) != (its.error is None):
        return [f"error: {mine.error!r}, PyTorch {its.error!r}"]
    if mine.error is not None:
        names = type(mine.error).__name__, type(its.error).__name__
        return [] if is_same_error(*names) else [f"class: {mine.error!r}, PyTorch {its.error!r}"]
    return differences(_unsigned(mine), _in_our_words(_unsigned(its), mine))


def _unsigned(world: World) -> World:
    """The world with zeros that have no sign: PyTorch's depend on where they lie in a vector."""
    return attrs.evolve(
        world,
        called=[attrs.evolve(each, values=_plus_zero(each)) for each in world.called],
        written=[attrs.evolve(each, values=_plus_zero(each)) for each in world.written],
    )


def _plus_zero(seen: Seen) -> bytes:
    name = _dtype(seen.dtype)
    if not name.startswith(("float", "complex")):
        return seen.values
    parts = np.frombuffer(seen.values, {"float32": "f4", "complex64": "f4"}.get(name, "f8"))
    return (parts + 0.0).tobytes()


def _in_our_words(its: World, mine: World) -> World:
    """PyTorch's world with our names of dtypes, and of errors where they are of one class."""
    return attrs.evolve(
        its,
        backward=_error(mine.backward, its.backward),
        write=_error(mine.write, its.write),
        called=_all_seen(mine.called, its.called),
        written=_all_seen(mine.written, its.written),
        grads=[g and attrs.evolve(g, dtype=_dtype(g.dtype)) for g in its.grads],
    )


def _all_seen(mine: list[Seen], its: list[Seen]) -> list[Seen]:
    if len(mine) != len(its):
        return its
    return [_seen(a, b) for a, b in zip(mine, its, strict=True)]


def _seen(mine: Seen, its: Seen) -> Seen:
    leaf, node = _error(mine.leaf, its.leaf), _error(mine.node, its.node)
    return attrs.evolve(its, dtype=_dtype(its.dtype), leaf=leaf, node=node)


def _error(mine: Any, its: Any) -> Any:
    both = isinstance(mine, str) and isinstance(its, str)
    return mine if both and is_same_error(mine, its) else its


def _dtype(name: str) -> str:
    return name.removeprefix("torch.")


# ------------------------------------------------------------------------- PyTorch's own compiler
def aot_difference(torch: Any, program: Program) -> str:
    """How PyTorch's compiled function differs from its eager mode, told by what differs first.

    Each call has a function compiled for it alone. "refused" where only the compiled call raises.
    """
    from torch._functorch.aot_autograd import aot_function
    from torch._functorch.compilers import nop

    theirs = PyTorch(torch)
    body = body_of(theirs, program)
    told = "same"
    for number in range(len(program["calls"])):
        eager = play_call(theirs, program, number, body)
        compiled = play_call(theirs, program, number, aot_function(body, nop))
        if eager.error is not None:
            found = [] if compiled.error is not None else ["no error"]
        elif compiled.error is not None:
            told = "refused"
            continue
        else:
            found = differences(_unsigned(compiled), _unsigned(eager))
        if found:
            return min((_kind(line) for line in found), key=KINDS.index)
    return told


KINDS = ("values", "gradient", "error", "identity", "memory", "strides", "history", "counts")
"""What may differ, the worst first."""


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
