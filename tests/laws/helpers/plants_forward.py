"""Mistakes in the values of ops, their memory, and their effects on other memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from aotlite.ir import dtypes
from aotlite.ir.op import OPS, parse_vjp
from aotlite.ir.scalar import exp
from tests.laws.helpers.planting import Change, inside, plant, with_kernel, with_rule, with_schema


# ------------------------------------------------------------------------------ L1: the meta rule
def _float_for_int(meta: Any, key: Any) -> Any:
    return meta.with_dtype(dtypes.float64) if meta.dtype is dtypes.int64 else meta


def _half_the_int(meta: Any, key: Any) -> Any:
    return meta.with_dtype(dtypes.int32) if meta.dtype is dtypes.int64 else meta


def _one_place_for_all(meta: Any, key: Any) -> Any:
    return meta.with_stride((0,) * len(meta.shape))


def _one_place_for_ints(meta: Any, key: Any) -> Any:
    """Only of ints, which have no gradients."""
    return _one_place_for_all(meta, key) if meta.dtype is dtypes.int64 else meta


def _one_element_late(result: Any, key: Any) -> Any:
    meta, start = result
    return meta, start + 1


plant("L1", "the dtype of ints is wrong", with_rule(_float_for_int), "add")
plant("L1", "the dtype of ints is wrong", with_rule(_half_the_int), "add_")
plant("L1", "strides put all in one place", with_rule(_one_place_for_all), "arange_of", "uniform")
# Parts of a result are elements of it, and L14 cuts ints as well.
plant(
    "L1",
    "strides put all in one place",
    with_rule(_one_place_for_ints),
    *("sum", "matmul", "cat"),
    also=("L14",),
)
# Elements that are not the operand's are neither its values nor its gradients.
plant("L1", "the window is late", with_rule(_one_element_late), "transpose", also=("L2", "L4"))
plant("L1", "the window is late", with_rule(_one_element_late), "split", also=("L2", "L4"))
plant(
    "L1", "the window is late", with_rule(_one_element_late), "transpose_", also=("L2", "L5", "L7")
)
plant(
    "L1",
    "the dtype is another one than the memory's",
    lambda op: attrs.evolve(op, recasts=False),
    "view_as_complex",
)
plant(
    "L1",
    "the rule is not that of the pure form",
    lambda op: attrs.evolve(op, rule=lambda *key: op.rule(*key).with_dtype(dtypes.float64)),
    "rand",
    also=("L10",),
)


# ------------------------------------------------------------------------------------ L3: memory
def _accumulates_in_the(position: int) -> Callable[[Any, tuple[Any, ...]], Any]:
    """Only in float32, where no gradient is compared."""

    def scribble(result: Any, args: tuple[Any, ...]) -> Any:
        operand = args[position]
        operand = operand[0] if type(operand) is tuple else operand
        if getattr(operand, "dtype", None) == np.float32 and operand.size:
            operand[...] = operand + 1
        return result

    return scribble


def _gives_its_operand_away(result: Any, args: tuple[Any, ...]) -> Any:
    """The array that owns the operand's memory, which the engine takes for a fresh one."""
    owner = args[0].base
    same = isinstance(owner, np.ndarray) and owner.shape == result.shape
    return owner if same and owner.dtype == result.dtype else result


def _keeps_its_result(op: Any) -> Any:
    kept: dict[Any, Any] = {}

    def remember(result: Any, args: tuple[Any, ...]) -> Any:
        array = kept.setdefault((result.shape, result.dtype), np.array(result))
        array[...] = result
        return array

    return with_kernel(remember)(op)


plant("L3", "an operand is scratch memory", with_kernel(_accumulates_in_the(0)), "add")
# L14 reads the operands of the whole again, for the parts.
plant(
    "L3",
    "an operand is scratch memory",
    with_kernel(_accumulates_in_the(0)),
    *("sum", "matmul", "index_add"),
    also=("L14",),
)
plant("L3", "an operand is scratch memory", with_kernel(_accumulates_in_the(1)), "add_")
plant(
    "L3",
    "the result is the operand's memory",
    with_kernel(_gives_its_operand_away),
    "clone",
)
plant("L3", "all results are one array", _keeps_its_result, "full", "uniform")
plant("L3", "all results are one array", _keeps_its_result, "rand", also=("L10",))
plant(
    "L3",
    "the view is not declared",
    with_schema("select(Tensor self, int dim, int index) -> Tensor"),
    "select",
)
plant(
    "L3",
    "the views are not declared",
    with_schema("unbind(Tensor self, int dim=0) -> Tensor[]"),
    "unbind",
)
plant("L3", "the change is not declared", with_schema("t_(Tensor self) -> Tensor"), "t_")
plant("L3", "the write is not declared", with_schema("exp_(Tensor(a) self) -> Tensor(a)"), "exp_")


# ------------------------------------------------------------------------------------- L4: lenses
def _with_put(put: Any) -> Change:
    return lambda op: attrs.evolve(op, put=put)


plant(
    "L4",
    "put loses what lies outside",
    _with_put(lambda parent, value, dim, index: value.unsqueeze(dim).expand(parent.shape).clone()),
    "select",
)
plant("L4", "put keeps the old value", _with_put(lambda parent, value: parent), "t")
plant("L4", "put keeps the old value", _with_put(lambda parent, value: parent), "view_as_real")
plant("L4", "put does not turn back", _with_put(lambda parent, value, *_: value), "transpose")
plant(
    "L4",
    "the last part is lost",
    lambda op: attrs.evolve(op, rule=lambda *key: op.rule(*key)[:-1] or op.rule(*key)),
    *("split", "unbind"),
    also=("L2", "L8"),  # its gradient is not joined to that of the others
)


# ----------------------------------------------------------------------------------- L5: in place
def _casts_first(op: Any) -> Any:
    def kernel(arrays: Any, meta: Any, a: Any, b: Any) -> Any:
        b = b.astype(a.dtype) if hasattr(b, "dtype") else b
        return op.functional.kernel(arrays, meta, a, b).astype(meta.dtype.numpy)

    return attrs.evolve(op, functional=attrs.evolve(op.functional, kernel=kernel))


def _stays(op: Any) -> Any:
    identity = {"self": lambda grad: grad}
    view = attrs.evolve(
        op.view,
        rule=lambda self, *rest: (self, 0),
        put=lambda parent, value, *rest: value,
        vjp=parse_vjp(op.view.schema, identity),
    )
    return attrs.evolve(op, view=view)


plant(
    "L5",
    "it writes another op's result",
    lambda op: attrs.evolve(op, functional=OPS["add"]),
    "mul_",
)
plant("L5", "it casts operands before it computes", _casts_first, "mul_")
plant("L5", "the geometry stays", _stays, "transpose_")


# ----------------------------------------------------------------------- L6: scalar expressions
plant("L6", "one is not taken off", lambda op: attrs.evolve(op, scalar=exp), "expm1")
plant("L6", "operands are swapped", lambda op: attrs.evolve(op, scalar=lambda a, b: b - a), "sub")
plant("L6", "there is none", lambda op: attrs.evolve(op, scalar=None), "relu")


# ------------------------------------------------------------------------- L9: graphs and eager
def _another_order_of_summation(op: Any) -> Any:
    """Every other call is off by one unit in the last place."""
    calls: list[None] = []

    def noisy(result: Any, args: tuple[Any, ...]) -> Any:
        calls.append(None)
        off = result.dtype.kind == "f" and len(calls) % 2 == 0
        return result * (1 + np.finfo(result.dtype).eps) if off else result

    return with_kernel(noisy)(op)


def _forgets_the_start(op: Any) -> Any:
    """The second time that the rule is asked about the same arguments."""
    seen: set[Any] = set()

    def change(result: Any, key: tuple[Any, ...]) -> Any:
        again = key in seen
        seen.add(key)
        return (result[0], 0) if again else result

    return with_rule(change)(op)


def _loses_a_part(op: Any) -> Any:
    seen: set[Any] = set()

    def rule(*key: Any) -> Any:
        again = key in seen
        seen.add(key)
        return op.rule(*key)[:-1] if again else op.rule(*key)

    return attrs.evolve(op, rule=rule)


NOISE = "sums come in another order each time"
plant(
    "L9",
    NOISE,
    _another_order_of_summation,
    "add",
    "sum",
    "matmul",
    "index_add",
    "arange_of",
    "uniform",
)
# What two calls of the functional give is what in-place is compared with.
plant("L9", NOISE, _another_order_of_summation, "add_", also=("L5",))
# L12, too, asks twice: with symbols and without.
HAS_MEMORY = "the rule has a memory"
plant("L9", HAS_MEMORY, _forgets_the_start, "select", "as_strided_", also=("L12",))
plant("L9", HAS_MEMORY, _loses_a_part, "split", also=("L12",))


# ------------------------------------------------------------------------------- L10: random ops
plant(
    "L10",
    "it uses up one offset an element",
    lambda op: attrs.evolve(op, consumes=lambda meta: meta.numel),
    "rand",
    also=("L1", "L3"),  # the next draw refuses to start there
)
plant(
    "L10",
    "doubles use up what floats do",
    lambda op: attrs.evolve(op, consumes=lambda meta: 4 * -(-meta.numel // 4)),
    "rand",
)
plant(
    "L10",
    "the offset is not looked at",
    lambda op: inside(
        op,
        lambda o: attrs.evolve(
            o,
            kernel=lambda arrays, meta, seed, offset, *rest: o.kernel(arrays, meta, seed, 0, *rest),
        ),
    ),
    "rand",
)


# ----------------------------------------------------------------------------- data-dependent ops
def _in_rows(outline: Any, key: Any) -> Any:
    """Strides that put the columns in one place."""
    return attrs.evolve(outline, strides=lambda shape: (1,) * len(shape))


def _counts_one_more(op: Any) -> Any:
    kernel = op.number.kernel
    number = attrs.evolve(op.number, kernel=lambda *args: kernel(*args) + 1)
    return attrs.evolve(op, number=number)


plant("L1", "strides put columns in one place", with_rule(_in_rows), "nonzero", also={"L11"})
plant(
    "L3",
    "an operand is scratch memory",
    with_kernel(_accumulates_in_the(0)),
    "masked_select",
    also={"L11"},
)
plant("L11", "it counts one too many", _counts_one_more, "nonzero")
