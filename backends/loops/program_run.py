"""A loop program as a `Run`.

For each program it writes straight-line Python that makes an array for each buffer of the caller,
calls `execute` once, and returns the results. Of one input that is strided and one result:

    def run(box):
        try:
            [x0] = box
            box.clear()
            m0, s0 = x0                                     # a window: memory and start
            a0 = ndarray((11,), C1, m0, s0 * 4)
            o1 = new0()
            if execute([a0, o1]): refused([a0, o1])         # a `ValueCheck` found a bad value
            return [(o1, 0)]
        except MemoryError as error: ...

`execute` is the interpreter or a launcher of compiled code, and may be replaced between calls, when
compilation in the background is done. Spec: `specs/s9_lower.md`. Rules: BOX-1, LOW-1, LOW-2, LOW-9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from aotlite.backends.calling_convention import (
    Run,
    is_read,
    returned_as_arrays,
    travels_as_array,
)
from aotlite.backends.loops.interpreter.program_interpreter import strided
from aotlite.backends.loops.program import BufferKind, LoopProgram, Placed, ProgramBuffer, slots
from aotlite.backends.python_source import CodeOf, PythonSource, unpacked
from aotlite.ir.deferred import deferred
from aotlite.ir.errors import GraphError, out_of_memory
from aotlite.ir.forks import cached_property
from aotlite.ir.graph import Graph
from aotlite.ir.graph.symbolic.size_code import SizeCode, holding
from aotlite.ir.meta import table_in
from aotlite.ir.run.interpreter import ArrayValue, array_value, run_graph
from aotlite.ir.source_cache import compiled
from aotlite.ir.symbols.proving import Demands, proving

if TYPE_CHECKING:
    from aotlite.backends.loops.templates import step_sequence as shown
else:  # only what is printed needs it
    shown = deferred("aotlite.backends.loops.templates.step_sequence")

Allocator = Callable[[tuple[int, ...], Any], Callable[[], Any]]
"""From a shape and a NumPy dtype to a function that makes new arrays of them."""
Execute = Callable[[list[Any]], Any]
"""Computes on the arrays of the inputs that are read and of the outputs, in the order of `slots`.

Returns a true value where it found a value that eager refuses, such as an index out of range.
"""


@attrs.frozen(eq=False, slots=False)
class Kernels:
    """The compiled form of a graph, for users who print it: loops, text, seconds."""

    make: Callable[[], LoopProgram]
    """Returns the loop program, made when asked for: a graph found in the cache has none."""
    text: str = ""
    """The C or CUDA text."""
    seconds: Mapping[str, float] = attrs.field(factory=dict)
    """The seconds of each part of compilation. Parts in the background are added when they end."""

    @cached_property
    def program(self) -> LoopProgram:
        """The loop program."""
        return self.make()

    def __str__(self) -> str:
        spent = [f"{name} {1e3 * seconds:.1f} ms" for name, seconds in self.seconds.items()]
        repeats = shown.repetition(self.program)
        parts = [
            str(self.program),
            "" if repeats is None else str(repeats),
            f"compiled in: {', '.join(spent)}" if spent else "",
            self.text,
        ]
        return "\n\n".join(part for part in parts if part)


_FRESH = partial(partial, np.empty)


class ProgramRun(Run):
    """A loop program that is computed by `execute`."""

    def __init__(
        self,
        graph: Graph,
        program: LoopProgram,
        execute: Execute,
        allocator: Allocator = _FRESH,
        code_of: CodeOf = compiled,
    ) -> None:
        super().__init__(graph)
        self.program = program
        writer = _Writer(graph, program, allocator, PythonSource())
        self._scope = writer.source.scope
        self.source = writer.text()
        self.call = writer.source.compiled(self.source, "run", f"<aotlite {graph.name}>", code_of)
        self._scope["refused"] = self._raise
        self.kernels = Kernels(lambda: program)
        self.use(execute)

    @property
    def execute(self) -> Execute:
        """The function that computes."""
        found: Execute = self._scope["execute"]
        return found

    def use(self, execute: Execute) -> None:
        """Replaces the function that computes, from the next call on."""
        self._scope["execute"] = execute

    def _raise(self, arrays: list[Any]) -> None:
        """Raises eager's error after a check has failed."""
        raise_for(self.graph, self.program, arrays)


class SizedCall:
    """The Python function of a program of symbolic sizes: one text, and one code, for all sizes
    that meet the `demands` (SIZ-13). For each of them it has other shapes and allocators."""

    def __init__(
        self,
        graph: Graph,
        program: LoopProgram,
        allocator: Allocator,
        numbers: Callable[[SizeCode], list[str]],
        demands: Demands,
    ) -> None:
        """`numbers` gives expressions of what `execute` is made of. Raises Unproved where the text
        would need the value of a size."""
        sizes = SizeCode()
        source = PythonSource(sizes=sizes)
        writer = _Writer(graph, program, allocator, source)
        table = table_in([value for node in graph.nodes for value in (node.meta, *node.args)])
        with proving(table, source.spelled, demands, exact=True):
            self.text = writer.text()
            self.reads = is_read(graph)
        self.holds = holding(demands)
        """Whether it is the function for sizes by name."""
        names = "execute", "refused"
        self.make = source.making(self.text, "run", f"<aotlite {graph.name}>", names)
        self._own = len(source.sized)
        self._values = sizes.function([*source.sized.values(), *numbers(sizes)])

    def at(self, sizes: Mapping[str, int]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Returns what the function has for these sizes, and the values of `numbers`."""
        values = self._values(sizes)
        return values[: self._own], values[self._own :]


def raise_for(graph: Graph, program: LoopProgram, arrays: list[Any]) -> None:
    """Raises eager's error for the arrays of a program's slots, after a check has failed."""
    given = dict(zip([buffer.number for buffer in slots(program)], arrays, strict=True))
    inputs = []
    for node, number in zip(graph.placeholders, program.inputs, strict=True):
        meta: Any = node.meta
        flat = None if number is None else given[number].reshape(-1)
        inputs.append(None if flat is None else strided(flat, 0, meta.shape, meta.stride))
    raise_as_eager(graph, inputs)


def raise_as_eager(graph: Graph, arrays: Sequence[object]) -> None:
    """Runs a graph op by op on copies of its inputs, for the error that eager raises.

    Compiled code only finds that a check of values has failed. `arrays` has None for an input that
    is not read. Raises GraphError if no op raises.
    """
    inputs = [
        ArrayValue(None, node.meta) if array is None else array_value(array, node.meta)  # type: ignore[arg-type]
        for node, array in zip(graph.placeholders, arrays, strict=True)
    ]
    run_graph(graph, *inputs)
    raise GraphError(
        f"{graph.name}: a check of values failed in compiled code and no op raised, expected one "
        "of its ops to raise; please report this as a bug of aotlite"
    )


class _Writer:
    """Writes the Python function `call`."""

    def __init__(
        self, graph: Graph, program: LoopProgram, allocator: Allocator, source: PythonSource
    ) -> None:
        self.graph = graph
        self.program = program
        self.allocator = allocator
        self.buffers = {buffer.number: buffer for buffer in program.buffers}
        self.source = source
        self.source.use(np.ndarray)
        self.arrays: dict[int, str] = {}
        """The variable of each buffer's array."""
        self.windows: dict[int, tuple[str, str]] = {}
        """The variables (memory, start) of inputs that come as windows."""
        self.memories: dict[int, str] = {}
        """The variable of an output's memory, where the array is a view of it: extension dtypes."""

    def text(self) -> str:
        """Returns the text of the function `run`."""
        names = self._inputs()
        self._outputs()
        arrays = [self.arrays[buffer.number] for buffer in slots(self.program)]
        results = [
            self._result(placed, as_array)
            for placed, as_array in zip(
                self.program.outputs, returned_as_arrays(self.graph), strict=True
            )
        ]
        compute = f"if execute([{', '.join(arrays)}]): refused([{', '.join(arrays)}])"
        body = [*unpacked(names), *self.source.lines, compute, f"return [{', '.join(results)}]"]
        self.source.scope["full"] = out_of_memory
        self.source.lines = [
            "try:",
            *[f"    {line}" for line in body],
            "except MemoryError as error:",
            f"    if (told := full({self.graph.name!r}, error)) is error: raise",
            "    raise told from error",
        ]
        return self.source.text("run", "box")

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
        self.source.add(f"{memory}, {start} = {name}")
        if number is None:
            return
        self.windows[number] = (memory, start)
        self.arrays[number] = f"a{name[1:]}"
        size, dtype = max(meta.span, 0), self.source.constant(meta.dtype.numpy)
        place = f", {memory}, {start} * {meta.dtype.itemsize}" if size else ""
        self.source.add(f"{self.arrays[number]} = ndarray(({size},), {dtype}{place})")

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
                dtype = self.source.constant(buffer.dtype.numpy)
                self.source.add(f"{name} = ndarray(({buffer.size},), {dtype}, {memory})")

    def _allocate(self, name: str, shape: tuple[int, ...], dtype: object) -> None:
        self.source.add(f"{name} = {self.source.made('new', self.allocator, shape, dtype)}()")

    @cached_property
    def _shapes(self) -> dict[int, Sequence[int]]:
        """The shape of each buffer that is an output as a whole, in row-major order."""
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
        shape, dtype = self.source.record(meta.shape), self.source.constant(meta.dtype.numpy)
        return f"ndarray({shape}, {dtype}, {memory}, ({start}) * {meta.dtype.itemsize})"

    def _is_whole(self, placed: Placed, buffer: ProgramBuffer) -> bool:
        """Whether the buffer's array is the result itself."""
        shape = self._shapes.get(placed.buffer)
        alike = placed.meta.dtype is buffer.dtype and placed.meta.numel == buffer.size
        return alike and placed.start == 0 and shape == placed.meta.shape
