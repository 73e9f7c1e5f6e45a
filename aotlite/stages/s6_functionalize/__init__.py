"""Stage 6, functionalize: replaces in-place ops, and views of written memory, by pure ops.

    y = x[0]; y.mul_(2); z = x + 1     becomes     y2 = mul(select(x, 0, 0), 2)
                                                   x2 = select_scatter(x, y2, 0, 0)
                                                   z = add(x2, 1); outputs: x2 as MutatedInput, z

Input: an imperative graph. Output: an equal graph in which no op writes. A storage that is written,
or that as_strided reads, has a `Group` (value, version, pending writes), and each tensor object on
it an `Alias` (group, view chain): Note [Group and alias] in `aliases.py`. `views.py` makes aliases,
`writes.py` pending writes; `alias_values.py` computes the newest value of an alias when it is read,
by the inverses of `view_inverses.py`; `results.py` gives outputs memory of their own. Random ops
get a seed and an offset (`shared/rng_inputs.py`); last, effects get tokens
(`shared/effect_tokens.py`).
Rules: FUN-2..FUN-12, FUN-25, FUN-35, RNG-1..RNG-4, TOK-1..TOK-5. Spec: `specs/s6_functionalize.md`.
"""

from __future__ import annotations

from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.role import Tangent
from aotlite.ir.op import GeometryOp, InplaceOp, MultiViewOp, PureOp, RandomOp, ViewOp
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.ops.views.scatters import AS_STRIDED_SCATTER
from aotlite.stages.s6_functionalize.alias_values import AliasValues
from aotlite.stages.s6_functionalize.input_memory import unfold_inputs
from aotlite.stages.s6_functionalize.results import final_values
from aotlite.stages.s6_functionalize.views import add_view
from aotlite.stages.s6_functionalize.writes import add_write
from aotlite.stages.shared.effect_tokens import with_tokens
from aotlite.stages.shared.rng_inputs import GeneratorInputs


def functionalize(graph: Graph) -> Graph:
    """The pure graph that computes the same outputs, and final input values, as `graph`."""
    return with_tokens(_Functionalizer(graph).run())


class _Functionalizer:
    """One run over the nodes of a graph, in order."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.values = AliasValues(graph)
        self.build = self.values.build
        self.generator = GeneratorInputs(graph, self.build, draws=self.values.storages.draws)
        self.trains = any(isinstance(node.role, Tangent) for node in graph.placeholders)

    def run(self) -> Graph:
        unfold_inputs(self.values, self.graph)
        for node in self.graph.nodes:
            op = node.target
            if type(op) is PureOp:
                self._pure(node)
            elif node.op in ("call", "get_attr"):
                self.build.source = node
                self._step(node, op)
        self.build.source = None
        final = final_values(self.values, self.graph)
        graph = self.generator.closed(final, self.graph.output_roles)
        graph.copies = tuple(self.values.copies)
        return graph

    def _step(self, node: Node, op: object) -> None:
        values = self.values
        match op:
            case ViewOp():
                add_view(values, node, node.args[0], op, node.args[1:])
            case MultiViewOp():
                pass
            case InplaceOp():
                add_write(values, node, trains=self.trains)
            case GeometryOp():
                add_view(values, node, node.args[0], op.view, node.args[1:])
            case RandomOp():
                values.env[node] = self.generator.draw(node, values.read(node.args))
            case _ if op is GETITEM and isinstance(node.args[0].target, MultiViewOp):
                whole = node.args[0]
                view, rest = whole.target.parts(whole.args)[node.args[1]]
                add_view(values, node, whole.args[0], view, rest)
            case _:
                self._pure(node)

    def _pure(self, node: Node) -> None:
        """Emits a pure op; a node whose operands are unchanged is shared with the input graph."""
        args, values = node.args, self.values
        if values.env:
            self.build.source = node
            args = values.read(args)
            if node.target is AS_STRIDED_SCATTER and args is not node.args:
                args = (values.exact(args[0], node.args[0].meta), *args[1:])
        if args is node.args:
            self.build.nodes.append(node)
        else:
            values.env[node] = self.build.emit(node.target, args)
