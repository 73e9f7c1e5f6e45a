"""CuPy's part of CUDA's runtime without a GPU: devices, memory of the host, streams, events.

All work runs at once, so that a stream has nothing to wait for. The current device and stream are
those of the thread, as in CuPy.
"""

from __future__ import annotations

import ctypes
import threading
import time
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np

DEVICES = 2
TOTAL = 1 << 34
"""The bytes of each device, more than tests use."""
_NO_SUCH_DEVICE = 101


class CUDARuntimeError(RuntimeError):
    """An error of the runtime, with its number."""

    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError: {status}")
        self.status = status


class OutOfMemoryError(MemoryError):
    """CuPy's error for a device without free memory."""

    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        super().__init__(f"Out of memory allocating {size:,} bytes")
        self._given = size, total, limit

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self._given


class _Current(threading.local):
    device = 0

    def __init__(self) -> None:
        self.streams: dict[int, Stream] = {}


CURRENT = _Current()


# --------------------------------------------------------------------------------------- memory
class Pool:
    """The memory pool of a device: the bytes in use, and the bytes kept for later."""

    def __init__(self) -> None:
        self.used = 0
        self.limit = TOTAL
        self.freed = 0
        """How often all kept bytes were freed."""
        self.kept = 0

    def take(self, size: int) -> None:
        if self.used + self.kept + size > self.limit:
            raise OutOfMemoryError(size, self.used)
        self.used += size

    def put_back(self, size: int) -> None:
        self.used -= size

    # --- CuPy's names
    def free_all_blocks(self) -> None:
        self.freed += 1
        self.kept = 0

    def used_bytes(self) -> int:
        return self.used

    def total_bytes(self) -> int:
        return self.used + self.kept


POOLS = [Pool() for _ in range(DEVICES)]


MEMORIES: weakref.WeakSet[EmulatedMemory] = weakref.WeakSet()
"""The memories of all devices, by which the device of an address is found."""


class EmulatedMemory:
    """Bytes that a device owns."""

    def __init__(self, size: int) -> None:
        self.device_id = CURRENT.device
        POOLS[self.device_id].take(size)
        self.size = size
        self.bytes = np.full(size, 0xCD, np.uint8)
        self.ptr = self.bytes.ctypes.data if size else 0
        MEMORIES.add(self)
        weakref.finalize(self, POOLS[self.device_id].put_back, size)


class UnownedMemory:
    """Bytes of another owner, which stays alive with it."""

    def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1) -> None:
        self.ptr, self.size, self._owner = ptr, size, owner
        self.device_id = CURRENT.device if device_id < 0 else device_id
        if ptr:
            place: Any = (ctypes.c_uint8 * size).from_address(ptr)
            self.bytes = np.frombuffer(place, np.uint8)
        else:
            self.bytes = np.empty(0, np.uint8)


class MemoryPointer:
    """A place in memory."""

    def __init__(self, mem: Any, offset: int) -> None:
        assert mem.ptr != 0 or offset == 0
        self.mem, self.ptr, self.device_id = mem, mem.ptr + offset, mem.device_id

    @property
    def device(self) -> Device:
        return Device(self.device_id)

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)


def alloc(size: int) -> MemoryPointer:
    return MemoryPointer(EmulatedMemory(size), 0)


# -------------------------------------------------------------------------------------- devices
class Device:
    """A device; as a context, the current one."""

    def __init__(self, device: int | None = None) -> None:
        self.id = CURRENT.device if device is None else int(device)
        self._before: list[int] = []

    def __int__(self) -> int:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def use(self) -> None:
        if not 0 <= self.id < DEVICES:
            raise CUDARuntimeError(_NO_SUCH_DEVICE)
        CURRENT.device = self.id

    def __enter__(self) -> Device:
        self._before.append(CURRENT.device)
        self.use()
        return self

    def __exit__(self, *error: object) -> None:
        CURRENT.device = self._before.pop()

    def synchronize(self) -> None:
        pass

    @property
    def compute_capability(self) -> str:
        return "80"

    @property
    def mem_info(self) -> tuple[int, int]:
        return _mem_get_info()


NO_DEVICE = -2
"""CUDA's device number for memory that it does not know."""


def _attributes(address: int) -> object:
    """The attributes of the memory at an address: its device."""
    for memory in list(MEMORIES):
        if memory.ptr <= address < memory.ptr + memory.size:
            return SimpleNamespace(device=memory.device_id)
    return SimpleNamespace(device=NO_DEVICE)


def _mem_get_info() -> tuple[int, int]:
    pool = POOLS[CURRENT.device]
    return pool.limit - pool.used - pool.kept, pool.limit


def _properties(device: int) -> dict[str, object]:
    if not 0 <= device < DEVICES:
        raise CUDARuntimeError(_NO_SUCH_DEVICE)
    return {
        "name": b"Emulated GPU",
        "major": 8,
        "minor": 0,
        "totalGlobalMem": POOLS[device].limit,
        "multiProcessorCount": 2,
        "warpSize": 32,
        "maxThreadsPerBlock": 1024,
        "maxThreadsPerMultiProcessor": 2048,
        "sharedMemPerBlock": 49152,
        "sharedMemPerMultiprocessor": 167936,
        "sharedMemPerBlockOptin": 166912,
        "regsPerMultiprocessor": 65536,
        "l2CacheSize": 1 << 22,
    }


# -------------------------------------------------------------------------------------- streams
class Stream:
    """A stream of the current device, on which all work runs at once."""

    null: Stream
    _last = 0

    def __init__(
        self,
        null: bool = False,
        non_blocking: bool = False,
        ptds: bool = False,
        priority: int | None = None,
        *,
        ptr: int | None = None,
        device_id: int = -1,
    ) -> None:
        if ptr is None:
            Stream._last += 0 if null else 64
            ptr = 0 if null else Stream._last
        self.ptr = ptr
        self.device_id = CURRENT.device if device_id < 0 else device_id
        self._before: list[tuple[int, Stream]] = []
        self.waited: list[object] = []
        """The events that it had to wait for."""

    def __enter__(self) -> Stream:
        device = CURRENT.device
        if self.ptr and self.device_id != device:
            raise RuntimeError(f"this stream is of device {self.device_id}, not of {device}")
        self._before.append((device, get_current_stream()))
        CURRENT.streams[device] = self
        return self

    def __exit__(self, *error: object) -> None:
        device, before = self._before.pop()
        CURRENT.streams[device] = before

    def use(self) -> Stream:
        CURRENT.streams[CURRENT.device] = self
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.ptr == other.ptr

    def __hash__(self) -> int:
        return hash(self.ptr)

    @property
    def done(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def record(self, event: Any = None) -> Any:
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: object) -> None:
        self.waited.append(event)


Stream.null = Stream(null=True)


class ExternalStream(Stream):
    """A stream that another library made."""

    def __init__(self, ptr: int, device_id: int = -1) -> None:
        super().__init__(ptr=ptr, device_id=device_id)


class Event:
    """An event in a stream, with the time of its record."""

    def __init__(
        self, block: bool = False, disable_timing: bool = False, interprocess: bool = False
    ) -> None:
        self.disable_timing = disable_timing
        self.time: float | None = None
        self.stream: Any = None

    def record(self, stream: object = None) -> None:
        self.stream = get_current_stream() if stream is None else stream
        self.time = time.perf_counter()

    @property
    def done(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass


def get_current_stream(device_id: int = -1) -> Stream:
    device = CURRENT.device if device_id < 0 else device_id
    return CURRENT.streams.get(device, Stream.null)


def get_elapsed_time(start_event: Event, end_event: Event) -> float:
    assert start_event.time is not None
    assert end_event.time is not None
    return (end_event.time - start_event.time) * 1e3


WAITED: list[int] = []
"""The streams of peers that were waited for."""


def _use(device: int) -> None:
    Device(device).use()


CUDA = SimpleNamespace(
    Device=Device,
    Stream=Stream,
    ExternalStream=ExternalStream,
    Event=Event,
    MemoryPointer=MemoryPointer,
    EmulatedMemory=EmulatedMemory,
    UnownedMemory=UnownedMemory,
    alloc=alloc,
    get_current_stream=get_current_stream,
    get_elapsed_time=get_elapsed_time,
    memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
    runtime=SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        getDevice=lambda: CURRENT.device,
        setDevice=_use,
        getDeviceCount=lambda: DEVICES,
        getDeviceProperties=_properties,
        memGetInfo=_mem_get_info,
        pointerGetAttributes=_attributes,
        deviceSynchronize=lambda: None,
        driverGetVersion=lambda: 13000,
        runtimeGetVersion=lambda: 13000,
    ),
)
