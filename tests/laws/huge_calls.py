"""A process with little memory in which ops read some elements of operands of 2**33 elements.

Prints how many calls there were of each op. By `tests/laws/test_workspace.py`.
"""

import resource
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from aotlite.backends.lookup import backend_from
from aotlite.backends.protocol import Backend
from aotlite.eager.dispatch import dispatch
from aotlite.ir.errors import AotliteError
from aotlite.ir.graph.builder import Builder
from aotlite.ir.op import OPS, Op
from aotlite.testing.laws.ops.forward import proxied
from aotlite.testing.laws.ops.runs import bound, tensors_in
from tests.laws.helpers.stretching import stretched, window_of
from tests.samples import samples_of

HUGE, MOST, FEW = 1 << 33, 1 << 40, 1 << 12
"""Elements of a stretched dimension; of an operand, which NumPy addresses; of a result."""
ROOM = 256 << 20
"""Bytes that all calls may take beside what the process has already."""
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


def compiled(op: Op, args: tuple[Any, ...], backend: Backend) -> Callable[[], Any]:
    """What a backend makes of a graph that calls the op, with these operands to run on."""
    tensors = tensors_in(args)
    build = Builder(op.name)
    proxies = iter([build.placeholder(tensor.meta) for tensor in tensors])
    run = backend.compile(build.finish([build.call(op, proxied(args, proxies))]))
    return lambda: run([(tensor.storage.buffer, tensor.offset) for tensor in tensors])


def main(way: str, step: int) -> None:
    """Runs each `step`th call in eager, or as the backend of this name compiles it."""
    each = [(OPS[name], args) for name in READING for args in calls_of(OPS[name])]
    calls = each[::step]
    runs: list[Callable[[], Any]]
    if way == "eager":
        runs = [partial(dispatch, op, args) for op, args in calls]
    else:
        backend = backend_from(way)
        runs = [compiled(op, args, backend) for op, args in calls]
        runs[0]()  # what it imports and starts by its first call is no op's
    limit_memory(ROOM)
    for run in runs:
        run()
    print(dict(Counter(op.name for op, _ in calls)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
