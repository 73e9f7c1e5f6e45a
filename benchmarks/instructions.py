"""Counts the Python instructions of a first call, which a busy machine does not change.

`python -m benchmarks.instructions PROGRAM PARTITION` prints one JSON object, which
`benchmarks.against` reads: thousands of instructions in the first call with the first backward.
Those of the program count, and what C functions do does not.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from benchmarks import first_call
from benchmarks.programs import program


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


def main() -> None:
    """Prints the count of a program's first call with a partitioner."""
    row, partition = sys.argv[1:]
    call, backward = first_call.prepared(first_call.Job(row, "aotlite", partition), program(row))
    print(json.dumps({f"{row} {partition}: instructions": count(lambda: backward(call())) / 1000}))


if __name__ == "__main__":
    main()
