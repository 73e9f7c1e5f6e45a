"""`Storage`: a buffer that any number of tensors share, and its version counter.

A tape node can read the bytes of a storage later, without a copy. It observes writes of the storage
for that, and copies the bytes before they change (copy-on-write). Rules: TEN-1, TEN-10, PART-37.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, SupportsIndex
from weakref import ref

from aotlite.eager.base.modes import STATE
from aotlite.eager.base.unsupported import note_refusal
from aotlite.ir.arrays import ArrayBuffer
from aotlite.ir.errors import DeviceError, UnsupportedError, noted


class NoCount(int):
    """The version of a storage made in inference mode, which does not count writes (TEN-11)."""

    __slots__ = ()

    def __add__(self, other: object) -> NoCount:
        return self


NO_COUNT = NoCount()

_MANY_OBSERVERS = 16
"""From this number on, each time it has doubled, references to dead observers are dropped."""


class WriteObserver(Protocol):
    """Reads the bytes of storages later, and needs them as they are now."""

    def before_write(self, storage: Storage) -> None:
        """Copies what it reads of a storage, whose bytes are about to change."""


class Storage:
    """A buffer of a device's array library; `None` in a fake, which has identity but no data."""

    __slots__ = (
        "__weakref__",
        "buffer",
        "capture",
        "exported",
        "version",
        "writable",
        "write_observers",
    )
    is_freed = False  # whether its memory was given back while tensors lie on it (STG-2)
    resize_: Callable[[int], Storage]  # given by `storage_size`

    def __init__(
        self, buffer: ArrayBuffer | None, *, writable: bool = True, capture: object = None
    ) -> None:
        self.buffer: Any = buffer
        self.version: int = 0 if STATE.grad_mode is not None else NO_COUNT
        self.writable = writable
        self.exported = False
        """Whether the user may have a NumPy array on this memory."""
        self.capture = capture
        """The recorder to which this fake belongs; None for a storage with data."""
        self.write_observers: list[ref[WriteObserver]] | None = None
        """Weak references to the objects that read the bytes later; None if there are none. Who
        writes the bytes calls `before_write` first.
        """

    def twin(self) -> Storage:
        """Another storage on the same memory, with a version counter of its own (TEN-5)."""
        # Overlap of such storages is found by addresses, as for ndarrays; neither buffer may move.
        self.export()
        twin = Storage(self.buffer, writable=self.writable, capture=self.capture)
        twin.exported = True
        return twin

    def add_write_observer(self, observer: WriteObserver) -> None:
        """Has the observer called before a write; at once if a write can go unnoticed."""
        if self.exported:
            observer.before_write(self)
        elif self.write_observers is None:
            self.write_observers = [ref(observer)]
        else:
            self.write_observers.append(ref(observer))
            count = len(self.write_observers)
            if count >= _MANY_OBSERVERS and not count & count - 1:
                self.write_observers = [each for each in self.write_observers if each() is not None]

    def before_write(self) -> None:
        """Calls the observers, which copy what they read: the bytes are about to change."""
        for each in list(self.write_observers or ()):
            observer = each()
            if observer is not None:
                observer.before_write(self)
        self.write_observers = None

    def export(self) -> None:
        """Notes that the user gets the buffer, and may write it unnoticed."""
        self.exported = True  # before the observers are called, which read it
        self.before_write()

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """The state for copies and pickles, without observers."""
        if STATE.recorder is not None:
            raise STATE.recorder.refuse("a pickle of a tensor's memory", "make it outside")
        if self.capture is not None:
            raise no_data("pickle", self)
        made: Any = super().__reduce_ex__(max(int(protocol), 2))
        make, args, (own, slots), *rest = made
        return make, args, (own, {**slots, "write_observers": None}), *rest

    def __deepcopy__(self, memo: dict[int, object]) -> Storage:
        memo[id(self)] = twin = Storage(self.buffer.copy())  # copies can be written
        return twin

    def no_data(self, what: str) -> Exception:
        """The error for access to the bytes of a storage without data."""
        return no_data(what, self)

    def nbytes(self) -> int:
        """The size of the buffer in bytes."""
        if self.buffer is None:
            raise self.no_data("nbytes")
        return int(self.buffer.nbytes)

    def data_ptr(self) -> int:
        """The address of the first byte."""
        if self.buffer is None:
            raise self.no_data("data_ptr")
        for interface in ("__array_interface__", "__cuda_array_interface__"):
            found = getattr(self.buffer, interface, None)
            if found is not None:
                return int(found["data"][0])
        raise DeviceError(
            f"data_ptr: the memory is a {type(self.buffer).__name__}, expected an array with an "
            "address"
        )


def no_data(what: str, storage: Storage) -> Exception:
    """The error for access to the data of a captured tensor on this storage."""
    if getattr(storage.capture, "is_fake_mode", False):
        return noted(
            UnsupportedError(
                f"{what}: the tensor belongs to a fake mode and has no data, expected a tensor "
                "with data"
            ),
            "It has a shape but no values: compute with it in a `with` block of its mode, or "
            "export a Module that holds it.",
        )
    error = noted(
        UnsupportedError(
            f"{what}: the tensor belongs to a capture and has no data, expected a tensor with data"
        ),
        "A tensor made while a function is captured has a shape but no values, and is of no use "
        "afterwards: return it from the function instead of keeping it in a variable outside.",
    )
    return note_refusal(error, storage.capture, STATE.recorder)
