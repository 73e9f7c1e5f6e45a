"""Roles: why each input or output of a graph exists. Code asks for roles, and counts no positions.

Ground floor. They are what `torch._functorch` calls descriptors. `str(role)` is also the name of
the value in a printed graph, and `ir/graph/text/roles.py` reads it back:

    Primal(0)                            primals_0                   an argument
    MutatedInput(Primal(0))              updated_primals_0           its final value, an output
    Tangent(MutatedInput(Primal(0)))     tangents_updated_primals_0  the gradient for that value
    Gradient(Primal(0))                  grad_primals_0              the argument's gradient

Spec: `specs/graph.md`.
"""

from __future__ import annotations

from typing import Any, ClassVar, get_args

import attrs


class _Shape:
    """Base of roles: the name of a value begins with the prefix of its role's class."""

    __slots__ = ()
    prefix: ClassVar[str]

    def __init_subclass__(cls, *, prefix: str = "") -> None:
        if prefix:
            cls.prefix = prefix


@attrs.frozen
class _Single(_Shape):
    """A role of which a graph has at most one input, or one output."""

    def __str__(self) -> str:
        return self.prefix


@attrs.frozen
class _Numbered(_Shape):
    """The role of value number `index` of its kind."""

    index: int

    def __str__(self) -> str:
        return f"{self.prefix}_{self.index}"

    def __hash__(self) -> int:  # attrs' own would collide for Primal(0) and Output(0)
        return hash((self.prefix, self.index))


@attrs.frozen
class _Placed(_Numbered):
    """A numbered role with the words that name its value in messages; equality ignores them."""

    place: str = attrs.field(default="", eq=False)


@attrs.frozen
class _Of(_Shape):
    """The role of a value that belongs to the value of another role."""

    of: Any

    def __str__(self) -> str:
        return f"{self.prefix}_{self.of}"


@attrs.frozen
class _OfEffect(_Shape):
    """The role of the token of an effect."""

    effect: str

    def __str__(self) -> str:
        return f"{self.prefix}_{self.effect}"


class Primal(_Numbered, prefix="primals"):
    """Input: the caller's tensor number `index` among the flat arguments."""


@attrs.frozen
class Hidden(_Placed, prefix="hidden"):
    """Input: a tensor that the function reaches, but not as an argument: a closure's (CAP-3)."""

    is_number: bool = attrs.field(default=False, eq=False, repr=False)
    """It is made of float arguments (DYN-27). Saved, it stays a number: `Saved` and `Kept`."""


class SyntheticBase(_Numbered, prefix="synthetic_base"):
    """Input: the shared memory of arguments that overlap and of which one is written (SYN-1)."""


class Family(_Numbered, prefix="family"):
    """The common base of overlapping inputs that share one autograd history (SYN-2)."""


class Seed(_Single, prefix="seed"):
    """Input: the generator's seed at the start of the call, 0-d uint64 (RNG-2)."""


class Offset(_Single, prefix="offset"):
    """Input: the generator's offset at the start of the call, 0-d uint64 (RNG-2)."""


class BackwardSeed(_Single, prefix="backward_seed"):
    """Input: the generator's seed when the backward starts, 0-d uint64 (RNG-5)."""


class BackwardOffset(_Single, prefix="backward_offset"):
    """Input: the generator's offset when the backward starts, 0-d uint64 (RNG-5)."""


class NextSeed(_Single, prefix="next_seed"):
    """Output: the seed at the end of a call that sets another one, 0-d uint64 (RNG-6)."""


class NextOffset(_Single, prefix="next_offset"):
    """Output: the generator's offset at the end of the call, 0-d uint64 (RNG-3)."""


class NextBackwardSeed(_Single, prefix="next_backward_seed"):
    """Output: the seed at the end of a backward that sets another one, 0-d uint64 (RNG-6)."""


class NextBackwardOffset(_Single, prefix="next_backward_offset"):
    """Output: the generator's offset at the end of the backward, 0-d uint64 (RNG-3)."""


class Token(_OfEffect, prefix="token"):
    """Input and output: the token of an effect of the forward, before and after it (TOK-2)."""


class BackwardToken(_OfEffect, prefix="backward_token"):
    """Input and output: the token of an effect of the backward (TOK-4, TOK-5)."""


@attrs.frozen
class Output(_Numbered, prefix="output"):
    """Output: the user's result number `index` among the flat results.

    Behind these are the values of symbols that depend on values: `symbol` is the name of one
    (DYN-5). Equality ignores it.
    """

    symbol: str = attrs.field(default="", eq=False)
    __hash__ = _Numbered.__hash__

    def __repr__(self) -> str:
        symbol = f", symbol={self.symbol!r}" if self.symbol else ""
        return f"Output(index={self.index}{symbol})"


class MutatedInput(_Of, prefix="updated"):
    """Output: the final value of an input that is written; of a family, only its new history."""

    of: Primal | Hidden | Part | Family


class IntermediateBase(_Numbered, prefix="base"):
    """Output: an intermediate of which several results are views (META-9)."""


@attrs.frozen
class Part:
    """Input or output: the inner tensor `attr` of a wrapper subclass, maybe a wrapper too (SUB-3).

    >>> str(Part(Part(Primal(0), "a"), "b"))
    'primals_0__a__b'
    """

    of: Primal | Hidden | Output | IntermediateBase | Part
    attr: str

    def __str__(self) -> str:
        return f"{self.of}{part_suffix(self.attr)}"

    @property
    def whole(self) -> Primal | Hidden | Output | IntermediateBase:
        """The role of the outermost wrapper."""
        return self.of.whole if isinstance(self.of, Part) else self.of


@attrs.frozen
class Piece(Part):
    """The inner tensor `attr` of a `Tangent` or `Gradient` that is a wrapper itself (SUB-4).

    `Gradient(Part(...))` is something else: the gradient of an inner tensor that requires grad.

    >>> str(Gradient(Piece(Primal(0), "a"))), str(Gradient(Part(Primal(0), "a")))
    ('grad_primals_0__a', 'grad_part_primals_0__a')
    """

    of: Any
    attr: str


def is_number(role: object) -> bool:
    """Whether a value stands for a number: it is made of float arguments alone (DYN-27)."""
    return isinstance(role, (Hidden, Saved, Kept)) and role.is_number


def is_given(role: object) -> bool:
    """Whether the caller has this tensor: it is an argument, a hidden input, or a part of one."""
    return isinstance(role.whole if isinstance(role, Part) else role, (Primal, Hidden))


def part_suffix(attr: str) -> str:
    """The suffix for a part, after its wrapper's name. Different nestings give different names.

    >>> part_suffix("a"), part_suffix("_a")
    ('__a', '__0_ua')
    """
    simple = "__" not in attr and not attr.startswith("_") and not attr.endswith("_")
    return f"__{attr}" if simple else f"__0{attr.replace('_', '_u')}"


Result = Output | MutatedInput | IntermediateBase | Part

OWN = "part_"
"""The prefix of the gradient of a part, in texts."""


def _own(role: object) -> str:
    """The prefix that distinguishes the gradient of a part from a part of a gradient."""
    of = role.of if isinstance(role, MutatedInput) else role
    return OWN if type(of) is Part else ""


@attrs.frozen
class _GradientOf(_Of):
    """The role of the gradient with regard to the value of another role."""

    def __str__(self) -> str:
        return f"{self.prefix}_{_own(self.of)}{self.of}"


@attrs.frozen
class Tangent(_GradientOf, prefix="tangents"):
    """Input of the backward: the gradient with regard to a differentiable result (META-16)."""

    of: Result


class Current(_Of, prefix="current"):
    """Input of the backward: memory of an input, result or base, as it is then (FUN-31)."""

    of: Primal | Hidden | Output | IntermediateBase


class Arrived(_Numbered, prefix="arrived"):
    """Input of the backward, 0-d bool: whether set `index` of results has a gradient (TAN-8)."""


class Rewritten(_Of, prefix="rewritten"):
    """Output of the backward: the final value of memory that it writes, of `Current` (FUN-31)."""

    of: Primal | Hidden | Output | IntermediateBase


@attrs.frozen
class Gradient(_GradientOf, prefix="grad"):
    """Output: the gradient of an input, of a family's base, or of a result that retains its grad.
    The value is None where no gradient flows.
    """

    of: Primal | Hidden | Part | Family | Output | Incoming


@attrs.frozen
class Saved(_Shape, prefix="saved"):
    """Output of the forward and input of the backward: a value kept between them."""

    index: int
    name: str = attrs.field(default="", eq=False)
    is_number: bool = attrs.field(default=False, eq=False, repr=False)

    def __str__(self) -> str:
        return f"{self.prefix}_{self.name or self.index}"


class SavedSize(_Numbered, prefix="saved_size"):
    """Output of the forward, and parameter of the backward: a size that is kept between them as a
    number, as no tensor of the backward has it (PART-4)."""


@attrs.frozen
class Size(_Shape, prefix="size"):
    """Parameter: the size `dim` of an argument, or of a part of one, that no input has (GRA-16).

    >>> str(Size(1, Primal(0)))
    'size_1_primals_0'
    """

    dim: int
    of: Primal | Part

    def __str__(self) -> str:
        return f"{self.prefix}_{self.dim}_{self.of}"


class Folded(_Numbered, prefix="folded"):
    """Input: result number `index` of the fold graph, a value of frozen tensors alone (FRZ-1)."""


class Lifted(_Placed, prefix="inputs"):
    """Input of a compiled tape: saved value, or gradient, number `index` (CAG-2)."""


@attrs.frozen
class Kept(_Numbered, prefix="kept"):
    """Input of a backward that is itself differentiated: its saved value number `index` (DBL-2)."""

    is_number: bool = attrs.field(default=False, eq=False, repr=False)


class Incoming(_Of, prefix="incoming"):
    """Input of a backward that is itself differentiated: the gradient of a result, or of one such
    gradient (DBL-2)."""


class Argument(_Numbered, prefix="arg"):
    """Input number `index` of a graph that was built by hand, not by the pipeline."""


Role = (
    Primal
    | Hidden
    | SyntheticBase
    | Family
    | Seed
    | Offset
    | BackwardSeed
    | BackwardOffset
    | NextSeed
    | NextOffset
    | NextBackwardSeed
    | NextBackwardOffset
    | Token
    | BackwardToken
    | Output
    | MutatedInput
    | IntermediateBase
    | Tangent
    | Current
    | Arrived
    | Rewritten
    | Gradient
    | SavedSize
    | Saved
    | Size
    | Folded
    | Lifted
    | Kept
    | Incoming
    | Argument
    | Part
)

ROLES: tuple[type, ...] = get_args(Role)
"""Every class of roles."""

OF_BACKWARD = frozenset((Tangent, Current, Arrived, BackwardToken, BackwardSeed, BackwardOffset))
"""The classes of roles that only inputs of a backward have."""
FROM_BACKWARD = frozenset(
    (Gradient, Rewritten, NextBackwardSeed, NextBackwardOffset, BackwardToken)
)
"""The classes of roles that only outputs of a backward have."""

RNG_INPUTS = (Seed, Offset, BackwardSeed, BackwardOffset)
"""The roles of inputs that are a generator's state. They come last in a graph (RNG-2)."""
RNG_OUTPUTS = (NextSeed, NextOffset, NextBackwardSeed, NextBackwardOffset)
"""The roles of outputs that are a generator's state (RNG-3)."""
