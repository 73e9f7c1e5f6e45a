"""Stage 3, convention: how compiled code is called.

Input: `Captured` and `FunctionMeta`. Output: `Convention`: which tensors the graph takes, in order,
and the generator's seed and offset where random ops are drawn. A tensor passed twice is one input:
the pattern of equal objects is guarded, so every repeat is known (DUP-1, DUP-2). Spec:
`specs/s3_convention.md`.
"""

from __future__ import annotations

import attrs

from aotlite.ir.graph.role import Hidden, Offset, Primal, Role, Seed, Token
from aotlite.ir.op import RandomOp
from aotlite.stages.records.base import Record
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.records.synthetic_base import BaseInput
from aotlite.stages.s3_convention.synthetic_bases import plan_bases
from aotlite.stages.shared.effect_tokens import forward_tokens


@attrs.frozen(repr=False)
class Convention(Record):
    """The inputs of the compiled forward, by role."""

    inputs: tuple[Role, ...]
    consumed: int
    """Offsets of the generator that one call uses up (RNG-4)."""
    bases: tuple[BaseInput, ...] = ()
    """Synthetic bases: the inputs that are views of them are none of the graph's (SYN-1)."""
    tokens: tuple[Token, ...] = ()
    """The effects of the forward, for each of which graphs have a token (TOK-2, TOK-4)."""
    sets_generator: bool = False
    """A call puts the generator where the graph says, whatever it uses up (RNG-6)."""

    @property
    def arguments(self) -> tuple[Primal, ...]:
        """The inputs that are arguments of the call."""
        return tuple(role for role in self.inputs if isinstance(role, Primal))

    @property
    def hidden(self) -> tuple[Hidden, ...]:
        """The inputs that are read from their places."""
        return tuple(role for role in self.inputs if isinstance(role, Hidden))


def convention(captured: Captured, meta: FunctionMeta) -> Convention:
    """The calling convention of a captured function."""
    wrappers = captured.recorder.wrapped.parts
    bases = plan_bases(captured, meta)
    merged = {member.role for base in bases for member in base.members}
    roles: list[Role] = [base.role for base in bases]
    roles += [
        each.role for each in meta.inputs if each.role not in merged and each.role not in wrappers
    ]
    streams = captured.recorder.streams
    draws = any(isinstance(node.target, RandomOp) for node in captured.graph.nodes)
    if draws or Seed in streams.inputs:
        roles += [Seed(), Offset()]
    after = streams.after_forward()
    consumed = 0 if after is None else after.consumed()
    return Convention(
        tuple(roles),
        consumed or 0,
        bases,
        forward_tokens(captured),
        sets_generator=consumed is None,
    )
