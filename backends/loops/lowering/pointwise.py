"""Pointwise ops as loops, from the scalar expression of their declaration.

Operands and numbers are cast, and the result is rounded, as the op's kernel does it
(`ir/ops/declare.py`): `x * 0.1` of a bfloat16 computes in float32 and rounds once. The expression
depends on dtypes and numbers alone, so that it is made once, as a template over parameters, and
applied to the loads of each call. Spec: `specs/lowering.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aotlite.backends.loops.lowering.builder import NoLoops
from aotlite.backends.loops.lowering.typed_scalars import Typing, scalar_of
from aotlite.backends.loops.lowering.writer import LoopOperand, LoopWriter
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import PureOp
from aotlite.ir.op.binding import CACHE_LIMIT, NUMBERS
from aotlite.ir.ops.precision import number_in
from aotlite.ir.scalar import symbol
from aotlite.ir.scalar.expression import Scalar, cast, parameter, walk, with_operands

_KINDS = frozenset(NUMBERS)
_TEMPLATES: dict[tuple[Any, ...], ExpressionTemplate | None] = {}


def pointwise_loops(
    k: LoopWriter, op: PureOp, meta: TensorMeta, args: tuple[Any, ...]
) -> LoopOperand:
    """Adds the kernel of a pointwise op and returns its result. Raises NoLoops where it has no loop
    form."""
    template = _template_for(op, meta.dtype, args)
    if template is None:
        raise NoLoops
    operands = [a for a in args if type(a) is LoopOperand]
    if template.refuses is not None:
        wrong = template.refuses
        k.refuse(meta.shape, lambda *i: wrong.on([a.at(i) for a in operands]))
    return k.elementwise(meta, lambda load: template.on([load(a) for a in operands]))


class ExpressionTemplate:
    """An expression of parameters, which `on` applies to scalars."""

    def __init__(self, root: Scalar, refuses: ExpressionTemplate | None = None) -> None:
        nodes = list(walk([root]))
        places = {node: place for place, node in enumerate(nodes)}
        self.plan = [(node, [places[each] for each in node.operands]) for node in nodes]
        self.refuses = refuses
        """The condition under which the op refuses the operands' values, such as an integer divided
        by 0; None for an op that refuses none."""

    def on(self, operands: Sequence[Scalar]) -> Scalar:
        """Returns the expression with these scalars in the place of its parameters."""
        found: list[Scalar] = []
        for node, places in self.plan:
            if places:
                found.append(with_operands(node, tuple([found[place] for place in places])))
            else:
                found.append(operands[node.args[0]] if node.op == "parameter" else node)
        return found[-1]


# ----------------------------------------------------------------------------------- templates
def _template_for(op: PureOp, result: DType, args: tuple[Any, ...]) -> ExpressionTemplate | None:
    key = (op, result, *map(_key, args))
    if key not in _TEMPLATES:
        if len(_TEMPLATES) >= CACHE_LIMIT:
            _TEMPLATES.clear()
        _TEMPLATES[key] = _made(op, result, args)
    return _TEMPLATES[key]


def _key(value: Any) -> Any:
    """Returns an argument's part of a template's key. 1, 1.0 and True differ, and so do 0.0 and
    -0.0, though Python calls them equal."""
    if type(value) is LoopOperand:
        return value.dtype, not value.shape
    return type(value), str(value) if type(value) is float else value


def _made(op: PureOp, result: DType, args: tuple[Any, ...]) -> ExpressionTemplate | None:
    assert op.scalar is not None and op.computes is not None and op.holds is not None
    promoted = _promoted(op, args)
    narrow, wide = op.holds(promoted), op.computes(promoted)
    if wide.is_complex:
        return None
    try:
        numbers = [_number(op, i, a, narrow, wide) for i, a in enumerate(args)]
        tree = op.scalar(
            *[symbol(str(i)) if type(a) is LoopOperand else a for i, a in enumerate(numbers)]
        )
        typing = Typing(_operands(op, args, narrow, wide), wide)
        value = cast(scalar_of(typing.value(tree), wide), result)
    except (NoLoops, ArithmeticError):  # one number divided by another, which is 0
        return None
    refused = typing.refused
    return ExpressionTemplate(value, None if refused is None else ExpressionTemplate(refused))


def _promoted(op: PureOp, args: tuple[Any, ...]) -> DType:
    """Returns the dtype to which operands, and numbers in an operand's place, promote."""
    found: list[Any] = []
    for i, a in enumerate(args):
        if type(a) is LoopOperand:
            found.append((a.dtype, a.ndim))
        elif i in op.mixed and type(a) in _KINDS:
            found.append(a)
    return dtypes.result_type(found)


def _number(op: PureOp, i: int, value: Any, narrow: DType, wide: DType) -> Any:
    """Returns a number rounded to the dtype in which the op's kernel holds it."""
    kind = type(value)
    if kind not in _KINDS:
        return value
    if i not in op.held:
        if wide.kind == dtypes.INTEGER and kind is int and number_in(wide, value) != value:
            raise NoLoops  # the kernel may refuse it
        return value
    if kind is int and op.numbers == "unwrapped":
        return value
    return number_in(wide if op.numbers == "wide" else narrow, value)


def _operands(op: PureOp, args: tuple[Any, ...], narrow: DType, wide: DType) -> dict[str, Scalar]:
    """Returns parameters for the operands' elements, cast to the dtype of the computation."""
    found: dict[str, Scalar] = {}
    for i, a in enumerate(args):
        if type(a) is LoopOperand:
            value = parameter(len(found), a.dtype)
            if wide is not narrow and not (op.numbers == "wide" and i and not a.shape):
                value = cast(value, narrow)  # 16-bit floats: rounded before they are widened
            found[str(i)] = cast(value, wide)
    return found
