"""Every kernel that ops and random graphs become for a GPU: taken by NVRTC, right on fibers.

Right: the bits of the interpreter in forward, reversed and shuffled order of threads, with each
access checked. The kernels of a share of the samples, and of the programs a share of the kernels,
both chosen by digests; all with `-m long`, which says how far it is.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import aotlite as al
from aotlite.backends.cuda.driver import nvrtc
from aotlite.eager.creation.from_data import call
from aotlite.ir.errors import AotliteError
from aotlite.ir.graph import Graph
from aotlite.ir.op import OPS
from aotlite.testing.laws import graphs, graphs_of
from aotlite.testing.laws.ops.runs import bound, tensors_in
from aotlite.testing.laws.samples.sample import Sample
from tests.backends.cpu.test_op_table import NAMES, graph_of
from tests.backends.cuda.helpers import cuda_cases
from tests.backends.cuda.helpers.hosted import compiler
from tests.backends.cuda.helpers.single_kernels import (
    TARGETS,
    Named,
    batches,
    cases_of_graphs,
    check,
    check_cubins,
    quick_flags,
)
from tests.backends.cuda.test_printer import differences
from tests.backends.loops.helpers.drawn_programs import drawn
from tests.samples import samples_of
from tests.stages.helpers.journeys import journeys
from tests.thinning import thinned

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
Graphs = Iterator[Named]


def is_taken(name: str, sample: Sample) -> bool:
    """Whether the op takes the sample: some are there to be refused."""
    try:
        graph_of([(name, sample)])
    except AotliteError:
        return False
    return True


def of_table(names: Sequence[str], share: int = 1) -> Graphs:
    """The graphs of one call of each op for each sample whose digest is a multiple of `share`."""
    for name in names:
        wanted = [s for s in samples_of(name) if not zlib.crc32(f"{name}{s}".encode()) % share]
        taken = [sample for sample in wanted if is_taken(name, sample)]
        for case in graphs_of(name, taken):
            yield case.name, case.graph, case.arrays


def of_backwards(names: Sequence[str]) -> Graphs:
    """The backward graphs of ops, for samples that can be differentiated."""
    for name in names:
        op = OPS[name]
        for sample in [s for s in samples_of(name) if s.smooth and is_taken(name, s)][:4]:
            args = bound(op, sample)
            graph = backward_of(op, args)
            if graph is not None:
                yield f"{name}{sample}, backward", graph, None


def backward_of(op: Any, args: Any) -> Graph | None:
    """The backward of a call as it is compiled; None where nothing has a derivative."""
    tensors = tensors_in(args)
    leaves = [al.tensor(t.array) for t in tensors]
    for leaf in leaves:
        if leaf.dtype.is_floating_point or leaf.dtype.is_complex:
            leaf.requires_grad_()
    try:
        compiled = al.compile(lambda *given: call(op.name, *_filled(args, iter(given))))
        compiled(*leaves)
        return compiled.backward_graph
    except AotliteError:
        return None


def _filled(args: Any, given: Iterator[al.Tensor]) -> Any:
    from aotlite.testing.laws.ops.forward import proxied

    return proxied(args, given)


def of_functions() -> Graphs:
    """The graphs of the functions that laws are checked with."""
    for case in graphs("forward", "backward"):
        yield case.name, case.graph, None


def of_random(count: int) -> Graphs:
    """Forward and backward graphs of random programs."""
    for number, journey in enumerate(journeys(count)):
        partition = journey.partition
        for way, graph in (("forward", partition.forward), ("backward", partition.backward)):
            if graph is not None:
                yield f"random {number}, {way}", graph, None


def of_drawn(seeds: range) -> Graphs:
    """Programs as lowering makes them, of about a dozen ops each, drawn at random."""
    for seed in seeds:
        program, inputs = drawn(seed)
        yield f"drawn {seed}", program, inputs


def right(
    found: Graphs,
    folder: Path,
    *,
    share: int = 1,
    target: Any = TARGETS[0],
    every: bool = True,
) -> int:
    """Checks the kernels of graphs; how many there are. `every`: with each architecture."""
    count = 0
    for number, batch in enumerate(batches(cases_of_graphs(found, target, share))):
        assert [] == check(batch, target, folder)
        if nvrtc.is_installed() and every:
            check_cubins(batch)
        elif nvrtc.is_installed():
            # Seconds for each architecture: one of them for each batch, in turn.
            check_cubins(batch, [TARGETS[number % len(TARGETS)]], quick_flags())
        count += len(batch)
        if every:
            print(f"{count} kernels, the last of {batch[-1].name}", file=sys.stderr, flush=True)
    return count


@pytest.mark.slow("compiles hundreds of kernels, by NVRTC and for the host")
@pytest.mark.parametrize("part", thinned(range(12), 12))
def test_kernels_of_a_twelfth_of_the_samples_of_the_op_table_are_right(
    part: int, tmp_path: Path
) -> None:
    assert 20 < right(of_table(NAMES[part::12], share=12), tmp_path, every=False)


@pytest.mark.slow("compiles kernels, by NVRTC and for the host")
def test_kernels_of_fifty_random_graphs_are_right(tmp_path: Path) -> None:
    """Fused and divided as if they were large."""
    found = chain(of_random(20), of_drawn(range(30)))
    assert 10 < right(found, tmp_path, share=2, target=TARGETS[1], every=False)


def test_kernels_that_were_wrong_are_right(tmp_path: Path) -> None:
    """A sum and a scan in one kernel; warps of half their lanes; an array of a class in shared
    memory, whose compiler's guard is no access of the kernel."""
    assert right(of_drawn(range(198, 199)), tmp_path)
    kernels = cuda_cases.drawn(range(31), in_place=True)
    chosen = {key: kernels[key] for key in ("p20", "p26", "p30")}
    assert [] == differences(chosen, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_all_kernels_of_the_op_table_are_right(part: int, tmp_path: Path) -> None:
    assert right(of_table(NAMES[part::20]), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_all_kernels_of_the_backwards_of_ops_are_right(part: int, tmp_path: Path) -> None:
    assert right(of_backwards(NAMES[part::20]), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.architecture)
def test_all_kernels_of_functions_are_right(target: Any, tmp_path: Path) -> None:
    assert right(of_functions(), tmp_path, target=target)


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.architecture)
def test_all_kernels_of_a_thousand_random_graphs_are_right(target: Any, tmp_path: Path) -> None:
    found = chain(of_random(1200), of_drawn(range(1000)))
    assert 1000 < right(found, tmp_path, target=target)
