"""The limit of memory mappings of a process, which loaded libraries could exhaust.

Each library takes some mappings, two with GNU's linker. Linux allows a process 65,530; without free
ones even `malloc` fails. Part of `specs/cpu_toolchain.md` (CC-24).
"""

from __future__ import annotations

import gc

from aotlite.ir.errors import BackendError

EVERY = 256
"""Mappings are counted once for so many libraries, since counting takes milliseconds."""

_LIMIT, _MAPS = "/proc/sys/vm/max_map_count", "/proc/self/maps"
_since_counted = 0


def make_room() -> None:
    """Makes sure that an eighth of the mappings is free before a library is loaded.

    If not, it runs the garbage collector, which may free libraries. Raises BackendError if that
    does not help.
    """
    global _since_counted
    _since_counted += 1
    if _since_counted < EVERY or _is_roomy():
        return
    gc.collect()
    if not _is_roomy():
        raise BackendError(
            f"cpu: this process has {mapped():,} mappings of the {limit():,} that its system "
            "allows, expected an eighth of them left for a library; drop compiled functions, or "
            "raise vm.max_map_count"
        )


def _is_roomy() -> bool:
    global _since_counted
    most = limit()
    is_roomy = most is None or mapped() <= most - most // 8
    if is_roomy:
        _since_counted = 0
    return is_roomy


def limit() -> int | None:
    """Returns the limit of a process's mappings; None if there is none."""
    try:
        with open(_LIMIT, "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def mapped() -> int:
    """Returns the number of mappings of this process."""
    with open(_MAPS, "rb") as file:
        return sum(1 for _ in file)
