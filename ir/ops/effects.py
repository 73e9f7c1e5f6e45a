"""The ops with effects: printing and calling back into Python; also the ends of token chains.

`effect` declares one, and derives its pure form. Rules: TOK-1, TOK-3, TOK-6. Spec:
`specs/tokens.md`.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any

import numpy as np

from aotlite.ir.arrays import Array, Namespace, host_array
from aotlite.ir.arrays.device import CPU
from aotlite.ir.effects import (
    TOKEN,
    EffectOp,
    TokenOp,
    check_effect,
    check_token,
    effect_kernel,
    new_token,
    threaded_kernel,
    threaded_rule,
)
from aotlite.ir.effects.execution_record import happening
from aotlite.ir.errors import ArgumentError, noted
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.meta.text import meta_from_text
from aotlite.ir.op import Cost, parse_vjp, register, schema_of
from aotlite.ir.op.host_function import HostFunction

Formulas = Mapping[str, Callable[..., object]] | None


def effect(
    schema: str,
    *,
    effect: str,
    meta: Callable[..., object] | None,
    kernel: Callable[..., object],
    vjp: Formulas,
) -> EffectOp:
    """Declares an op with an effect of type `effect`, and its pure form.

    `kernel(xp, meta, *args)` performs the effect. It gets copies of the operands, as NumPy arrays,
    and returns the results with the metas `meta`, or None where the schema has no results. Raises
    TokenError for a schema that aliases or writes memory.
    """
    parsed = schema_of(schema)
    check_effect(parsed, effect)
    rule = meta or _nothing
    run = effect_kernel(parsed, kernel)
    formulas = parse_vjp(parsed, vjp)
    threaded = register(
        TokenOp(
            schema_of(_threaded_schema(schema)),
            threaded_rule(parsed, rule),
            cost=Cost.OPAQUE,
            kernel=threaded_kernel(parsed, run, effect),
            effect=effect,
            of=parsed.name,
        )
    )
    op: EffectOp = register(
        EffectOp(
            parsed,
            rule,
            cost=Cost.OPAQUE,
            kernel=run,
            vjp=formulas,
            effect=effect,
            threaded=threaded,
        )
    )
    return op


def _nothing(*key: object) -> tuple[()]:
    return ()


def _threaded_schema(schema: str) -> str:
    """The schema of the pure form: a token and the number in its chain before the parameters, a
    token before the results.
    """
    head, _, results = schema.rpartition("->")
    name, _, inner = head.strip().partition("(")
    given = inner.removesuffix(")").strip()
    results = results.strip().removeprefix("(").removesuffix(")").strip()
    parameters = "Tensor token, int ordinal" + (f", {given}" if given else "")
    returned = f"(Tensor token, {results})" if results else "Tensor"
    return f"with_effect_{name}({parameters}) -> {returned}"


# ------------------------------------------------------------------------------ chains of tokens
def _sink_rule(tokens: tuple[TensorMeta, ...]) -> TensorMeta:
    for token in tokens:
        check_token(token)
    return TOKEN


MAKE_TOKEN: TokenOp = register(
    TokenOp(
        schema_of("make_token(str effect) -> Tensor"),
        lambda effect: TOKEN,
        cost=Cost.OPAQUE,
        kernel=lambda arrays, meta, effect: new_token(),
    )
)
"""The first token of a chain, in a graph that has no token inputs."""

SINK_TOKENS: TokenOp = register(
    TokenOp(
        schema_of("sink_tokens(Tensor[] tokens) -> Tensor"),
        _sink_rule,
        cost=Cost.OPAQUE,
        kernel=lambda arrays, meta, tokens: new_token(),
    )
)
"""Takes the last tokens of the chains, in a graph that has no token outputs. Its result is unused.
"""


# -------------------------------------------------------------------------------------- printing
def _print_rule(format: str, tensors: tuple[TensorMeta, ...]) -> tuple[()]:
    fields = _fields(format)
    wanted = 1 + max([number for number, _ in fields], default=-1)
    if wanted != len(tensors):
        raise noted(
            ArgumentError(
                f"print_tensors: the format {format!r} has {wanted} fields, expected "
                f"{len(tensors)}, one for each tensor"
            ),
            "Fields are {}, {0} or {0:.3f}; a brace is written twice.",
        )
    for number, how in fields:
        if how and tensors[number].shape:
            raise ArgumentError(
                f"print_tensors: the field {{{number}:{how}}} shows a tensor of shape "
                f"{tensors[number].shape}, expected one of no dimensions"
            )
    return ()


def _fields(format: str) -> list[tuple[int, str]]:
    """(index of the tensor, format spec) of each field of a format."""
    found: list[tuple[int, str]] = []
    try:
        for _, name, how, _ in Formatter().parse(format):
            if name is None:
                continue
            if name and not name.isdecimal():
                raise ValueError(f"a field is named {name!r}")
            found.append((int(name or len(found)), how or ""))
    except ValueError as error:
        raise ArgumentError(
            f"print_tensors: the format is {format!r} ({error}), expected one with fields that "
            "are empty or numbers"
        ) from None
    return found


def _print(xp: Namespace, meta: TensorMeta, format: str, tensors: tuple[Array, ...]) -> None:
    # By Python's print, which looks up sys.stdout now: it may have been replaced.
    builtins.print(format.format(*[_shown(each) for each in tensors]))


def _shown(array: Any) -> object:
    """The array for formatting; a number for a 0-d array."""
    return array.item() if not np.shape(array) else array


PRINT = effect(
    "print_tensors(str format, Tensor[] tensors) -> ()",
    effect="print",
    meta=_print_rule,
    kernel=_print,
    vjp=None,
)


# ------------------------------------------------------------------------------------- callbacks
def _callback_rule(
    function: None, tensors: tuple[TensorMeta, ...], results: str
) -> tuple[TensorMeta, ...]:
    metas = metas_of(results)
    if not tensors or tensors[0].device is CPU:
        return metas
    device = tensors[0].device
    return tuple([tensor_meta(m.shape, m.stride, m.dtype, device) for m in metas])


def metas_of(results: str) -> tuple[TensorMeta, ...]:
    """The metas of a callback's results, from their text: "f32[2, 3]; i64[]"."""
    return tuple([meta_from_text(text.strip()) for text in results.split(";") if text.strip()])


def _call_back(
    xp: Namespace,
    metas: tuple[TensorMeta, ...],
    function: HostFunction,
    tensors: tuple[Array, ...],
    results: str,
) -> tuple[Array, ...]:
    found = function.call(*tensors)
    if not metas:
        return ()
    given = found if isinstance(found, (tuple, list)) else (found,)
    if len(given) != len(metas):
        raise ArgumentError(
            f"host_callback: {function.name} gives {len(given)} results, expected {len(metas)}"
        )
    pairs = zip(given, metas, strict=True)
    return tuple([_result(function, k, one, meta) for k, (one, meta) in enumerate(pairs)])


def _result(function: HostFunction, index: int, found: Any, meta: TensorMeta) -> Any:
    """A callback's result as an array. Raises ArgumentError if it is not of the declared meta; a
    Python number is accepted for any dtype."""
    if type(found) in (bool, int, float, complex) and not meta.shape:
        return np.asarray(found, meta.dtype.numpy)
    shape, dtype = getattr(found, "shape", None), getattr(found, "dtype", None)
    if shape != meta.shape or dtype != meta.dtype.numpy:
        got = type(found).__name__ if shape is None else f"{dtype}{list(shape)}"
        raise noted(
            ArgumentError(
                f"host_callback: result {index} of {function.name} is {got}, expected {meta}"
            ),
            "The argument 'results' declares the results of a callback.",
        )
    return found


HOST_CALLBACK = effect(
    "host_callback(function function, Tensor[] tensors, str results='') -> Tensor[]",
    effect="callback",
    meta=_callback_rule,
    kernel=_call_back,
    vjp=None,
)


# -------------------------------------------------------------------------------- calls of a tape
# A compiled backward with `hooks="call"` is one graph (CAG-25). What only Python can do there is a
# call, an effect of the type `tape`:
#
#     call_hook('tensor_pre_hook', hook, (grad,), frame, 'f32[3]')
#
# `hook` is the number of the call, an input of the graph: the backward that runs says which
# function that is. `frame` has the other gradients in flight, from which the engine could go on.
# The results are the gradients after the call. Spec: `specs/one_tape.md`.
TAPE = "tape"
"""The effect type of all calls: they have one order."""


class _Running(threading.local):
    """The backward that this thread runs by a graph with calls; None for none."""

    call: Callable[[int, tuple[Any, ...]], tuple[Any, ...]] | None = None
    """(number of the call, its operands) -> its results."""


RUNNING = _Running()


def _call_rule(kind: str, of: TensorMeta, grads: Any, frame: Any, results: str) -> Any:
    return metas_of(results)


def _performed(name: str, of: object, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    if RUNNING.call is None:
        raise noted(
            ArgumentError(f"{name}: it is called outside of a backward, expected one that runs"),
            "It is an op of graphs that compiled_autograd.enable(hooks='call') makes. (CAG-25)",
        )
    return RUNNING.call(int(host_array(of)), operands)


def _declared(name: str, of: str) -> EffectOp:
    """Declares a call, and its form with tokens. Operands are not copied: the backward does it."""
    rest = f"str kind, Tensor {of}, Tensor[] grads, Tensor[] frame, str results=''"

    def alone(arrays: Any, meta: Any, kind: str, of: Any, grads: Any, frame: Any, _: str) -> Any:
        return _performed(name, of, (*grads, *frame))

    def threaded(
        arrays: Any, meta: Any, token: Any, ordinal: int, kind: str, of: Any, *rest: Any
    ) -> Any:
        with happening(TAPE, ordinal, name):
            return (new_token(), *_performed(name, of, (*rest[0], *rest[1])))

    pure = register(
        TokenOp(
            schema_of(
                f"with_effect_{name}(Tensor token, int ordinal, {rest}) -> (Tensor token, Tensor[])"
            ),
            threaded_rule(schema_of(f"{name}({rest}) -> Tensor[]"), _call_rule),
            cost=Cost.OPAQUE,
            kernel=threaded,
            effect=TAPE,
            of=name,
        )
    )
    op: EffectOp = register(
        EffectOp(
            schema_of(f"{name}({rest}) -> Tensor[]"),
            _call_rule,
            cost=Cost.OPAQUE,
            kernel=alone,
            vjp=None,
            effect=TAPE,
            threaded=pure,
        )
    )
    return op


CALL_HOOK = _declared("call_hook", "hook")
"""Calls a hook; `kind` says which."""
CALL_BACKWARD = _declared("call_backward", "node")
"""Runs a tape node that is not recorded: the backward of a custom function, or packed values."""
ACCUMULATE_GRAD = _declared("accumulate_grad", "leaf")
"""Adds a gradient to the `.grad` of a leaf."""
