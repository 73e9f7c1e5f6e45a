"""The generated functions of `aotlite`: one for each op and composite, with `out=`.

`function(name)` is `aotlite.<name>`, where no function of that name is written by hand.
Rules: TEN-7, TEN-9, TEN-10. Spec: `specs/op_declaration.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, combinations, product
from typing import Any

import aotlite.ir.ops  # noqa: F401  (fills the op table)
from aotlite.eager.base.modes import is_grad_enabled, no_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.memory import check_room, take_room
from aotlite.eager.dispatch import dispatch
from aotlite.eager.dispatch.destinations import check_destination, layout_of
from aotlite.eager.subclass.protocol import is_wrapper, leaves_of, refuse_form
from aotlite.ir.dtypes import can_cast_in_place
from aotlite.ir.errors import (
    AliasError,
    ArgumentError,
    AutogradError,
    DTypeError,
    ShapeError,
    noted,
)
from aotlite.ir.geometry.overlap import overlaps_bytes
from aotlite.ir.meta.devices import check_device
from aotlite.ir.op import OPS
from aotlite.ir.op.composite import COMPOSITES, described
from aotlite.ir.op.named_results import results_of
from aotlite.ir.op.operand import Operand
from aotlite.ir.op.schema import Schema


def names() -> list[str]:
    """Every name for which `function` returns one."""
    return sorted({*OPS, *COMPOSITES})


def function(name: str) -> Callable[..., Any] | None:
    """The function of this name; None if no op or composite has it."""
    if name not in OPS and name not in COMPOSITES:
        return None
    compute = _compute(name)

    def call(*args: object, out: object = None, **kwargs: object) -> object:
        if out is None:
            return compute(*args, **kwargs)
        return into(name, compute, args, kwargs, out)

    described(call, name, _doc(name), _schema(name))
    return call


def _schema(name: str) -> Schema | None:
    return COMPOSITES[name].schema if name in COMPOSITES else OPS[name].schema


def _doc(name: str) -> str | None:
    if name in COMPOSITES:
        return COMPOSITES[name].function.__doc__
    return getattr(getattr(Tensor, name, None), "__doc__", None)


def _compute(name: str) -> Callable[..., object]:
    """The function that computes it: the tensor method of this name, if there is one."""
    made, op = COMPOSITES.get(name), OPS.get(name)
    named = None if op is None else results_of(op.schema)

    def bare(*args: object, **kwargs: object) -> object:
        result = dispatch(op, op.bind(args, kwargs))  # type: ignore[arg-type, union-attr]
        if type(result) is tuple and not result:
            return None  # of an effect without results
        return result if named is None else named(*result)

    if made is None and op is not None and op.schema.parameters[0].name != "self":
        return bare  # no tensor has it as a method

    def compute(*args: object, **kwargs: object) -> object:
        for word in ("self", "input") if not args else ():
            if isinstance(kwargs.get(word), Operand):
                args = (kwargs.pop(word),)
        first = args[0] if args else None
        face = getattr(type(first), name, None) if isinstance(first, Operand) else None
        if callable(face) and args:
            return face(*args, **kwargs)
        if made is not None:
            return made(*args, **kwargs)
        return bare(*args, **kwargs)

    return compute


# -------------------------------------------------------------------------------------------- out
def into(
    name: str,
    compute: Callable[..., object],
    args: tuple[object, ...],
    kwargs: dict[str, object],
    out: object,
) -> Any:
    """Writes the function's results to `out`, a tensor or a tuple of them, and returns `out`."""
    targets = out if isinstance(out, (tuple, list)) else (out,)
    operands = _tensors((args, tuple(kwargs.values())))
    for target in targets:
        if not isinstance(target, Tensor):
            raise ArgumentError(f"{name}: argument 'out' is {target!r}, expected a tensor")
    _check_no_history(name, [*targets, *operands])
    with no_grad():
        results = compute(*args, **kwargs)
        results = results if isinstance(results, tuple) else (results,)
        if len(results) != len(targets):
            raise ArgumentError(
                f"{name}: argument 'out' has {len(targets)} tensors, expected {len(results)}"
            )
        for target, result in zip(targets, results, strict=True):
            _check_target(name, target, result, operands)
        _check_apart(name, targets)
        pairs = zip(targets, results, strict=True)
        for target, result in sorted(pairs, key=lambda pair: not is_wrapper(pair[0])):
            _store(target, result)  # first where a class may refuse it
    return out


def _tensors(value: object) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    items = value if isinstance(value, (tuple, list)) else ()
    return [tensor for item in items for tensor in _tensors(item)]


def _check_no_history(name: str, tensors: list[Tensor]) -> None:
    if is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise noted(
            AutogradError(
                f"{name}: a tensor requires grad and 'out' is given, expected one or the other"
            ),
            "A write to 'out' leaves no history: call it under no_grad(), or without 'out'.",
        )


def _check_target(name: str, target: Tensor, result: Tensor, operands: list[Tensor]) -> None:
    check_device(f"{name}: argument 'out'", target.device, result.device)
    if target.shape != result.shape and target.numel():
        raise noted(
            ShapeError(f"{name}: argument 'out' has shape {target.shape}, expected {result.shape}"),
            "An empty tensor takes the result's shape.",
        )
    if not can_cast_in_place(result.dtype, target.dtype):
        raise DTypeError(
            f"{name}: argument 'out' has dtype {target.dtype}, expected one that takes a result of "
            f"{result.dtype}"
        )
    if target.shape != result.shape:
        if is_wrapper(target):
            raise refuse_form(name, target, "Give a tensor of the result's size as 'out'")
        check_room(target, target.meta.as_contiguous(result.shape))
    else:
        check_destination(name, target, [t for t in operands if t is not target])


def _check_apart(name: str, targets: Sequence[Tensor]) -> None:
    pairs = [product(*map(leaves_of, pair)) for pair in combinations(targets, 2)]
    for a, b in chain.from_iterable(pairs):
        if a is b or (a.storage is b.storage and overlaps_bytes(*layout_of(a), *layout_of(b))):
            raise AliasError(
                f"{name}: two tensors of argument 'out' share memory, expected one place for each "
                "result"
            )


def _store(target: Tensor, result: Tensor) -> None:
    """Writes the result to the target: one write, also if it resizes the target (TEN-10)."""
    if target.shape != result.shape:
        take_room(target, target.meta.as_contiguous(result.shape))
    target.copy_(result)
