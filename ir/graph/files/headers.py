"""Headers in files: what is known of a graph before its text is read (SER-19).

Ground floor. `header_text` writes the header of a graph, and `unread` makes a graph of both texts
that reads its nodes when they are first asked for. A header is believed: a caller hands one
over only where it knows who wrote it. Spec: `specs/serialize.md`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import attrs

from aotlite.ir import dtypes
from aotlite.ir.arrays.device import CPU
from aotlite.ir.errors import FormatError
from aotlite.ir.forks import Memo
from aotlite.ir.graph.compare import digest_of
from aotlite.ir.graph.effect_chains import first_effect
from aotlite.ir.graph.files.values import role_from
from aotlite.ir.graph.files.writer import role_entry
from aotlite.ir.graph.graph import Graph, Node, Phase, output_node
from aotlite.ir.graph.role import Primal, Role, Saved
from aotlite.ir.meta import TensorMeta, tensor_meta

__all__ = ["GraphHeader", "header_of", "header_text", "unread"]

_LEFT_OUT: Final = "sequence", "location", "recompute", "scope"
_BLANK: Final = Node("placeholder", None)
_NONE: Final = output_node((), ())


@attrs.frozen
class GraphHeader:
    """What is known of a graph before its nodes are read (SER-19)."""

    placeholders: tuple[Node, ...]
    output_roles: tuple[Role, ...]
    output_metas: tuple[TensorMeta | None, ...]
    reads: tuple[bool, ...]
    """For each placeholder whether a node or an output reads it."""
    roots: tuple[int | None, ...]
    """For each output the number of the node whose memory it has (`Graph.output_roots`)."""
    call_count: int
    digest: str
    """The hash of all that decides what it computes (`digest_of`)."""
    read: Callable[[], tuple[Node, ...]] = attrs.field(default=tuple, eq=False)
    """Gives the nodes. What it raises is raised at each read of them."""
    _read: Memo[str, tuple[Node, ...]] = attrs.field(factory=Memo, eq=False, init=False)

    def nodes(self) -> tuple[Node, ...]:
        """The nodes, which are read once, by whichever thread asks first."""
        return self._read.get("nodes", self.read)


def header_of(graph: Graph) -> GraphHeader | None:
    """The header of a graph; None for one that has none: it has effects, no digest (`digest_of`),
    or an input with a place in the user's source."""
    digest = None if first_effect(graph) is not None else digest_of(graph)
    if digest is None or not all(map(_is_plain, graph.placeholders)):
        return None
    read = {value for node in graph.nodes for value in node.inputs()}
    read |= {value for value in graph.outputs if type(value) is Node}
    return GraphHeader(
        graph.placeholders,
        graph.output_roles,
        graph.output_metas,
        tuple([node in read for node in graph.placeholders]),
        graph.output_roots,
        len(graph.calls),
        digest,
    )


def _is_plain(node: Node) -> bool:
    """Whether a header has all that a file has of a placeholder."""
    return all(getattr(node, name) == getattr(_BLANK, name) for name in _LEFT_OUT)


# ------------------------------------------------------------------------------------------- text
def header_text(graph: Graph) -> str:
    """The header of a graph as JSON, of a graph that can be written; empty if it has none."""
    header = header_of(graph)
    if header is None:
        return ""
    metas: dict[TensorMeta, int] = {}

    def meta(value: Any) -> int | None:
        return None if value is None else metas.setdefault(value, len(metas))

    inputs = header.placeholders
    made = {
        "name": graph.name,
        "inputs": [_role_word(node.role) for node in inputs],
        "input_metas": [meta(node.meta) for node in inputs],
        "backward": [k for k, node in enumerate(inputs) if node.phase is Phase.BACKWARD],
        "without_grad": [k for k, node in enumerate(inputs) if not node.grad_mode],
        "unread": [k for k, is_read in enumerate(header.reads) if not is_read],
        "outputs": list(map(_role_word, header.output_roles)),
        "output_metas": list(map(meta, header.output_metas)),
        "roots": header.roots,
        "calls": header.call_count,
        "digest": header.digest,
        "metas": [[each.dtype.name, each.shape, each.stride] for each in metas],
    }
    return json.dumps(made, separators=(",", ":"))


def _role_word(role: Any) -> object:
    """A role in JSON: arguments and saved values, which are many, by their numbers."""
    if type(role) is Primal:
        return role.index
    if type(role) is Saved and not role.is_number:
        return [role.index, role.name]
    return role_entry(role)


def _role_of(word: Any) -> Role:
    kind = type(word)
    return Primal(word) if kind is int else Saved(*word) if kind is list else role_from(word)


def unread(header: str, read: Callable[[tuple[Node, ...]], Graph]) -> Graph:
    """A graph with this header, whose nodes `read` gives when they are first asked for; it is
    handed the placeholders. Raises FormatError for another text, and, when nodes are read, if they
    have another header."""

    def nodes() -> tuple[Node, ...]:
        found = read(made.placeholders)
        if found.name != name or header_of(found) != made:
            raise FormatError(
                f"serialize: graph {name} has other inputs, outputs or ops, expected its header's"
            )
        return found.nodes

    try:
        name, made = _read(json.loads(header), nodes)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise FormatError(
            f"serialize: a header is not as it is written ({type(error).__name__}: {error}), "
            "expected one of header_text"
        ) from None
    graph = Graph((_NONE,), name)
    graph.header = made
    del graph.nodes
    return graph


def _read(made: dict[str, Any], nodes: Callable[[], tuple[Node, ...]]) -> tuple[str, GraphHeader]:
    metas: list[Any] = [
        tensor_meta(tuple(shape), tuple(stride), dtypes.by_name(dtype), CPU)
        for dtype, shape, stride in made["metas"]
    ]
    roles = list(map(_role_of, made["inputs"]))
    pairs = zip(roles, made["input_metas"], strict=True)
    inputs = tuple([Node("placeholder", role, (), metas[k], role) for role, k in pairs])
    reads = [True] * len(inputs)
    for k in made["backward"]:
        inputs[k].phase = Phase.BACKWARD
    for k in made["without_grad"]:
        inputs[k].grad_mode = False
    for k in made["unread"]:
        reads[k] = False
    return made["name"], GraphHeader(
        inputs,
        tuple(map(_role_of, made["outputs"])),
        tuple([None if k is None else metas[k] for k in made["output_metas"]]),
        tuple(reads),
        tuple(made["roots"]),
        made["calls"],
        made["digest"],
        nodes,
    )
