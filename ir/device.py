"""`Device`: where a tensor's storage lives, and the array library that reaches it there."""

from __future__ import annotations

import attrs

from aotlite.ir.arrays import NUMPY, ArrayBackend


@attrs.frozen(eq=False, repr=False)
class Device:
    """A place for storages. Two devices are the same iff they are the same object."""

    name: str
    arrays: ArrayBackend

    # Copies and pickles are the same object. Of a device that only some program knows there are no
    # pickles: it is not found by this name.
    def __reduce__(self) -> str:
        return "CPU"

    def __repr__(self) -> str:
        return f"device({self.name!r})"

    def __str__(self) -> str:
        return self.name


CPU = Device("cpu", NUMPY)
"""The host's memory, reached through NumPy."""
