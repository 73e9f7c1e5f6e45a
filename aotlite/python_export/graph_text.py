"""`FunctionText`: a functional graph as one Python function over NumPy arrays.

One line a node, with the names of the printed graph, below the user's source line and the path of
the Module. An op whose kernel makes several calls is a function of the file, which nodes with the
same calls share. Input: a graph without writes. Output: the function's text; the helpers that it
needs are added to a `FileParts`. What it does not do: arguments, state and results of the caller
(`entry_text.py`). Rules: PYX-3 to PYX-7, PYX-9. Spec: `specs/to_python.md`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from aotlite.ir.effects import TokenOp
from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.node_text import comment
from aotlite.ir.graph.symbolic.binding import computed_in, names_among
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import OPS, InplaceOp, PureOp, ViewOp
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.provenance.location import Places, one_line
from aotlite.ir.symbols.assumption import concrete
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.symint import SymInt
from aotlite.python_export.file_parts import FileParts
from aotlite.python_export.kernels.argument_text import literal, named
from aotlite.python_export.kernels.kernel_text import KernelText, recorded
from aotlite.python_export.kernels.op_text import (
    FORMS,
    SIZED_FORMS,
    CallFacts,
    CallText,
    OperandText,
    refuse,
    scattered,
    traced_draw,
)
from aotlite.python_export.kernels.traced_arrays import DataDependentError
from aotlite.python_export.symbolic_sizes import NO_SIZES, SizeFacts
from aotlite.python_export.view_text import view_text, window_text

_BUILTINS = (max, min, float, int, len)
_RESERVED = frozenset(["np", "ml_dtypes", *[each.__name__ for each in _BUILTINS]])
"""Names that lines use, so that no variable has them."""


class FunctionText:
    """Writes one graph as a function."""

    def __init__(
        self,
        graph: Graph,
        name: str,
        parts: FileParts,
        *,
        laid_out: bool,
        sizes: SizeFacts = NO_SIZES,
    ) -> None:
        self.sizes = sizes
        self.graph, self.name, self.parts = graph, name, parts
        self._inputs_are_laid_out = laid_out
        self.names = {
            node: f"{text}_" if text in _RESERVED else text for node, text in graph.names.items()
        }
        self.lines: list[str] = []
        self.roots: dict[Node, frozenset[Node]] = {}
        """The nodes in whose memory a value may lie."""
        self.laid_out: set[Node] = set()
        """The values that surely have the strides of their metas: inputs and views of them."""
        self._places, self._said = Places(), ("", 0, "")

    def body(self) -> None:
        """Writes the lines of all nodes but the output. A size that depends on values is a number
        that has the name of its symbol."""
        counted = {each.node: each.symbol for each in computed_in(self.graph)}
        for node in self.graph.nodes:
            if node.op == "placeholder":
                self._input(node)
            elif node.op == "get_attr":
                self.roots[node] = frozenset((node,))
                self.lines.append(f"{self.names[node]} = {self.parts.constant(node)}")
            elif node.op == "call" and not isinstance(node.target, InplaceOp):
                self._remark(node)
                self._call(node)
            if node in counted:
                self.lines.append(f"{counted[node]} = int({self.names[node]})")

    def text(self, returned: Sequence[str], about: str) -> str:
        """The function, which returns these expressions."""
        inputs = ", ".join([self.names[node] for node in self.graph.placeholders])
        symbols = self.symbols(returned)
        inputs = ", ".join([*([inputs] if inputs else []), *symbols])
        end = f"return ({', '.join(returned)}{',' * (len(returned) == 1)})"
        lines = [f'"""{about}"""', *self.lines, end]
        return "\n".join([f"def {self.name}({inputs}):", *[f"    {line}" for line in lines]])

    def symbols(self, returned: Sequence[str]) -> list[str]:
        """The symbols for sizes that the lines read: further parameters."""
        words = {word for text in (*self.lines, *returned) for word in re.findall(r"\w+", text)}
        return [name for name in self.sizes.names if name in words]

    def _input(self, node: Node) -> None:
        self.roots[node] = frozenset((node,))
        if self._inputs_are_laid_out:
            self.laid_out.add(node)

    # --- comments
    def _remark(self, node: Node) -> None:
        """Adds a comment where the user's line or the Module changes."""
        place = None if node.location is None else self._places(node.location)
        line = ("", 0) if place is None else (place.file, place.line)
        if (*line, node.module) == self._said:
            return
        self._said = (*line, node.module)
        texts = [] if place is None else [str(place)]
        texts += [f"[{one_line(node.module)}]"] if node.module else []
        if texts:
            self.lines.append(f"# {' '.join(texts)}")

    # --- calls
    def _call(self, node: Node) -> None:
        op = node.target
        self._check_dtypes(node)
        if op is GETITEM:
            source = node.args[0]
            is_fresh = self.roots[source] == {source}
            self.roots[node] = frozenset((node,)) | (
                frozenset() if is_fresh else self.roots[source]
            )
            self._assign(node, f"{self.names[source]}[{node.args[1]}]")
        elif isinstance(op, ViewOp):
            self._view(node, op)
        elif isinstance(op, PureOp):
            self._pure(node, op)
        else:
            kind = "an effect" if isinstance(op, TokenOp) else "no pure op"
            raise noted(
                UnsupportedError(
                    f"to_python: the graph calls {op.name}, which is {kind}, expected pure ops"
                ),
                "A file of NumPy has no effects. (PYX-9)",
            )

    def _check_dtypes(self, node: Node) -> None:
        metas = node.meta if type(node.meta) is tuple else (node.meta,)
        for meta in metas:
            if isinstance(meta, TensorMeta) and meta.dtype.numpy.kind == "V":
                self.parts.extension_dtype(node.target.name, meta.dtype)

    def _assign(self, node: Node, text: str) -> None:
        self.lines.append(f"{self.names[node]} = {text}{comment(node)}")

    def _view(self, node: Node, op: ViewOp) -> None:
        source, *args = node.args
        self.roots[node] = self.roots[source]
        text = view_text(op, self.names[source], source.meta, args)
        if text is None:
            seen, start = op.result(node.args)
            whole = self.names[source]
            if source not in self.laid_out:
                self.parts.use("_laid_out")
                whole = f"_laid_out({whole}, {literal(tuple(source.meta.stride))})"
            self.parts.use("_window")
            text = window_text(whole, source.meta, seen, start)
        if source in self.laid_out and not (op.name == "view" and not source.meta.contiguous):
            self.laid_out.add(node)
        self._assign(node, text)

    def _pure(self, node: Node, op: PureOp) -> None:
        refuse(op)
        form = self._form(node, op)
        if form is not None:
            self.roots[node] = frozenset((node,))
            self._lines_of(node, form)
            return
        found = self._recorded(node, op, [self.names[each] for each in node.inputs()])
        inputs = frozenset(root for each in node.inputs() for root in self.roots[each])
        self.roots[node] = inputs | {node} if found.shares else frozenset((node,))
        if found.lines or len(found.results) > 1 or len(found.results[0]) > 80:
            self._assign(node, self._shared_function(node, op))
        else:
            self.parts.use_named(found.results[0])
            self._assign(node, found.results[0])

    def _form(self, node: Node, op: PureOp) -> CallText | None:
        """The form that the op has; one for symbols only where a size is one."""
        args = self._operands(node.args)
        call = CallFacts(op.name, self.names[node], args, node.meta, self.parts.use)
        if op.name.endswith("_scatter"):
            viewed = OPS.get(op.name.removesuffix("_scatter"))
            if isinstance(viewed, ViewOp):
                return scattered(viewed, call)
        make = FORMS.get(op.name)
        if make is None and names_among([each.meta for each in node.inputs()]):
            make = SIZED_FORMS.get(op.name)
        return None if make is None else make(call)

    def _operands(self, value: Any) -> Any:
        if type(value) is Node:
            return OperandText(self.names[value], value.meta)  # type: ignore[arg-type]
        return tuple(map(self._operands, value)) if type(value) is tuple else value

    def _lines_of(self, node: Node, form: CallText) -> None:
        if form.lines:
            self.lines += [form.lines[0] + comment(node), *form.lines[1:]]
        else:
            self._assign(node, form.text)

    def _recorded(self, node: Node, op: PureOp, names: Sequence[str]) -> KernelText:
        draw: Any = traced_draw(op)
        try:
            return self._recorded_at_sizes(draw or op, names, node)
        except DataDependentError as error:
            raise noted(error, f"Decompose {op.name}, or leave it outside. (PYX-9)") from None

    def _recorded_at_sizes(self, op: Any, names: Sequence[str], node: Node) -> KernelText:
        """The kernel's lines; where sizes are symbols, those that two different sizes give."""
        args = _metas(node.args)
        symbols = sorted(
            names_among([node.args, node.meta]) | names_among([each.meta for each in node.inputs()])
        )
        if not symbols:
            return recorded(op, names, args, node.meta)
        found = []
        for first, known in zip((3, 5), self.sizes.samples or ({}, {}), strict=True):
            values = {name: first + place for place, name in enumerate(symbols)} | dict(known)
            numbers, meta = _at(values, args, node.meta)
            pairs = zip(args, numbers, strict=True)
            given = [named(b, literal(a)) if isinstance(a, _SIZES) else b for a, b in pairs]
            found.append(recorded(op, names, given, meta))
        if found[0] != found[1]:
            raise DataDependentError(
                f"to_python: {op.name}: the calls of its kernel hold a size that is a symbol, "
                "expected the same calls for all sizes"
            )
        return found[0]

    def _shared_function(self, node: Node, op: PureOp) -> str:
        """A call of the function of the file that has the lines of the op's kernel."""
        inputs = node.inputs()
        names = _parameter_names(op, node.args)
        found = self._recorded(node, op, names)
        read = [self.names[inputs[names.index(name)]] for name in found.parameters]
        named = self.parts.function(op.name, found)
        return f"{named}({', '.join(read)})"


def _metas(value: Any) -> Any:
    if type(value) is Node:
        return value.meta
    return tuple(map(_metas, value)) if type(value) is tuple else value


_SIZES = (SymInt, SizeFloat)


def _at(values: dict[str, int], args: Any, meta: Any) -> tuple[Any, Any]:
    """Arguments and meta with numbers for symbols."""

    def numbered(value: Any) -> Any:
        if isinstance(value, TensorMeta):
            return value.concrete(values)
        return tuple(map(numbered, value)) if type(value) is tuple else concrete(value, values)

    return numbered(args), numbered(meta)


def _parameter_names(op: PureOp, args: Sequence[Any]) -> list[str]:
    """The names of the operands by the op's schema; those of a list are numbered."""
    names: list[str] = []
    for parameter, value in zip(op.schema.parameters, args, strict=True):
        if type(value) is Node:
            names.append(_plain(parameter.name))
        elif type(value) is tuple and any(type(item) is Node for item in value):
            names += [f"{parameter.name}_{place}" for place, _ in enumerate(value)]
    return names


def _plain(name: str) -> str:
    return "x" if name == "self" else re.sub(r"\W", "_", name)


# ---------------------------------------------------------------------------------- what leaves
class Leaving:
    """Expressions of values that leave a function: in memory of their own where that is seen."""

    def __init__(self, function: FunctionText, written: Collection[Node]) -> None:
        self.function, self.written = function, written
        self._claimed: set[Node] = set()

    def kept(self, value: object) -> str:
        """A value that is read later, after the inputs are written."""
        if type(value) is not Node:
            return literal(value)
        text = self.function.names[value]
        is_safe = self.function.roots[value].isdisjoint(self.written)
        return text if is_safe else f"np.array({text})"

    def own(self, value: object) -> str:
        """A value in memory of its own, with the strides of its meta (PYX-8)."""
        if type(value) is not Node:
            return literal(value)
        function, meta = self.function, value.meta
        assert isinstance(meta, TensorMeta)
        text = function.names[value]
        is_fresh = function.roots[value] == {value} and value.op == "call"
        is_fresh = is_fresh and value not in self._claimed
        self._claimed.add(value)
        if meta.contiguous:
            return f'np.{"as" if is_fresh else ""}array({text}, order="C")'
        helper = function.parts.use("_laid_out" if is_fresh else "_strided")
        return f"{helper}({text}, {literal(tuple(meta.stride))})"
