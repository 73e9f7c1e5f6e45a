"""Pointwise ops as loops, from the scalar expression of their declaration.

The expression (`ir/ops/pointwise_expression.py`) depends on dtypes and numbers alone, so that it is
made once, as a template over parameters, and applied to the loads of each call.
Spec: `specs/lowering.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aotlite.backends.loops.lowering.builder import NoLoops
from aotlite.backends.loops.lowering.scalar_rewrite import written
from aotlite.backends.loops.lowering.writer import LoopOperand, LoopWriter
from aotlite.ir.dtypes import DType
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import PureOp
from aotlite.ir.op.binding import CACHE_LIMIT
from aotlite.ir.ops.pointwise_expression import expression_of
from aotlite.ir.scalar.expression import Scalar, walk, with_operands
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.symint import SymInt

_TEMPLATES: dict[tuple[object, ...], ExpressionTemplate | None] = {}


def pointwise_loops(
    k: LoopWriter, op: PureOp, meta: TensorMeta, args: tuple[object, ...]
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
def _template_for(op: PureOp, result: DType, args: tuple[object, ...]) -> ExpressionTemplate | None:
    if not {SymInt, SizeFloat}.isdisjoint(map(type, args)):  # a cache would keep a graph's sizes
        return _made(op, result, args)
    key = (op, result, *map(_key, args))
    if key not in _TEMPLATES:
        if len(_TEMPLATES) >= CACHE_LIMIT:
            _TEMPLATES.clear()
        _TEMPLATES[key] = _made(op, result, args)
    return _TEMPLATES[key]


def _key(value: object) -> Any:
    """Returns an argument's part of a template's key. 1, 1.0 and True differ, and so do 0.0 and
    -0.0, though Python calls them equal."""
    if type(value) is LoopOperand:
        return value.dtype, not value.shape
    return type(value), str(value) if type(value) is float else value


def _made(op: PureOp, result: DType, args: tuple[object, ...]) -> ExpressionTemplate | None:
    tensors = [i for i, a in enumerate(args) if type(a) is LoopOperand]
    try:
        kernel = written(expression_of(op, result, args, tensors))
    except (NoLoops, ArithmeticError):  # a number divided by 0, or one that a dtype does not hold
        return None
    refuses = None if kernel.refuses is None else ExpressionTemplate(kernel.refuses)
    return ExpressionTemplate(kernel.value, refuses)
