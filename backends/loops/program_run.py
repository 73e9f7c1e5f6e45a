"""A program as a backend's callable: its inputs and results, by windows and by the compact face.

Written as straight-line Python for each program: arrays for the buffers, one call that computes,
the results. What computes is given: the interpreter, or a launcher of compiled code.
Spec: `specs/s9_lower.md`. Rules: BOX-1, LOW-1, LOW-2, LOW-9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import compress
from typing import Any

import attrs
import numpy as np

from aotlite.backends.calling_convention import Value, is_read, returned_as_arrays, travels_as_array
from aotlite.backends.loops.interpreter.program_interpreter import strided
from aotlite.backends.loops.program import BufferKind, LoopProgram, Placed, ProgramBuffer, slots
from aotlite.backends.protocol import Window
from aotlite.ir.errors import GraphError, out_of_memory
from aotlite.ir.forks import cached_property
from aotlite.ir.graph import Graph
from aotlite.ir.meta import TensorMeta
from aotlite.ir.run.interpreter import ArrayValue, array_value, run_graph

Allocator = Callable[[tuple[int, ...], Any], Callable[[], Any]]
"""From shape and NumPy dtype to what makes new arrays of these."""
Execute = Callable[[list[Any]], Any]
"""Computes on the arrays of the inputs that are read and of the outputs, in order of `slots`.

Gives a true value where it came upon what eager refuses, such as an index that is out of range.
"""


@attrs.frozen(eq=False, slots=False)
class Kernels:
    """What a graph was compiled to, for those who want to see it."""

    make: Callable[[], LoopProgram]
    """Gives the program; of a graph that was remembered nobody has it."""
    text: str = ""
    """Of a language that is compiled."""
    seconds: Mapping[str, float] = attrs.field(factory=dict)
    """How long each part of compiling took; what is done in the background comes late."""

    @cached_property
    def program(self) -> LoopProgram:
        """The loops."""
        return self.make()

    def __str__(self) -> str:
        spent = [f"{name} {1e3 * seconds:.1f} ms" for name, seconds in self.seconds.items()]
        parts = [str(self.program), f"compiled in: {', '.join(spent)}" if spent else "", self.text]
        return "\n\n".join(part for part in parts if part)


_FRESH = partial(partial, np.empty)


class ProgramRun:
    """A compiled graph: called with windows, or through `compact` with values as they travel."""

    def __init__(
        self,
        graph: Graph,
        program: LoopProgram,
        execute: Execute,
        allocator: Allocator = _FRESH,
    ) -> None:
        self.graph = graph
        self.program = program
        self.reads = is_read(graph)
        """Which inputs anything reads: `compact` takes these alone."""
        self.reads_all = all(self.reads)
        self._scope: dict[str, Any] = {}
        self.compact, self.source = _Writer(graph, program, self._scope, allocator).function()
        self._scope["refused"] = self._raise
        self.kernels = Kernels(lambda: program)
        self.use(execute)

    @property
    def execute(self) -> Execute:
        """What computes."""
        found: Execute = self._scope["execute"]
        return found

    def use(self, execute: Execute) -> None:
        """Computes in this way from the next call on."""
        self._scope["execute"] = execute

    def _raise(self, arrays: list[Any]) -> None:
        """Raises what the op raises whose values a check has refused."""
        given = dict(zip([buffer.number for buffer in slots(self.program)], arrays, strict=True))
        inputs = []
        for node, number in zip(self.graph.placeholders, self.program.inputs, strict=True):
            meta: Any = node.meta
            flat = None if number is None else given[number].reshape(-1)
            array = None if flat is None else strided(flat, 0, meta.shape, meta.stride).copy()
            inputs.append(ArrayValue(None, meta) if array is None else array_value(array, meta))
        run_graph(self.graph, *inputs)
        raise GraphError(
            f"{self.graph.name}: a check gave its program up, expected one of its ops to raise"
        )

    def __call__(self, given: list[Window]) -> list[Window | None]:
        windows = list(compress(given, self.reads))
        given.clear()
        read = compress(self.graph.placeholders, self.reads)
        values = [
            _array(window, node.meta) if travels_as_array(node.meta) else window  # type: ignore[arg-type]
            for window, node in zip(windows, read, strict=True)
        ]
        return [
            (value, 0) if type(value) is np.ndarray else value for value in self.compact(values)
        ]

    # --- the compact face
    def read_of(self, values: list[Value]) -> list[Value]:
        """Of the values of all inputs those that `compact` takes."""
        return list(compress(values, self.reads))


def _array(window: Window, meta: TensorMeta) -> Any:
    buffer, start = window
    return meta.device.arrays.strided(buffer, meta.dtype, meta.shape, meta.stride, start)


class _Writer:
    """Writes the function that is the compact face."""

    def __init__(
        self, graph: Graph, program: LoopProgram, scope: dict[str, Any], allocator: Allocator
    ) -> None:
        self.graph = graph
        self.program = program
        self.lines: list[str] = []
        self.allocator = allocator
        self.buffers = {buffer.number: buffer for buffer in program.buffers}
        self.scope = scope
        scope["ndarray"] = np.ndarray
        self.arrays: dict[int, str] = {}
        """The variable of each buffer's array."""
        self.windows: dict[int, tuple[str, str]] = {}
        """Of inputs that come as windows: variables of memory and start."""
        self.memories: dict[int, str] = {}
        """Of outputs whose array is not its own memory."""

    def function(self) -> tuple[Callable[[list[Value]], list[Value]], str]:
        names = self._inputs()
        self._outputs()
        arrays = [self.arrays[buffer.number] for buffer in slots(self.program)]
        head = [f"[{', '.join(names)}] = box", "box.clear()"] if names else []
        results = [
            self._result(placed, as_array)
            for placed, as_array in zip(
                self.program.outputs, returned_as_arrays(self.graph), strict=True
            )
        ]
        compute = f"if execute([{', '.join(arrays)}]): refused([{', '.join(arrays)}])"
        body = [*head, *self.lines, compute, f"return [{', '.join(results)}]"]
        ending = [
            "except MemoryError as error:",
            f"    raise full({self.graph.name!r}, error) from error",
        ]
        self.scope["full"] = out_of_memory
        lines = ["def run(box):", "try:", *[f"    {line}" for line in body], *ending]
        source = "\n    ".join(lines) + "\n"
        exec(compile(source, f"<aotlite {self.graph.name}>", "exec"), self.scope)
        return self.scope["run"], source

    def _constant(self, value: Any) -> str:
        name = f"C{len(self.scope)}"
        self.scope[name] = value
        return name

    # --- inputs
    def _inputs(self) -> list[str]:
        names = []
        reads = is_read(self.graph)
        for index, node in enumerate(self.graph.placeholders):
            if reads[index]:
                names.append(f"x{index}")
                self._input(f"x{index}", node.meta, self.program.inputs[index])
        return names

    def _input(self, name: str, meta: Any, number: int | None) -> None:
        if travels_as_array(meta):
            if number is not None:
                self.arrays[number] = name
            return
        memory, start = f"m{name[1:]}", f"s{name[1:]}"
        self.lines.append(f"{memory}, {start} = {name}")
        if number is None:
            return
        self.windows[number] = (memory, start)
        self.arrays[number] = f"a{name[1:]}"
        size, dtype = max(meta.span, 0), self._constant(meta.dtype.numpy)
        place = f", {memory}, {start} * {meta.dtype.itemsize}" if size else ""
        self.lines.append(f"{self.arrays[number]} = ndarray(({size},), {dtype}{place})")

    # --- outputs
    def _outputs(self) -> None:
        shapes = self._shapes
        for buffer in self.program.buffers:
            if buffer.kind is BufferKind.OUTPUT:
                name = self.arrays[buffer.number] = f"o{buffer.number}"
                shape = shapes.get(buffer.number, (buffer.size,))
                if buffer.dtype.numpy.kind != "V":
                    self._allocate(name, tuple(shape), buffer.dtype.numpy)
                    continue
                # An array of an extension dtype exports no buffer: its memory is one of bytes.
                self.memories[buffer.number] = memory = f"m{name}"
                size = buffer.size * buffer.dtype.itemsize
                self._allocate(memory, (size,), np.dtype(np.uint8))
                dtype = self._constant(buffer.dtype.numpy)
                self.lines.append(f"{name} = ndarray(({buffer.size},), {dtype}, {memory})")

    def _allocate(self, name: str, shape: tuple[int, ...], dtype: Any) -> None:
        new = f"new_{name}"
        self.scope[new] = self.allocator(shape, dtype)
        self.lines.append(f"{name} = {new}()")

    @cached_property
    def _shapes(self) -> dict[int, Sequence[int]]:
        """The shapes of outputs that are the whole of their buffers, in order."""
        return {
            placed.buffer: placed.meta.shape
            for placed in self.program.outputs
            if placed is not None
            and travels_as_array(placed.meta)
            and (placed.start, placed.meta.numel) == (0, self.buffers[placed.buffer].size)
        }

    def _result(self, placed: Placed | None, as_array: bool) -> str:
        if placed is None:
            return "None"
        buffer = self.buffers[placed.buffer]
        name, start = self.arrays[placed.buffer], str(placed.start)
        memory = self.memories.get(placed.buffer, name)
        if placed.buffer in self.windows:
            memory, first = self.windows[placed.buffer]
            sizes = buffer.dtype.itemsize, placed.meta.dtype.itemsize
            first = first if sizes[0] == sizes[1] else f"{first} * {sizes[0]} // {sizes[1]}"
            start = f"{first} + {placed.start}"
        if not as_array:
            return f"({memory}, {start})"
        if self._is_whole(placed, buffer):
            return name
        meta = placed.meta
        shape, dtype = self._constant(meta.shape), self._constant(meta.dtype.numpy)
        return f"ndarray({shape}, {dtype}, {memory}, ({start}) * {meta.dtype.itemsize})"

    def _is_whole(self, placed: Placed, buffer: ProgramBuffer) -> bool:
        """Whether the buffer's array is the result."""
        shape = self._shapes.get(placed.buffer)
        alike = placed.meta.dtype is buffer.dtype and placed.meta.numel == buffer.size
        return alike and placed.start == 0 and shape == placed.meta.shape
