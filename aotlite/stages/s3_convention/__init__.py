"""Stage 3, convention: the inputs of the compiled forward, in order.

Input: `Captured` and `FunctionMeta`. Output: `Convention`, whose inputs are

    synthetic bases · other arguments · other hidden inputs · seed and offset

Synthetic bases replace overlapping inputs of which one is written, and inputs beyond which
as_strided reaches. The parts of a wrapper stand in its place. Seed and offset are there if random
ops are. A tensor passed twice is one input: guards fix which arguments are the same object
(DUP-1, DUP-2). Spec: `specs/s3_convention.md`.
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
    """How far one call advances the generator's offset (RNG-4)."""
    bases: tuple[BaseInput, ...] = ()
    """Synthetic bases; the inputs that are views of them are not among `inputs` (SYN-1)."""
    tokens: tuple[Token, ...] = ()
    """The tokens of the forward, one for each type of effect (TOK-2, TOK-4)."""
    sets_generator: bool = False
    """The graph returns the generator's final seed and offset, which the call sets (RNG-6)."""

    @property
    def arguments(self) -> tuple[Primal, ...]:
        """The inputs that are arguments of the call."""
        return tuple(role for role in self.inputs if isinstance(role, Primal))

    @property
    def hidden(self) -> tuple[Hidden, ...]:
        """The hidden inputs, which each call finds by their access paths."""
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
