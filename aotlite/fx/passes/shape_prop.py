"""`ShapeProp`: torch.fx's pass that fills in shapes. Here they are there: it checks. FXG-23."""

from __future__ import annotations

from typing import Any

from aotlite.fx.core.words import Value
from aotlite.fx.interpreter import FxInterpreter
from aotlite.fx.node import FxNode
from aotlite.ir.errors import ArgumentError
from aotlite.ir.meta import TensorMeta

__all__ = ["ShapeProp", "shape_prop"]


class ShapeProp(FxInterpreter):
    """Runs a graph on arguments, and checks each value against the meta of its node.

    Nothing is filled in: `node.meta["val"]` and `["tensor_meta"]` are there always, and current. A
    value of another shape or dtype, of a hook for example, raises ArgumentError.

    >>> import aotlite as al
    >>> from aotlite import fx
    >>> module = fx.symbolic_trace(lambda x: x.sum(0), "f32[2, 3]")
    >>> ShapeProp(module).propagate(al.ones(2, 3)).shape
    (3,)
    """

    def run_node(self, n: FxNode) -> Value:
        """The value of a node, checked."""
        value = super().run_node(n)
        if n.op != "output":
            _check(n, value, n._node.meta)
        return value

    def propagate(self, *args: Value) -> Value:
        """The result for these arguments, after the checks."""
        return self.run(*args)


def _check(node: FxNode, value: Value, meta: Any) -> None:
    if type(meta) is tuple:
        for each, part in zip(value, meta, strict=True):
            _check(node, each, part)
    elif type(meta) is TensorMeta and meta.table is None:
        dtype = getattr(value.dtype, "numpy", value.dtype)
        if tuple(value.shape) != meta.shape or dtype != meta.dtype.numpy:
            raise ArgumentError(
                f"shape_prop: {node} is {value.dtype}{list(value.shape)}, expected {meta}"
            )


def shape_prop(module: Any, *args: Value) -> None:
    """Checks arguments against the metas of a graph; changes nothing: shapes are there already."""
    ShapeProp(module).propagate(*args)
