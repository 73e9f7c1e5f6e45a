"""A launch plan as a `Run`: straight-line Python, written for each program.

    m0, s0 = x0                                    # the input's window
    p0 = address(m0) + s0 * 4                      # its address
    o2 = N5(); p2 = address(o2)                    # a result
    stream = current_stream()
    arena, arena_at = N6()                         # memory of the temporaries
    table[0](p0, arena_at + 0, p2)                 # all addresses
    L7(stream, table[1], 0)                        # a launch for each kernel
    return [(o2, 0)]

Spec: `specs/cuda_backend.md`. Rules: BOX-1, LOW-1, LOW-2, LOW-9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from aotlite.backends.calling_convention import (
    Run,
    Value,
    array_of,
    is_read,
    returned_as_arrays,
    travels_as_array,
)
from aotlite.backends.cuda.driver.driver_protocol import DeviceModule, Driver
from aotlite.backends.cuda.emit.cuda_program import Launch
from aotlite.backends.cuda.execution.argument_tables import maker
from aotlite.backends.cuda.execution.extern_ops import extern, windows_of
from aotlite.backends.cuda.execution.kernel_report import CudaKernels
from aotlite.backends.cuda.execution.launch_plan import SLOT, Checks, LaunchPlan, buffers_of
from aotlite.backends.loops.program import BufferKind, Extern, Gemm, Placed, ProgramBuffer
from aotlite.backends.loops.program import MatrixWindow as Matrix
from aotlite.backends.loops.program_run import raise_as_eager
from aotlite.backends.python_source import PythonSource, unpacked
from aotlite.ir.arrays import copied
from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.dtypes import uint8
from aotlite.ir.errors import BackendError
from aotlite.ir.graph import Graph
from aotlite.ir.meta import TensorMeta, tensor_meta


class CudaRun(Run):
    """A graph that launches kernels."""

    def __init__(
        self,
        graph: Graph,
        plan: LaunchPlan,
        device: Device,
        driver: Driver,
        flags: Sequence[str],
        *,
        tf32: bool,
        module: DeviceModule | None = None,
        uploads: dict[int, object] | None = None,
    ) -> None:
        """`module`: the plan's kernels, if they are loaded already. `uploads`: constants on the
        device by buffer, which runs share."""
        super().__init__(graph)
        self.plan = plan
        module = module or driver.module(plan.kernels, plan.printed, flags)
        parts = (graph, plan, device, driver, module, {} if uploads is None else uploads)
        self.writer = LaunchWriter(*parts, tf32=tf32)
        self.writer.scope["refused"] = self._refused
        self.call, self.source = self.writer.function()
        self.kernels = CudaKernels(
            make=lambda: plan.program,
            text=plan.printed.text,
            plan=plan,
            target=driver.target,
            flags=tuple(flags),
        )

    def _refused(self, values: Sequence[Value]) -> None:
        """Raises eager's error after a check has failed."""
        given = iter(values)
        pairs = zip(self.graph.placeholders, self.reads, strict=True)
        arrays = [array_of(next(given), node.meta) if read else None for node, read in pairs]  # type: ignore[arg-type]
        raise_as_eager(self.graph, arrays)


class LaunchWriter:
    """Writes the Python function `call`, and its parts for device graphs."""

    def __init__(
        self,
        graph: Graph,
        plan: LaunchPlan,
        device: Device,
        driver: Driver,
        module: DeviceModule,
        uploads: dict[int, object],
        *,
        tf32: bool,
    ) -> None:
        self.uploads = uploads
        self.graph = graph
        self.plan = plan
        self.device = device
        self.driver = driver
        self.module = module
        self.tf32 = tf32
        self.buffers = buffers_of(plan.program)
        self.launches = [each for each in plan.actions if type(each) is Launch]
        self.slots = sorted({number for launch in self.launches for number in launch.buffers})
        """The buffers whose addresses the table has, in order."""
        self.unpacked: list[str] = []
        self.placed: list[str] = []
        self.made: list[str] = []
        self.work: list[str] = []
        """The lines that unpack inputs, compute their addresses, allocate results, and launch."""
        self.arena = ""
        """The line that allocates the arena, if there is one."""
        self.names: list[str] = []
        self.given = self.results = ""
        self.windows: dict[int, tuple[str, str]] = {}
        """For each buffer with memory of its own the variables (memory, first element)."""
        self.copies: dict[int, str] = {}
        """For each input that is copied from the host the variable of the copy."""
        self.arrays: dict[int, str] = {}
        """For each value of the host that is passed as an array its variable."""
        self.places: dict[int, str] = {}
        """The address of each buffer, as an expression."""
        self.source = PythonSource()
        self.scope = self.source.scope
        self.scope |= {
            "stock": [],
            "make": maker(self.slots, self.launches),
            "address": driver.address,
            "current_stream": driver.current_stream,
            "explain": driver.explain,
            "put": driver.put,
            "read": driver.read,
        }
        self._write()

    def _write(self) -> None:
        """Writes all parts of the function."""
        self.names = self._inputs()
        self.given = f"[{', '.join(self.names)}]"
        self._constants()
        self._outputs()
        self._arena()
        for action in self.plan.actions:
            self._action(action)
        self.results = f"return [{', '.join(self._results())}]"

    def function(self) -> tuple[Callable[[list[Value]], list[Value]], str]:
        """Returns `call` and its source."""
        arena = [self.arena] if self.arena else []
        filled = self._filled()
        put = [f"put(stream, arena_at + {self.plan.hosted_at}, {filled})"] if filled else []
        lines = [
            *self.unpacked,
            *self.looks(),
            *self._uploads(),
            *self.placed,
            *self.made,
            "stream = current_stream()",
            *arena,
        ]
        lines += [*put, *self._table(), *self.work, self.results]
        held = sorted({*self.names, *self._held()})
        guard = self.driver.is_current
        if guard is not None:
            self.scope |= {"is_current": guard, "guarded": self.driver.guarded}
        self.source.lines = _body(self.names, lines, held, guard)
        text = self.source.text("run", "box")
        return self._compiled(text, "run"), text

    def _compiled(self, text: str, name: str) -> Any:
        return self.source.compiled(text, name, f"<aotlite {self.graph.name}>")

    # --- for device graphs
    def prepare(self) -> Callable[..., Any]:
        """Returns `prepare(values, outputs, arena, capture)`, which records the launches on this
        memory and returns (recording, table)."""
        outputs = [number for number, _ in self.outputs()]
        lines = [*self._unboxed(), *self.placed, f"[{_listed('o', outputs)}] = outputs"]
        lines += [f"p{number} = address(o{number})" for number in outputs]
        lines += ["arena_at = address(arena)" if self.arena else "pass", "table = make()"]
        lines += [*self._table(), "def work():", "    stream = current_stream()"]
        lines += [f"    {line}" for line in self.work]
        return self._defined("prepare(box, outputs, arena, capture)", lines, "capture(work), table")

    def finish(self) -> Callable[..., Any]:
        """Returns `finish(values, outputs)`, which returns the results of a call."""
        outputs = _listed("o", [number for number, _ in self.outputs()])
        lines = [*self._unboxed(), f"[{outputs}] = outputs", self.results]
        return self._defined("finish(box, outputs)", lines)

    def host_values(self) -> Callable[..., Any] | None:
        """Returns `host_values(values)`, which returns the bytes of the host's values; None if
        there are none."""
        filled = self._filled()
        if not filled:
            return None
        return self._defined("host_values(box)", [*self._unboxed(), *self.looks()], filled)

    def outputs(self) -> list[tuple[int, int]]:
        """Returns (number, bytes) of the buffers that a call allocates and returns."""
        buffers = self.plan.program.buffers
        return [
            (b.number, b.size * b.dtype.itemsize) for b in buffers if b.kind is BufferKind.OUTPUT
        ]

    def _unboxed(self) -> list[str]:
        return [f"{self.given} = box" if self.names else "pass", *self.unpacked]

    def _defined(self, head: str, lines: Sequence[str], result: str = "") -> Any:
        ending = [f"return {result}"] if result else []
        self.source.lines = [*lines, *ending]
        name, _, parameters = head.removesuffix(")").partition("(")
        return self._compiled(self.source.text(name, parameters), name)

    # --- inputs
    def _inputs(self) -> list[str]:
        names = []
        reads = is_read(self.graph)
        for index, node in enumerate(self.graph.placeholders):
            if reads[index]:
                names.append(f"x{index}")
                self._input(f"x{index}", node.meta, self.plan.program.inputs[index])
        return names

    def _input(self, name: str, meta: Any, number: int | None) -> None:
        if number is None:
            return
        if number in self.plan.copied:
            place = f"u{number}"
            self.copies[number] = place
            self.places[number] = f"p{number}"
        if travels_as_array(meta):
            self.arrays[number] = name
            self.windows[number] = name, "0"
            return
        memory, start = self.windows[number] = f"m{name[1:]}", f"s{name[1:]}"
        self.unpacked.append(f"{memory}, {start} = {name}")
        if meta.device is not CPU:
            self.places[number] = f"p{number}"
            place = f"address({memory}) + {start} * {meta.dtype.itemsize}"
            self.placed.append(f"p{number} = {place}")

    def _filled(self) -> str:
        """Returns the expression of the host's values as bytes of the arena's head; empty if there
        are none."""
        arrays = self._host_arrays()
        self.scope["ZERO"] = b"\0"
        parts = [f"{arrays[number]}.tobytes().ljust({SLOT}, ZERO)" for number in self.plan.hosted]
        return f"b''.join(({', '.join(parts)}))" if len(parts) > 1 else "".join(parts)

    def _host_arrays(self) -> dict[int, str]:
        """Returns the arrays of the host's values, as expressions."""
        pairs = zip(self.plan.program.inputs, self.graph.placeholders, strict=True)
        found = {}
        for number, node in pairs:
            if number in self.arrays:
                found[number] = self.arrays[number]
            elif number is not None and node.meta.device is CPU:  # type: ignore[union-attr]
                window = f"({', '.join(self.windows[number])})"
                meta: Any = node.meta
                found[number] = (
                    f"{self.source.constant(partial(array_of, meta=meta), 'H')}({window})"
                )
        return found

    def _uploads(self) -> list[str]:
        """Returns the lines that copy inputs from the host."""
        arrays, lines = self._host_arrays(), []
        nodes = dict(zip(self.plan.program.inputs, self.graph.placeholders, strict=True))
        for number, name in self.copies.items():
            meta: Any = nodes[number].meta
            on_device = tensor_meta(meta.shape, meta.stride, meta.dtype, self.device)
            copy = partial(copied, self.device.arrays, meta=on_device)
            lines.append(f"{name} = {self.source.constant(copy, 'U')}({arrays[number]})")
            lines.append(f"p{number} = address({name})")
        return lines

    def looks(self) -> list[str]:
        """Returns the lines that check values of the host, and raise eager's error."""
        if not self.plan.refuses:
            return []
        arrays = ", ".join([f"{n}: {array}" for n, array in self._host_arrays().items()])
        names = [self.source.constant(each, "R") for each in self.plan.refuses]
        return [f"if {name}({{{arrays}}}): refused({self.given})" for name in names]

    # --- memory
    def _constants(self) -> None:
        for buffer in self.plan.program.buffers:
            if buffer.kind is BufferKind.CONSTANT:
                if buffer.number not in self.uploads:
                    self.uploads[buffer.number] = self._uploaded(buffer)
                memory = self.uploads[buffer.number]
                self.windows[buffer.number] = self.source.constant(memory, "C"), "0"
                self.places[buffer.number] = str(self.driver.address(memory))

    def _uploaded(self, buffer: ProgramBuffer) -> object:
        meta = tensor_meta((buffer.size,), None, buffer.dtype, self.device)
        return self.driver.guarded(copied, self.device.arrays, buffer.value, meta)

    def _outputs(self) -> None:
        for buffer in self.plan.program.buffers:
            if buffer.kind is BufferKind.OUTPUT:
                name = f"o{buffer.number}"
                new = partial(self.device.arrays.allocate, buffer.size, buffer.dtype)
                self.made.append(f"{name} = {self.source.constant(new, 'N')}()")
                self.windows[buffer.number] = name, "0"
                self.places[buffer.number] = f"p{buffer.number}"
                self.made.append(f"p{buffer.number} = address({name})")

    def _arena(self) -> None:
        if not self.plan.arena:
            return
        self.arena = self._arena_line()
        for number, offset in self.plan.offsets.items():
            self.places[number] = f"arena_at + {offset}"
            if self.buffers[number].kind is not BufferKind.INPUT:
                start = offset // self.buffers[number].dtype.itemsize
                self.windows[number] = "arena", str(start)

    def _arena_line(self) -> str:
        arrays, count = self.device.arrays, self.plan.arena
        if any(type(action) is Extern for action in self.plan.actions):
            new = partial(arrays.allocate, count, uint8)
            return f"arena = {self.source.constant(new, 'N')}(); arena_at = address(arena)"
        return (
            f"arena, arena_at = {self.source.constant(self.driver.scratch(arrays, count), 'N')}()"
        )

    def _table(self) -> list[str]:
        places = ", ".join([self.places[number] for number in self.slots])
        return [f"table[0]({places})"] if self.launches else []

    # --- work
    def _action(self, action: Any) -> None:
        match action:
            case Launch():
                name = self.source.constant(self.module.launcher(action), "L")
                place = 1 + self.launches.index(action)
                self.work.append(f"{name}(stream, table[{place}], 0)")
            case Gemm():
                self._product(action)
            case Extern():
                name = self.source.constant(extern(action, self.device.arrays), "E")
                windows = [self._window(placed) for placed in windows_of(action)]
                self.work.append(f"{name}([{', '.join(windows)}])")
            case Checks(first=first, count=count):
                flags = f"read(stream, arena_at + {SLOT * first}, {SLOT * count})[::{SLOT}]"
                self.work.append(f"if any({flags}): refused({self.given})")

    def _product(self, gemm: Gemm) -> None:
        dtype = self.buffers[gemm.c.buffer].dtype
        name = self.source.constant(self.driver.product(gemm, dtype, tf32=self.tf32), "G")
        places = [self._matrix_place(each, dtype.itemsize) for each in (gemm.a, gemm.b, gemm.c)]
        self.work.append(f"{name}(stream, {', '.join(places)})")

    def _matrix_place(self, matrix: Matrix, itemsize: int) -> str:
        place = self.places[matrix.buffer]
        return f"{place} + {matrix.start * itemsize}" if matrix.start else place

    def _window(self, placed: Placed) -> str:
        """Returns the window of a value on the device, as an expression."""
        if placed.buffer in self.plan.hosted:  # in the arena, not where the host has it
            size = self.buffers[placed.buffer].dtype.itemsize
            return f"(arena, {self.plan.offsets[placed.buffer] // size + placed.start})"
        if placed.buffer in self.copies:
            return f"({self.copies[placed.buffer]}, {placed.start})"
        memory, start = self.windows[placed.buffer]
        return f"({memory}, {self._start(placed, start)})"

    def _start(self, placed: Placed, start: str) -> str:
        sizes = self.buffers[placed.buffer].dtype.itemsize, placed.meta.dtype.itemsize
        if start.isdigit():
            return str(int(start) * sizes[0] // sizes[1] + placed.start)
        first = start if sizes[0] == sizes[1] else f"{start} * {sizes[0]} // {sizes[1]}"
        return f"{first} + {placed.start}" if placed.start else first

    def _held(self) -> list[str]:
        """The variables that keep memory, but for the inputs' values."""
        names = [memory for memory, _ in self.windows.values() if memory not in self.scope]
        names += self.copies.values()
        return sorted({*names, "arena"} if self.plan.arena else {*names})

    # --- results
    def _results(self) -> Iterable[str]:
        as_arrays = returned_as_arrays(self.graph)
        placed = self.plan.program.outputs
        for one, node, as_array in zip(placed, self.graph.outputs, as_arrays, strict=True):
            yield "None" if one is None else self._result(one, node.meta, as_array)

    def _result(self, placed: Placed, meta: TensorMeta, as_array: bool) -> str:
        # Places of the program do not know their device.
        given = {*self.plan.hosted, *self.plan.copied}
        if meta.device is CPU and meta.numel and placed.buffer not in given:
            raise BackendError(
                f"cuda: graph {self.graph.name} computes a result on cpu, expected results on "
                f"{self.device}: a call would wait for the device"
            )
        memory, start = self.windows[placed.buffer]
        window = f"({memory}, {self._start(placed, start)})"
        if not as_array:
            return window
        return f"{self.source.constant(partial(array_of, meta=meta), 'V')}({window})"


def _listed(kind: str, numbers: Iterable[int]) -> str:
    return ", ".join([f"{kind}{number}" for number in numbers])


def _body(names: Sequence[str], lines: Sequence[str], held: Sequence[str], guard: Any) -> list[str]:
    """Returns the body of the function. On an error it drops its variables, since the traceback
    keeps the frame, and would keep the memory."""
    found = [] if guard is None else ["if not is_current(): return guarded(run, box)"]
    found += unpacked(names)
    found += ["try: table = stock.pop()", "except IndexError: table = make()", "try:"]
    found += [f"    {line}" for line in lines]
    found.append("except BaseException as error:")
    if held:
        found.append(f"    {' = '.join(held)} = None")
    return [*found, "    explain(error)", "    raise", "finally: stock.append(table)"]
