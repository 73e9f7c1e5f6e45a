"""The effects of a graph: whether its chains of tokens are valid, and whether two graphs agree.

Ground floor. In an imperative graph effects happen in the order of the nodes. In a pure graph a
token passes from each effect to the next of its type:

    lifted      token_log (an input) -> print 0 -> print 1 -> token_log (an output)
    unlifted            make_token   -> print 0 -> print 1 -> sink_tokens

The ops are in `ir/effects/__init__.py`. Rules: TOK-1 to TOK-8. Spec: `specs/tokens.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from aotlite.ir.effects import (
    EffectOp,
    TokenOp,
)
from aotlite.ir.effects.execution_record import Expected, watching
from aotlite.ir.errors import TokenError, noted
from aotlite.ir.graph.graph import Graph, Node, Phase
from aotlite.ir.graph.node_text import literal
from aotlite.ir.graph.role import BackwardToken, Token

__all__ = [
    "chain_fault",
    "effects_of",
    "first_effect",
    "has_tokens",
    "is_effect",
    "numbered",
    "same_effects",
    "tokens_of",
    "watched",
]


# ------------------------------------------------------------------------ the effects of a graph
def is_effect(node: Node) -> bool:
    """Whether the node has a side effect, in its imperative or its pure form."""
    op = node.target
    return type(op) is EffectOp or (type(op) is TokenOp and bool(op.effect))


def first_effect(graph: Graph) -> Node | None:
    """The first node of a graph that has a side effect; None if none has."""
    return None if graph.header is not None else next(filter(is_effect, graph.nodes), None)


def effects_of(graph: Graph) -> dict[tuple[str, object], list[str]]:
    """(effect type, phase) -> the names of the ops with that effect, in order."""
    return {
        key: [getattr(node.target, "of", node.target.name) for node in nodes]
        for key, nodes in _by_type(graph).items()
    }


def _by_type(graph: Graph) -> dict[tuple[str, object], list[Node]]:
    """The effects of a graph, in order, by type and phase."""
    found: dict[tuple[str, Any], list[Node]] = {}
    for node in filter(is_effect, graph.nodes):
        found.setdefault((node.target.effect, node.phase), []).append(node)
    return found


def numbered(node: Node) -> int:
    """The number of an effect in its chain. It identifies the effect through every pass."""
    ordinal: int = node.args[1]
    return ordinal


def has_tokens(graph: Graph) -> bool:
    """Whether a pure graph has effects, in either form."""
    return any(type(node.target) is TokenOp for node in graph.nodes)


def tokens_of(graph: Graph) -> Iterator[Node]:
    """The inputs of a graph that are tokens."""
    return (node for node in graph.placeholders if isinstance(node.role, (Token, BackwardToken)))


def same_effects(name: str, before: Graph, *after: Graph) -> None:
    """Raises TokenError where the graphs made of `before` have other effects, or another order.

    Effects are identified by their numbers. After a partition, `after` is the forward and the
    backward, each with the effects of its phase. Operands may be other nodes, but of the same
    shapes and dtypes; nobody checks here that their values are equal.
    """
    expected = _by_type(before)
    for place, graph in enumerate(after):
        found = _by_type(graph)
        mine = {k: v for k, v in expected.items() if len(after) == 1 or _HALVES[place] is k[1]}
        for key in {**mine, **found}:
            _check_same(name, key[0], mine.get(key, []), found.get(key, []))


_HALVES = (Phase.FORWARD, Phase.BACKWARD)


def _check_same(name: str, effect: str, expected: list[Node], found: list[Node]) -> None:
    was, now = [list(map(_identity, nodes, count())) for nodes in (expected, found)]
    if was != now:
        raise noted(
            TokenError(
                f"{name}: the effects of type {effect!r} are {_listed(now)}, expected "
                f"{_listed(was)} as in the graph it took"
            ),
            "Effects happen exactly once and in order: keep each call, with its number and the "
            "token that the one before gives. (TOK-6)",
        )
    for place, (mine, its) in enumerate(zip(expected, found, strict=True)):
        got, wanted = _arguments_text(_arguments(its)), _arguments_text(_arguments(mine))
        if got != wanted:
            raise noted(
                TokenError(
                    f"{name}: the effect {_identity(mine, place)} of type {effect!r} takes "
                    f"{got}, expected {wanted} as in the graph it took"
                ),
                "A pass must not change the arguments of an effect. (TOK-6)",
            )


def _identity(node: Node, place: int) -> str:
    """The op of an effect and its number; in an imperative graph, its position."""
    op = node.target
    return f"{op.of} {numbered(node)}" if type(op) is TokenOp else f"{op.name} {place}"


def _arguments(node: Node) -> tuple[Any, ...]:
    """The arguments of an effect, without the token and the number of its pure form."""
    return node.args[2:] if type(node.target) is TokenOp else node.args


def _arguments_text(value: object) -> str:
    """The arguments of an effect as text: literals exactly, of operands the shape and dtype."""
    if type(value) is Node:
        meta: Any = value.meta
        return f"{meta.dtype.short}{list(meta.shape)}"
    if type(value) is tuple:
        return f"({', '.join(map(_arguments_text, value))}{',' if len(value) == 1 else ''})"
    return literal(value, {})


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"


# ----------------------------------------------------------------------------------- verification
def chain_fault(graph: Graph) -> tuple[Node, str] | None:
    """(node, what is wrong) where a chain of tokens is invalid; None for a valid graph.

    TOK-1: each effect has one chain in each phase. Each token is used once: by the next call of
    the effect, or by the end of the chain. The numbers rise along a chain.
    """
    visited: set[Node] = set()
    begun: set[object] = set()
    for node in graph.nodes:
        if node.op == "placeholder":
            start = node.role if isinstance(node.role, (Token, BackwardToken)) else None
        else:
            start = _made(node)
        if start is None:
            continue
        if start in begun:
            return node, f"there are two chains of {start}, expected one"
        begun.add(start)
        fault = _followed(graph, node, start, visited)
        if fault is not None:
            return fault
    for node in graph.nodes:
        if type(node.target) is TokenOp and node.target.effect and node not in visited:
            return node, f"{graph.names[node]} is in no chain of its effect, expected in one"
    return None


def _made(node: Node) -> Any:
    """The role of the chain that a `make_token` begins; None for another node."""
    op = node.target
    if type(op) is not TokenOp or op.name != "make_token":
        return None
    return (Token if node.phase.value == "forward" else BackwardToken)(node.args[0])


def _followed(graph: Graph, node: Node, start: Any, visited: set[Node]) -> tuple[Node, str] | None:
    value, last = node, -1
    while True:
        uses = _uses(graph, value)
        name = graph.names[value]
        if len(uses) != 1:
            return value, f"the token {name} is used {len(uses)} times, expected once"
        (user,) = uses
        if user is graph.output_node:
            role = graph.output_roles[graph.outputs.index(value)]
            return (
                None
                if role == start
                else (value, f"the token {name} is returned as {role}, expected {start}")
            )
        op = user.target
        if type(op) is not TokenOp:
            return user, f"the token {name} is read by {graph.names[user]}, expected an effect"
        if not op.effect:
            return None  # it is sunk
        if op.effect != start.effect:
            return user, f"{graph.names[user]} takes a token of {start}, expected its own effect's"
        if numbered(user) <= last:
            what = f"{graph.names[user]} has the number {numbered(user)} behind {last} in its chain"
            return user, f"{what}, expected a higher one"
        last = numbered(user)
        visited.add(user)
        following = _next(graph, user)
        if following is None:
            return user, f"the token of {graph.names[user]} is used by none, expected by one"
        value = following


def _uses(graph: Graph, value: Node) -> list[Node]:
    """The nodes that use a value, as often as they do."""
    return [user for user in graph.users[value] for each in user.inputs() if each is value]


def _next(graph: Graph, node: Node) -> Node | None:
    """The node of the token that a call returns: the call itself, or its first result's."""
    if type(node.meta) is not tuple:
        return node
    taken = [user for user in graph.users[node] if user.args[1] == 0]
    return taken[0] if len(taken) == 1 else None


def watched(of: str, graph: Graph, run: Callable[..., object]) -> Callable[..., Any]:
    """`run`, the compiled form of `graph`, with a check at run time that each effect of the graph
    happens once and in order; `run` itself if the graph has no effects."""
    expected: Expected = {}
    for node in filter(is_effect, graph.nodes):
        expected.setdefault(node.target.effect, []).append((numbered(node), node.target.of))
    return watching(of, expected, run) if expected else run
