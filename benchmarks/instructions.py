"""Counts Python instructions, which a busy machine does not change.

    python -m benchmarks.instructions PROGRAM PARTITION    thousands in a first call with backward
    python -m benchmarks.instructions eager                in each eager op
    python -m benchmarks.instructions overhead             in each call and each side effect

Each prints one JSON object, which `benchmarks.against` reads. Instructions of the program count;
the work of C functions does not.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from benchmarks import first_call, one_version
from benchmarks.programs import program

WARM = 3
"""The calls of an action before the one that is counted."""


def count(action: Callable[[], Any]) -> int:
    """The instructions that this thread executes in the action."""
    executed = 0

    def traced(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal executed
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        executed += event == "opcode"
        return traced

    sys.settrace(traced)
    try:
        action()
    finally:
        sys.settrace(None)
    return executed


def of_first_call(row: str, partition: str) -> dict[str, float]:
    """The count of a program's first call with a partitioner."""
    call, backward = first_call.prepared(first_call.Job(row, "aotlite", partition), program(row))
    return {f"{row} {partition}: instructions": count(lambda: backward(call())) / 1000}


def of_calls(benchmark: str) -> dict[str, float]:
    """The count of each action of a benchmark, once its caches are filled."""
    found: dict[str, float] = {}
    for name, column, action in one_version.actions(benchmark):
        for _ in range(WARM):
            action()
        found[f"{name}: {column}: instructions"] = count(action)
    return found


def main() -> None:
    """Prints the counts that the arguments name."""
    names = sys.argv[1:]
    print(json.dumps(of_calls(*names) if len(names) == 1 else of_first_call(*names)))


if __name__ == "__main__":
    main()
