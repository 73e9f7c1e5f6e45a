"""The forms in which ops are declared: `pointwise`, `pure`, `view`, `multi_view`, `inplace_of`, ...

Each adds ops to the op table. It derives what follows from the declaration (in-place forms, scatter
forms, casts of operands), and refuses an incomplete one. Spec: `specs/op_declaration.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, ArrayBackend, Namespace
from aotlite.ir.arrays.device import Device
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError, DeviceError, DTypeError
from aotlite.ir.geometry import layout, sizes
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import (
    Cost,
    GeometryOp,
    InplaceOp,
    MultiViewOp,
    PureOp,
    ViewOp,
    parse_vjp,
    register,
    schema_of,
)
from aotlite.ir.op.binding import NUMBERS
from aotlite.ir.op.composite import also_named
from aotlite.ir.op.dims import elementwise
from aotlite.ir.op.operand import Operand
from aotlite.ir.op.parameter_types import Number
from aotlite.ir.op.schema import Schema, inplace_schema
from aotlite.ir.ops.kinds import FLOAT8, Refused, refuse
from aotlite.ir.ops.loops import Element
from aotlite.ir.ops.precision import WIDE_NUMBERS, accumulator, cast, number_in
from aotlite.ir.scalar.functions.formula import SCALARS

Formulas = Mapping[str, Callable[..., object]] | None
Results = Array | tuple[Array, ...]


# ------------------------------------------------------------------------------------ pointwise
def common_dtype(key: tuple[Any, ...]) -> DType:
    """The promoted dtype of a meta rule's arguments (metas and types of numbers)."""
    return dtypes.result_type(
        [
            (a.dtype, len(a.shape)) if type(a) is TensorMeta else a()
            for a in key
            if type(a) is TensorMeta or a in _KINDS
        ]
    )


_KINDS = frozenset(NUMBERS)


def common_device(name: str, metas: Sequence[TensorMeta]) -> Device:
    """The one device of `metas`. Raises DeviceError if they differ."""
    device = metas[0].device
    for meta in metas:
        if meta.device is not device:
            raise DeviceError(
                f"{name}: operands are on {device} and {meta.device}, expected one device"
            )
    return device


def pointwise_rule(
    name: str,
    result: Callable[[DType], DType],
    *,
    wrapped: tuple[int, ...] = (),
    literal: tuple[int, ...] = (),
    refuses: Refused = FLOAT8,
) -> Callable[..., TensorMeta]:
    """The meta rule of a pointwise op: broadcast, promote, keep the operands' layout.

    At the positions `wrapped`, PyTorch turns a number into a 0-d tensor, an operand that counts
    where layouts are ambiguous. Numbers at the positions `literal` are not operands, and do not
    take part in promotion.
    """

    def rule(*key: object) -> TensorMeta:
        factors = [key[i] for i in literal]
        if literal:
            key = tuple([None if i in literal else a for i, a in enumerate(key)])
        metas = [a for a in key if type(a) is TensorMeta]
        if not metas:
            raise ArgumentError(f"{name}: all operands are numbers, expected at least one tensor")
        promoted = common_dtype(key)
        if refuses:
            refuse(name, key, promoted, refuses)
        if complex in factors and not promoted.is_complex:
            raise DTypeError(f"{name}: a number is complex, expected a real one for {promoted}")
        dtype = result(promoted)
        device = metas[0].device if len(metas) == 1 else common_device(name, metas)
        shape = sizes.broadcast_shapes(*[meta.shape for meta in metas], op=name)
        layouts: list[layout.Layout] = []
        for i, a in enumerate(key):
            if type(a) is TensorMeta:
                layouts.append((a.shape, a.stride))
            elif i in wrapped and a in _KINDS:
                layouts.append(((), ()))
        return tensor_meta(shape, layout.elementwise_strides(layouts, shape), dtype, device)

    return rule


def same(dtype: DType) -> DType:
    """Result dtype = promoted dtype."""
    return dtype


def to_bool(dtype: DType) -> DType:
    """Result dtype of a comparison."""
    return dtypes.bool_


def to_float(dtype: DType) -> DType:
    """Integers become the default floating dtype."""
    return dtype if dtype.is_differentiable else dtypes.default_dtype


def real_of(dtype: DType) -> DType:
    """Complex becomes the real dtype of its parts."""
    return _REAL.get(dtype, dtype)


_REAL = {dtypes.complex64: dtypes.float32, dtypes.complex128: dtypes.float64}


class OperandFunctions:
    """The functions of an array library on operands: their methods of the same names."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda x, *rest: getattr(x, name)(*rest)


def by_element(element: Callable[..., Any]) -> Callable[..., Any]:
    """The decomposition of an op of floats whose `element(f, a, *numbers)` is given."""

    def expands(self: Operand, *numbers: Any) -> Operand:
        final = to_float(self.dtype)
        value = element(OperandFunctions(), self.to(accumulator(final)), *numbers)
        return value.to(final)

    return expands


# Note [linear groups]
#     linear=(("self",), ("other",))     mul: in each operand by itself
#     linear=(("self", "other"),)        add: in both at once
# x * log(y) + z has one group of x and z, but none of z alone: with x constant, z = 0 does not
# give 0.
def pointwise(
    schema: str,
    *,
    kernel: Callable[..., Array] | str | None = None,
    vjp: Formulas,
    scalar: Callable[..., Element] | None = None,
    element: Callable[..., Any] | None = None,
    result: Callable[[DType], DType] = same,
    computes: Callable[[DType], DType] | None = None,
    refuses: Refused = FLOAT8,
    rule: Callable[..., TensorMeta] | None = None,
    numbers: str = "held",
    rounds: tuple[str, ...] = (),
    widens: bool = True,
    inplace: bool = False,
    expands: Callable[..., object] | None = None,
    linear: tuple[tuple[str, ...], ...] = (),
    aliases: str = "",
) -> PureOp:
    """Declares a pointwise op. `kernel(xp, *operands)` sees operands of the dtype it computes in.

    A kernel that only calls a function of the namespace on the operands, in order, is given by that
    function's name. `scalar` gives one element of the result as an expression of one element of
    each operand (`ir/scalar`). `element(f, *operands)` is both at once, in functions `f` that
    both have: the array library's, or those of scalar expressions. `vjp` has a formula for each
    operand that gets a gradient. `refuses` names kinds of dtype (`ir/ops/kinds.py`). `inplace` also
    declares the in-place form. `aliases` are other names, separated by spaces. `expands` is the
    decomposition. `linear` names groups of operands in which f(a + a') = f(a) + f(a') and f(0) = 0
    while the other operands are constant (OPS-24), see Note [linear groups]. The result of a
    formula is summed over the dimensions that were broadcast, and has the operand's dtype.

    `result` maps the promoted dtype to the result's. `computes` maps it to the operands' dtype in
    the kernel; by default that is the result's, or the promoted one where the result is bool. With
    `widens`, 16-bit floats are computed in float32 and rounded once. `numbers` says how a number in
    a tensor's place, or one of a parameter in `rounds`, is rounded (`PureOp.numbers`). `rule` is
    for an op whose layout differs from that of `pointwise_rule`.
    """
    if element is not None:
        kernel, scalar = kernel or element, scalar or partial(element, SCALARS)
    assert kernel is not None and scalar is not None
    if isinstance(kernel, str):
        SCALARS.entered.setdefault(kernel, scalar)
    parsed, wanted = schema_of(schema), computes or _computed_in(result)
    computing = _computing(parsed, kernel, wanted, rounds=rounds, numbers=numbers, widens=widens)
    op: PureOp = register(
        PureOp(
            parsed,
            rule or _usual_rule(parsed, result, refuses),
            cost=Cost.POINTWISE,
            vjp=parse_vjp(parsed, vjp),
            scalar=scalar,
            expands=expands,
            dims=elementwise,
            linear=linear,
            **computing,
        )
    )
    return _with_forms(op, aliases, inplace=inplace)


# Note [ops in parts]
#     addcmul(x, y, z, value=s)      mul(y, z), mul(_, hidden), add(x, _)
# Where a float that changes is an input, the tape has the op as it was called, so gradients are
# eager's. In the graph the parts compute what its kernel does, in the same order. They are of
# float32 or float64, as operands and results.
PARTS: dict[PureOp, Callable[..., Any]] = {}
"""Ops that take numbers alone, as ops that take tensors there: `parts(do, *args)` is a node, or
None, and `do(name, *args)` the node of an op."""


def in_parts(op: PureOp, parts: Callable[..., Any]) -> None:
    """Declares the parts of an op."""
    PARTS[op] = parts


def _computed_in(result: Callable[[DType], DType]) -> Callable[[DType], DType]:
    """The dtype of operands in the kernel, by default: the promoted one if the result is bool."""
    return same if result in (to_bool, real_of) else result


def _places(parsed: Schema) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The positions of numbers in a tensor's place, and of those that are no operands."""
    kinds = [parameter.type for parameter in parsed.parameters]
    wrapped = tuple(i for i, kind in enumerate(kinds) if kind.holds_number)
    literal = tuple(i for i, kind in enumerate(kinds) if not kind.holds_tensor)
    return wrapped, literal


def _usual_rule(
    parsed: Schema, result: Callable[[DType], DType], refuses: Refused
) -> Callable[..., TensorMeta]:
    wrapped, literal = _places(parsed)
    return pointwise_rule(parsed.name, result, wrapped=wrapped, literal=literal, refuses=refuses)


def _with_forms(op: PureOp, aliases: str, *, inplace: bool) -> PureOp:
    """The op itself, with its other names and its in-place form in the table."""
    also_named(op, aliases)
    if inplace:
        also_named(inplace_of(op), aliases, end="_")
    return op


def _computing(
    parsed: Schema,
    kernel: Callable[..., Array] | str,
    wanted: Callable[[DType], DType],
    *,
    rounds: tuple[str, ...],
    numbers: str,
    widens: bool,
) -> dict[str, Any]:
    """How a pointwise op computes: the fields of `PureOp` on its kernel and dtypes."""
    wrapped, literal = _places(parsed)
    names = [parameter.name for parameter in parsed.parameters]
    held = wrapped + tuple(names.index(name) for name in rounds)
    name = kernel if isinstance(kernel, str) else None
    options: dict[str, Any] = {"held": held, "numbers": numbers, "widens": widens}
    return {
        "kernel": pointwise_kernel(
            _named(kernel) if isinstance(kernel, str) else kernel,
            wanted,
            **options,
            literal=literal,
        ),
        "function": name,
        "compute": None if name is not None or literal or rounds else kernel,
        "numbers": numbers,
        "computes": (lambda dtype: accumulator(wanted(dtype))) if widens else wanted,
        "held": held,
        "holds": wanted,
    }


def _named(name: str) -> Callable[..., Array]:
    return lambda xp, *operands: getattr(xp, name)(*operands)


def pointwise_kernel(
    compute: Callable[..., Array],
    computes: Callable[[DType], DType],
    *,
    held: tuple[int, ...] = (),
    numbers: str = "held",
    widens: bool = True,
    literal: tuple[int, ...] = (),
) -> Callable[..., Array]:
    """The kernel that casts the operands to the dtype it computes in, and calls `compute`.

    Numbers at the positions `held` are rounded to the operands' dtype, as `numbers` says. Numbers
    at the positions `literal` do not take part in promotion.
    """
    found: dict[tuple[object, ...], DType] = {}

    def run(arrays: ArrayBackend, meta: TensorMeta, *args: Any) -> Array:
        key = tuple([(a.dtype, not a.shape) if hasattr(a, "dtype") else type(a) for a in args])
        dtype = found.get(key)
        if dtype is None:
            operands = [a for i, a in enumerate(args) if i not in literal]
            dtype = found[key] = computes(_operand_dtype(operands))
        wide = accumulator(dtype) if widens else dtype
        xp = arrays.namespace
        if wide is not dtype:
            args = _narrowed(xp, args, dtype.numpy, numbers)
        operands = [_cast(xp, a, wide.numpy) for a in args]
        for i in held:
            kind = type(operands[i])
            if kind in _KINDS and (kind is not int or numbers != "unwrapped"):
                operands[i] = number_in(wide if numbers in WIDE_NUMBERS else dtype, operands[i])
        computed = compute(xp, *operands)
        if wide is not dtype and computed.dtype != meta.dtype.numpy:
            return cast(xp, computed, meta.dtype)
        return computed

    return run


def is_plain_call(op: PureOp, key: tuple[object, ...]) -> bool:
    """Whether the kernel equals the op's `function`, or `compute`, on the operands as they are."""
    if op.computes is None:
        return False
    computed = op.computes(common_dtype(key))
    if any(type(a) is TensorMeta and a.dtype is not computed for a in key):
        return False
    # Numbers may have to wrap first.
    return computed.kind != dtypes.INTEGER or computed is dtypes.int64 or int not in key


def _operand_dtype(args: Sequence[Any]) -> DType:
    """The promoted dtype of arrays and numbers."""
    arrays = [(dtypes.from_numpy(a.dtype), len(a.shape)) for a in args if hasattr(a, "dtype")]
    return dtypes.result_type([*arrays, *[a for a in args if type(a) in _KINDS]])


def _narrowed(
    xp: Namespace, args: tuple[Array | Number, ...], target: np.dtype, numbers: str
) -> tuple[Array | Number, ...]:
    """The operands of other dtypes, rounded to the op's 16-bit dtype.

    As in PyTorch, a 0-d tensor that is not the first operand is treated like a number.
    """
    is_wide = numbers in WIDE_NUMBERS
    return tuple(
        [
            a if is_wide and i and not getattr(a, "shape", ()) else _cast(xp, a, target)
            for i, a in enumerate(args)
        ]
    )


def _cast(xp: Namespace, operand: Array | Number, target: np.dtype) -> Array | Number:
    """The operand in the dtype that the kernel computes in; numbers stay Python numbers."""
    if not hasattr(operand, "dtype") or operand.dtype == target:
        return operand
    return xp.astype(operand, target)


# ------------------------------------------------------------------------------- other pure ops
def pure(
    schema: str,
    *,
    meta: Callable[..., Any],
    kernel: Callable[..., Results],
    vjp: Formulas,
    cost: Cost,
    inplace: bool = False,
    **facts: Any,
) -> PureOp:
    """Declares a pure op by its meta rule and a `kernel(xp, meta, *args)`.

    `facts` are optional fields of `PureOp`: `loops`, `expands`, `namespaced`, `dims`,
    `linear`, `workspace`.
    """
    parsed = schema_of(schema)

    def run(arrays: ArrayBackend, result: object, *args: Any) -> Results:
        return kernel(arrays.namespace, result, *args)

    op: PureOp = register(
        PureOp(parsed, meta, cost=cost, kernel=run, vjp=parse_vjp(parsed, vjp), **facts)
    )
    if inplace:
        inplace_of(op)
    return op


def inplace_of(
    functional: PureOp, *, overwrites: bool = False, name: str | None = None
) -> InplaceOp:
    """Derives the in-place op that writes the result of `functional` into its first operand."""
    op: InplaceOp = register(
        InplaceOp(
            inplace_schema(functional.schema, name or functional.name + "_"),
            functional.rule,
            cost=functional.cost,
            functional=functional,
            overwrites=overwrites,
        )
    )
    return op


# ---------------------------------------------------------------------------------------- views
def view(
    schema: str,
    *,
    meta: Callable[..., tuple[TensorMeta, int]],
    put: Callable[..., Operand] | None,
    vjp: Formulas,
    keeps_all: bool = False,
    **facts: Any,
) -> ViewOp:
    """Declares a view op. With `put=None` its inverse is the derived op `<name>_scatter`.

    `facts` are optional fields of `ViewOp`: `recasts`, `copies`.
    """
    parsed = schema_of(schema)
    name = parsed.name
    if put is None:
        put = _scatter_put(name)
    op: ViewOp = register(
        ViewOp(
            parsed,
            meta,
            cost=Cost.VIEW,
            put=put,
            vjp=parse_vjp(parsed, vjp),
            keeps_all=keeps_all,
            **facts,
        )
    )
    return op


def _scatter_put(name: str) -> Callable[..., Operand]:
    def put(parent: Operand, value: Operand, *args: object) -> Operand:
        return parent._do(f"{name}_scatter", value, *args)

    return put


def multi_view(schema: str, *, parts: Callable[..., object], vjp: Formulas) -> MultiViewOp:
    """Declares a multi-output view; `parts` gives the equal single view of each result."""
    parsed = schema_of(schema)
    op = MultiViewOp(parsed, parts, cost=Cost.VIEW, vjp=parse_vjp(parsed, vjp))
    return register(op)


def geometry_of(viewed: ViewOp, name: str) -> GeometryOp:
    """Derives the in-place form of a view: it changes its operand's shape and strides (TEN-24)."""
    schema = inplace_schema(viewed.schema, name)
    op: GeometryOp = register(GeometryOp(schema, viewed.rule, cost=Cost.VIEW, view=viewed))
    return op
