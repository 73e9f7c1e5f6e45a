"""The reference backend's second form: a graph as straight-line Python over arrays.

For `return (x * y).sum()` of two f32[3] it writes, where C0 is `np.multiply`:

    def run(box):
        try:
            [x0, x1] = box
            box.clear()
            v2 = C0(x0, x1)                        # a pointwise op that is one NumPy function
            del x0, x1                             # after the last use
            b3, v3 = held(C5(C3, C4, v2[...], C1, C2, C1), C3, C4)     # an op's own kernel
            del v3, v2
            return [(b3, 0)]
        except Exception as error: ...             # adds the node of the line that raised

It calls the kernels that the interpreter calls. The exception are pointwise ops that are one
function of the array library on operands of the right dtype: that is called without the kernel
around it. Results are bit for bit the same. Spec: `specs/s9_lower.md`, LOW-10.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import compress
from typing import Any

import attrs
import numpy as np

from aotlite.backends.calling_convention import Value, is_read, returned_as_arrays, travels_as_array
from aotlite.backends.python_source import (
    PythonSource,
    SourceLine,
    alive_after,
    listed,
    split,
    unpacked,
)
from aotlite.ir.arrays import NUMPY, ArrayBackend, copied, kernel_on
from aotlite.ir.dtypes import DType
from aotlite.ir.effects import TokenOp
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.role import Saved
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import PureOp, ViewOp
from aotlite.ir.op.binding import NUMBERS
from aotlite.ir.ops.declare import is_plain_call
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.run.interpreter import explain

CHUNK = 1000
"""The lines of one function: Python takes long to compile longer ones. A longer graph is several
functions, which pass the values that are alive between them on in the list `box`."""


def straight(graph: Graph, chunk: int = CHUNK) -> tuple[Callable[[list[Value]], list[Value]], str]:
    """Returns `call` of a graph's run (`calling_convention`), and its source text."""
    writer = _Writer(graph, chunk)
    text = writer.text()
    writer.source.scope["explained"] = partial(_explained, graph, writer.rows)
    return writer.source.compiled(text, "run", f"<aotlite {graph.name}>"), text


def _explained(graph: Graph, rows: list[Node | None], error: Exception) -> None:
    """Adds the note of a node to an error: of the node whose line of the source raised it.

    `rows` has the node of each line. The error's traceback begins in the frame of the source.
    """
    trace = error.__traceback__
    node = None if trace is None else rows[trace.tb_lineno - 1]
    if node is not None:
        explain(error, node, graph)


@attrs.frozen
class _Place:
    """The window of a value: the variable of its buffer, and its start in elements."""

    buffer: str
    start: int
    offset: str | None = None
    """The variable that is added to `start`; None where the start is known."""

    def at(self) -> str:
        """Returns the start as an expression of Python."""
        return str(self.start) if self.offset is None else f"{self.offset} + {self.start}"

    def variables(self) -> tuple[str, ...]:
        return (self.buffer,) if self.offset is None else (self.buffer, self.offset)


class _Writer:
    """Writes the source: about one line a call. Keeps the variables of each value.

    Variables are named by kind and number of the node: `x` inputs, `v` arrays, `b` buffers, `o`
    offsets, `r` tuples of results; `C` are constants, which are globals of the function.
    """

    def __init__(self, graph: Graph, chunk: int) -> None:
        self.graph = graph
        self.chunk = chunk
        self.source = PythonSource()
        self.source.use(held)
        self.arrays: dict[Node, str] = {}
        self.places: dict[Node, _Place] = {}
        self.fresh: set[str] = set()
        """Variables whose array owns its memory. A kernel gets a view of such an array: if it
        returned the array itself, `adopt` would take the memory of a value still in use."""
        self.numbers = {node: i for i, node in enumerate(graph.nodes)}
        self.rows: list[Node | None] = []
        """The node of each line of the source."""
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
        last = f"return [{', '.join([self._result(*each) for each in self._outputs()])}]"
        parts = split(self.source.with_drops(self._kept), self.chunk)
        if len(parts) == 1:
            return self._function("run", inputs, parts[0], last)
        texts, given = [], inputs
        for number, steps in enumerate(parts[:-1]):
            alive = alive_after(given, steps)
            texts.append(self._function(f"run{number}", given, steps, f"box += {listed(alive)}"))
            given = alive
        texts.append(self._function(f"run{len(parts) - 1}", given, parts[-1], last))
        self.source.lines = [f"run{number}(box)" for number in range(len(parts))]
        self.source.lines[-1] = f"return {self.source.lines[-1]}"
        return "".join([*texts, self.source.text("run", "box")])

    def _function(
        self, name: str, given: Sequence[str], steps: Sequence[SourceLine], last: str
    ) -> str:
        """Returns the source of a function of these variables, and notes the nodes of its lines."""
        head = unpacked(given)
        lines = [*head, *[step.text for step in steps], last]
        self.source.lines = [
            "try:",
            *[f"    {line}" for line in lines],
            "except Exception as error:",
            "    explained(error)",
            "    raise",
        ]
        nodes = [step.origin for step in steps]
        self.rows += [None, None, *[None] * len(head), *nodes, None, None, None, None]
        return self.source.text(name, "box")

    def _outputs(self) -> list[tuple[object, bool]]:
        return list(zip(self.graph.outputs, returned_as_arrays(self.graph), strict=True))

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
        self.source.step(text, *makes, origin=self._now)

    def _name(self, kind: str, node: Node) -> str:
        return f"{kind}{self.numbers[node]}"

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
        buffer = self.source.constant(copied(meta.device.arrays, node.target.value, meta))
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
            call = f"{self.source.constant(function)}({', '.join(args)})"
            (self._take if _needs_nothing(node) else self._hold)(node, call)
            return
        joining = _joining_function(node, op)
        if joining is not None:
            names = "".join([f"{self._array(item)}, " for item in node.args[0]])
            options = "".join([f", {name}={value!r}" for name, value in joining[1].items()])
            self._take(node, f"{self.source.constant(joining[0])}(({names}){options})")
            return
        self._op_kernel(node, op)

    def _op_kernel(self, node: Node, op: PureOp | TokenOp) -> None:
        """Writes the call of the op's own kernel."""
        args = [self._argument(a) for a in node.args]
        library, meta = self.source.constant(_library(node)), self.source.constant(node.meta)
        kernel = kernel_on(_library(node), op.kernel)
        call = f"{self.source.constant(kernel)}({', '.join([library, meta, *args])})"
        if type(node.meta) is tuple:
            self._several(node, call)
        else:
            self._hold(node, call)

    def _take(self, node: Node, call: str) -> None:
        """Keeps the result of a library's function as it is: it has the layout of the meta."""
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
        """Brings a kernel's result into the layout of its meta, in memory of its own."""
        buffer, name = self._name("b", node), self._name("v", node)
        meta, library = self.source.constant(node.meta), self.source.constant(_library(node))
        self._emit(f"{buffer}, {name} = held({result}, {library}, {meta})", buffer, name)
        self.arrays[node], self.places[node] = name, _Place(buffer, 0)

    # --- operands
    def _array(self, node: Node) -> str:
        """Returns the variable of a value's array, which is made at its first use."""
        name = self.arrays.get(node)
        if name is None:
            name = self.arrays[node] = self._name("v", node)
            meta: Any = node.meta
            place = self.places[node]
            self._emit(f"{name} = {self._window(meta, place)}", name)
        return name

    def _window(self, meta: Any, place: _Place) -> str:
        """Returns the call that makes an array over a buffer."""
        if place.offset is None and meta.device.arrays is NUMPY and meta.numel:
            size = meta.dtype.itemsize
            strides = tuple([step * size for step in meta.stride])
            parts = (meta.shape, meta.dtype.numpy, strides)
            shape, dtype, steps = map(self.source.constant, parts)
            make = self.source.constant(np.ndarray)
            return f"{make}({shape}, {dtype}, {place.buffer}, {place.start * size}, {steps})"
        strided = self.source.constant(meta.device.arrays.strided)
        facts = ", ".join(map(self.source.constant, (meta.dtype, meta.shape, meta.stride)))
        return f"{strided}({place.buffer}, {facts}, {place.at()})"

    def _argument(self, value: object) -> str:
        """Returns an argument of a kernel that might return it: never an array that owns memory."""
        if type(value) is Node:
            name = self._array(value)
            return f"{name}[...]" if name in self.fresh else name
        if type(value) is tuple and value and type(value[0]) is Node:
            return f"({' '.join(self._argument(item) + ',' for item in value)})"
        return self.source.constant(value)

    def _operand_or_number(self, value: object, node: Node) -> str:
        if type(value) is Node:
            return self._array(value)
        meta: Any = next(v for v in node.args if type(v) is Node).meta
        # A Python number costs the library a conversion at each call.
        exact = type(value) is float or (type(value) is int and abs(value) <= 1 << 11)
        if not exact or not meta.dtype.is_floating_point:
            return self.source.constant(value)
        arrays = meta.device.arrays
        number = arrays.quiet(arrays.namespace.asarray, value, meta.dtype.numpy)
        return self.source.constant(number)


def _library(node: Node) -> Any:
    meta: Any = node.meta[0] if type(node.meta) is tuple else node.meta
    return meta.device.arrays


def _plain_function(node: Node, op: PureOp) -> Callable[..., object] | None:
    """Returns the array library's function that the kernel amounts to on operands of these dtypes;
    None where the kernel does more, such as casts."""
    meta: Any = node.meta
    if op.function is None or not travels_as_array(meta):
        return None
    numbers = [a for a in node.args if type(a) is not Node]
    if any(type(n) not in NUMBERS or (type(n) is int and n >= 1 << 63) for n in numbers):
        return None  # NumPy's functions take no int that needs 64 bits unsigned
    if not is_plain_call(op, op.key(node.args)):
        return None
    function = _library(node).fresh_function(op.function)
    if function is None or not _gives(function, node.args, meta):
        return None
    return function


def _needs_nothing(node: Node) -> bool:
    """Whether the result of an elementwise function has the meta's layout without a copy."""
    meta: Any = node.meta
    operands: list[Any] = [a.meta for a in node.args if type(a) is Node]
    alike = all(m.shape == meta.shape and travels_as_array(m) for m in operands)
    return alike and bool(meta.shape)


def _joining_function(node: Node, op: PureOp) -> tuple[Callable[..., Any], dict[str, int]] | None:
    """Returns the array library's function for an op on a list of tensors, such as `concatenate`,
    and its options, which are ints; None where the op's kernel does more than call it."""
    meta: Any = node.meta
    if not op.lists or op.namespaced is None or not travels_as_array(meta):
        return None
    if not all(travels_as_array(item.meta) for item in node.args[0]):
        return None
    found = op.namespaced(meta, *op.key(node.args))
    function = None if found is None else _library(node).fresh_function(found[0])
    return None if found is None or function is None else (function, found[1])


def _gives(function: Callable[..., object], args: tuple[object, ...], meta: TensorMeta) -> bool:
    """Whether the function's result has the meta's dtype."""
    kinds = [(Node, a.meta.dtype) if type(a) is Node else (type(a), a) for a in args]  # type: ignore[union-attr]
    arrays: Any = meta.device.arrays  # hashable, as a protocol cannot say
    return _gives_of(function, arrays, tuple(kinds), meta.dtype)


@lru_cache(maxsize=1024)
def _gives_of(
    function: Callable[..., Any],
    arrays: ArrayBackend,
    kinds: tuple[tuple[type, Any], ...],
    dtype: DType,
) -> bool:
    """Tries the function on arrays of one element with the dtypes of nodes, and on numbers."""
    given = [
        arrays.strided(arrays.allocate(1, value), value, (1,), (1,), 0) if kind is Node else value
        for kind, value in kinds
    ]
    try:
        result = arrays.quiet(function, *given)
    except (TypeError, OverflowError):
        return False
    return bool(result.dtype == dtype.numpy)


def held(result: object, arrays: Any, meta: TensorMeta) -> tuple[Any, Any]:
    """Returns (buffer, array) that hold a kernel's result in the layout of `meta`.

    The array is a view of the buffer, never the buffer itself: where a later kernel returns its
    operand, `adopt` then sees that the operand owns no memory, and copies it.
    """
    buffer = arrays.adopt(result, meta)
    if buffer is result:
        return buffer, result[...]
    return buffer, arrays.strided(buffer, meta.dtype, meta.shape, meta.stride, 0)


__all__ = ["CHUNK", "held", "straight"]
