"""The identity of this processor, as far as machine code depends on it.

Part of `specs/cpu_toolchain.md`.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable
from functools import cache

_FIELDS = frozenset(
    (
        *("vendor_id", "cpu family", "model", "model name", "stepping", "flags"),  # x86
        *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features"),  # ARM
        *("cpu", "revision", "isa", "uarch", "hart isa"),  # POWER, RISC-V
    )
)


@cache
def identity() -> str:
    """Returns the system, the model of the processor and its feature flags, as one text.

    On Linux from the first record of /proc/cpuinfo: reading hundreds of records takes milliseconds.
    Elsewhere the name of the machine stands for it.
    """
    base = [sys.platform, platform.machine()]
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            return "\n".join([*base, *_cpu_fields(lines)])
    except OSError:
        return "\n".join([*base, platform.processor(), platform.node()])


def _cpu_fields(lines: Iterable[str]) -> list[str]:
    found = list[str]()
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon and found:
            break
        if name.strip() in _FIELDS:
            found.append(f"{name.strip()}: {value.strip()}")
    return found
