"""The effects of a graph: chains of tokens, which two graphs have the same, which are in order.

Ground floor. A pure graph has chains of tokens from an input to an output (*lifted*), or from
`make_token` to `sink_tokens` (*unlifted*); an imperative one has its effects in order of its nodes.
Ops with effects are in `ir/effects/__init__.py`. Rules: TOK-1 to TOK-8. Spec: `specs/tokens.md`.
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
    "has_tokens",
    "is_effect",
    "numbered",
    "same_effects",
    "tokens_of",
    "watched",
]


# ----------------------------------------------------------------------------- what graphs have
def is_effect(node: Node) -> bool:
    """Whether the node lets something happen, in either form."""
    op = node.target
    return type(op) is EffectOp or (type(op) is TokenOp and bool(op.effect))


def effects_of(graph: Graph) -> dict[tuple[str, Any], list[str]]:
    """What happens in a graph: for each effect and phase the names of the ops, in order."""
    return {
        key: [getattr(node.target, "of", node.target.name) for node in nodes]
        for key, nodes in _by_type(graph).items()
    }


def _by_type(graph: Graph) -> dict[tuple[str, Any], list[Node]]:
    """The effects of a graph, in order, by type and phase."""
    found: dict[tuple[str, Any], list[Node]] = {}
    for node in filter(is_effect, graph.nodes):
        found.setdefault((node.target.effect, node.phase), []).append(node)
    return found


def numbered(node: Node) -> int:
    """The place of a threaded effect in its chain, which it keeps whatever is done to the graph."""
    ordinal: int = node.args[1]
    return ordinal


def has_tokens(graph: Graph) -> bool:
    """Whether a pure graph has effects, in either form."""
    return any(type(node.target) is TokenOp for node in graph.nodes)


def tokens_of(graph: Graph) -> Iterator[Node]:
    """The inputs of a graph that are tokens."""
    return (node for node in graph.placeholders if isinstance(node.role, (Token, BackwardToken)))


def same_effects(name: str, before: Graph, *after: Graph) -> None:
    """Raises TokenError where what was made of a graph has other effects, or in another order.

    Which one an effect is says its number. Of both halves of a partition: the forward's effects
    are in the first, those of the backward in the second. Operands may be other nodes, of the same
    shapes and dtypes; whether they have the same values is a matter of what is computed.
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
        told, wanted = _told(_arguments(its)), _told(_arguments(mine))
        if told != wanted:
            raise noted(
                TokenError(
                    f"{name}: the effect {_identity(mine, place)} of type {effect!r} is told "
                    f"{told}, expected {wanted} as in the graph it took"
                ),
                "What an effect is told is what the program says. (TOK-6)",
            )


def _identity(node: Node, place: int) -> str:
    """The op of an effect and its number: in an imperative graph, which has none, its place."""
    op = node.target
    return f"{op.of} {numbered(node)}" if type(op) is TokenOp else f"{op.name} {place}"


def _arguments(node: Node) -> tuple[Any, ...]:
    """What an effect is told: behind token and number, where it has them."""
    return node.args[2:] if type(node.target) is TokenOp else node.args


def _told(value: Any) -> str:
    """The arguments of an effect as text: literals exactly, of operands the shape and dtype."""
    if type(value) is Node:
        meta: Any = value.meta
        return f"{meta.dtype.short}{list(meta.shape)}"
    if type(value) is tuple:
        return f"({', '.join(map(_told, value))}{',' if len(value) == 1 else ''})"
    return literal(value, {})


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"


# ----------------------------------------------------------------------------------- verification
def chain_fault(graph: Graph) -> tuple[Node, str] | None:
    """The node at which a chain of tokens is none, and what is wrong; None for a valid graph.

    TOK-1: of each effect there is one chain in each phase, and each token in it is used once: by
    the next call of the effect, or by the end of the chain. Numbers rise along a chain.
    """
    visited: set[Node] = set()
    begun: set[Any] = set()
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
    """The chain that a `make_token` begins."""
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
    """The token that a call gives: its result, or the first of several."""
    if type(node.meta) is not tuple:
        return node
    taken = [user for user in graph.users[node] if user.args[1] == 0]
    return taken[0] if len(taken) == 1 else None


def watched(of: str, graph: Graph, run: Callable[..., Any]) -> Callable[..., Any]:
    """`run`, which computes a graph, with its effects watched; itself if there are none."""
    expected: Expected = {}
    for node in filter(is_effect, graph.nodes):
        expected.setdefault(node.target.effect, []).append((numbered(node), node.target.of))
    return watching(of, expected, run) if expected else run
