"""The reference backend's second form: a graph as straight-line Python over arrays.

Made of graphs that are called again and again. Calls the same kernels as the instruction list, but
for pointwise ops that are one function of the array library on operands of the right dtype, which
are called as they are. Values are dropped after their last use. Spec: `specs/s9_lower.md`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from itertools import compress
from typing import Any

import attrs
import numpy as np

from aotlite.backends.calling_convention import Value, is_read, returned_as_arrays, travels_as_array
from aotlite.ir.arrays import NUMPY, copied, kernel_on
from aotlite.ir.effects import TokenOp
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.role import Saved
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import PureOp, ViewOp
from aotlite.ir.op.binding import NUMBERS
from aotlite.ir.ops.declare import is_plain_call
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.run.interpreter import explain

LIMIT = 2000
"""Graphs of more nodes stay instruction lists: Python takes 10 us a line to compile."""


def straight(graph: Graph) -> tuple[Callable[[list[Value]], list[Value]], str]:
    """The compact face of a graph as a Python function of one list, and its source."""
    writer = _Writer(graph)
    source = writer.text()
    scope = {**writer.scope, "explained": partial(_explained, graph, writer.rows)}
    exec(compile(source, f"<aotlite {graph.name}>", "exec"), scope)
    return scope["run"], source


def _explained(graph: Graph, rows: list[Node | None], error: Exception) -> None:
    """Notes at an error whose line has raised it: the trace ends in the function's own frame."""
    trace = error.__traceback__
    node = None if trace is None else rows[trace.tb_lineno - 1]
    if node is not None:
        explain(error, node, graph)


_ENDING = """    except Exception as error:
        explained(error)
        raise
"""
_VARIABLE = re.compile(r"\b[bovrx]\d+\b")


@attrs.define
class _Line:
    text: str
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    node: Node | None = None
    """Whose it is."""


@attrs.frozen
class _Place:
    """Where a value lies: a buffer variable, and elements from its start."""

    buffer: str
    start: int
    offset: str | None = None
    """The variable to be added to `start`."""

    def at(self) -> str:
        """The start as an expression."""
        return str(self.start) if self.offset is None else f"{self.offset} + {self.start}"

    def variables(self) -> tuple[str, ...]:
        return (self.buffer,) if self.offset is None else (self.buffer, self.offset)


class _Writer:
    """Writes a line a call, and notes what each variable is."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.lines: list[_Line] = []
        self.scope: dict[str, Any] = {"held": held}
        self.arrays: dict[Node, str] = {}
        self.places: dict[Node, _Place] = {}
        self.fresh: set[str] = set()
        """Variables whose array owns its memory: a kernel that returned it would give it away."""
        self.numbers = {node: i for i, node in enumerate(graph.nodes)}
        self.constants: dict[int, str] = {}
        self.functions: dict[Node, str] = {}
        self.rows: list[Node | None] = []
        """For each line of the source, the first one at 0, whose it is."""
        self._now: Node | None = None

    # --- the whole
    def text(self) -> str:
        read = list(compress(self.graph.placeholders, is_read(self.graph)))
        inputs = [f"x{i}" for i in range(len(read))]
        for name, node in zip(inputs, read, strict=True):
            self._input(name, node)
        for node in self.graph.nodes:
            self._now = node
            if node.op == "get_attr":
                self._constant_node(node)
            elif node.op == "call":
                self._call(node)
        self._now = None
        results = [self._result(*each) for each in self._outputs()]
        lines: list[tuple[str, Node | None]] = []
        if inputs:
            lines += [(f"[{', '.join(inputs)}] = box", None), ("box.clear()", None)]
        lines += [*self._with_drops(), (f"return [{', '.join(results)}]", None)]
        self.rows = [None, None, *[node for _, node in lines]]
        body = "".join([f"        {text}\n" for text, _ in lines])
        return f"def run(box):\n    try:\n{body}{_ENDING}"

    def _outputs(self) -> list[tuple[Any, bool]]:
        return list(zip(self.graph.outputs, returned_as_arrays(self.graph), strict=True))

    def _with_drops(self) -> list[tuple[str, Node | None]]:
        """The lines, and whose they are, each followed by dropping what is read no more."""
        needed = set(self._kept)
        found: list[tuple[str, Node | None]] = []
        for line in reversed(self.lines):
            names = dict.fromkeys((*line.makes, *line.reads))
            dying = [name for name in names if name not in needed]
            needed.update(dying)
            if dying:
                found.append((f"del {', '.join(dying)}", None))
            found.append((line.text, line.node))
        return found[::-1]

    @property
    def _kept(self) -> set[str]:
        kept: set[str] = set()
        for value, as_array in self._outputs():
            if type(value) is Node:
                kept.update((self.arrays[value],) if as_array else self.places[value].variables())
        return kept

    def _result(self, value: Any, as_array: bool) -> str:
        if type(value) is not Node:
            return "None"
        if as_array:
            return self._array(value)
        place = self.places[value]
        return f"({place.buffer}, {place.at()})"

    def _emit(self, text: str, *makes: str) -> None:
        names = dict.fromkeys(_VARIABLE.findall(text.partition(" = ")[2]))
        self.lines.append(_Line(text, tuple(names), makes, self._now))

    def _name(self, kind: str, node: Node) -> str:
        return f"{kind}{self.numbers[node]}"

    def _constant(self, value: Any) -> str:
        """A global variable of the function that holds this value."""
        name = self.constants.get(id(value))
        if name is None:
            name = self.constants[id(value)] = f"C{len(self.constants)}"
            self.scope[name] = value
        return name

    # --- inputs
    def _input(self, name: str, node: Node) -> None:
        meta: Any = node.meta
        if travels_as_array(meta):
            self.arrays[node], self.places[node] = name, _Place(name, 0)
            if isinstance(node.role, Saved):
                self.fresh.add(name)
        else:
            buffer, offset = self._name("b", node), self._name("o", node)
            self._emit(f"{buffer}, {offset} = {name}", buffer, offset)
            self.places[node] = _Place(buffer, 0, offset)

    def _constant_node(self, node: Node) -> None:
        meta: Any = node.meta
        buffer = self._constant(copied(meta.device.arrays, node.target.value, meta))
        self.places[node] = _Place(buffer, 0)

    # --- calls
    def _call(self, node: Node) -> None:
        op = node.target
        if isinstance(op, ViewOp):
            self.places[node] = self._view(node, op)
        elif isinstance(op, PureOp):
            self._kernel(node, op)
        elif isinstance(op, TokenOp):
            self._op_kernel(node, op)

    def _view(self, node: Node, op: ViewOp) -> _Place:
        place = self.places[node.args[0]]
        old, new = node.args[0].meta.dtype.itemsize, node.meta.dtype.itemsize  # type: ignore[union-attr]
        if old == new or place.offset is None:
            return _Place(place.buffer, op.at(node.args, place.start), place.offset)
        offset = self._name("o", node)
        self._emit(f"{offset} = ({place.at()}) * {old} // {new}", offset)
        return _Place(place.buffer, op.start(node.args), offset)

    def _kernel(self, node: Node, op: PureOp) -> None:
        function = _plain_function(node, op)
        if function is not None:
            args = [self._operand_or_number(a, node) for a in node.args]
            call = f"{self._constant(function)}({', '.join(args)})"
            (self._take if _needs_nothing(node) else self._hold)(node, call)
            return
        joining = _joining_function(node, op)
        if joining is not None:
            names = "".join([f"{self._array(item)}, " for item in node.args[0]])
            options = "".join([f", {name}={value!r}" for name, value in joining[1].items()])
            self._take(node, f"{self._constant(joining[0])}(({names}){options})")
            return
        self._op_kernel(node, op)

    def _op_kernel(self, node: Node, op: PureOp | TokenOp) -> None:
        """The op's own kernel, whatever it is."""
        args = [self._argument(a) for a in node.args]
        library, meta = self._constant(_library(node)), self._constant(node.meta)
        kernel = kernel_on(_library(node), op.kernel)
        call = f"{self._constant(kernel)}({', '.join([library, meta, *args])})"
        if type(node.meta) is tuple:
            self._several(node, call)
        else:
            self._hold(node, call)

    def _take(self, node: Node, call: str) -> None:
        """The result of a function of the library, as it is."""
        name = self._name("v", node)
        self._emit(f"{name} = {call}", name)
        self.arrays[node], self.places[node] = name, _Place(name, 0)
        self.fresh.add(name)

    def _several(self, node: Node, call: str) -> None:
        name = self._name("r", node)
        self._emit(f"{name} = {call}", name)
        for user in self.graph.users[node]:
            if user.target is GETITEM:
                self._hold(user, f"{name}[{user.args[1]}]")

    def _hold(self, node: Node, result: str) -> None:
        """Gives a kernel's result the layout of its meta, in memory of its own."""
        buffer, name = self._name("b", node), self._name("v", node)
        meta, library = self._constant(node.meta), self._constant(_library(node))
        self._emit(f"{buffer}, {name} = held({result}, {library}, {meta})", buffer, name)
        self.arrays[node], self.places[node] = name, _Place(buffer, 0)

    # --- operands
    def _array(self, node: Node) -> str:
        """The variable that holds a value's array; made now if there is none."""
        name = self.arrays.get(node)
        if name is None:
            name = self.arrays[node] = self._name("v", node)
            meta: Any = node.meta
            place = self.places[node]
            self._emit(f"{name} = {self._window(meta, place)}", name)
        return name

    def _window(self, meta: Any, place: _Place) -> str:
        """The call that makes an array over a buffer."""
        if place.offset is None and meta.device.arrays is NUMPY and meta.numel:
            size = meta.dtype.itemsize
            strides = tuple([step * size for step in meta.stride])
            parts = (meta.shape, meta.dtype.numpy, strides)
            shape, dtype, steps = map(self._constant, parts)
            make = self._constant(np.ndarray)
            return f"{make}({shape}, {dtype}, {place.buffer}, {place.start * size}, {steps})"
        strided = self._constant(meta.device.arrays.strided)
        facts = ", ".join(map(self._constant, (meta.dtype, meta.shape, meta.stride)))
        return f"{strided}({place.buffer}, {facts}, {place.at()})"

    def _argument(self, value: Any) -> str:
        """An argument of a kernel that might return it: never an array that owns its memory."""
        if type(value) is Node:
            name = self._array(value)
            return f"{name}[...]" if name in self.fresh else name
        if type(value) is tuple and value and type(value[0]) is Node:
            return f"({' '.join(self._argument(item) + ',' for item in value)})"
        return self._constant(value)

    def _operand_or_number(self, value: Any, node: Node) -> str:
        if type(value) is Node:
            return self._array(value)
        meta: Any = next(v for v in node.args if type(v) is Node).meta
        # A Python number costs the library a conversion at each call.
        exact = type(value) is float or (type(value) is int and abs(value) <= 1 << 11)
        if not exact or not meta.dtype.is_floating_point:
            return self._constant(value)
        arrays = meta.device.arrays
        number = arrays.quiet(arrays.namespace.asarray, value, meta.dtype.numpy)
        return self._constant(number)


def _library(node: Node) -> Any:
    meta: Any = node.meta[0] if type(node.meta) is tuple else node.meta
    return meta.device.arrays


def _plain_function(node: Node, op: PureOp) -> Callable[..., Any] | None:
    """The array library's function that the kernel is, on operands of these dtypes."""
    meta: Any = node.meta
    if op.function is None or not travels_as_array(meta):
        return None
    numbers = [a for a in node.args if type(a) is not Node]
    if any(type(n) not in NUMBERS or (type(n) is int and n >= 1 << 63) for n in numbers):
        return None  # the library's function takes no int above the signed ones
    if not is_plain_call(op, op.key(node.args)):
        return None
    function = _library(node).fresh_function(op.function)
    if function is None or not _gives(function, node.args, meta):
        return None
    return function


def _needs_nothing(node: Node) -> bool:
    """Whether an elementwise function's result has the layout of the meta by itself."""
    meta: Any = node.meta
    operands: list[Any] = [a.meta for a in node.args if type(a) is Node]
    alike = all(m.shape == meta.shape and travels_as_array(m) for m in operands)
    return alike and bool(meta.shape)


def _joining_function(node: Node, op: PureOp) -> tuple[Callable[..., Any], dict[str, int]] | None:
    """The array library's function that joins the operands, and its options, if it is the kernel.

    Options are whole numbers, which stand in the source as they are.
    """
    meta: Any = node.meta
    if not op.lists or op.namespaced is None or not travels_as_array(meta):
        return None
    if not all(travels_as_array(item.meta) for item in node.args[0]):
        return None
    found = op.namespaced(meta, *op.key(node.args))
    function = None if found is None else _library(node).fresh_function(found[0])
    return None if found is None or function is None else (function, found[1])


def _gives(function: Callable[..., Any], args: tuple[Any, ...], meta: TensorMeta) -> bool:
    """Whether the function gives the meta's dtype: asked of the library, with arrays of one."""
    arrays = meta.device.arrays

    def one(value: Any) -> Any:
        if type(value) is not Node:
            return value
        dtype = value.meta.dtype  # type: ignore[union-attr]
        return arrays.strided(arrays.allocate(1, dtype), dtype, (1,), (1,), 0)

    try:
        result = arrays.quiet(function, *map(one, args))
    except (TypeError, OverflowError):
        return False
    return bool(result.dtype == meta.dtype.numpy)


def held(result: Any, arrays: Any, meta: TensorMeta) -> tuple[Any, Any]:
    """(buffer, array) that hold a kernel's result in the layout of `meta`.

    The array is never the buffer itself: a kernel that returns its operand must not have it taken.
    """
    buffer = arrays.adopt(result, meta)
    if buffer is result:
        return buffer, result[...]
    return buffer, arrays.strided(buffer, meta.dtype, meta.shape, meta.stride, 0)


__all__ = ["LIMIT", "held", "straight"]
