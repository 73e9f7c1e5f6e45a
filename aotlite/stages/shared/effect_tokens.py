"""Effect tokens: the order of effects as data dependencies, as in JAX and PyTorch's with_effects.

    print(a); print(b)      becomes      t1 = print(t0, 0, a); t2 = print(t1, 1, b)

`with_tokens` threads one token per type of effect through a functional graph, from an input to an
output, in the forward and in the backward (*lifted*). After stage 8, `unlifted` replaces these
inputs and outputs by `make_token` and `sink_tokens` ops in each half; `lifted` is its inverse.
A graph without effects is returned as it is. Rules: TOK-1 to TOK-7. Spec: `specs/tokens.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from aotlite.backends.calling_convention import Run, Value, as_value
from aotlite.backends.protocol import Backend, WindowFunction, as_run
from aotlite.ir.effects import TOKEN, EffectOp, new_token
from aotlite.ir.errors import TokenError, noted
from aotlite.ir.graph import Copy, Graph, Node, Phase, map_nodes, output_node
from aotlite.ir.graph.effect_chains import has_tokens
from aotlite.ir.graph.role import RNG_INPUTS, BackwardToken, Role, Token
from aotlite.ir.op import InplaceOp
from aotlite.ir.ops.effects import MAKE_TOKEN, SINK_TOKENS
from aotlite.ir.ops.structure import GETITEM
from aotlite.stages.records.backward.partition import Partition
from aotlite.stages.records.capture import Captured
from aotlite.stages.shared.user_frames import describe

_TOKENS = (Token, BackwardToken)


def forward_tokens(captured: Captured) -> tuple[Token, ...]:
    """The tokens that the forward of a captured function takes, in order of first use (TOK-4).

    Effects on wrappers do not count: those that the class calls on the parts do.
    """
    nodes = captured.graph.nodes
    effects = [n for n in nodes if type(n.target) is EffectOp]
    wrappers = captured.recorder.wrapped.nodes if effects else ()
    found = [n.target.effect for n in effects if n not in wrappers]
    return tuple([Token(effect) for effect in dict.fromkeys(found)])


# ------------------------------------------------------------------------------------- threading
def with_tokens(graph: Graph) -> Graph:
    """The graph whose effects take and return tokens (TOK-1, TOK-2); itself if it has none."""
    if not any(type(node.target) is EffectOp for node in graph.nodes):
        return graph
    return _Threading(graph).run()


class _Threading:
    """One run: `tokens` has the newest token of each chain, by role, `counts` its length."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.new: dict[Node, Node] = {}
        self.nodes: list[Node] = []
        self.tokens: dict[Role, Node] = {}
        self.counts: dict[Role, int] = {}

    def run(self) -> Graph:
        for node in self.graph.nodes[:-1]:
            if node.op == "call":
                self._call(node)
            elif node.op != "placeholder":
                self.nodes.append(node)
        return self._closed()

    def _call(self, node: Node) -> None:
        source = node.args[0] if node.target is GETITEM else None
        if type(node.target) is EffectOp:
            self._effect(node, node.target)
        elif source is not None and type(source.target) is EffectOp:
            self.new[node] = self._taken(node, self.new[source], node.args[1] + 1)
        else:
            args = map_nodes(node.args, lambda value: self.new.get(value, value))
            if args is not node.args:
                self.new[node] = node.with_args(args, node.meta)
            self.nodes.append(self.new.get(node, node))

    def _effect(self, node: Node, op: EffectOp) -> None:
        refuse_recomputed_effect(node)
        phase = node.phase
        role: Role = (Token if phase is Phase.FORWARD else BackwardToken)(op.effect)
        token = self.tokens.get(role)
        if token is None:
            token = Node("placeholder", role, meta=TOKEN, role=role, phase=phase)
        number = self.counts[role] = self.counts.get(role, -1) + 1
        args = (token, number, *map_nodes(node.args, lambda value: self.new.get(value, value)))
        made = attrs.evolve(
            node,
            target=op.threaded,
            args=args,
            meta=op.threaded.infer(args),
            origin=node.origin or node,
        )
        self.nodes.append(made)
        self.new[node] = made
        several = type(made.meta) is tuple
        self.tokens[role] = self._taken(made, made, 0) if several else made
        if several and type(node.meta) is not tuple:
            self.new[node] = self._taken(made, made, 1)

    def _taken(self, like: Node, source: Node, index: int) -> Node:
        """Result number `index` of a call."""
        metas: Any = source.meta
        node = attrs.evolve(
            like,
            target=GETITEM,
            args=(source, index),
            meta=metas[index],
            origin=like.origin or like,
        )
        self.nodes.append(node)
        return node

    def _closed(self) -> Graph:
        inputs = self.graph.placeholders
        given = {role: _first(token) for role, token in self.tokens.items()}
        forward = [role for role in given if type(role) is Token]
        backward = [role for role in given if type(role) is BackwardToken]
        split = _before_generators(inputs)
        placeholders = [
            *[given[role] for role in forward],
            *inputs[:split],
            *[given[role] for role in backward],
            *inputs[split:],
        ]
        values = [self.new.get(v, v) if type(v) is Node else v for v in self.graph.outputs]
        outputs = [
            *[self.tokens[role] for role in forward],
            *values,
            *[self.tokens[role] for role in backward],
        ]
        closing = output_node(outputs, [*forward, *self.graph.output_roles, *backward])
        copies = [
            Copy(self.new.get(each.node, each.node), each.reason) for each in self.graph.copies
        ]
        return attrs.evolve(
            self.graph, nodes=(*placeholders, *self.nodes, closing), copies=tuple(copies)
        )


def _before_generators(inputs: Sequence[Node]) -> int:
    """The index before the generator's state, which comes last of all inputs (RNG-2)."""
    states = [i for i, node in enumerate(inputs) if isinstance(node.role, RNG_INPUTS)]
    return states[0] if states else len(inputs)


def _first(token: Node) -> Node:
    """The input at which a chain of tokens begins."""
    while token.op != "placeholder":
        token = token.args[0]
    return token


def refuse_recomputed_effect(node: Node) -> None:
    """Raises TokenError for an effect in a checkpointed region: it would happen twice (TOK-6)."""
    if node.recompute is True:
        op = node.target
        raise noted(
            TokenError(
                f"{getattr(op, 'of', op.name)}: the effect {op.effect!r} is in a region that is "
                "computed again in the backward, expected effects outside of such regions"
            ),
            describe(node.location),
            "It would happen twice: call it before the region, or behind it. (TOK-6, PART-23)",
        )


# -------------------------------------------------------------------------------------- unlifting
def unlifted_partition(partition: Partition, tokens: Sequence[Token]) -> Partition:
    """The partition whose halves take and return no tokens (TOK-3).

    `tokens` are the tokens in the forward's calling convention. Raises TokenError if the graphs
    have others, or return others than they take.
    """
    forward, backward = partition.forward, partition.backward
    if not has_tokens(forward) and (backward is None or not has_tokens(backward)):
        if tokens:
            raise _wrong(forward, "inputs", [], tokens)
        return partition
    return attrs.evolve(
        partition,
        forward=unlifted(forward, tokens),
        backward=None if backward is None else unlifted(backward),
    )


def unlifted(graph: Graph, tokens: Sequence[Role] | None = None) -> Graph:
    """The graph with `make_token` in place of its token inputs, and `sink_tokens` in place of its
    token outputs. Raises TokenError if the two sets differ, or are not `tokens`.
    """
    inputs = [node for node in graph.placeholders if isinstance(node.role, _TOKENS)]
    taken: list[object] = [node.role for node in inputs]
    returned = graph.outputs_with(_TOKENS)
    if tokens is not None and taken != list(tokens):
        raise _wrong(graph, "inputs", taken, tokens)
    if {role for role, _ in returned} != set(taken):
        raise _wrong(graph, "results", [role for role, _ in returned], taken)
    if not taken:
        return graph
    made = {
        node: Node("call", MAKE_TOKEN, (node.role.effect,), TOKEN, phase=node.phase)  # type: ignore[union-attr]
        for node in inputs
    }
    new: dict[Node, Node] = dict(made)
    nodes = [n for n in graph.placeholders if n not in made]
    nodes += made.values()
    for node in graph.nodes[len(graph.placeholders) : -1]:
        args = map_nodes(node.args, lambda value: new.get(value, value))
        if args is not node.args:
            new[node] = node.with_args(args, node.meta)
        nodes.append(new.get(node, node))
    last = tuple([new.get(value, value) for _, value in returned])
    sink = Node("call", SINK_TOKENS, (last,), TOKEN, phase=last[0].phase)
    nodes.insert(_before_copies(nodes), sink)
    rest = [
        (role, new.get(value, value) if type(value) is Node else value)
        for role, value in zip(graph.output_roles, graph.outputs, strict=True)
        if not isinstance(role, _TOKENS)
    ]
    closing = output_node([value for _, value in rest], [role for role, _ in rest])
    return attrs.evolve(graph, nodes=(*nodes, closing))


def _before_copies(nodes: Sequence[Node]) -> int:
    """The index before the closing copies of a graph (FUN-22)."""
    place = len(nodes)
    while place and isinstance(nodes[place - 1].target, InplaceOp):
        place -= 1
    return place


def _wrong(graph: Graph, what: str, got: Sequence[Any], expected: Sequence[Any]) -> TokenError:
    return noted(
        TokenError(
            f"unlift: the tokens among the {what} of graph {graph.name} are {_listed(got)}, "
            f"expected {_listed(expected)}"
        ),
        "Each token that a graph takes it returns, once. (TOK-3)",
    )


def _listed(roles: Sequence[object]) -> str:
    return ", ".join(map(str, roles)) or "none"


# ---------------------------------------------------------------------------------------- lifting
def lifted(graph: Graph) -> Graph:
    """The graph that takes and returns its tokens: the inverse of `unlifted` (TOK-2, TOK-4).

    A forward's tokens come first among inputs and outputs. A backward's come after its tangents,
    and last among its outputs.
    """
    begins = [node for node in graph.nodes if node.target is MAKE_TOKEN]
    if not begins:
        return graph
    new: dict[Node, Node] = {}
    for node in begins:
        role = (Token if node.phase is Phase.FORWARD else BackwardToken)(node.args[0])
        new[node] = Node("placeholder", role, meta=TOKEN, role=role, phase=node.phase)
    nodes: list[Node] = []
    ends: dict[Role, Node] = {}
    for node in graph.nodes[:-1]:
        if node.op == "placeholder" or node.target is MAKE_TOKEN:
            continue
        args = map_nodes(node.args, lambda value: new.get(value, value))
        if node.target is SINK_TOKENS:
            ends |= {_first(end).role: end for end in args[0]}  # type: ignore[misc]
            continue
        if args is not node.args:
            new[node] = node.with_args(args, node.meta)
        nodes.append(new.get(node, node))
    given = [new[node] for node in begins]
    first = [node for node in given if type(node.role) is Token]
    last = [node for node in given if type(node.role) is BackwardToken]
    values = [new.get(value, value) if type(value) is Node else value for value in graph.outputs]
    closing = output_node(
        [*[ends[n.role] for n in first], *values, *[ends[n.role] for n in last]],  # type: ignore[index]
        [*[n.role for n in first], *graph.output_roles, *[n.role for n in last]],  # type: ignore[list-item]
    )
    inputs = graph.placeholders
    split = _before_generators(inputs)
    placeholders = (*first, *inputs[:split], *last, *inputs[split:])
    return attrs.evolve(graph, nodes=(*placeholders, *nodes, closing))


class LiftedBackend:
    """Wraps a backend so that it compiles graphs with tokens as inputs and outputs (TOK-2).

    A call passes dummy tokens, and drops the returned ones.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.name = backend.name
        self.trusted = getattr(backend, "trusted", False)

    def compile(self, graph: Graph) -> Run | WindowFunction:
        """Compiles the lifted graph; the run has the inputs and outputs of the unlifted one."""
        if not has_tokens(graph):
            return self.backend.compile(graph)
        whole = lifted(graph)
        made = self.backend.compile(whole)
        if not callable(made):
            return made  # stage 9 raises for it
        return UnliftedRun(graph, as_run(self.name, whole, made, trusted=self.trusted))


class UnliftedRun(Run):
    """A compiled graph with tokens, called without (TOK-2)."""

    def __init__(self, graph: Graph, lifted: Run) -> None:
        super().__init__(graph)
        self.lifted = lifted
        self.runs_user_code = lifted.runs_user_code
        inputs = lifted.graph.placeholders
        pairs = zip(inputs, lifted.reads, strict=True)
        self.reads = [read for node, read in pairs if not isinstance(node.role, _TOKENS)]
        self._tokens = [
            node.meta if isinstance(node.role, _TOKENS) else None
            for node in lifted.read_among(inputs)
        ]
        """For each input that is read its meta if it is a token, else None."""
        roles = lifted.graph.output_roles
        self._kept = [i for i, role in enumerate(roles) if not isinstance(role, _TOKENS)]
        strides = lifted.output_strides
        self.output_strides = None if strides is None else self._inner(list(strides))

    def call(self, values: list[Value]) -> list[Value]:
        rest = iter(values)
        given = [
            next(rest) if meta is None else as_value(new_token(), meta) for meta in self._tokens
        ]
        values.clear()
        return self._inner(self.lifted.call(given))

    def _inner(self, values: Sequence[object]) -> list[object]:
        return [values[i] for i in self._kept]


__all__ = [
    "LiftedBackend",
    "forward_tokens",
    "lifted",
    "refuse_recomputed_effect",
    "unlifted",
    "unlifted_partition",
    "with_tokens",
]
