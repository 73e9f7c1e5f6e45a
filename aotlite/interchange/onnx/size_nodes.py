"""`SizeNodes`: sizes that are symbols, as numbers that an ONNX model computes from its inputs.

    s0      = Gather(Shape(primals_0), 0)
    (2*s0, 3) = Concat(Mul(2, s0), 3)

Rules: ICH-9, ONX-8. Spec: `specs/onnx.md`.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, Final, Protocol

from aotlite.interchange.arrays.target import NotPrinted, Value
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.graph.files.size_texts import size_tree
from aotlite.ir.symbols.symint import SymInt

_KINDS: Final[dict[type, str]] = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.Mod: "Mod"}


class NodeWriter(Protocol):
    """What a printer has for the nodes of sizes."""

    inputs: list[Value]

    def node(
        self,
        kind: str,
        inputs: Sequence[Value],
        dtype: DType,
        shape: Sequence[int],
        **attributes: Any,
    ) -> Value: ...
    def constant(self, elements: object, dtype: DType) -> Value: ...
    def emit_reshape(self, x: Value, shape: tuple[int, ...]) -> Value: ...
    def emit_concatenate(
        self, parts: Sequence[Value], dim: int, shape: tuple[int, ...]
    ) -> Value: ...


class SizeNodes:
    """The nodes of a model that compute sizes, each once."""

    def __init__(self, printer: NodeWriter) -> None:
        self.printer = printer
        self._known: dict[str, Value] = {}

    def bind(self, bindings: Sequence[tuple[str, str, int, int, str]]) -> None:
        """Adds the nodes that read the symbols from the shapes of inputs."""
        of = {str(each.handle): each for each in self.printer.inputs}
        for symbol, name, dim, times, rest in bindings:
            array = of[name]
            shape = self.printer.node("Shape", [array], dtypes.int64, (len(array.shape),))
            place = self.printer.constant(dim, dtypes.int64)
            size = self._node("Gather", [shape, place], axis=0)
            if rest != "0":
                size = self._node("Sub", [size, self._of(rest)])
            if times != 1:
                size = self._node("Div", [size, self._constant(times)])
            self._known[symbol] = size

    def number(self, size: Any) -> Value:
        """A size as a 0-d array of int64."""
        return self._of(str(size)) if isinstance(size, SymInt) else self._constant(size)

    def numbers(self, sizes: Sequence[int]) -> Value:
        """Sizes as an array of int64."""
        parts = [self.printer.emit_reshape(self.number(each), (1,)) for each in sizes]
        return self.printer.emit_concatenate(parts, 0, (len(parts),))

    def _constant(self, number: int) -> Value:
        return self.printer.constant(number, dtypes.int64)

    def _node(self, kind: str, operands: list[Value], **attributes: Any) -> Value:
        return self.printer.node(kind, operands, dtypes.int64, (), **attributes)

    def _of(self, text: str) -> Value:
        if text not in self._known:
            tree = size_tree(text)
            if tree is None:
                raise NotPrinted(f"has the size {text}, which is no arithmetic of ints")
            self._known[text] = self._made(tree)
        return self._known[text]

    def _made(self, tree: ast.expr) -> Value:
        match tree:
            case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
                a, b = self._operand(left), self._operand(right)
                # Div cuts off; what is left over has the divisor's sign in Mod, as in Python.
                return self._node("Div", [self._node("Sub", [a, self._node("Mod", [a, b])]), b])
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _KINDS:
                return self._node(_KINDS[type(op)], [self._operand(left), self._operand(right)])
            case ast.UnaryOp(operand=operand):
                return self._node("Neg", [self._operand(operand)])
            case ast.Call(func=ast.Name(id=name), args=args):
                return self._node(name.capitalize(), [self._operand(each) for each in args])
            case ast.Constant(value=int() as number):
                return self._constant(number)
        raise NotPrinted(f"has the size {ast.unparse(tree)}, for which there are no nodes")

    def _operand(self, tree: ast.expr) -> Value:
        return self._of(ast.unparse(tree))
