"""Decomposition before lowering: ops without a loop form become simpler ops. Graph -> graph.

An op whose declaration has neither `scalar` nor `loops` is replaced by its `expands`, and the ops
that it calls are expanded in turn: softmax becomes amax, sub, exp, sum, div. Source lines, phases,
roles and outputs are kept. Results have shape, dtype and strides of the op, and memory of their
own; values are equal up to rounding. Ops on complex numbers stay, since loops compute with real
ones only. Spec: `specs/loops.md`.
"""

from __future__ import annotations

import operator
from typing import Any

from aotlite.ir.errors import GraphError
from aotlite.ir.geometry.sizes import settled
from aotlite.ir.graph import Graph
from aotlite.ir.graph.builder import Builder, Proxy
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import MultiViewOp, Op, PureOp
from aotlite.ir.ops.shape.copies import RESTRIDE
from aotlite.ir.run.transform import Transformer


def expand(graph: Graph) -> Graph:
    """Returns the graph in ops that have loops, or for which nothing simpler is known.

    >>> from aotlite.ir.meta import tensor_meta
    >>> build = Builder("f")
    >>> x = build.placeholder(tensor_meta((2, 3)))
    >>> [node.target.name for node in expand(build.finish([x.softmax(-1)])).calls]
    ['amax', 'sub', 'exp', 'sum', 'div']
    """
    if not any(_is_expanded(node.target) for node in graph.calls):
        return graph
    return _Expansion(graph).transform()


def _is_expanded(op: object) -> bool:
    if type(op) is not PureOp or op.expands is None:
        return False
    return op.scalar is None and op.loops is None


class _Expansion(Transformer):
    """Rebuilds a graph with a builder that expands ops."""

    def transform(self) -> Graph:
        self.builder = _Expander(self.graph.name)
        self._apply = self.builder.apply
        result: Graph = self.run(*self.graph.placeholders)
        return result


class _Expander(Builder):
    """A builder that emits, for an op with an expansion, the ops of the expansion."""

    def apply(self, op: Op, args: tuple[object, ...]) -> Any:
        """Returns the proxy, or proxies, of an op's results."""
        if isinstance(op, MultiViewOp):
            return tuple([self.apply(view, (args[0], *rest)) for view, rest in op.parts(args)])
        if _is_expanded(op) and not _is_complex(op, args):
            start = len(self.nodes)
            found = _called(op, args)
            if found is not NotImplemented:
                return self._fitted(op, args, found, start)
            del self.nodes[start:]
        return super().apply(op, args)

    def _fitted(self, op: Op, args: tuple[Any, ...], found: Any, start: int) -> object:
        """Returns the results with the strides of the op's meta rule, in memory of their own."""
        metas = op.infer(args)
        if type(metas) is not tuple:
            return self._result(op, found, metas, start)
        pairs = zip(found, metas, strict=True)
        return tuple([self._result(op, value, meta, start) for value, meta in pairs])

    def _result(self, op: Op, value: Proxy, meta: Any, start: int) -> Proxy:
        got = value.meta
        is_shape = got.shape == meta.shape or settled(operator.eq, got.shape, meta.shape)
        if not is_shape or got.dtype is not meta.dtype:  # at sizes of 1 a rule may say 1 (SIZ-13)
            raise GraphError(f"expand: {op.name} became {got}, expected {meta}")
        if got.stride == meta.stride and storage_root(value.node) in self.nodes[start:]:
            return value
        return Proxy(self, self.emit(RESTRIDE, (value.node, meta.stride)))


def _called(op: Any, args: tuple[object, ...]) -> Any:
    pairs = list(zip(op.schema.parameters, args, strict=True))
    named = {parameter.name: value for parameter, value in pairs if parameter.keyword_only}
    return op.expands(*[value for parameter, value in pairs if not parameter.keyword_only], **named)


def _is_complex(op: Op, args: tuple[object, ...]) -> bool:
    metas: Any = op.infer(args)
    results: tuple[TensorMeta, ...] = metas if type(metas) is tuple else (metas,)
    return any(m.dtype.is_complex for m in (*results, *[a.meta for a in op.operands(args)]))


__all__ = ["expand"]
