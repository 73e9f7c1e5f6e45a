"""Mistakes planted into printed kernels are caught, each by the check that is there for it.

Unchecked, the same mistakes pass: what catches them is the check and not an accident. Ten seconds,
most of them the compiler's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest

import aotlite as al
from aotlite.backends.cuda.emit.cuda_program import PrintedKernels, print_program
from aotlite.backends.cuda.passes.device_passes import improved_for
from aotlite.backends.cuda.target import H100
from aotlite.backends.loops.backend import program_of
from aotlite.ir.errors import BackendError
from aotlite.testing.cuda.host_execution import HostLibrary
from tests.backends.cuda.helpers.hosted import ORDERS, build, call, compiler, placed

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
ROWS, COLUMNS = 3, 2048


def printed(function: Any, stem: str) -> PrintedKernels:
    graph = al.capture(function)(al.zeros((ROWS, COLUMNS)))
    return print_program(improved_for(program_of(graph), H100), stem)


def replaced(text: str, pattern: str, new: str, count: int = 0) -> str:
    found, times = re.subn(pattern, new, text, count=count)
    assert times, f"nothing like {pattern} in\n{text}"
    return found


def moved(buffer: int) -> Callable[[str], str]:
    """Adds 16 bytes to the address that a kernel gets of a buffer."""

    def change(text: str) -> str:
        head = r'(extern "C" __global__ [^{]*\{)'
        return replaced(text, head, rf"\1\n    b{buffer} = b{buffer} + 4;")

    return change


@attrs.frozen
class Planted:
    """What is changed in which kernel, and what is said of it."""

    function: Any
    change: Callable[[str], str]
    message: str
    always: bool = False
    """Whether it is reported without the check of each access too."""
    shift: int = 0


def softmax(x: Any) -> Any:
    return al.softmax(x, -1)


def scaled(x: Any) -> Any:
    return x * 2.0 + 1.0


BARRIER = r"__syncthreads\(\);"
PLANTED = {
    "none_of_rows": Planted(softmax, str, ""),
    "none_of_points": Planted(scaled, str, ""),
    "missing_barriers": Planted(
        softmax, lambda t: replaced(t, BARRIER, ""), "race in a block|unwritten"
    ),
    "a_missing_barrier": Planted(
        softmax, lambda t: replaced(t, BARRIER, "", 1), "race in a block|unwritten"
    ),
    "divergent_barrier": Planted(
        softmax,
        lambda t: replaced(t, BARRIER, "if (threadIdx.x != 70) __syncthreads();", 1),
        "barrier: threads of the block wait at different ones|barrier: some|race|unwritten",
        always=True,
    ),
    "two_barriers": Planted(
        softmax,
        lambda t: replaced(t, BARRIER, "if (threadIdx.x < 70) {__syncthreads();} else {"
                           "__syncthreads();}", 1),
        "barrier: threads of the block wait at different ones",
        always=True,
    ),
    "read_behind_rows": Planted(softmax, moved(0), "out of bounds: .* reads"),
    "read_behind_points": Planted(scaled, moved(0), "out of bounds: .* reads"),
    "written_behind_rows": Planted(softmax, moved(-1), "out of bounds: .* writes"),
    "written_behind_points": Planted(scaled, moved(-1), "out of bounds: .* writes"),
    "race_between_blocks_of_rows": Planted(
        softmax, lambda t: replaced(t, r"\bblockIdx\.x\b", "0"), "race between blocks: .* writes"
    ),
    "race_between_blocks_of_points": Planted(
        scaled, lambda t: replaced(t, r"\bblockIdx\.x\b", "0"), "race between blocks: .* writes"
    ),
    "missing_mask_lane": Planted(
        softmax,
        lambda t: replaced(t, "0xffffffffu", "0x7fffffffu"),
        "warp: a lane comes that its own mask does not name",
        always=True,
    ),
    "lanes_that_stay_away": Planted(
        softmax,
        lambda t: replaced(t, r"(const \w+ far\w+ = \(\w+\))(__shfl\w+\([^;]*\));",
                           r"\1(threadIdx.x % 32 < 16 ? \2 : 0);", 1),
        "warp: a lane that a mask names does not come",
        always=True,
    ),
    "misaligned_rows": Planted(
        softmax,
        lambda t: replaced(t, "const bool aligned = [^;]*;", "const bool aligned = true;"),
        "misaligned: .* reads 16 bytes",
        shift=1,
    ),
    "misaligned_points": Planted(
        scaled,
        lambda t: replaced(t, "const bool aligned = [^;]*;", "const bool aligned = true;"),
        "misaligned: .* reads 16 bytes",
        shift=1,
    ),
}  # fmt: skip


def planted_texts() -> tuple[str, dict[str, Any]]:
    """One text of all kernels, and the launch of each."""
    heads, bodies, launches = set[str](), [], {}
    for key, each in PLANTED.items():
        found = printed(each.function, key)
        head, body = found.text.split("/* kernel", 1)
        (launches[key],) = found.launches
        change = moved(max(launches[key].buffers)) if "written" in key else each.change
        heads.add(head)
        bodies.append(change(f"/* kernel{body}"))
    return "\n".join([max(heads, key=len), *bodies]), launches


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Any:
    text, launches = planted_texts()
    folder = tmp_path_factory.mktemp("planted")
    both = [build(text, launches.values(), folder, checked=checked) for checked in (True, False)]
    return *both, launches


def run(library: HostLibrary, launch: Any, each: Planted, order: int) -> Any:
    """The output of a kernel; some room lies behind it, which it does not know of."""
    x = np.sin(np.arange(ROWS * COLUMNS, dtype=np.float32))
    result = placed(np.zeros(x.size + 8, np.float32))[: x.size]
    call(library, launch, [placed(x, each.shift), result], order, max(launch.blocks, 2))
    return result


@pytest.mark.thinned(8)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("key", PLANTED)
def test_a_planted_mistake_is_reported(libraries: Any, key: str, order: int) -> None:
    library, _, launches = libraries
    each = PLANTED[key]
    if not each.message:
        run(library, launches[key], each, order)
        return
    with pytest.raises(BackendError, match=rf"kernel {key}_0: ({each.message})"):
        run(library, launches[key], each, order)


@pytest.mark.parametrize("key", PLANTED)
def test_unchecked_it_passes_unless_it_would_hang(libraries: Any, key: str) -> None:
    _, library, launches = libraries
    each = PLANTED[key]
    if not each.always:
        run(library, launches[key], each, ORDERS[0])
        return
    with pytest.raises(BackendError, match=each.message):
        run(library, launches[key], each, ORDERS[0])
