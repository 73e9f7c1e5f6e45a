"""How many mappings a process may have, and whether there is room for more libraries.

Each loaded library takes some (two with GNU's linker), and Linux gives a process 65,530: after
that nothing in it gets memory any more. Part of `specs/cpu_toolchain.md` (CC-24).
"""

from __future__ import annotations

import gc

from aotlite.ir.errors import BackendError

EVERY = 256
"""Mappings are counted after so many libraries: counting many takes milliseconds."""

_LIMIT, _MAPS = "/proc/sys/vm/max_map_count", "/proc/self/maps"
_since_counted = 0


def make_room() -> None:
    """Sees to it that a library can be loaded with an eighth of the mappings left for all else.

    What is collected first may hold libraries. Raises BackendError where there is no room.
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
    """How many mappings a process may have; None where there is no such limit."""
    try:
        with open(_LIMIT, "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def mapped() -> int:
    """How many it has."""
    with open(_MAPS, "rb") as file:
        return sum(1 for _ in file)
