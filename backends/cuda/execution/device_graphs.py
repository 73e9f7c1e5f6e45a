"""Device graphs: the launches of a compiled graph are recorded as one CUDA graph, and replayed.

A recording has fixed addresses, as CUDA graphs have. Its parts therefore lie as follows:

    temporaries, and inputs at changing addresses (copied)   a room that a stream's recordings share
    inputs at a fixed address, such as parameters            where they are
    results                                                  memory of the recording, not written
                                                              again while somebody holds it

Rules: CUG-1 to CUG-6. Spec: `specs/cuda_backend.md`.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import compress
from typing import Any

import attrs

from aotlite.backends.calling_convention import Run, Value
from aotlite.backends.cuda.driver.driver_protocol import PER_THREAD, DeviceGraph, Driver
from aotlite.backends.cuda.execution.launch_code import CudaRun
from aotlite.backends.cuda.execution.launch_plan import LINE
from aotlite.backends.cuda.execution.leases import lent
from aotlite.backends.loops.program import BufferKind, Extern, Gemm, writes
from aotlite.backends.native.warn_once import warn_once
from aotlite.ir.arrays import ArrayBackend
from aotlite.ir.arrays.device import CPU
from aotlite.ir.dtypes import uint8
from aotlite.ir.errors import AotliteError
from aotlite.ir.forks import lock
from aotlite.ir.meta import TensorMeta

LOG = logging.getLogger("aotlite.device_graphs")

MOST = 8
"""The most recordings of one compiled graph on one stream."""
MANY = 16
"""The number of recorded graphs of one name at which the user is warned."""
ALIGNED = 16
"""The alignment in bytes of inputs that are not copied."""


# ----------------------------------------------------------------------------------- shared memory
class Room:
    """Memory that the recordings of a stream share."""

    def __init__(self, buffer: Any, size: int) -> None:
        self.buffer = buffer
        self.size = size


class RoomPool:
    """The room of a stream, as large as its largest recording needs."""

    def __init__(self) -> None:
        self.lock = lock()
        """Held by a call from its copies to its launch: calls share the room."""
        self._room: weakref.ref[Room] | None = None

    def room(self, arrays: ArrayBackend, size: int) -> Room:
        """Returns a room of at least this size; a new one if the present one is too small."""
        known = self.known()
        if known is None or known.size < size:
            known = Room(arrays.allocate(size, uint8), size)
            self._room = weakref.ref(known)
        return known

    def known(self) -> Room | None:
        """Returns the present room, which lives as long as a recording uses it; else None."""
        return None if self._room is None else self._room()


_POOLS: weakref.WeakKeyDictionary[Driver, dict[int, RoomPool]] = weakref.WeakKeyDictionary()


class _OwnPools(threading.local):
    """For each thread the pools of its own default stream."""

    def __init__(self) -> None:
        self.of: weakref.WeakKeyDictionary[Driver, RoomPool] = weakref.WeakKeyDictionary()


_OWN = _OwnPools()


def pool_of(driver: Driver, stream: int) -> RoomPool:
    """Returns the pool of a stream. Per-thread default streams share one handle, but no pool."""
    if stream == PER_THREAD:
        return _OWN.of.setdefault(driver, RoomPool())
    return _POOLS.setdefault(driver, {}).setdefault(stream, RoomPool())


# -------------------------------------------------------------------------------------- recordings
@attrs.frozen
class RecordedInput:
    """An input on the device: its place among the values, and its size."""

    place: int
    itemsize: int
    nbytes: int
    written: bool
    """Whether the graph writes it, so that it must not be copied."""


@attrs.define(eq=False)
class RecordedGraph:
    """A recording: a CUDA graph, and the addresses with which it was recorded."""

    graph: DeviceGraph
    room: Room
    arena: int
    """The address of the room."""
    fixed: Sequence[tuple[int, int]]
    """(number, address) of inputs that are read where they are."""
    copied: Sequence[tuple[int, int]]
    """(number, address in the room) of inputs that are copied before."""
    outputs: Sequence[tuple[Any, int]]
    """(buffer, address) of results."""
    table: Any
    holders: list[Callable[[], bool]] = attrs.field(factory=list)

    def fits(self, addresses: Sequence[int]) -> bool:
        """Whether the fixed inputs have their addresses, and nobody holds the last results."""
        if any(addresses[number] != address for number, address in self.fixed):
            return False
        return not any(is_held() for is_held in self.holders)

    def results(self) -> list[Any]:
        """Returns new buffers over the memory of the results."""
        found = [lent(buffer, address) for buffer, address in self.outputs]
        self.holders = [is_held for _, is_held in found]
        return [buffer for buffer, _ in found]


@attrs.define(eq=False)
class CallHistory:
    """What calls of a graph have shown, at any of its sizes."""

    warm: set[str] = attrs.field(factory=set)
    """The kernels that have run: the first run loads them, which a capture forbids."""
    only: dict[int, int | None] = attrs.field(factory=dict)
    """For each input, by place, the only address that it has had; None if it had several."""


class _OwnRecordings(threading.local):
    """For each thread the recordings on its own default stream."""

    def __init__(self) -> None:
        self.known: list[RecordedGraph] = []


class DeviceGraphRun(Run):
    """A compiled graph whose calls replay recordings. Called as a `CudaRun`, with equal results."""

    def __init__(
        self,
        run: CudaRun,
        arrays: ArrayBackend,
        driver: Driver,
        history: CallHistory | None = None,
    ) -> None:
        """`history`: that of the runs of all sizes, which have the same kernels (CUG-1)."""
        super().__init__(run.graph)
        self.history = history or CallHistory()
        self.run = run
        self.plan = run.plan
        self.kernels = run.kernels
        self.source = run.source
        self.arrays = arrays
        self.driver = driver
        self.reason = _reason(run)
        """Why nothing is recorded; empty if it is."""
        self.inputs = _inputs(run)
        self._multiplies = any(type(action) is Gemm for action in run.plan.actions)
        self.recordings: dict[int, list[RecordedGraph]] = {}
        """The recordings by stream, without those of per-thread default streams."""
        self._own = _OwnRecordings()
        self._seen: list[set[int]] = [set() for _ in self.inputs]
        """For each input the addresses that it has had, to find those that never change."""
        self._kernels = {launch.name for launch in run.writer.launches}
        self._calls = 0
        self._is_counted = False
        writer = run.writer
        self._prepare, self._finish = writer.prepare(), writer.finish()
        self._host_values = writer.host_values()
        self._sizes = [nbytes for _, nbytes in writer.outputs()]
        if self.reason:
            self._tell_never()

    def call(self, box: list[Value]) -> list[Value]:
        """Replays a recording if one fits, else launches."""
        if self.reason:
            return self.run.call(box)
        is_current = self.driver.is_current
        if is_current is not None and not is_current():
            found: list[Value] = self.driver.guarded(self.call, box)
            return found
        stream = self.driver.current_stream()
        with pool_of(self.driver, stream).lock:
            return self._call(box, stream)

    def _call(self, box: list[Value], stream: int) -> list[Value]:
        addresses = self._addresses(box)
        recording = self._recording(box, addresses, stream)
        self._note(addresses)
        self._calls += 1
        if recording is None:
            self.history.warm |= self._kernels
            return self.run.call(box)
        return self._replayed(recording, box, addresses, stream)

    def _note(self, addresses: Sequence[int]) -> None:
        """Keeps the addresses of a call."""
        only = self.history.only
        for each, seen, address in zip(self.inputs, self._seen, addresses, strict=True):
            if len(seen) < 2 * MOST:
                seen.add(address)
            if only.setdefault(each.place, address) != address:
                only[each.place] = None

    def _addresses(self, box: Sequence[Value]) -> list[int]:
        """Returns the addresses of the inputs on the device, without keeping references."""
        address, found = self.driver.address, []
        for each in self.inputs:
            buffer, start = box[each.place]
            found.append(address(buffer) + start * each.itemsize)
        return found

    def _replayed(
        self, recording: RecordedGraph, box: list[Value], addresses: Sequence[int], stream: int
    ) -> list[Value]:
        values = list(box)
        box.clear()
        try:
            self._launch(recording, values, addresses, stream)
        except BaseException as error:
            values.clear()  # the traceback must not keep the memory
            self.driver.explain(error)
            raise
        found: list[Value] = self._finish(values, recording.results())
        return found

    def _launch(
        self,
        recording: RecordedGraph,
        values: list[Value],
        addresses: Sequence[int],
        stream: int,
    ) -> None:
        for number, to in recording.copied:
            self.driver.move(stream, to, addresses[number], self.inputs[number].nbytes)
        if self._host_values is not None:
            at = recording.arena + self.plan.hosted_at
            self.driver.put(stream, at, self._host_values(values))
        recording.graph.launch(stream)

    # --- recording
    def _recording(
        self, values: Sequence[Value], addresses: Sequence[int], stream: int
    ) -> RecordedGraph | None:
        """Returns the recording for a call, made now if needed; None for a call without one."""
        known = self._recordings_on(stream)
        room = pool_of(self.driver, stream).known()
        known[:] = [each for each in known if each.room is room]  # drops those of a smaller room
        for each in known:
            if each.fits(addresses):
                return each
        if not self._calls and not self._is_warm:
            return None
        if len(known) >= MOST:
            self._tell(f"there are {MOST} recordings whose results are held")
            return None
        inputs = self._known(addresses)
        if any(each.written and not is_known for each, _, is_known in inputs):
            self._tell("an input that is written is somewhere else at each call")
            return None
        try:
            made = self._recorded(values, addresses, stream, careful=len(known) < MOST // 2)
        except (AotliteError, MemoryError) as error:
            self.reason = f"recording fails: {error}"
            self._tell_never()
            return None
        known.append(made)
        return made

    @property
    def _is_warm(self) -> bool:
        """Whether all kernels have run, at other sizes. Which ones a product takes nobody knows."""
        return not self._multiplies and self._kernels <= self.history.warm

    def _recordings_on(self, stream: int) -> list[RecordedGraph]:
        return self._own.known if stream == PER_THREAD else self.recordings.setdefault(stream, [])

    def _known(self, addresses: Sequence[int]) -> Iterator[tuple[RecordedInput, int, bool]]:
        """Yields each input with its address, and whether it had that in an earlier call: of this
        size, or in all calls of other sizes."""
        for each, address, seen in zip(self.inputs, addresses, self._seen, strict=True):
            is_only = not self._calls and self.history.only.get(each.place) == address
            yield each, address, is_only or address in seen

    def _tell_never(self) -> None:
        """Logs a warning, since the user asked for recordings and gets none."""
        LOG.warning("aotlite: graph %s is not recorded: %s (CUG-5)", self.graph.name, self.reason)

    def _tell(self, why: str) -> None:
        LOG.info("%s: a call runs without a recording: %s (CUG-5)", self.graph.name, why)

    def _recorded(
        self, values: Sequence[Value], addresses: Sequence[int], stream: int, *, careful: bool
    ) -> RecordedGraph:
        """Returns a new recording. Inputs at an address that was seen before stay there; others are
        copied to the room."""
        stays = [
            each.written or (careful and is_known and a % ALIGNED == 0)
            for each, a, is_known in self._known(addresses)
        ]
        numbers = range(len(self.inputs))
        moved = [number for number in numbers if not stays[number]]
        starts, size = self._starts(moved)
        workspace = self.driver.workspace if self._multiplies else 0
        pool = pool_of(self.driver, stream)
        room = pool.room(self.arrays, max(size + workspace, LINE))
        arena = self.driver.address(room.buffer)
        given = list(values)
        for number, start in zip(moved, starts, strict=True):
            each = self.inputs[number]
            given[each.place] = (room.buffer, start // each.itemsize)
        outputs = [self.arrays.allocate(nbytes, uint8) for nbytes in self._sizes]
        products = (arena + size, workspace) if workspace else None
        capture = partial(self.driver.capture, products=products)
        graph, table = self._prepare(given, outputs, room.buffer, capture)
        if not self._is_counted:
            self._is_counted = True
            _count(self.graph.name)
        return RecordedGraph(
            graph,
            room,
            arena,
            [(number, addresses[number]) for number in numbers if stays[number]],
            [(number, arena + start) for number, start in zip(moved, starts, strict=True)],
            [(buffer, self.driver.address(buffer)) for buffer in outputs],
            table,
        )

    def _starts(self, moved: Sequence[int]) -> tuple[list[int], int]:
        """Returns the offsets of copied inputs in the room, behind the arena, and its size."""
        starts, size = [], -(-self.plan.arena // LINE) * LINE
        for number in moved:
            starts.append(size)
            size += -(-self.inputs[number].nbytes // LINE) * LINE
        return starts, size


def _inputs(run: CudaRun) -> list[RecordedInput]:
    """Returns the inputs on the device that are read."""
    found = []
    program = run.plan.program
    buffers = {buffer.number: buffer for buffer in program.buffers}
    written = {n for step in program.steps for n in writes(step)}
    pairs = zip(run.graph.placeholders, program.inputs, strict=True)
    for place, (node, number) in enumerate(compress(pairs, run.reads)):
        meta: Any = node.meta
        if number is None or meta.device is CPU:
            continue
        assert buffers[number].kind is BufferKind.INPUT
        size = meta.dtype.itemsize
        found.append(RecordedInput(place, size, max(meta.span, 0) * size, number in written))
    return found


def _reason(run: CudaRun) -> str:
    """Returns why a graph cannot be recorded; empty if it can."""
    if run.plan.waits:
        return "a check waits for the device"
    if run.plan.copied:
        return "an input is copied from the host"
    for action in run.plan.actions:
        if type(action) is Extern:
            return f"{action.op.name} is computed by the array library, which allocates"
    metas = [node.meta for node in run.graph.placeholders]
    if not all(type(meta) is TensorMeta for meta in metas):
        return "an input is no tensor"
    return ""


_counts: dict[str, int] = {}


def _count(name: str) -> None:
    """Counts the recorded graphs of a name, one for each size, and warns of many."""
    _counts[name] = _counts.get(name, 0) + 1
    if _counts[name] == MANY:
        warn_once(
            f"aotlite: {MANY} device graphs were recorded of {name}, one for each size; name the "
            "sizes that recur in device_graph_sizes, or pad to few of them (CUG-3)"
        )
