"""Why an input or output of a graph exists. Code asks for roles and never counts positions."""

from __future__ import annotations

import attrs


@attrs.frozen
class Primal:
    """Input: the caller's tensor number `index` among the flat arguments."""

    index: int

    def __str__(self) -> str:
        return f"primals_{self.index}"


@attrs.frozen
class Hidden:
    """Input: a tensor that the function reaches without its being an argument (CAP-3)."""

    index: int
    place: str = attrs.field(default="", eq=False)

    def __str__(self) -> str:
        return f"hidden_{self.index}"


@attrs.frozen
class Seed:
    """Input: the generator's seed at the start of the call, 0-d uint64 (RNG-2)."""

    def __str__(self) -> str:
        return "seed"


@attrs.frozen
class Offset:
    """Input: the generator's offset at the start of the call, 0-d uint64 (RNG-2)."""

    def __str__(self) -> str:
        return "offset"


@attrs.frozen
class Output:
    """Output: the user's result number `index` among the flat results."""

    index: int

    def __str__(self) -> str:
        return f"output_{self.index}"


@attrs.frozen
class MutatedInput:
    """Output: the final value of a written input."""

    of: Primal | Hidden

    def __str__(self) -> str:
        return f"updated_{self.of}"


@attrs.frozen
class IntermediateBase:
    """Output: the base of results that are views of one intermediate (META-9)."""

    index: int

    def __str__(self) -> str:
        return f"base_{self.index}"


Result = Output | MutatedInput | IntermediateBase


@attrs.frozen
class Tangent:
    """Input: the gradient that arrives for a differentiable result (META-16)."""

    of: Result

    def __str__(self) -> str:
        return f"tangents_{self.of}"


@attrs.frozen
class Gradient:
    """Output: the gradient of an input; absent (None) where nothing flows."""

    of: Primal | Hidden

    def __str__(self) -> str:
        return f"grad_{self.of}"


@attrs.frozen
class Saved:
    """Output of the forward and input of the backward: a value kept between them."""

    index: int
    name: str = attrs.field(default="", eq=False)

    def __str__(self) -> str:
        return f"saved_{self.name or self.index}"


@attrs.frozen
class Argument:
    """Input of a graph that somebody built or captured by hand, number `index`."""

    index: int

    def __str__(self) -> str:
        return f"arg_{self.index}"


Role = (
    Primal
    | Hidden
    | Seed
    | Offset
    | Output
    | MutatedInput
    | IntermediateBase
    | Tangent
    | Gradient
    | Saved
    | Argument
)
