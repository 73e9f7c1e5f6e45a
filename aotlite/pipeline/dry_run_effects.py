"""Effects of graphs that are run to be compared: they are noted, and nothing happens.

Used by `verification.py`. What would have happened is part of what a run gives, under the key
`Happened`, so that a stage or pass which changes what an effect is told, drops one, or reorders
them names itself. Results are drawn, alike in every stage. Rules: VER-17, TOK-6.
Spec: `specs/verify.md`.
"""

from __future__ import annotations

import zlib
from typing import Any

import attrs
import numpy as np

from aotlite.ir.effects import TOKEN, EffectOp, TokenOp
from aotlite.ir.graph import Phase
from aotlite.ir.graph.node_text import literal
from aotlite.ir.meta import TensorMeta
from aotlite.ir.run.interpreter import ArrayValue, array_value


@attrs.frozen
class Happened:
    """Part number `part` of effect number `index` of its type, in a half."""

    effect: str
    phase: Phase
    index: int
    part: int

    def __str__(self) -> str:
        half = "" if self.phase is Phase.FORWARD else " of the backward"
        return f"effect {self.index} of type {self.effect!r}{half}, part {self.part}"


class Muted:
    """The effects of one run."""

    def __init__(self) -> None:
        self.log: dict[Happened, Any] = {}
        """What each was told: its op and literals as a text, then its operands."""
        self._counts: dict[tuple[str, Phase], int] = {}

    def call(self, op: EffectOp | TokenOp, args: tuple[Any, ...], phase: Phase) -> Any:
        """The results of a call that is noted."""
        metas: Any = op.infer(args)
        if not op.effect:
            return array_value([], TOKEN)
        index = self._counts.get((op.effect, phase), 0)
        self._counts[op.effect, phase] = index + 1
        given = args[2:] if type(op) is TokenOp else args
        name = op.of if isinstance(op, TokenOp) else op.name
        values = _values(given)
        parts = [f"{name}{_words(given)}", *values]
        for place, part in enumerate(parts):
            self.log[Happened(op.effect, phase, index, place)] = part
        made = [_drawn(f"{op.effect} {phase} {index} {k}", meta) for k, meta in _results(op, metas)]
        if type(metas) is TensorMeta:
            return array_value([], TOKEN) if type(op) is TokenOp else made[0]
        return (array_value([], TOKEN), *made) if type(op) is TokenOp else tuple(made)


def _results(op: EffectOp | TokenOp, metas: Any) -> list[tuple[int, TensorMeta]]:
    """The results that are values, numbered as the op's own."""
    each = (metas,) if type(metas) is TensorMeta else metas
    return list(enumerate(each[1:] if type(op) is TokenOp else each))


def _drawn(word: str, meta: TensorMeta) -> ArrayValue:
    generator = np.random.default_rng(zlib.crc32(word.encode()))
    return array_value(generator.integers(-2, 3, meta.shape).astype(meta.dtype.numpy), meta)


def _values(args: Any) -> list[ArrayValue]:
    found = []
    for value in args:
        if isinstance(value, ArrayValue):
            found.append(array_value(value.array, value.meta))  # it may be written later
        elif type(value) is tuple:
            found += _values(value)
    return found


def _words(value: Any) -> str:
    """The literals among arguments, and where the operands are."""
    if isinstance(value, ArrayValue):
        return "_"
    if type(value) is tuple:
        return f"({', '.join(map(_words, value))})"
    return literal(value, {})
