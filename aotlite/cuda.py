"""`aotlite.cuda`: devices, streams, events and memory of CUDA, under PyTorch's names.

Without CUDA, `is_available()` is False and `device_count()` 0; other functions raise an error
that says what is missing. Streams and events are CuPy's; memory is that of CuPy's pool.

Guide: `docs/cuda.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs

from aotlite.eager.rng.generator import manual_seed as _manual_seed
from aotlite.ir.arrays.cuda_devices import cuda_device, device_named, library, why_unavailable
from aotlite.ir.arrays.cuda_devices import device_count as _device_count
from aotlite.ir.arrays.device import Device
from aotlite.ir.errors import ArgumentError, DeviceError

__all__ = [
    "DeviceProperties",
    "Event",
    "ExternalStream",
    "Stream",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "empty_cache",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "is_available",
    "manual_seed",
    "manual_seed_all",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "set_device",
    "stream",
    "synchronize",
]

Place = Device | str | int | None
"""A device, its name, or its index; None is the current device."""


# -------------------------------------------------------------------------------------- devices
def is_available() -> bool:
    """Whether there is a CUDA device to compute on."""
    return why_unavailable() is None


def device_count() -> int:
    """The number of CUDA devices; 0 without CUDA."""
    return _device_count(library()) if is_available() else 0


def current_device() -> int:
    """The index of the current device of this thread."""
    return int(_cupy().cuda.runtime.getDevice())


def set_device(device: Place) -> None:
    """Makes a device the current one of this thread."""
    _cupy().cuda.runtime.setDevice(_index(device))


class device:
    """Makes a device the current one within a `with` block; None changes nothing."""

    def __init__(self, device: Place) -> None:
        self.idx = None if device is None else _index(device)
        self._before: list[int] = []

    def __enter__(self) -> device:
        self._before.append(current_device())
        if self.idx is not None:
            set_device(self.idx)
        return self

    def __exit__(self, *error: object) -> None:
        _cupy().cuda.runtime.setDevice(self._before.pop())


def synchronize(device: Place = None) -> None:
    """Waits until all work of the device is done."""
    _cupy().cuda.Device(_index(device)).synchronize()


def _cupy() -> Any:
    found = library()
    _device_count(found)  # raises without a device
    return found.cupy


def _index(place: Place) -> int:
    """The index of a device. Raises DeviceError for a missing device, or one that is not CUDA's."""
    if place is None:
        return current_device()
    if isinstance(place, bool) or not isinstance(place, (int, str, Device)):
        raise ArgumentError(f"cuda: device is {place!r}, expected a device, its name or its index")
    if isinstance(place, int):
        place = cuda_device(place, op="cuda") if place >= 0 else f"cuda:{place}"
    found = device_named(place, op="cuda") if isinstance(place, str) else place
    index = found.index
    if index is None or library().device(index) is not found:
        raise DeviceError(f"cuda: device is {found}, expected a CUDA device")
    return index


def _device(place: Place) -> Device:
    return library().device(_index(place))


# -------------------------------------------------------------------------------------- streams
class Stream:
    """A queue of work of a device. The work of one stream runs in order, that of two may not."""

    def __init__(self, device: Place = None, priority: int = 0) -> None:
        cupy, index = _cupy(), _index(device)
        with cupy.cuda.Device(index):
            made = cupy.cuda.Stream(non_blocking=True, priority=priority)
        self._set(made, index)

    def _set(self, held: Any, index: int) -> None:
        self.held = held
        """CuPy's stream."""
        self.device = library().device(index)

    @property
    def cuda_stream(self) -> int:
        """The address of the stream, for other libraries."""
        return int(self.held.ptr)

    def query(self) -> bool:
        """Whether all its work is done."""
        return bool(self.held.done)

    def synchronize(self) -> None:
        """Waits until all its work is done."""
        self.held.synchronize()

    def record_event(self, event: Event | None = None) -> Event:
        """Records an event, which happens when the present work is done; returns it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Makes later work of the stream wait for an event. The host does not wait."""
        with _cupy().cuda.Device(self.device.index):
            self.held.wait_event(event.held)

    def wait_stream(self, stream: Stream) -> None:
        """Makes later work of the stream wait for the present work of another stream."""
        self.wait_event(stream.record_event())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stream):
            return NotImplemented
        return self.cuda_stream == other.cuda_stream and self.device is other.device

    def __hash__(self) -> int:
        return hash((self.cuda_stream, self.device.index))

    def __repr__(self) -> str:
        return f"<Stream {self.cuda_stream:#x} of {self.device}>"


class ExternalStream(Stream):
    """A stream of another library, by its address. The other library has to keep it alive."""

    def __init__(self, stream_ptr: int, device: Place = None) -> None:
        cupy, index = _cupy(), _index(device)
        with cupy.cuda.Device(index):
            made = cupy.cuda.ExternalStream(stream_ptr, index)
        self._set(made, index)


def _stream_of(held: object, index: int) -> Stream:
    made = Stream.__new__(Stream)
    made._set(held, index)
    return made


def current_stream(device: Place = None) -> Stream:
    """The current stream of a device in this thread."""
    index = _index(device)
    return _stream_of(_cupy().cuda.get_current_stream(index), index)


def default_stream(device: Place = None) -> Stream:
    """The default stream of a device, which is current unless another one was made so."""
    return _stream_of(_cupy().cuda.Stream.null, _index(device))


@contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    """Makes a stream and its device the current ones within a `with` block."""
    if stream is None:
        yield
        return
    with _cupy().cuda.Device(stream.device.index), stream.held:
        yield


class Event:
    """A moment in a stream. `enable_timing` allows `elapsed_time` between two events."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False) -> None:
        self.held = _cupy().cuda.Event(block=blocking, disable_timing=not enable_timing)
        self._enable_timing = enable_timing

    def record(self, stream: Stream | None = None) -> None:
        """Records the event: it happens when the present work of the stream is done."""
        stream = current_stream() if stream is None else stream
        with _cupy().cuda.Device(stream.device.index):
            self.held.record(stream.held)

    def wait(self, stream: Stream | None = None) -> None:
        """Makes later work of a stream wait for the event."""
        (current_stream() if stream is None else stream).wait_event(self)

    def query(self) -> bool:
        """Whether it has happened."""
        return bool(self.held.done)

    def synchronize(self) -> None:
        """Waits until it has happened."""
        self.held.synchronize()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to another, both of which have happened."""
        for event in (self, end_event):
            if not event._enable_timing:
                raise ArgumentError(
                    "elapsed_time: an event was made with enable_timing False, expected True"
                )
        return float(_cupy().cuda.get_elapsed_time(self.held, end_event.held))


# --------------------------------------------------------------------------------------- memory
def empty_cache() -> None:
    """Frees the memory that CuPy's pool keeps for later use."""
    _cupy().get_default_memory_pool().free_all_blocks()


def memory_allocated(device: Place = None) -> int:
    """The bytes of live arrays in CuPy's pool, those of other users of CuPy included."""
    with _cupy().cuda.Device(_index(device)):
        return int(_cupy().get_default_memory_pool().used_bytes())


def memory_reserved(device: Place = None) -> int:
    """The bytes of CuPy's pool: of live arrays, and kept for later use."""
    with _cupy().cuda.Device(_index(device)):
        return int(_cupy().get_default_memory_pool().total_bytes())


def mem_get_info(device: Place = None) -> tuple[int, int]:
    """(free, total) bytes of the device, for all processes."""
    with _cupy().cuda.Device(_index(device)):
        free, total = _cupy().cuda.runtime.memGetInfo()
    return int(free), int(total)


# ----------------------------------------------------------------------------------- properties
@attrs.frozen
class DeviceProperties:
    """The properties of a device."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    warp_size: int
    max_threads_per_multi_processor: int
    regs_per_multiprocessor: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    L2_cache_size: int


def get_device_properties(device: Place = None) -> DeviceProperties:
    """The properties of a device: its name, its architecture, its sizes."""
    found = _cupy().cuda.runtime.getDeviceProperties(_index(device))
    name = found["name"]
    return DeviceProperties(
        name.decode() if isinstance(name, bytes) else name,
        *[int(found[key]) for key in _PROPERTIES],
    )


_PROPERTIES = (
    "major",
    "minor",
    "totalGlobalMem",
    "multiProcessorCount",
    "warpSize",
    "maxThreadsPerMultiProcessor",
    "regsPerMultiprocessor",
    "sharedMemPerBlock",
    "sharedMemPerBlockOptin",
    "sharedMemPerMultiprocessor",
    "l2CacheSize",
)


def get_device_name(device: Place = None) -> str:
    """The name of a device."""
    return get_device_properties(device).name


def get_device_capability(device: Place = None) -> tuple[int, int]:
    """(major, minor) of the architecture: (9, 0) is sm_90."""
    found = get_device_properties(device)
    return found.major, found.minor


# ----------------------------------------------------------------------------------------- draws
def manual_seed(seed: int) -> None:
    """`aotlite.manual_seed`: one generator serves all devices, with the same numbers on each."""
    _manual_seed(seed)


manual_seed_all = manual_seed
