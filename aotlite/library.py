"""`register_op`: declares an op of the user in the form of the built-in ones.

The declaration gives the op its function, tensor method, `out=`, in-place form, autograd, capture,
printed graphs and partition. Spec: `specs/op_declaration.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import aotlite.ir.ops  # noqa: F401  (the table of ops is complete before an op of the user)
from aotlite.eager.base.host_callback import on_host
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.namespace import function
from aotlite.ir.dtypes import DType
from aotlite.ir.effects import check_effect
from aotlite.ir.errors import ArgumentError, noted
from aotlite.ir.forks import lock
from aotlite.ir.geometry.sizes import as_size
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import OPS, Cost, Op, PureOp
from aotlite.ir.op.composite import COMPOSITES
from aotlite.ir.op.operand import Operand, install_method
from aotlite.ir.op.schema import Schema, parse_schema
from aotlite.ir.ops import declare, effects

_RESULTS: Mapping[str, Callable[[DType], DType]] = {
    "same": declare.same,
    "float": declare.to_float,
    "bool": declare.to_bool,
    "real": declare.real_of,
}
_LOCK = lock()


def register_op(
    schema: str,
    *,
    vjp: Mapping[str, Callable[..., object]] | None,
    kernel: Callable[..., object] | None = None,
    meta: Callable[..., object] | None = None,
    scalar: Callable[..., object] | None = None,
    result: str | Callable[[DType], DType] = "same",
    put: Callable[..., object] | None = None,
    cost: str = "opaque",
    inplace: bool = False,
    effect: str | None = None,
) -> Callable[..., Any]:
    """Declares an op and returns its function, which is `aotlite.<name>` from then on too.

    The arguments decide the kind of the op:

    - **pointwise**: `scalar(*operands)`, the result's element as an expression of the operands'
      elements (`aotlite.ir.scalar`), and `kernel(xp, *operands)`, which gets the array library's
      namespace and arrays of one dtype. Shape and strides follow. `result` is the dtype: the
      promoted one ("same"), a floating one ("float"), bool ("bool"), that of a complex dtype's
      parts ("real"), or a function of the promoted dtype.
    - **view**: a schema whose result has the mark of its first operand, as in
      "evens(Tensor(a) self) -> Tensor(a)"; `meta(self, ...)` returns the result's meta and its
      start, in elements from the operand's first one; `put(parent, value, ...)` returns the
      parent's value with the viewed elements replaced. A view has no kernel.
    - **any other**: `meta(...)` returns the result's meta (`aotlite.ir.meta.tensor_meta`), or a
      tuple for several results; `kernel(xp, meta, ...)` returns new arrays of that shape and dtype.
    - **an op with an effect**: `effect` names the type of its side effect. Effects of one type
      happen exactly once and in order, compiled or not. `kernel(xp, meta, ...)` gets copies of the
      operands as arrays of NumPy; with a schema that ends in "-> ()" it returns nothing, and there
      is no `meta`.

    `vjp`: operand -> the function of its gradient. The parameters of a function are among `grad`,
    the operands, `result`, the arguments, and `<name>_meta` if the meta is enough; they are saved.
    A function calls tensor methods and ops, so that second derivatives follow. None: the op has no
    gradient. `cost` is the partitioner's cost class. `inplace` also declares the in-place form,
    named with a trailing `_`.

    Raises ArgumentError for a name in use and for missing or superfluous parts, TokenError for an
    effect with a schema that shares or writes memory (TOK-6).

    >>> import aotlite as al
    >>> cube = al.register_op(
    ...     "cube(Tensor self) -> Tensor",
    ...     kernel=lambda xp, a: a * a * a,
    ...     scalar=lambda a: a * a * a,
    ...     vjp={"self": lambda grad, self: grad * 3 * self * self},
    ... )
    >>> x = al.tensor([1.0, 2.0], requires_grad=True)
    >>> al.compile(lambda x: x.cube())(x).sum().backward()
    >>> x.grad.tolist()
    [3.0, 12.0]
    """
    parsed, parts = parse_schema(schema), _Parts(vjp, kernel, meta, scalar, put)
    with _LOCK:
        _check(parsed, parts, effect=effect, inplace=inplace)
        return _installed(_declared(parsed, parts, effect, result, cost), inplace=inplace)


class _Parts(NamedTuple):
    """What a user gives an op."""

    vjp: Any
    kernel: Any
    meta: Any
    scalar: Any
    put: Any


def _check(schema: Schema, parts: _Parts, *, effect: str | None, inplace: bool) -> None:
    """Raises the errors of `register_op`."""
    _check_name(schema, inplace)
    if effect is not None:
        check_effect(schema, effect)
    given = {"kernel": parts.kernel, "meta": parts.meta, "scalar": parts.scalar, "put": parts.put}
    _check_parts(schema, **given)
    _check_formulas(schema, parts.vjp)
    _check_inplace(schema, inplace)
    _check_effect_parts(schema, effect, scalar=parts.scalar, inplace=inplace)


def _installed(op: Op, *, inplace: bool) -> Callable[..., Any]:
    """The function of an op, which is a method of tensors then; with its in-place form."""
    install_method(op)
    if inplace:
        assert isinstance(op, PureOp)
        install_method(declare.inplace_of(op))
    found = function(op.name)
    assert found is not None
    return found


def _declared(
    schema: Schema,
    parts: _Parts,
    effect: str | None,
    result: str | Callable[[DType], DType],
    cost: str,
) -> Op:
    vjp, kernel, meta, scalar, put = parts
    text = str(schema)
    if effect is not None:
        return _with_effect(schema, vjp, kernel, meta, effect)
    dtype = _result(schema, result)
    if scalar is not None:
        return declare.pointwise(text, kernel=kernel, vjp=vjp, scalar=scalar, result=dtype)
    if put is not None:
        return declare.view(text, meta=_checked_window(schema, meta), put=put, vjp=vjp)
    return declare.pure(
        text,
        meta=_checked_meta(schema, meta),
        kernel=_checked_kernel(schema, kernel),
        vjp=vjp,
        cost=_cost(schema, cost),
    )


def _with_effect(
    schema: Schema, vjp: Any, kernel: Any, meta: Callable[..., object] | None, effect: str
) -> Op:
    return effects.effect(
        str(schema),
        effect=effect,
        meta=None if meta is None else _checked_meta(schema, meta),
        kernel=on_host(_checked_kernel(schema, kernel) if schema.returns else kernel),
        vjp=vjp,
    )


# ----------------------------------------------------------------- results of the user's parts
def _checked_meta(schema: Schema, meta: Callable[..., object]) -> Callable[..., object]:
    count = len(schema.returns)

    def rule(*key: object) -> Any:
        found = meta(*key)
        metas = found if type(found) is tuple else (found,)
        if len(metas) != count or not all(isinstance(each, TensorMeta) for each in metas):
            what = "a TensorMeta" if count == 1 else f"a tuple of {count} TensorMetas"
            raise ArgumentError(f"{schema.name}: its 'meta' gives {found!r}, expected {what}")
        return found

    return rule


def _checked_window(schema: Schema, meta: Callable[..., Any]) -> Callable[..., Any]:
    def rule(*key: object) -> Any:
        found = meta(*key)
        fits = type(found) is tuple and len(found) == 2 and isinstance(found[0], TensorMeta)
        if not fits or as_size(found[1]) is None:
            raise ArgumentError(
                f"{schema.name}: its 'meta' gives {found!r}, expected a TensorMeta and the start "
                "of the view"
            )
        return found

    return rule


def _checked_kernel(schema: Schema, kernel: Callable[..., object]) -> Callable[..., Any]:
    def run(xp: object, meta: object, *args: object) -> Any:
        result = kernel(xp, meta, *args)
        metas = meta if type(meta) is tuple else (meta,)
        arrays = result if type(meta) is tuple else (result,)
        if type(arrays) is not tuple or len(arrays) != len(metas):
            raise ArgumentError(
                f"{schema.name}: its kernel gives {type(arrays).__name__}, expected a tuple of "
                f"{len(metas)} arrays"
            )
        for array, each in zip(arrays, metas, strict=True):
            _check_array(schema, array, each)
        return result

    return run


def _check_array(schema: Schema, array: object, meta: TensorMeta) -> None:
    shape, dtype = getattr(array, "shape", None), getattr(array, "dtype", None)
    if shape != meta.shape or dtype != meta.dtype.numpy:
        got = type(array).__name__ if shape is None else f"{dtype}{list(shape)}"
        raise ArgumentError(f"{schema.name}: its kernel gives {got}, expected {meta} as its 'meta'")


# -------------------------------------------------------------------------------------- the checks
def _check_name(schema: Schema, inplace: bool) -> None:
    for name in (schema.name, schema.name + "_")[: 2 if inplace else 1]:
        taken = name in OPS or name in COMPOSITES or hasattr(Tensor, name) or hasattr(Operand, name)
        if taken:
            raise noted(
                ArgumentError(
                    f"register_op: the name is {name!r}, expected one that no op and no attribute "
                    "of tensors has"
                ),
                "An op is declared once in a process; choose a name with a prefix of your own.",
            )


def _check_parts(schema: Schema, **parts: object) -> None:
    given = {name for name, part in parts.items() if part is not None}
    wanted = _wanted(schema, given)
    if given != wanted:
        raise ArgumentError(
            f"register_op: the parts of {schema.name} are {_listed(given)}, expected "
            f"{_listed(wanted)}"
        )
    for name in given:
        if not callable(parts[name]):
            raise ArgumentError(
                f"register_op: argument {name!r} is {parts[name]!r}, expected a function"
            )


def _wanted(schema: Schema, given: set[str]) -> set[str]:
    if not schema.returns:
        return {"kernel"}
    if any(returned.alias is not None for returned in schema.returns):
        return {"meta", "put"}
    return {"kernel", "scalar"} if "scalar" in given else {"kernel", "meta"}


def _listed(names: set[str]) -> str:
    return " and ".join(sorted(names)) or "none"


def _check_formulas(schema: Schema, vjp: Mapping[str, Callable[..., object]] | None) -> None:
    operands = [p.name for p in schema.parameters if p.type.holds_tensor]
    for name in vjp or ():
        if name not in operands:
            raise ArgumentError(
                f"register_op: a formula of argument 'vjp' is for {name!r}, expected one of "
                f"{', '.join(operands)}"
            )


def _check_inplace(schema: Schema, inplace: bool) -> None:
    if inplace and (len(schema.returns) != 1 or schema.returns[0].alias is not None):
        raise ArgumentError(
            f"register_op: argument 'inplace' is True for {schema.name}, expected it of an op with "
            "one new result"
        )


def _check_effect_parts(
    schema: Schema, effect: str | None, *, scalar: object, inplace: bool
) -> None:
    if effect is None and not schema.returns:
        raise noted(
            ArgumentError(f"register_op: {schema.name} has no results, expected an effect or some"),
            "An op without results needs a side effect: name its type in 'effect'.",
        )
    if effect is not None and (scalar is not None or inplace):
        given = "scalar" if scalar is not None else "inplace"
        raise ArgumentError(
            f"register_op: {schema.name} has the effect {effect!r} and argument {given!r}, "
            "expected one of them"
        )


def _result(schema: Schema, result: str | Callable[[DType], DType]) -> Callable[[DType], DType]:
    if callable(result):
        return result
    if result not in _RESULTS:
        raise ArgumentError(
            f"register_op: argument 'result' is {result!r}, expected one of {', '.join(_RESULTS)}, "
            "or a function of the promoted dtype"
        )
    return _RESULTS[result]


def _cost(schema: Schema, cost: str) -> Cost:
    try:
        return Cost(cost)
    except ValueError:
        known = ", ".join(each.value for each in Cost)
        raise ArgumentError(
            f"register_op: argument 'cost' is {cost!r}, expected one of {known}"
        ) from None
