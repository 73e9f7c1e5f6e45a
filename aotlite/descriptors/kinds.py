"""Descriptors: what each input and output of a graph is for the user, as typed data.

A role (`ir/graph/role.py`) says it by numbers: `Primal(2)`, `Hidden(0)`. A descriptor says it by
paths in the user's own structures: argument `batch['x']`, parameter `layers.0.weight`. It is plain
data, without tensors; `aotlite/descriptors/reader.py` finds the values. Rules: TRC-8.
Spec: `specs/descriptors.md`.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from aotlite.ir.graph.role import Role
from aotlite.pipeline.containers.leaf_paths import steps_text

Key = str | int
"""A step of a path: a name, a field (`Field`), a key of a dict, or a place in a list."""


def path_text(path: Sequence[Key]) -> str:
    """A path as Python writes it.

    >>> path_text(("batch", "x", 0))
    "batch['x'][0]"
    """
    return f"{path[0]}{steps_text(path[1:])}" if path else ""


@attrs.frozen
class Descriptor:
    """What one input or output of a graph is. `role` is the same by numbers."""

    role: Role = attrs.field(kw_only=True, repr=False)


# ---------------------------------------------------------------------------------------- inputs
@attrs.frozen
class PlainInput(Descriptor):
    """A tensor, or a number that is a symbol, among the arguments of the call."""

    path: tuple[Key, ...]
    """The parameter of the function, and the keys from there; positional extras are `args`."""

    def __str__(self) -> str:
        return f"argument {path_text(self.path)}"


@attrs.frozen
class ParamInput(Descriptor):
    """A parameter of a Module that the function reaches."""

    name: str
    """Its qualified name, which no other parameter or buffer of the call has: `layers.0.weight` in
    the Module that is called, `model.layers.0.weight` in another one that the function reaches."""
    place: str
    """The way to it as guards say it: `argument 0.layers.0.weight`."""
    also: tuple[str, ...] = ()
    """Its other qualified names: it is tied."""

    def __str__(self) -> str:
        return f"parameter {self.name}"


@attrs.frozen
class BufferInput(Descriptor):
    """A buffer of a Module that the function reaches."""

    name: str
    place: str
    also: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"buffer {self.name}"


@attrs.frozen
class ReachedInput(Descriptor):
    """A tensor that the function reaches, no argument and part of no Module's state: in a closure,
    a global, an optimizer's state."""

    place: str
    """The way to it by the names in the user's code: `table['scale']`."""

    def __str__(self) -> str:
        return self.place


@attrs.frozen
class SyntheticBaseInput(Descriptor):
    """The memory that several inputs share and of which one is written (SYN-1)."""

    of: tuple[InputDescriptor, ...]

    def __str__(self) -> str:
        return f"synthetic base of ({_listed(self.of)})"


@attrs.frozen
class ViewBaseInput(Descriptor):
    """The common base of inputs that overlap and share one history (SYN-2)."""

    of: tuple[InputDescriptor, ...]

    def __str__(self) -> str:
        return f"common base of ({_listed(self.of)})"


@attrs.frozen
class SubclassPart(Descriptor):
    """The inner tensor `attr` of a wrapper: of an input, a result or a gradient (SUB-3)."""

    of: AnyDescriptor
    attr: str

    def __str__(self) -> str:
        return f"part {self.attr} of {self.of}"


@attrs.frozen
class SizeInput(Descriptor):
    """The size `dim` of an input, which is a symbol."""

    of: InputDescriptor
    dim: int

    def __str__(self) -> str:
        return f"size {self.dim} of {self.of}"


@attrs.frozen
class TokenInput(Descriptor):
    """The token of an effect, before it (TOK-2)."""

    effect: str
    of_backward: bool = False

    def __str__(self) -> str:
        return f"token of {self.effect}{_backward(self.of_backward)}"


@attrs.frozen
class RandomStateInput(Descriptor):
    """The generator's `seed` or `offset` when the forward, or the backward, starts (RNG-2)."""

    field: str
    of_backward: bool = False

    def __str__(self) -> str:
        return f"{self.field} of the generator{_backward(self.of_backward)}"


@attrs.frozen
class TangentInput(Descriptor):
    """The gradient that arrives for a differentiable output (META-16)."""

    of: OutputDescriptor

    def __str__(self) -> str:
        return f"tangent of {self.of}"


@attrs.frozen
class CurrentInput(Descriptor):
    """Memory of an input or result as it is when the backward starts, which writes it (FUN-31)."""

    of: AnyDescriptor

    def __str__(self) -> str:
        return f"{self.of} when the backward starts"


@attrs.frozen
class ArrivedInput(Descriptor):
    """Whether a set of results has a gradient, a 0-d bool (TAN-8)."""

    number: int

    def __str__(self) -> str:
        return f"whether gradients of set {self.number} arrived"


@attrs.frozen
class NumberedInput(Descriptor):
    """An input of a graph that no user's call has: of a compiled tape, of a derivative of a
    backward, or of a graph that was built by hand."""

    text: str

    def __str__(self) -> str:
        return self.text


# --------------------------------------------------------------------------------------- outputs
@attrs.frozen
class PlainOutput(Descriptor):
    """A result of the function."""

    path: tuple[Key, ...]
    """The keys from the returned object; empty where it is the tensor itself."""

    def __str__(self) -> str:
        return f"result{steps_text(self.path)}"


@attrs.frozen
class GradWriteOutput(Descriptor):
    """What becomes the `.grad` of an input or of a result, as the function calls `backward()`
    itself (DBL-3)."""

    of: AnyDescriptor

    def __str__(self) -> str:
        return f".grad of {self.of}"


@attrs.frozen
class ComputedSizeOutput(Descriptor):
    """The value of a size that depends on values (DYN-5)."""

    symbol: str

    def __str__(self) -> str:
        return f"size {self.symbol}, which depends on values"


@attrs.frozen
class InputMutationOutput(Descriptor):
    """The final value of an input that the function writes."""

    of: InputDescriptor

    def __str__(self) -> str:
        return f"updated {self.of}"


@attrs.frozen
class IntermediateBaseOutput(Descriptor):
    """A tensor of the function's own of which results are views (META-9)."""

    of: tuple[OutputDescriptor, ...]

    def __str__(self) -> str:
        return f"intermediate base of ({_listed(self.of)})"


@attrs.frozen
class TokenOutput(Descriptor):
    """The token of an effect, after it."""

    effect: str
    of_backward: bool = False

    def __str__(self) -> str:
        return f"token of {self.effect}{_backward(self.of_backward)}, after it"


@attrs.frozen
class RandomStateOutput(Descriptor):
    """The generator's `seed` or `offset` at the end (RNG-3, RNG-6)."""

    field: str
    of_backward: bool = False

    def __str__(self) -> str:
        return f"final {self.field} of the generator{_backward(self.of_backward)}"


@attrs.frozen
class GradOutput(Descriptor):
    """The gradient of an input, or of a result that retains its own."""

    of: AnyDescriptor

    def __str__(self) -> str:
        return f"gradient of {self.of}"


@attrs.frozen
class SavedValueDescriptor(Descriptor):
    """A value that the forward keeps for the backward: output of one, input of the other."""

    name: str
    """The node that computes it."""
    owner: AnyDescriptor | None
    """The input or result in whose memory it lies; None if nobody else sees that memory."""
    is_checked: bool
    """Whether the backward raises if that memory was written meanwhile (SAV-1)."""
    is_size: bool = False

    def __str__(self) -> str:
        how = ", checked" if self.is_checked else ""
        return f"saved {'size' if self.is_size else 'value'} {self.name}{how}"


@attrs.frozen
class RewrittenOutput(Descriptor):
    """The final value of memory that the backward writes (FUN-31)."""

    of: AnyDescriptor

    def __str__(self) -> str:
        return f"{self.of}, as the backward leaves it"


InputDescriptor = (
    PlainInput
    | ParamInput
    | BufferInput
    | ReachedInput
    | SyntheticBaseInput
    | ViewBaseInput
    | SubclassPart
    | SizeInput
    | TokenInput
    | RandomStateInput
    | TangentInput
    | CurrentInput
    | ArrivedInput
    | NumberedInput
    | SavedValueDescriptor
)
OutputDescriptor = (
    PlainOutput
    | GradWriteOutput
    | ComputedSizeOutput
    | SubclassPart
    | InputMutationOutput
    | IntermediateBaseOutput
    | TokenOutput
    | RandomStateOutput
    | GradOutput
    | SavedValueDescriptor
    | RewrittenOutput
)
AnyDescriptor = InputDescriptor | OutputDescriptor


def _listed(of: Sequence[Descriptor]) -> str:
    return ", ".join(map(str, of))


def _backward(of_backward: bool) -> str:
    return " in the backward" if of_backward else ""
