"""Effect ops in verification runs: the call is logged, and nothing is printed or called back.

Used by `verification.py`. The log is part of a run's results, under keys `Happened`. So a stage or
pass that changes the arguments of an effect, drops one, or reorders two is named as the culprit.
The results of an effect are random numbers, the same ones in every stage. Rules: VER-17, TOK-6.
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
    """A key of the log: argument `part` of the `index`-th effect of this type, in one half.

    Part 0 is the op's name with its literals; the operands follow.
    """

    effect: str
    phase: Phase
    index: int
    part: int

    def __str__(self) -> str:
        half = "" if self.phase is Phase.FORWARD else " of the backward"
        return f"effect {self.index} of type {self.effect!r}{half}, part {self.part}"


class Muted:
    """The log of the effects of one run."""

    def __init__(self) -> None:
        self.log: dict[Happened, object] = {}
        """The arguments of each effect: op and literals as a string, then the operands' values."""
        self._counts: dict[tuple[str, Phase], int] = {}

    def call(self, op: EffectOp | TokenOp, args: tuple[Any, ...], phase: Phase) -> Any:
        """Logs a call; returns random results of the right metas, and a token where one is due."""
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
    """The metas of results that are not tokens, with their numbers among the op's results."""
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


def _words(value: object) -> str:
    """The arguments as text: literals as they are, `_` for each operand."""
    if isinstance(value, ArrayValue):
        return "_"
    if type(value) is tuple:
        return f"({', '.join(map(_words, value))})"
    return literal(value, {})
