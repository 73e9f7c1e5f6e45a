"""Planted mistakes: ops that are wrong in one way, each made for the law that has to reject it.

A plant is a changed copy of an op; the table is never touched. Some mistakes cannot be made without
breaking a second law: `also` names it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import attrs
import numpy as np

import aotlite.ir.ops  # noqa: F401  (fills the op table)
from aotlite import from_numpy
from aotlite.ir import dtypes
from aotlite.ir.assumption import concrete
from aotlite.ir.meta import TensorMeta, table_in, tensor_meta
from aotlite.ir.op import (
    OPS,
    DataOp,
    Formula,
    GeometryOp,
    InplaceOp,
    MultiViewOp,
    Op,
    PureOp,
    RandomOp,
    Source,
    ViewOp,
    Vjp,
    parse_vjp,
    schema_of,
)
from aotlite.ir.scalar import exp
from aotlite.ir.symbols import SymInt
from tests.laws.table import class_of

Change = Callable[[Any], Any]


@attrs.frozen(repr=False)
class Plant:
    """`make()` gives a fresh wrong op that the law named `law` has to reject."""

    law: str
    what: str
    make: Callable[[], Op]
    also: tuple[str, ...] = ()

    @property
    def op_class(self) -> str:
        return class_of(self.make())

    def __repr__(self) -> str:
        return f"{self.law}-{self.make().name}-{self.what.replace(' ', '_')}"


PLANTS: list[Plant] = []


def plant(law: str, what: str, make: Callable[..., Op], *names: str, also: Any = ()) -> None:
    """Adds the plant `make(op)` for each op named."""
    for name in names:
        PLANTS.append(Plant(law, what, partial(_made, make, name), also))


def _made(make: Callable[..., Op], name: str) -> Op:
    return make(OPS[name])


def inside(op: Any, change: Change) -> Any:
    """The op with the pure op or view that it rests on changed; a pure op or view itself."""
    match op:
        case PureOp() | ViewOp() | DataOp():
            return change(op)
        case InplaceOp() | RandomOp():
            return attrs.evolve(op, functional=change(op.functional))
        case GeometryOp():
            return attrs.evolve(op, view=change(op.view))
        case MultiViewOp():
            changed = cache(change)
            return attrs.evolve(
                op, rule=lambda *key: tuple((changed(v), rest) for v, rest in op.rule(*key))
            )
    raise TypeError(f"{op.name} rests on nothing that can be changed")


def with_rule(change: Callable[[Any, tuple[Any, ...]], Any]) -> Change:
    """Changes what the rule gives: `change(result, key)`."""
    return lambda op: inside(
        op, lambda o: attrs.evolve(o, rule=lambda *key: change(o.rule(*key), key))
    )


def with_kernel(change: Callable[[Any, tuple[Any, ...]], Any]) -> Change:
    """Changes what the kernel gives: `change(result, operands)`."""
    return lambda op: inside(
        op,
        lambda o: attrs.evolve(
            o, kernel=lambda arrays, meta, *args: change(o.kernel(arrays, meta, *args), args)
        ),
    )


def with_formula(change: Callable[[Formula], Formula], position: int = 0) -> Change:
    """Changes the gradient formula of one operand."""

    def changed(op: Any) -> Any:
        formulas = {**op.vjp.formulas, position: change(op.vjp.formulas[position])}
        return attrs.evolve(op, vjp=Vjp(formulas))

    return lambda op: inside(op, changed)


def with_formulas(**formulas: Any) -> Change:
    """Replaces gradient formulas by operand name."""

    def changed(op: Any) -> Any:
        own = {op.schema.parameters[i].name: f.function for i, f in op.vjp.formulas.items()}
        return attrs.evolve(op, vjp=parse_vjp(op.schema, {**own, **formulas}))

    return lambda op: inside(op, changed)


def with_schema(text: str) -> Change:
    return lambda op: attrs.evolve(op, schema=schema_of(text))


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
plant("L1", "strides put all in one place", with_rule(_one_place_for_ints), "sum", "matmul", "cat")
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


# ------------------------------------------------------------------------------- L2: the gradient
def _negated(formula: Formula) -> Formula:
    return Formula(lambda *values: -formula.function(*values), formula.sources)


plant(
    "L2",
    "the sign is wrong",
    with_formula(_negated),
    *("mul", "sum", "matmul", "index_add", "select", "split", "mul_", "transpose_"),
)
plant("L2", "it gives overwritten values a gradient", with_formulas(self=lambda grad: grad), "fill")
plant(
    "L2",
    "the second order is cut off",
    with_formulas(self=lambda grad, result: grad * result.detach()),
    "exp",
)
plant(
    "L2",
    "an operand has no formula",
    lambda op: attrs.evolve(op, vjp=Vjp({0: op.vjp.formulas[0]})),
    "add",
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


plant(
    "L3",
    "an operand is scratch memory",
    with_kernel(_accumulates_in_the(0)),
    *("add", "sum", "matmul", "index_add"),
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


# -------------------------------------------------------------------------------------- L7: saves
def _from_a_kept_operand(position: int, formula: Any) -> Change:
    """The kernel keeps an operand for the formula, past the table of what is saved."""
    kept: list[Any] = []

    def keep(result: Any, args: tuple[Any, ...]) -> Any:
        kept[:] = [args[position]]
        return result

    def changed(op: Any) -> Any:
        return with_formulas(self=formula(lambda: from_numpy(kept[0])))(with_kernel(keep)(op))

    return changed


def _from_a_kept_result(op: Any) -> Any:
    kept: list[Any] = []

    def keep(results: Any, args: tuple[Any, ...]) -> Any:
        # The array that the result adopts.
        kept[:] = [np.array(results[1])]
        return results[0], kept[0]

    def formula(grad_values: Any, self_meta: Any, dim: Any, keepdim: Any) -> Any:
        places = from_numpy(kept[0])
        if not keepdim:
            grad_values, places = grad_values.unsqueeze(dim), places.unsqueeze(dim)
        return grad_values.new_zeros(self_meta.shape).scatter_add(dim, places, grad_values)

    return with_formulas(self=formula)(with_kernel(keep)(op))


def _surplus(extra: Source, index: int = 0) -> Change:
    def changed(formula: Formula) -> Formula:
        count = len(formula.sources)
        return Formula(
            lambda *values: formula.function(*values[:count]), (*formula.sources, (extra, index))
        )

    return with_formula(changed)


SURPLUS = _surplus(Source.OPERAND)
plant(
    "L7",
    "an operand is saved for nothing",
    SURPLUS,
    "add",
    "sum",
    "matmul",
    "index_add",
    "fill",
    "add_",
)
plant("L7", "a result is saved for nothing", _surplus(Source.RESULT), "mul", "sum", "mul_")
# The history of a view is made without its operand: there is nothing to read in the backward.
plant("L7", "a view saves its operand", SURPLUS, "select", "split", "transpose_", also=("L2", "L8"))
plant(
    "L7",
    "the index is kept and not saved",
    _from_a_kept_operand(
        2,
        lambda index: (
            lambda grad, self_meta, dim: grad.new_zeros(self_meta.shape).scatter_add(
                dim, index(), grad
            )
        ),
    ),
    "gather",
)
plant(
    "L7",
    "the mask is kept and not saved",
    _from_a_kept_operand(1, lambda mask: lambda grad: grad.masked_fill(mask(), 0)),
    "masked_fill",
)
plant("L7", "the places are kept and not saved", _from_a_kept_result, "max_dim")


# ---------------------------------------------------------------------------------- L8: linearity
def _clipped(formula: Formula) -> Formula:
    def function(*values: Any) -> Any:
        pairs = zip(formula.sources, values, strict=True)
        return formula.function(
            *[v.clamp(-8.0, 8.0) if source[0] is Source.GRAD else v for source, v in pairs]
        )

    return Formula(function, formula.sources)


plant(
    "L8",
    "large gradients are clipped",
    with_formula(_clipped),
    *("mul", "sum", "matmul", "index_add", "select", "split", "mul_", "transpose_"),
)
plant("L8", "None stands for zeros", with_formulas(self=lambda grad: None), "fill", "floor")


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
plant("L9", "the rule has a memory", _forgets_the_start, "select", "as_strided_")
plant("L9", "the rule has a memory", _loses_a_part, "split")


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


plant("L1", "strides put columns in one place", with_rule(_in_rows), "nonzero")
plant("L2", "the sign is wrong", with_formula(_negated), "masked_select")
plant("L3", "an operand is scratch memory", with_kernel(_accumulates_in_the(0)), "masked_select")
plant("L7", "a result is saved for nothing", _surplus(Source.RESULT), "masked_select")
plant("L8", "large gradients are clipped", with_formula(_clipped), "masked_select")
plant("L11", "it says no way out", lambda op: attrs.evolve(op, advice=""), "nonzero")


# ---------------------------------------------------------------------------- L12: symbolic sizes
# Each mistake shows with symbols alone; of plain ints the rule says what it did.
def _asks_for_the_value(result: Any, key: Any) -> Any:
    for size in _symbols_in(key):
        int(size)
    return result


def _gives_the_hint(result: Any, key: Any) -> Any:
    found = _symbols_in(key)
    return concrete(result, found[0].table.hints) if found else result


def _gives_another_size(result: Any, key: Any) -> Any:
    """One that is the same for the sample: the first of the hints, plus what is missing."""
    if type(result) is not TensorMeta or not _symbols_in(result.shape):
        return result
    first = _symbols_in(key)[0]
    sizes: tuple[Any, ...] = result.shape
    shape = [n if type(n) is int else first + (n.hint - first.hint) for n in sizes]
    return tensor_meta(shape, result.stride, result.dtype, result.device)


def _keeps_nothing_that_it_assumes(op: Any) -> Any:
    def changed(inner: Any) -> Any:
        def rule(*key: Any) -> Any:
            table = table_in(key)
            before = [] if table is None else list(table.log)
            result = inner.rule(*key)
            if table is not None:
                table.log[:] = before
            return result

        return attrs.evolve(inner, rule=rule)

    return changed(op) if isinstance(op, MultiViewOp) else inside(op, changed)


def _symbols_in(value: Any) -> list[Any]:
    if type(value) is SymInt:
        return [value]
    if type(value) is TensorMeta:
        value = (*value.shape, *value.stride)
    return [size for item in value for size in _symbols_in(item)] if type(value) is tuple else []


_ONE_OF_EACH_CLASS = (
    *("add", "sum", "matmul", "gather", "full", "uniform"),
    *("select", "unbind", "mul_", "transpose_", "rand"),
)
_OF_THE_PARTS = {"unbind": "split_with_sizes"}
for _name in _ONE_OF_EACH_CLASS:
    _sized = _OF_THE_PARTS.get(_name, _name)
    plant("L12", "it asks for the value of a size", with_rule(_asks_for_the_value), _sized)
    plant("L12", "it gives the size of one call", with_rule(_gives_the_hint), _sized)
plant(
    "L12", "it gives another size", with_rule(_gives_another_size), "add", "sum", "matmul", "full"
)
plant(
    "L12",
    "it keeps nothing that it assumes",
    _keeps_nothing_that_it_assumes,
    *("add", "matmul", "gather", "layer_norm"),
    *("view", "split", "copy_"),
)
