"""Graphs as text: runnable Python, and a table.

Ground floor. `readable` and `code` print a function whose body calls `ops.<name>`. The text runs:
with `aotlite.ops` it computes on tensors, with the `ops` of `ir/graph/text/source.py` it gives an
equal graph. It holds all that decides the result: ops, arguments, phases, metas and roles of inputs
and outputs. Symbolic sizes are read from the inputs first. Source lines are comments. Spec:
`specs/graph.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from aotlite.ir.graph.graph import Graph, Node, Phase
from aotlite.ir.graph.node_text import (
    RESERVED,
    Names,
    comment,
    identifier,
    literal,
    node_line,
    quoted,
    role_text,
)
from aotlite.ir.graph.role import Output, Role
from aotlite.ir.graph.symbolic.binding import (
    Binding,
    Bindings,
    bindings_in,
    names_among,
    parameters_of,
)
from aotlite.ir.meta.text import meta_text
from aotlite.ir.provenance.location import Places, one_line
from aotlite.ir.provenance.scope import COMPILATION, REGION, TAPE_NODE

__all__ = [
    "SymbolLines",
    "code",
    "readable",
    "tabular",
]

WIDTH = 100


# ------------------------------------------------------------------------------------- functions
def readable(graph: Graph, *, frees: bool = False) -> str:
    """The graph as runnable Python with metas, phases, output roles and the user's source lines.

    `frees`: also prints `x = None` after the last use of each value.

    >>> from aotlite.ir.graph.builder import Builder
    >>> from aotlite.ir.meta import tensor_meta
    >>> build = Builder("double")
    >>> x = build.placeholder(tensor_meta((2,)))
    >>> print(readable(build.finish([x * 2.0])))
    def double(arg_0: "f32[2]"):
        mul = ops.mul(arg_0, 2.0)  # f32[2]
        return (mul,)  # output_0
    """
    names, symbols = graph.names, SymbolLines(graph)
    lines = list(symbols.beginning())
    remarks = _Remarks()
    phases = _Phases()
    for node in graph.nodes[:-1]:
        if node.op != "placeholder":
            lines += phases.before(node)
            lines += remarks.before(node)
            lines.append(f"    {_statement(graph, node, frees)}{comment(node)}")
            lines += symbols.behind(node)
    roles = list(map(str, graph.output_roles))
    lines += _return_lines([literal(value, names) for value in graph.outputs], roles)
    return "\n".join(lines)


def code(graph: Graph, *, frees: bool = False) -> str:
    """The graph as runnable Python without comments."""
    symbols = SymbolLines(graph)
    lines = list(symbols.beginning())
    phases = _Phases()
    for node in graph.nodes:
        if node.op != "placeholder":
            lines += phases.before(node)
            lines.append(f"    {_statement(graph, node, frees and node.op != 'output')}")
            lines += symbols.behind(node)
    return "\n".join(lines)


def _statement(graph: Graph, node: Node, frees: bool) -> str:
    line = node_line(node, graph.names)
    dead = [graph.names[value] for value in graph.last_uses[node]] if frees else []
    return f"{line}; {' = '.join(dead)} = None" if dead else line


class SymbolLines:
    """Prints the lines that bind the symbols in the statements (GRA-16)."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        wanted = names_among([node.args for node in graph.nodes])
        self.bindings = bindings_in(graph, wanted) if wanted else Bindings((), ())
        given = {each.symbol for each in self.bindings.given}
        self._computed = {
            each.node: each.symbol for each in self.bindings.computed if each.symbol not in given
        }

    def beginning(self) -> Iterator[str]:
        """The signature, and the lines for symbols that inputs give."""
        yield _signature(self.graph, self.bindings.free)
        yield from self.given()

    def given(self) -> Iterator[str]:
        """The lines for symbols that inputs give."""
        for source, of in groupby(self.bindings.given, lambda each: each.source):
            yield from _bound(source, list(of), self.graph.names)

    def behind(self, node: Node) -> Iterator[str]:
        """The line for the symbol that a node computes."""
        symbol = self._computed.get(node)
        if symbol is not None:
            yield f"    {symbol} = ops.sym_item({self.graph.names[node]}, {quoted(symbol)})"


def _bound(source: Node, of: list[Binding], names: Names) -> Iterator[str]:
    """The lines that bind the symbols that an input gives."""
    sizes, name, symbols = source.shape, names[source], [each.symbol for each in of]
    if len(of) > 1 and [str(size) for size in sizes] == symbols:
        yield f"    {', '.join(symbols)} = {name}.shape"
        return
    for each in of:
        text, rest = f"{name}.shape[{each.dim}]", literal(each.rest, names)
        if rest != "0":
            text = f"{text} - {rest if rest.isalnum() else f'({rest})'}"
        if each.times != 1:
            text = f"({text}) // {each.times}" if rest != "0" else f"{text} // {each.times}"
        yield f"    {each.symbol} = {text}"


def _signature(graph: Graph, symbols: tuple[str, ...]) -> str:
    names = graph.names
    inputs = [node_line(node, names) for node in graph.nodes if node.op == "placeholder"]
    roles = parameters_of(graph) if symbols else {}
    for name in symbols:
        role = roles.get(name)
        text = "" if role is None else f" = {role_text(role)}"
        inputs.append(f"{name}: {quoted(f'int{text}')}")
    title = identifier(graph.name)
    head, tail = f"def {title}{'_1' * (title in RESERVED)}(", f"){_return_annotation(graph)}:"
    line = f"{head}{', '.join(inputs)}{tail}"
    if len(line) <= WIDTH or not inputs:
        return line
    return "\n".join([head, *(f"    {text}," for text in inputs), tail])


def _return_annotation(graph: Graph) -> str:
    """The roles of the outputs, unless they are the user's results in order."""
    roles = graph.output_roles
    if list(map(repr, roles)) == list(map(repr, map(Output, range(len(roles))))):
        return ""
    texts = [quoted(role_text(role)) for role in roles]
    return f" -> ({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _return_lines(values: list[str], roles: list[str]) -> list[str]:
    if not values:
        return ["    return ()"]
    text = ", ".join(values) + ("," if len(values) == 1 else "")
    line = f"    return ({text})  # {', '.join(roles)}"
    if len(line) <= WIDTH:
        return [line]
    rows = [f"        {v},  # {r}" for v, r in zip(values, roles, strict=True)]
    return ["    return (", *rows, "    )"]


class _Phases:
    """Prints an `ops.phase` statement where the phase of the calls changes."""

    __slots__ = ("phase",)

    def __init__(self) -> None:
        self.phase = Phase.FORWARD

    def before(self, node: Node) -> Iterator[str]:
        if node.phase is not self.phase and node.op == "call":
            self.phase = node.phase
            yield f"    ops.phase({quoted(node.phase.value)})"


class _Remarks:
    """Prints the user's source line as a comment where it changes, or the phase does; and the
    marked region (REG-21), and the tape node (CAG-22)."""

    __slots__ = ("line", "owner", "phase", "places", "region")

    def __init__(self) -> None:
        self.phase = Phase.FORWARD
        self.line: tuple[str, int] | None = None
        self.places = Places()
        self.region: object = None
        self.owner: object = None

    def before(self, node: Node) -> Iterator[str]:
        if node.phase is not self.phase and node.op == "call":
            self.phase, self.line = node.phase, None
        region = node.tags.get(REGION)
        if region != self.region:
            self.region, self.line = region, None
            yield f"    # region: {one_line(str(region))}" if region else "    # outside of regions"
        owner = node.tags.get(TAPE_NODE)
        if owner is not None and owner != self.owner:
            self.owner, number = owner, node.tags.get(COMPILATION)
            of = "" if number is None else f" of compilation {number}"
            yield f"    # {one_line(str(owner))}{of}"
        if node.location is None:
            return
        place = self.places(node.location)
        if (place.file, place.line) != self.line:
            self.line = (place.file, place.line)
            yield f"    # {place}"


# ----------------------------------------------------------------------------------------- table
def tabular(graph: Graph) -> str:
    """The graph as aligned columns, one row a node, with the roles of inputs and outputs.

    >>> from aotlite.ir.graph.builder import Builder
    >>> from aotlite.ir.meta import tensor_meta
    >>> build = Builder("double")
    >>> x = build.placeholder(tensor_meta((2,)))
    >>> print(tabular(build.finish([x * 2.0])))
    opcode       name    target  args        meta    seq  role
    placeholder  arg_0                       f32[2]       arg_0
    call         mul     mul     arg_0, 2.0  f32[2]
    output       output          mul                      output_0
    """
    header = ("opcode", "name", "target", "args", "meta", "seq", "role")
    rows = [header, *(_row(node, graph.names) for node in graph.nodes)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _row(node: Node, names: Names) -> tuple[str, ...]:
    is_output = node.op == "output"
    target = "" if is_output or node.op == "placeholder" else str(getattr(node.target, "name", ""))
    args = node.args[0] if is_output else node.args
    return (
        node.op,
        names[node],
        target,
        ", ".join(literal(value, names) for value in args),
        "" if is_output else meta_text(node.meta),
        "" if node.sequence < 0 else str(node.sequence),
        _roles_text(node.role),
    )


def _roles_text(role: Role | tuple[Role, ...] | None) -> str:
    if role is None:
        return ""
    return ", ".join(map(str, role)) if type(role) is tuple else str(role)
