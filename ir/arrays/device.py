"""`Device`: where a tensor's storage is, and the array library for it.

Devices have names: 'cpu', 'cuda', 'cuda:1'. Spec: `specs/cuda_device.md` (DEV-1).
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from aotlite.ir.arrays import NUMPY, ArrayBackend


@attrs.frozen(eq=False, repr=False)
class Device:
    """A device, compared by identity.

    `made_by(name)` returns the same device in any process; pickles hold it.
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
        """The index in the name; None for one without, such as 'cpu'."""
        index = self.name.partition(":")[2]
        return int(index) if index.isdecimal() else None

    # Copies and pickles are the same object. A device that a program made itself, without
    # `made_by`, cannot be pickled: no such name is found.
    def __reduce__(self) -> str | tuple[Callable[[str], Device], tuple[str]]:
        return "CPU" if self.made_by is None else (self.made_by, (self.name,))

    def __repr__(self) -> str:
        return f"device({self.name!r})"

    def __str__(self) -> str:
        return self.name


CPU = Device("cpu", NUMPY)
"""The host's memory, reached through NumPy."""


def is_cuda(name: str) -> bool:
    """Whether this is the name of a CUDA device with its index: 'cuda:0'."""
    kind, _, index = name.partition(":")
    return kind == "cuda" and index.isdecimal()
