"""A process with little memory in which ops read some elements of operands of 2**33 elements.

Prints how many calls there were of each op. By `tests/laws/test_workspace.py`.
"""

import resource
from collections import Counter
from collections.abc import Iterator
from typing import Any

from aotlite.eager.dispatch import dispatch
from aotlite.ir.errors import AotliteError
from aotlite.ir.op import OPS, Op
from aotlite.testing.laws.running import bound, tensors_in
from tests.laws.stretching import stretched, window_of
from tests.samples import samples_of

HUGE, MOST, FEW = 1 << 33, 1 << 40, 1 << 12
"""Elements of a stretched dimension; of an operand, which NumPy addresses; of a result."""
READING = tuple(
    "index_select embedding gather take index nll_loss repeat upsample_nearest2d "
    "upsample_nearest_exact2d upsample_bilinear2d".split()
)
"""Ops that look at hardly more elements of their first operand than they give."""


def calls_of(op: Op) -> Iterator[tuple[Any, ...]]:
    """Calls with small results whose first operand alone is huge."""
    for sample in samples_of(op.name):
        for each in stretched(sample, HUGE):
            try:
                args = bound(op, each, window_of)
                metas: Any = op.infer(args)
            except (AotliteError, ArithmeticError, LookupError, TypeError, ValueError):
                continue
            first, *others = tensors_in(args)
            small = all(tensor.numel() <= FEW for tensor in others)
            if HUGE <= first.numel() <= MOST and small and 0 < metas.numel <= FEW:
                yield args


def limit_memory(room: int) -> None:
    """From now on this process may take so many bytes more."""
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + room, now + room))


def main() -> None:
    calls = [(op, args) for name in READING if (op := OPS.get(name)) for args in calls_of(op)]
    limit_memory(256 << 20)
    for op, args in calls:
        dispatch(op, args)
    print(dict(Counter(op.name for op, _ in calls)))


if __name__ == "__main__":
    main()
