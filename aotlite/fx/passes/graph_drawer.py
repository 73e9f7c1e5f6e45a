"""`FxGraphDrawer`: a graph as text of Graphviz, without that package: `dot` draws it (FXG-25)."""

from __future__ import annotations

import html
import os
from typing import Any

from aotlite.fx.graph_module import GraphModule
from aotlite.fx.node import FxNode
from aotlite.ir.errors import ArgumentError
from aotlite.ir.meta.text import meta_text

__all__ = ["FxGraphDrawer"]

_COLORS = {
    "placeholder": "AliceBlue",
    "get_attr": "LightYellow",
    "call_function": "Honeydew",
    "output": "AliceBlue",
}
_WRITES = "MistyRose"


class FxGraphDrawer:
    """Draws a GraphModule: a box for each node, with its name, op, literals and meta.

    Nodes that write, draw or have an effect have a color of their own.

    >>> from aotlite import fx
    >>> drawer = FxGraphDrawer(fx.symbolic_trace(lambda x: x * 2, "f32[2]"), "twice")
    >>> print(drawer.get_dot_graph().splitlines()[-2])
      "mul" -> "output";
    """

    def __init__(
        self,
        graph_module: GraphModule,
        name: str,
        ignore_getattr: bool = False,
        ignore_parameters_and_buffers: bool = False,
        skip_node_names_in_args: bool = True,
        **_: Any,
    ) -> None:
        if not isinstance(graph_module, GraphModule):
            raise ArgumentError(f"FxGraphDrawer: it is {graph_module!r}, expected a GraphModule")
        hidden = ignore_getattr or ignore_parameters_and_buffers
        self._shows_names = not skip_node_names_in_args
        self._text = self._drawn(graph_module, name, hidden)

    def get_dot_graph(self) -> str:
        """The text in Graphviz's language: `dot -Tsvg` draws it."""
        return self._text

    get_main_dot_graph = get_dot_graph

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the text to a file."""
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.write(self._text + "\n")

    def _drawn(self, module: GraphModule, name: str, hidden: bool) -> str:
        nodes = [n for n in module.graph.nodes if not (hidden and n.op == "get_attr")]
        lines = [
            f"digraph {_quoted(name)} {{",
            "  rankdir=TB;",
            "  node [shape=box, style=filled];",
        ]
        for node in nodes:
            color = _WRITES if _has_effect(node) else _COLORS[node.op]
            lines.append(
                f"  {_quoted(node.name)} [label=<{self._label(node)}>, fillcolor={color}];"
            )
        for node in nodes:
            for value in node.all_input_nodes:
                if value in nodes:
                    lines.append(f"  {_quoted(value.name)} -> {_quoted(node.name)};")
        return "\n".join([*lines, "}"])

    def _label(self, node: FxNode) -> str:
        rows = [f"<B>{html.escape(node.name)}</B>"]
        if node.op == "call_function":
            shown = [repr(each) for each in node.args if self._shows_names or not _holds(each)]
            named = [f"{key}={value!r}" for key, value in node.kwargs.items()]
            rows.append(html.escape(f"{node.target.__name__}({', '.join([*shown, *named])})"))
        elif node.op != "output":
            rows.append(html.escape(f"{node.op} {node.target}"))
        if node.meta.get("val") is not None:
            rows.append(html.escape(meta_text(node.meta["val"])))
        return "<BR/>".join(rows)


def _has_effect(node: FxNode) -> bool:
    return node.op == "call_function" and node.is_impure()


def _holds(value: Any) -> bool:
    """Whether a node is in an argument."""
    if isinstance(value, tuple):
        return any(map(_holds, value))
    return isinstance(value, FxNode)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
