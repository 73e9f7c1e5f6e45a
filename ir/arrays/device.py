"""`Device`: where a tensor's storage lives, and the array library that reaches it there.

Devices have names: 'cpu', 'cuda', 'cuda:1'. Spec: `specs/cuda_device.md` (DEV-1).
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from aotlite.ir.arrays import NUMPY, ArrayBackend


@attrs.frozen(eq=False, repr=False)
class Device:
    """A place for storages. Two devices are the same iff they are the same object.

    `made_by` is what gives the device of this name in any process.
    """

    name: str
    arrays: ArrayBackend
    made_by: Callable[[str], Device] | None = attrs.field(default=None, kw_only=True)

    @property
    def type(self) -> str:
        """The name without the index: 'cpu', 'cuda'."""
        return self.name.partition(":")[0]

    @property
    def index(self) -> int | None:
        """Which of the devices of this type; None where there is but one."""
        index = self.name.partition(":")[2]
        return int(index) if index.isdecimal() else None

    # Copies and pickles are the same object. Of a device that only some program knows there are no
    # pickles: it is not found by this name.
    def __reduce__(self) -> str | tuple[Callable[[str], Device], tuple[str]]:
        return "CPU" if self.made_by is None else (self.made_by, (self.name,))

    def __repr__(self) -> str:
        return f"device({self.name!r})"

    def __str__(self) -> str:
        return self.name


CPU = Device("cpu", NUMPY)
"""The host's memory, reached through NumPy."""


def is_cuda(name: str) -> bool:
    """Whether this is how a CUDA device is printed: 'cuda:0'."""
    kind, _, index = name.partition(":")
    return kind == "cuda" and index.isdecimal()
