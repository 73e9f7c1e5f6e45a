"""`Convention`, the record of stage 3: the inputs of the compiled forward, in order.

Spec: `specs/s3_convention.md`.
"""

from __future__ import annotations

import attrs

from aotlite.ir.graph.role import Hidden, Primal, Role, Token
from aotlite.stages.records.base import Record
from aotlite.stages.records.synthetic_base import BaseInput


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
