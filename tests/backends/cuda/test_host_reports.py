"""What would hang, fault or be undefined on a GPU is reported where CUDA text runs on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aotlite.backends.cuda.emit.cuda_program import Launch
from aotlite.ir.errors import BackendError
from aotlite.testing.cuda.host_execution import CheckedRegion, HostLibrary
from tests.backends.cuda.helpers.host_kernels import ALL, BETWEEN, CHECKED, REPORTED, texts
from tests.backends.cuda.helpers.hosted import FORWARD, ORDERS, build, call, compiler, placed

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
EVERY = {**REPORTED, **CHECKED, **BETWEEN}


def built(folder: Path, *, checked: bool) -> HostLibrary:
    launches = [Launch(key, (0,), 1, 64) for key in EVERY]
    text = texts({key: body for key, (body, _) in EVERY.items()})
    return build(text, launches, folder, checked=checked)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> HostLibrary:
    return built(tmp_path_factory.mktemp("checked"), checked=True)


@pytest.fixture(scope="module")
def unchecked(tmp_path_factory: pytest.TempPathFactory) -> HostLibrary:
    return built(tmp_path_factory.mktemp("unchecked"), checked=False)


def run(library: HostLibrary, key: str, order: int, blocks: int = 1) -> Any:
    array = placed(np.arange(64, dtype=np.int32))
    memory = [CheckedRegion(array.ctypes.data, array.nbytes, 4, 0)]
    addresses = [array.ctypes.data]
    library.launch(key, addresses, blocks, 64, shared=200, order=order, memory=memory)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("key", REPORTED)
def test_what_would_hang_is_reported(unchecked: HostLibrary, key: str, order: int) -> None:
    """Without the check of each access too (CUDA-1, CUDA-2)."""
    with pytest.raises(BackendError, match=f"^kernel {key}: {REPORTED[key][1]}$"):
        run(unchecked, key, order)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("key", CHECKED)
def test_an_access_that_a_gpu_does_not_define_is_reported(
    library: HostLibrary, key: str, order: int
) -> None:
    """CUDA-3, CUDA-4, CUDA-5, CUDA-7"""
    with pytest.raises(BackendError, match=f"^kernel {key}: ({CHECKED[key][1]})"):
        run(library, key, order)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("key", BETWEEN)
def test_a_race_between_blocks_is_reported(library: HostLibrary, key: str, order: int) -> None:
    """CUDA-6; of one block the same kernel is right."""
    with pytest.raises(BackendError, match=f"^kernel {key}: {BETWEEN[key][1]}"):
        run(library, key, order, 2)
    run(library, key, order, 1)


def test_a_mask_names_lanes_that_are_there(tmp_path: Path) -> None:
    """A block of 20 threads has no lane 31; one of 2000 is none, and nor is one of 0."""
    kernels = {20: "warp: a mask names a lane that is not there"}
    kernels |= dict.fromkeys((0, 2000), "launch: a block has 1 to 1024 threads")
    text = "\n".join([f"void k{n}(int *x) {{ __syncwarp({ALL}); }}" for n in kernels])
    launches = {n: Launch(f"k{n}", (0,), 1, n) for n in kernels}
    library = build(text, launches.values(), tmp_path)
    for threads, message in kernels.items():
        with pytest.raises(BackendError, match=f"^kernel k{threads}: {message}$"):
            call(library, launches[threads], [np.zeros(1, np.int32)], FORWARD, 1)
    with pytest.raises(BackendError, match="launch: a grid has at least one block"):
        call(library, launches[20], [np.zeros(1, np.int32)], FORWARD, 0)
    with pytest.raises(BackendError, match="launch: a block has at most 227 KiB of shared memory"):
        library.launch("k20", [0], 1, 20, shared=1 << 20)


def test_loads_in_place_are_compared_with_stores_of_other_blocks_alone(
    library: HostLibrary,
) -> None:
    """CUDA-7: what is stored twice is reported there too."""
    array = placed(np.arange(64, dtype=np.int32))
    memory = [CheckedRegion(array.ctypes.data, array.nbytes, 4, 0, in_place=True)]

    def launch(key: str, blocks: int) -> None:
        library.launch(key, [array.ctypes.data], blocks, 64, memory=memory)

    launch("loads_and_stores", 1)
    for key, blocks in (("global_in_block", 1), ("one_reads", 2)):
        with pytest.raises(BackendError, match="race"):
            launch(key, blocks)
    with pytest.raises(BackendError, match="race in a block"):
        run(library, "loads_and_stores", FORWARD)
