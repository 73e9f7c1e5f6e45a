"""The driver of an emulated CUDA device: this process runs the kernels.

Kernels are interpreted from the loop IR; other tests compare it with the CUDA text. Streams are
those of the emulated CuPy. Spec: `specs/cuda_backend.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from aotlite.testing.cuda.host_driver import HostDriver


class EmulatedDriver(HostDriver):
    """The driver of a device of the emulated CuPy."""

    def __init__(self, arrays: Any) -> None:
        super().__init__(attrgetter("address"), interprets=True)
        self._cuda = arrays.cupy.cuda
        self._index: int = arrays.index
        self.is_current: Callable[[], bool] | None = self._is_current

    def _is_current(self) -> bool:
        return bool(self._cuda.runtime.getDevice() == self._index)

    def guarded(self, function: Callable[..., object], *args: object) -> Any:
        with self._cuda.Device(self._index):
            return function(*args)

    def current_stream(self) -> int:
        if self.is_recording:
            return super().current_stream()
        return int(self._cuda.get_current_stream().ptr)
