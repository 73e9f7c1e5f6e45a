"""Ops with effects: what happens outside of all values, each thing once and in order.

Ground floor. An `EffectOp` is what programs call and captures record. Its form in pure graphs, a
`TokenOp`, takes the token of its effect first and gives the next one: order is then a matter of
operands, which every pass keeps. A token is a tensor without elements. Here: both classes, their
kernels and their meta rules; chains of tokens in a graph are in `ir/graph/effect_chains.py`.
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
    """What ops with effects share. The meta of a result never depends on a host function."""

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
    """An op that takes or gives tokens: never dropped, merged, computed again, or moved.

    `kernel(arrays, meta, *args)` as a `PureOp`'s; what it does besides happens then.
    """

    kernel: Callable[..., Any] = attrs.field(kw_only=True)
    effect: str = attrs.field(kw_only=True, default="")
    """Whose token it takes first and gives first; empty for those that begin and end chains."""
    of: str = attrs.field(kw_only=True, default="")
    """The name of the op that this one is the pure form of."""


@attrs.define(eq=False, slots=True, repr=False)
class EffectOp(_HostOp):
    """What a program calls: an effect of the type `effect`, which may have new results.

    `kernel(arrays, meta, *args)` lets it happen. Operands are copies on the host, in row-major
    order, which it may keep; so are results: nobody can tell by them how a program was run.
    """

    kernel: Callable[..., Any] = attrs.field(kw_only=True)
    vjp: Vjp | None = attrs.field(kw_only=True)
    effect: str = attrs.field(kw_only=True)
    threaded: TokenOp = attrs.field(kw_only=True)
    """Its pure form: `token', *results = with_effect_<name>(token, ordinal, *args)` (TOK-1)."""


def check_effect(schema: Schema, effect: Any) -> None:
    """Raises TokenError for a schema that no effect can have, and for a name of none (TOK-6)."""
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
    """The kernel of an `EffectOp` of `kernel(xp, meta, *args)`: its operands and results copied."""

    def run(arrays: Any, meta: Any, *args: Any) -> Any:
        found = kernel(np, meta, *map(_own, args))
        if not schema.returns:
            return ()
        if type(meta) is not tuple:
            return _given(found, meta)
        return tuple([_given(one, each) for one, each in zip(found, meta, strict=True)])

    return run


def threaded_kernel(schema: Schema, kernel: Kernel, effect: str) -> Kernel:
    """The kernel of the pure form: after the effect, if its turn it is, the next token (TOK-6)."""
    single = len(schema.returns) == 1 and not schema.returns[0].is_list

    def run(arrays: Any, meta: Any, token: Any, ordinal: int, *args: Any) -> Any:
        own = () if not schema.returns else meta[1] if single else meta[1:]
        with happening(effect, ordinal, schema.name):
            found = kernel(arrays, own, *args)
        if not schema.returns:
            return new_token()
        return (new_token(), *((found,) if single else found))

    return run


def threaded_rule(schema: Schema, rule: Callable[..., Any]) -> Callable[..., Any]:
    """The meta rule of the pure form: a token, and what the op's own rule says."""

    def infer(token: TensorMeta, ordinal: int, *key: Any) -> Any:
        check_token(token)
        found = rule(*key)
        if not schema.returns:
            return TOKEN
        return (TOKEN, *(found if type(found) is tuple else (found,)))

    return infer


def check_token(meta: TensorMeta) -> None:
    """Raises TokenError for what is no token: tokens have no elements (TOK-6)."""
    if meta is not TOKEN:
        raise noted(
            TokenError(f"with_effect: the token is {meta}, expected {TOKEN}"),
            "Tokens are the graph's own: they come from its inputs, or from make_token. (TOK-6)",
        )


def new_token() -> Any:
    """The array of a token."""
    return np.empty(0, TOKEN.dtype.numpy)


def _own(value: Any) -> Any:
    """A copy on the host of each array in an argument, in row-major order."""
    if type(value) is tuple:
        return tuple([_own(item) for item in value])
    if isinstance(value, (np.ndarray, np.generic)):
        return np.array(value, order="C")
    if hasattr(value, "tolist"):  # of another library
        return np.array(host_array(value), order="C")
    return value


def _given(found: Any, meta: TensorMeta) -> Any:
    """A copy of a result, on its device."""
    arrays = meta.device.arrays
    buffer = copied(arrays, host_array(found), meta)
    return arrays.strided(buffer, meta.dtype, meta.shape, meta.stride, 0)


def library_of(op: Op, args: tuple[Any, ...]) -> Any:
    """The array library of an op's operands; the host's where there are none."""
    operands = op.operands(args)
    return (operands[0].meta.device if operands else CPU).arrays
