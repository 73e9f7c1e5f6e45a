"""Why an input or output of a graph exists. Code asks for roles and never counts positions.

Ground floor. Each role has a text, `str(role)`, which is also the name that a printed graph gives
to the value; `parse_role` reads it back. Spec: `specs/graph.md`.
"""

from __future__ import annotations

from typing import Any, ClassVar, get_args

import attrs


@attrs.frozen
class _Single:
    """A role that at most one input, or output, of a graph has."""

    prefix: ClassVar[str]

    def __str__(self) -> str:
        return self.prefix


@attrs.frozen
class _Numbered:
    """The role of value number `index` of its kind."""

    prefix: ClassVar[str]
    index: int

    def __str__(self) -> str:
        return f"{self.prefix}_{self.index}"

    def __hash__(self) -> int:  # what attrs makes would be equal for Primal(0) and Output(0)
        return hash((self.prefix, self.index))


@attrs.frozen
class _Placed(_Numbered):
    """A numbered role with the words that name its value in messages; equality ignores them."""

    place: str = attrs.field(default="", eq=False)


@attrs.frozen
class _OfEffect:
    """The role of the token of an effect."""

    prefix: ClassVar[str]
    effect: str

    def __str__(self) -> str:
        return f"{self.prefix}_{self.effect}"


class Primal(_Numbered):
    """Input: the caller's tensor number `index` among the flat arguments."""

    prefix = "primals"


class Hidden(_Placed):
    """Input: a tensor that the function reaches without its being an argument (CAP-3)."""

    prefix = "hidden"


class SyntheticBase(_Numbered):
    """Input: the memory of inputs that overlap while one of them is written (SYN-1)."""

    prefix = "synthetic_base"


class Family(_Numbered):
    """Inputs that overlap and are views of one base: they have one history (SYN-2)."""

    prefix = "family"


class Seed(_Single):
    """Input: the generator's seed at the start of the call, 0-d uint64 (RNG-2)."""

    prefix = "seed"


class Offset(_Single):
    """Input: the generator's offset at the start of the call, 0-d uint64 (RNG-2)."""

    prefix = "offset"


class BackwardSeed(_Single):
    """Input: the generator's seed when the backward starts, 0-d uint64 (RNG-5)."""

    prefix = "backward_seed"


class BackwardOffset(_Single):
    """Input: the generator's offset when the backward starts, 0-d uint64 (RNG-5)."""

    prefix = "backward_offset"


class NextSeed(_Single):
    """Output: the seed that a function leaves which sets another one, 0-d uint64 (RNG-6)."""

    prefix = "next_seed"


class NextOffset(_Single):
    """Output: the generator's offset at the end of the call, 0-d uint64 (RNG-3)."""

    prefix = "next_offset"


class NextBackwardSeed(_Single):
    """Output: the seed that a backward leaves which sets another one, 0-d uint64 (RNG-6)."""

    prefix = "next_backward_seed"


class NextBackwardOffset(_Single):
    """Output: the generator's offset at the end of the backward, 0-d uint64 (RNG-3)."""

    prefix = "next_backward_offset"


class Token(_OfEffect):
    """Input and output: the token of an effect of the forward, before and after it (TOK-2)."""

    prefix = "token"


class BackwardToken(_OfEffect):
    """Input and output: the same of an effect of the backward (TOK-4, TOK-5)."""

    prefix = "backward_token"


class Output(_Numbered):
    """Output: the user's result number `index` among the flat results."""

    prefix = "output"


@attrs.frozen
class MutatedInput:
    """Output: the final value of a written input; of a family, its new history alone."""

    prefix: ClassVar[str] = "updated"
    of: Primal | Hidden | Part | Family

    def __str__(self) -> str:
        return f"{self.prefix}_{self.of}"


class IntermediateBase(_Numbered):
    """Output: the base of results that are views of one intermediate (META-9)."""

    prefix = "base"


@attrs.frozen
class Part:
    """Input or output: the inner tensor `attr` of a wrapper (SUB-3); it may be a wrapper itself.

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
    """Inside a `Tangent` or `Gradient` that is a wrapper: its inner tensor `attr` (SUB-4).

    The gradient of a part that requires grad itself is another: `Gradient(Part(...))`.

    >>> str(Gradient(Piece(Primal(0), "a"))), str(Gradient(Part(Primal(0), "a")))
    ('grad_primals_0__a', 'grad_part_primals_0__a')
    """

    of: Any
    attr: str

    def __str__(self) -> str:
        return f"{self.of}{part_suffix(self.attr)}"


def is_given(role: Any) -> bool:
    """Whether this is the role of a tensor of the caller's: an argument, a hidden input, or a part
    of one.
    """
    return isinstance(role.whole if isinstance(role, Part) else role, (Primal, Hidden))


def part_suffix(attr: str) -> str:
    """What names a part behind its wrapper's name: no two ways of nesting have one name.

    >>> part_suffix("a"), part_suffix("_a")
    ('__a', '__0_ua')
    """
    simple = "__" not in attr and not attr.startswith("_") and not attr.endswith("_")
    return f"__{attr}" if simple else f"__0{attr.replace('_', '_u')}"


Result = Output | MutatedInput | IntermediateBase | Part

_OWN = "part_"


def _own(role: Any) -> str:
    """What tells the gradient of a part from a part of a gradient."""
    of = role.of if isinstance(role, MutatedInput) else role
    return _OWN if type(of) is Part else ""


@attrs.frozen
class Tangent:
    """Input: the gradient that arrives for a differentiable result (META-16)."""

    prefix: ClassVar[str] = "tangents"
    of: Result

    def __str__(self) -> str:
        return f"{self.prefix}_{_own(self.of)}{self.of}"


@attrs.frozen
class Current:
    """Input: memory that outlives the forward, as it is when the backward runs (FUN-31).

    That of an input, of a result, or of a base: the caller may have written it since.
    """

    prefix: ClassVar[str] = "current"
    of: Primal | Hidden | Output | IntermediateBase

    def __str__(self) -> str:
        return f"{self.prefix}_{self.of}"


class Arrived(_Numbered):
    """Input: whether any gradient of set number `index` of results arrived, 0-d bool (TAN-8)."""

    prefix = "arrived"


@attrs.frozen
class Rewritten:
    """Output: what the backward leaves in memory that outlives the forward (FUN-31)."""

    prefix: ClassVar[str] = "rewritten"
    of: Primal | Hidden | Output | IntermediateBase

    def __str__(self) -> str:
        return f"{self.prefix}_{self.of}"


@attrs.frozen
class Gradient:
    """Output: the gradient of an input, the base of a family, or a result that retains its own.

    None where nothing flows.
    """

    prefix: ClassVar[str] = "grad"
    of: Primal | Hidden | Part | Family | Output

    def __str__(self) -> str:
        return f"{self.prefix}_{_own(self.of)}{self.of}"


@attrs.frozen
class Saved:
    """Output of the forward and input of the backward: a value kept between them."""

    prefix: ClassVar[str] = "saved"
    index: int
    name: str = attrs.field(default="", eq=False)

    def __str__(self) -> str:
        return f"{self.prefix}_{self.name or self.index}"


class Lifted(_Placed):
    """Input of a compiled tape: value number `index` that the tape holds, or a gradient on its way
    (CAG-2).
    """

    prefix = "inputs"


class Kept(_Numbered):
    """Input of a backward that is differentiated itself: saved value number `index` (DBL-2)."""

    prefix = "kept"


@attrs.frozen
class Incoming:
    """Input of a backward that is differentiated itself: a gradient that arrives for a result.

    One level further `of` is an `Incoming`, too (DBL-2).
    """

    prefix: ClassVar[str] = "incoming"
    of: Any

    def __str__(self) -> str:
        return f"{self.prefix}_{self.of}"


class Argument(_Numbered):
    """Input of a graph that somebody built or captured by hand, number `index`."""

    prefix = "arg"


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
    | Saved
    | Lifted
    | Kept
    | Incoming
    | Argument
    | Part
)

ROLES: tuple[type, ...] = get_args(Role)
"""Every class of roles."""

OF_BACKWARD = frozenset((Tangent, Current, Arrived, BackwardToken, BackwardSeed, BackwardOffset))
"""The classes of inputs that only a backward has."""
FROM_BACKWARD = frozenset(
    (Gradient, Rewritten, NextBackwardSeed, NextBackwardOffset, BackwardToken)
)
"""The classes of outputs that only a backward gives."""

RNG_INPUTS = (Seed, Offset, BackwardSeed, BackwardOffset)
"""The classes of inputs that are a generator's state: the last ones of a graph (RNG-2)."""
RNG_OUTPUTS = (NextSeed, NextOffset, NextBackwardSeed, NextBackwardOffset)
"""The classes of outputs that are a generator's state (RNG-3)."""


def parse_role(text: str) -> Role | None:
    """The role whose text this is; None if there is none, or if the text leaves a field out.

    >>> parse_role("tangents_updated_primals_0")
    Tangent(of=MutatedInput(of=Primal(index=0)))
    """
    for kind in ROLES:
        prefix = getattr(kind, "prefix", None)
        if prefix and (text == prefix or text.startswith(f"{prefix}_")):
            return _parsed(kind, text)
    return None


def _parsed(kind: Any, text: str) -> Any:
    if kind in _WITH_PARTS and "__" in text:
        return _parsed_part(text)
    fields = [field for field in attrs.fields(kind) if field.default is attrs.NOTHING]
    if not fields:
        return kind() if text == kind.prefix else None
    rest = text[len(kind.prefix) + 1 :]
    name = fields[0].name
    parse = _parsed_gradient if kind in (Tangent, Gradient) else parse_role
    value: Any = parse(rest) if name == "of" else rest if name == "effect" else _index(rest)
    if value is None or len(fields) > 1:
        return None
    role = kind(value)
    return role if str(role) == text else None


_WITH_PARTS = (Primal, Hidden, Output, IntermediateBase)


def _parsed_part(text: str) -> Part | None:
    whole, *names = text.split("__")
    role = parse_role(whole)
    for name in names:
        attr = name[1:].replace("_u", "_") if name.startswith("0") else name
        role = Part(role, attr) if role is not None and attr.isidentifier() else None  # type: ignore[arg-type]
    return role if str(role) == text else None  # type: ignore[return-value]


def _parsed_gradient(text: str) -> Any:
    """What a gradient is of: of a part, or as a wrapper a part of the gradient."""
    if text.startswith(_OWN):
        return parse_role(text[len(_OWN) :])
    return _pieces(parse_role(text))


def _pieces(role: Any) -> Any:
    if isinstance(role, Part):
        return Piece(_pieces(role.of), role.attr)
    if isinstance(role, MutatedInput) and isinstance(role.of, Part):
        return Piece(_pieces(MutatedInput(role.of.of)), role.of.attr)  # type: ignore[arg-type]
    return role


def _index(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
