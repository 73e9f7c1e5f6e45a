"""Ops with side effects (printing, callbacks), each of which happens once and in order.

Ground floor. Programs call, and captures record, an `EffectOp`. Its form in pure graphs is a
`TokenOp`. That takes the token of its effect as first operand, and returns the next one, so that
data dependencies keep the order through every pass. It is the scheme of JAX's tokens and PyTorch's
effect tokens:

    imperative graph         pure graph
    log(x)                   token_1 = with_effect_log(token, 0, x)
    log(y)                   token_2 = with_effect_log(token_1, 1, y)

A token is a tensor without elements. This module has both classes, their kernels and meta rules;
`ir/graph/effect_chains.py` has the chains of tokens in a graph.
Rules: TOK-1 to TOK-8. Spec: `specs/tokens.md`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

import attrs
import numpy as np

from aotlite.ir.arrays import copied, host_array
from aotlite.ir.arrays.device import CPU
from aotlite.ir.dtypes import uint8
from aotlite.ir.effects.execution_record import happening
from aotlite.ir.errors import ArgumentError, TokenError, noted
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Op, Vjp
from aotlite.ir.op.schema import Schema

__all__ = [
    "TOKEN",
    "EffectOp",
    "TokenOp",
    "check_effect",
    "check_token",
    "effect_kernel",
    "library_of",
    "new_token",
    "threaded_kernel",
    "threaded_rule",
]

TOKEN = tensor_meta((0,), None, uint8)
"""The meta of every token (TOK-6)."""
_EFFECT = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")


# ------------------------------------------------------------------------------------------- ops
@attrs.define(eq=False, slots=True, repr=False)
class _HostOp(Op):
    """The base of ops with effects. A host function is no part of the key of a call."""

    one_device: ClassVar[bool] = False

    def __attrs_post_init__(self) -> None:
        Op.__attrs_post_init__(self)
        kinds = [parameter.type.text for parameter in self.schema.parameters]
        functions = [i for i, kind in enumerate(kinds) if kind == "function"]
        plain = self.key
        if functions:
            self.key = lambda args: tuple(
                [None if i in functions else part for i, part in enumerate(plain(args))]
            )


@attrs.define(eq=False, slots=True, repr=False)
class TokenOp(_HostOp):
    """An op that takes or returns tokens. No pass may drop, merge, repeat or reorder it.

    `kernel(arrays, meta, *args)` is like a `PureOp`'s, and also performs the effect.
    """

    kernel: Callable[..., Any] = attrs.field(kw_only=True)
    effect: str = attrs.field(kw_only=True, default="")
    """The effect type of its token; empty for `make_token` and `sink_tokens`."""
    of: str = attrs.field(kw_only=True, default="")
    """The name of the `EffectOp` of which this is the pure form."""


@attrs.define(eq=False, slots=True, repr=False)
class EffectOp(_HostOp):
    """The op that programs call: it performs an effect of type `effect`, and may return results.

    `kernel(arrays, meta, *args)` performs it. Its operands are row-major copies on the host, which
    it may keep, and its results are copied: so it behaves alike in eager and compiled code.
    """

    kernel: Callable[..., Any] = attrs.field(kw_only=True)
    vjp: Vjp | None = attrs.field(kw_only=True)
    effect: str = attrs.field(kw_only=True)
    threaded: TokenOp = attrs.field(kw_only=True)
    """Its pure form: `token', *results = with_effect_<name>(token, ordinal, *args)` (TOK-1)."""


def check_effect(schema: Schema, effect: object) -> None:
    """Raises ArgumentError for an invalid name of an effect type, or for a parameter that pure
    graphs need; TokenError for a schema that aliases or writes memory (TOK-6)."""
    if not isinstance(effect, str) or not _EFFECT.fullmatch(effect):
        raise ArgumentError(
            f"register_op: argument 'effect' is {effect!r}, expected a name in lower case, such as "
            "'log'"
        )
    for parameter in schema.parameters:
        if parameter.name in ("token", "ordinal"):
            raise ArgumentError(
                f"register_op: {schema.name} has the effect {effect!r} and a parameter "
                f"{parameter.name!r}, expected another name: that one is taken in pure graphs"
            )
    marks = [p.alias for p in schema.parameters] + [r.alias for r in schema.returns]
    for mark in marks:
        if mark is not None:
            raise noted(
                TokenError(
                    f"{schema.name}: the schema has the mark {mark} and the effect "
                    f"{effect!r}, expected an op that shares and writes no memory"
                ),
                f"schema: {schema}",
                "Give new results, and write them in an op of their own. (TOK-6)",
            )


# ---------------------------------------------------------------------------------------- kernels
Kernel = Callable[..., Any]


def effect_kernel(schema: Schema, kernel: Kernel) -> Kernel:
    """The kernel of an `EffectOp`: `kernel(xp, meta, *args)` with operands and results copied."""

    def run(arrays: Any, meta: Any, *args: Any) -> Any:
        found = kernel(np, meta, *map(_own, args))
        if not schema.returns:
            return ()
        if type(meta) is not tuple:
            return _given(found, meta)
        return tuple([_given(one, each) for one, each in zip(found, meta, strict=True)])

    return run


def threaded_kernel(schema: Schema, kernel: Kernel, effect: str) -> Kernel:
    """The kernel of the pure form: performs the effect, if it is due, and returns the next token
    (TOK-6)."""
    single = len(schema.returns) == 1 and not schema.returns[0].is_list

    def run(arrays: Any, meta: Any, token: object, ordinal: int, *args: object) -> Any:
        own = () if not schema.returns else meta[1] if single else meta[1:]
        with happening(effect, ordinal, schema.name):
            found = kernel(arrays, own, *args)
        if not schema.returns:
            return new_token()
        return (new_token(), *((found,) if single else found))

    return run


def threaded_rule(schema: Schema, rule: Callable[..., object]) -> Callable[..., Any]:
    """The meta rule of the pure form: a token, then the results of the op's own rule."""

    def infer(token: TensorMeta, ordinal: int, *key: object) -> Any:
        check_token(token)
        found = rule(*key)
        if not schema.returns:
            return TOKEN
        return (TOKEN, *(found if type(found) is tuple else (found,)))

    return infer


def check_token(meta: TensorMeta) -> None:
    """Raises TokenError unless `meta` is that of tokens, which have no elements (TOK-6)."""
    if meta is not TOKEN:
        raise noted(
            TokenError(f"with_effect: the token is {meta}, expected {TOKEN}"),
            "Pass the token that the call before returned, an input with a token role, or the "
            "result of make_token. (TOK-6)",
        )


def new_token() -> Any:
    """A new token, as an array."""
    return np.empty(0, TOKEN.dtype.numpy)


def _own(value: object) -> Any:
    """An argument with each array replaced by a row-major copy on the host."""
    if type(value) is tuple:
        return tuple([_own(item) for item in value])
    if isinstance(value, (np.ndarray, np.generic)):
        return np.array(value, order="C")
    if hasattr(value, "tolist"):  # of another library
        return np.array(host_array(value), order="C")
    return value


def _given(found: object, meta: TensorMeta) -> object:
    """A copy of a result, on its device."""
    arrays = meta.device.arrays
    buffer = copied(arrays, host_array(found), meta)
    return arrays.strided(buffer, meta.dtype, meta.shape, meta.stride, 0)


def library_of(op: Op, args: tuple[object, ...]) -> Any:
    """The array library of an op's first operand; the host's where there is none."""
    operands = op.operands(args)
    return (operands[0].meta.device if operands else CPU).arrays
