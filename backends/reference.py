"""The reference backend: an instruction list that calls each op's own kernel.

Its results are, bit for bit, those of the eager engine, so that other backends are compared with
it. `return x.t() + 1` of x: f32[2, 3] becomes two steps on a list of windows, one slot a value:

    windows[1] = windows[0]                    # t: a view moves a window and computes nothing
    windows[2] = adopt(add(array of 1, 1))     # the kernel; drops slot 1 after its last use

Every result has the strides of its meta. From its third call on, a graph of at most `LIMIT` nodes
runs as straight-line Python (`generated_python`). Spec: `specs/s9_lower.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import compress
from typing import Any

import attrs

from aotlite.backends.calling_convention import Value, is_read, returned_as_arrays, travels_as_array
from aotlite.backends.closing_copies import compiled_with_copies, has_copies
from aotlite.backends.generated_python import LIMIT, straight
from aotlite.backends.protocol import Run, Window
from aotlite.ir.arrays import NUMPY, copied, kernel_on
from aotlite.ir.effects import TokenOp
from aotlite.ir.errors import BackendError
from aotlite.ir.graph import Graph, Node
from aotlite.ir.op import PureOp, ViewOp
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.run.interpreter import explain

Step = Callable[[list[Any], list[Any]], None]


class ReferenceBackend:
    """Runs graphs op by op, each by its own kernel.

    After `list_calls` calls a graph of at most `LIMIT` nodes becomes straight-line Python, whose
    making costs more than some calls save.
    """

    name = "reference"
    is_compact = True
    """Its callables have `compact` (`calling_convention`)."""

    def __init__(self, list_calls: int = 2) -> None:
        self.list_calls = list_calls

    def __repr__(self) -> str:
        return f"ReferenceBackend({self.list_calls})"

    def compile(self, graph: Graph) -> Run:
        """Returns the callable of a pure graph, which may end with copies into inputs."""
        if has_copies(graph):
            return compiled_with_copies(graph, self.compile)
        return ReferenceRun(graph, _Compiler(graph), self.list_calls)


REFERENCE = ReferenceBackend()


@attrs.define(eq=False, repr=False)
class _Compiler:
    """Gives each value of a graph a slot, and makes a step of each call."""

    graph: Graph
    slots: dict[Node, int] = attrs.field(factory=dict)
    constants: list[tuple[int, Window]] = attrs.field(factory=list)
    steps: list[Step] = attrs.field(factory=list)
    nodes: list[Node] = attrs.field(factory=list)
    """The node of each step, for the note on an error."""

    def number(self) -> None:
        """Fills `slots`, `constants` and `steps`."""
        dying = self._last_uses()
        for node in self.graph.nodes:
            if node.op == "output":
                break
            if type(node.meta) is not tuple:
                self.slots[node] = len(self.slots)
        for node in self.graph.nodes:
            if node.op == "call":
                self._add(node, dying.get(node, ()))
            elif node.op == "get_attr":
                self._constant(node)

    def _last_uses(self) -> dict[Node, list[Node]]:
        """Returns, for each node, the values whose last use it is: their slots are cleared."""
        last: dict[Node, Node] = {}
        for node in self.graph.nodes:
            for value in node.inputs():
                last[value] = node
        for value in self.graph.outputs:
            last.pop(value, None)
        dying: dict[Node, list[Node]] = {}
        for value, node in last.items():
            if value.op == "call" and type(value.meta) is not tuple:
                dying.setdefault(node, []).append(value)
        return dying

    def _constant(self, node: Node) -> None:
        meta: Any = node.meta
        buffer = copied(meta.device.arrays, node.target.value, meta)
        self.constants.append((self.slots[node], (buffer, 0)))

    def _add(self, node: Node, dying: Any) -> None:
        op = node.target
        dead = [self.slots[value] for value in dying]
        if isinstance(op, ViewOp):
            self._step(node, _view_step(self.slots[node.args[0]], self.slots[node], node, dead))
        elif isinstance(op, (PureOp, TokenOp)):
            self._step(node, self._kernel_step(node, op, dead))
        elif op is not GETITEM:
            raise BackendError(
                f"reference: the graph calls {op.name}, expected pure ops and views only; "
                "functionalize the graph first (stage 6)"
            )

    def _step(self, node: Node, step: Step) -> None:
        self.steps.append(step)
        self.nodes.append(node)

    def _kernel_step(self, node: Node, op: PureOp | TokenOp, dead: list[int]) -> Step:
        metas = node.meta if type(node.meta) is tuple else (node.meta,)
        if type(node.meta) is tuple:
            outs = [self._result_slot(node, k) for k in range(len(metas))]
        else:
            outs = [self.slots[node]]
        operands: list[tuple[int, Any]] = []
        for i, value in enumerate(node.args):
            if type(value) is Node:
                operands.append((i, self._operand(value)))
            elif type(value) is tuple and value and type(value[0]) is Node:
                operands.append((i, [self._operand(item) for item in value]))
        template = [None if type(v) is Node else v for v in node.args]
        if (
            len(outs) == 1
            and type(node.meta) is not tuple
            and all(type(o) is tuple for _, o in operands)
        ):
            kernel = kernel_on(metas[0].device.arrays, op.kernel)  # type: ignore[union-attr]
            return _one_result_step(kernel, metas[0], template, operands, outs[0], dead)  # type: ignore[arg-type]
        kernel = kernel_on(metas[0].device.arrays, op.kernel)  # type: ignore[union-attr]
        return _kernel_step(kernel, node.meta, metas, template, operands, outs, dead)

    def _result_slot(self, node: Node, index: int) -> int | None:
        for user in self.graph.users[node]:
            if user.target is GETITEM and user.args[1] == index:
                return self.slots[user]
        return None

    def _operand(self, value: Node) -> tuple[Any, ...]:
        meta: Any = value.meta
        return self.slots[value], meta.device.arrays.strided, meta.dtype, meta.shape, meta.stride


def _view_step(source: int, out: int, node: Node, dead: list[int]) -> Step:
    op, args, start = node.target, node.args, node.target.start(node.args)
    recasts = node.meta.dtype is not args[0].meta.dtype  # type: ignore[union-attr]

    def recasting(windows: list[Any], arrays: list[Any]) -> None:
        buffer, before = windows[source]
        windows[out] = (buffer, op.at(args, before))
        for slot in dead:
            windows[slot] = arrays[slot] = None

    def step(windows: list[Any], arrays: list[Any]) -> None:
        buffer, before = windows[source]
        windows[out] = (buffer, before + start)
        for slot in dead:
            windows[slot] = arrays[slot] = None

    return recasting if recasts else step


def _load(operand: tuple[Any, ...], windows: list[Any], arrays: list[Any]) -> Any:
    """Returns the array over an operand's window, which is made at its first use."""
    slot, strided, dtype, shape, stride = operand
    array = arrays[slot]
    if array is None:
        buffer, start = windows[slot]
        array = arrays[slot] = strided(buffer, dtype, shape, stride, start)
    return array


def _one_result_step(
    kernel: Any, meta: Any, template: list[Any], operands: list[Any], out: int, dead: list[int]
) -> Step:
    library = meta.device.arrays
    adopt = library.adopt

    def step(windows: list[Any], arrays: list[Any]) -> None:
        args = template.copy()
        for i, operand in operands:
            args[i] = _load(operand, windows, arrays)
        result = kernel(library, meta, *args)
        buffer = adopt(result, meta)
        windows[out] = (buffer, 0)
        # `adopt` takes an array that owns its memory. A later kernel may return its operand, so the
        # operand is a view of the buffer: what `adopt` gets then owns no memory, and is copied.
        if buffer is result:
            arrays[out] = result[...]
        for slot in dead:
            windows[slot] = arrays[slot] = None

    return step


def _kernel_step(
    kernel: Any,
    meta: Any,
    metas: tuple[Any, ...],
    template: list[Any],
    operands: list[Any],
    outs: list[int | None],
    dead: list[int],
) -> Step:
    library = metas[0].device.arrays

    def step(windows: list[Any], arrays: list[Any]) -> None:
        args = template.copy()
        for i, operand in operands:
            if type(operand) is list:
                args[i] = tuple([_load(each, windows, arrays) for each in operand])
            else:
                args[i] = _load(operand, windows, arrays)
        result = kernel(library, meta, *args)
        results = result if type(meta) is tuple else (result,)
        for slot, one, expected in zip(outs, results, metas, strict=True):
            if slot is not None:
                windows[slot] = (expected.device.arrays.adopt(one, expected), 0)
        for slot in dead:
            windows[slot] = arrays[slot] = None

    return step


class ReferenceRun:
    """A compiled graph. Called with windows; `compact` takes arrays (`calling_convention`)."""

    def __init__(self, graph: Graph, compiler: _Compiler, list_calls: int) -> None:
        compiler.number()
        slots = compiler.slots
        self.graph = graph
        self.reads = is_read(graph)
        """For each input whether it is read: `compact` takes these inputs alone."""
        self.reads_all = all(self.reads)
        self.source: str | None = None
        """The text of the straight-line form, once there is one."""
        self.compact: Callable[[list[Value]], list[Value]] = self._by_list
        self._inputs = len(graph.placeholders)
        self._count = len(slots)
        self._constants = compiler.constants
        self._steps = compiler.steps
        self._nodes = compiler.nodes
        self._outputs = [slots[v] if type(v) is Node else None for v in graph.outputs]
        self._calls_left = list_calls
        self._forms: tuple[list[bool], list[Any]] | None = None

    def __call__(self, given: list[Window]) -> list[Window | None]:
        windows = list(given)
        given.clear()
        return NUMPY.quiet(self._run, windows, [None] * self._count)[0]

    def _run(self, windows: list[Any], arrays: list[Any]) -> tuple[list[Any], list[Any]]:
        windows += [None] * (self._count - self._inputs)
        for slot, window in self._constants:
            windows[slot] = window
        step: Any = None
        try:
            for step in self._steps:
                step(windows, arrays)
        except Exception as error:
            explain(error, self._nodes[self._steps.index(step)], self.graph)
            raise
        return [None if slot is None else windows[slot] for slot in self._outputs], arrays

    # --- compact
    def read_of(self, values: list[Value]) -> list[Value]:
        """Returns, of the values of all inputs, those that `compact` takes."""
        return list(compress(values, self.reads))

    def _by_list(self, values: list[Value]) -> list[Value]:
        """`compact` of the first calls: runs the list, and replaces itself by straight-line Python
        when the graph has been called often enough to pay for compiling that."""
        self._calls_left -= 1
        if self._calls_left < 0 and len(self.graph.nodes) <= LIMIT:
            self.compact, self.source = straight(self.graph)
            return self.compact(values)
        as_arrays, metas = self._travel()
        rest = iter(values)
        windows = [self._window(rest, *each) for each in zip(self.reads, as_arrays, strict=True)]
        values.clear()
        out, arrays = self._run(windows, [None] * self._count)
        return [
            window if meta is None else _array(arrays[slot], window, meta)  # type: ignore[index]
            for window, slot, meta in zip(out, self._outputs, metas, strict=True)
        ]

    def _window(self, rest: Iterator[Value], is_read: bool, is_array: bool) -> Any:
        if not is_read:
            return None
        return (next(rest), 0) if is_array else next(rest)

    def _travel(self) -> tuple[list[bool], list[Any]]:
        """Returns (for each input whether it comes as an array, for each output its meta if it is
        returned as an array, else None)."""
        if self._forms is None:
            graph = self.graph
            returned = returned_as_arrays(graph)
            self._forms = (
                [travels_as_array(node.meta) for node in graph.placeholders],  # type: ignore[arg-type]
                [v.meta if yes else None for v, yes in zip(graph.outputs, returned, strict=True)],
            )
        return self._forms


def _array(array: Any, window: Any, meta: Any) -> Any:
    if array is not None:
        return array
    buffer, start = window
    return meta.device.arrays.strided(buffer, meta.dtype, meta.shape, meta.stride, start)
