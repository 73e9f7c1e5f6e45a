"""`CodeGen`: the Python of an FX graph, and how a call's arguments become the graph's inputs.

The code is a method `forward` of flat inputs. It runs with `ops` and `al`, and reads constants from
attributes of the module. Rule: FXG-9. Spec: `specs/fx.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from inspect import Parameter
from typing import Any, NamedTuple

from aotlite.fx.core.structure import Template, matched
from aotlite.fx.core.words import Args, Argument, Kwargs, Value
from aotlite.ir.errors import ArgumentError, noted
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.node_text import comment, literal, node_line, quoted
from aotlite.ir.graph.text.printer import SymbolLines
from aotlite.ir.meta.text import meta_text
from aotlite.ir.provenance.location import Places

__all__ = ["CodeGen", "InputTemplate", "PythonCode", "Transform", "on_generated"]

Transform = Callable[[list[str]], list[str]]
"""The lines of a function's body -> other ones."""


class PythonCode(NamedTuple):
    """Generated code: a method `forward`, and the globals that it needs."""

    src: str
    globals: Kwargs


class InputTemplate(NamedTuple):
    """A parameter of the traced function: how its argument is made of inputs of the graph."""

    name: str
    template: Template
    default: Any = Parameter.empty


class CodeGen:
    """Writes the code of a graph. A subclass, or `on_generate_code`, changes it.

    `inputs` are the parameters of the function that was traced; without them, arguments are the
    inputs of the graph in order.
    """

    def __init__(self, inputs: Sequence[InputTemplate] | None = None) -> None:
        self.inputs = None if inputs is None else tuple(inputs)
        self.body_transformer: Transform | None = None

    # --- calls
    def process_inputs(self, *args: Argument, **kwargs: Any) -> Args:
        """The inputs of the graph for the arguments of a call. Raises ArgumentError."""
        if self.inputs is None:
            if kwargs:
                raise ArgumentError(
                    f"forward: {next(iter(kwargs))!r} is given by name, expected it by position"
                )
            return args
        names = [each.name for each in self.inputs]
        if len(args) > len(names):
            raise ArgumentError(f"forward: {len(args)} arguments, expected {', '.join(names)}")
        found: list[Any] = []
        rest = dict(kwargs)
        for place, each in enumerate(self.inputs):
            value = args[place] if place < len(args) else rest.pop(each.name, each.default)
            if value is Parameter.empty:
                raise ArgumentError(f"forward: argument {each.name!r} is missing, expected it")
            found += matched(each.template, value, f"forward: {each.name}")
        if rest:
            raise ArgumentError(
                f"forward: argument {next(iter(rest))!r} is surplus, expected {', '.join(names)}"
            )
        return tuple(found)

    def process_outputs(self, out: Value) -> Any:
        """The result of a call, for what the code returned: itself."""
        return out

    # --- code
    def additional_globals(self) -> list[tuple[str, Any]]:
        """(name, value) of further globals of the code; a subclass may have some."""
        return []

    def gen_fn_def(self, parameters: list[str], maybe_return_annotation: str = "") -> str:
        """The line of the definition, without indentation."""
        return f"def forward({', '.join(['self', *parameters])}){maybe_return_annotation}:"

    def generate_output(self, result: str) -> str:
        """The line that returns; `result` is the text of the result."""
        return f"return {result}"

    def python_code(self, graph: Any, root_module: str, *, verbose: bool = False) -> PythonCode:
        """The code of an `aotlite.fx.Graph`."""
        body = list(_body(graph, root_module, self, verbose=verbose))
        if self.body_transformer is not None:
            body = self.body_transformer([line + "\n" for line in body])
            body = "".join(body).splitlines()
        live = graph._live()
        head = self.gen_fn_def(list(_parameters(live)))
        lines = [head, *(f"    {line}" for line in body)]
        found: Kwargs = dict(self.additional_globals())
        return PythonCode("\n".join(lines), found)


def _parameters(live: Graph) -> Iterator[str]:
    for node in live.placeholders:
        yield f"{live.names[node]}: {quoted(meta_text(node.meta))}"
    for name in SymbolLines(live).bindings.free:
        yield f'{name}: "int"'


def _body(graph: Any, root: str, codegen: CodeGen, *, verbose: bool) -> Iterator[str]:
    live, places = graph._live(), Places()
    names, symbols = live.names, SymbolLines(live)
    yield from (line.strip() for line in symbols.given())
    last = _last_uses(graph, live)
    line, grads = None, True
    for node in live.nodes[:-1]:
        if node.op == "placeholder":
            continue
        if verbose and node.location is not None and str(places(node.location)) != line:
            line = str(places(node.location))
            yield f"{'' if grads else '    '}# {line}"
        statement = _statement(node, names, root)
        if node.op == "call" and node.grad_mode is not grads:
            grads = node.grad_mode
            if not grads:
                yield "with al.no_grad():"
        pad = "" if grads else "    "
        dead = last.get(node, ())
        freed = f";  {' = '.join(names[value] for value in dead)} = None" if dead else ""
        yield f"{pad}{statement}{freed}{comment(node) if verbose else ''}"
        yield from (f"{pad}{each.strip()}" for each in symbols.behind(node))
    if graph._returns:
        yield codegen.generate_output(_nested(graph._template, live, names))


def _statement(node: Node, names: Any, root: str) -> str:
    if node.op == "get_attr":
        return f"{names[node]} = {_attribute(root, node.target.name)}"
    return node_line(node, names)


def _attribute(root: str, dotted: str) -> str:
    for part in dotted.split("."):
        root = f"{root}.{part}" if part.isidentifier() else f"getattr({root}, {quoted(part)})"
    return root


def _last_uses(graph: Any, live: Graph) -> dict[Node, list[Node]]:
    """Each node -> the values that no later one reads. What a symbol is read from stays."""
    held = set(live.output_node.inputs())
    found: dict[Node, list[Node]] = {}
    for node in reversed(live.nodes[:-1]):
        if node.op == "placeholder":
            continue
        dead = [value for value in dict.fromkeys(node.inputs()) if value not in held]
        held.update(dead)
        if dead:
            found[node] = dead
    return found


def _nested(template: Template, live: Graph, names: Any) -> str:
    """The text of a result."""
    ((kind, held),) = template.items()
    match kind:
        case "leaf":
            return literal(live.outputs[held], names)
        case "value":
            return repr(held)
        case "dict":
            pairs = zip(*held, strict=True)
            texts = [f"{key!r}: {_nested(item, live, names)}" for key, item in pairs]
            return f"{{{', '.join(texts)}}}"
    items = [_nested(item, live, names) for item in held]
    if kind == "list":
        return f"[{', '.join(items)}]"
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


class on_generated:
    """A change of generated code, until the end of the block if it is one."""

    def __init__(
        self, codegen: CodeGen, make_transformer: Callable[[Transform | None], Transform]
    ) -> None:
        self._codegen, self._before = codegen, codegen.body_transformer
        made = make_transformer(self._before)
        if not callable(made):
            raise noted(
                ArgumentError(f"on_generate_code: it gives {made!r}, expected a function"),
                "Give a function of the earlier transformer, or None, that returns a function of "
                "the list of lines.",
            )
        codegen.body_transformer = made

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        self._codegen.body_transformer = self._before
