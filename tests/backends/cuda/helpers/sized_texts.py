"""CUDA texts for all sizes of every program of the suite, and what NVRTC says of them.

    python -m tests.backends.cuda.helpers.sized_texts            # all of them
    python -m tests.backends.cuda.helpers.sized_texts 20         # every twentieth

It prints how many graphs have a text, how many modules that are, and how many NVRTC accepts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import attrs
from hypothesis import HealthCheck, settings

from aotlite.backends.cuda.backend import CudaBackend
from aotlite.backends.cuda.driver import nvrtc
from aotlite.backends.cuda.target import H100
from aotlite.backends.loops.backend import LOOPS
from aotlite.ir.errors import BackendError
from aotlite.testing.laws import graphs, graphs_of
from tests.backends.cuda.helpers.devices import device, graph_on
from tests.backends.cuda.helpers.single_kernels import quick_flags
from tests.backends.loops.helpers.sized_graphs import Sized, programs, symbolized
from tests.backends.loops.test_lowering import OPS_WITH_LOOPS
from tests.samples import samples_of
from tests.stages.helpers.journeys import journeys

ARCHITECTURES = ("sm_80", "sm_90")


class OnDevice:
    """A backend for graphs of the CPU with symbols, whose kernels run on a device of this process,
    compiled or interpreted."""

    def __init__(self, backend: Any = None, **options: Any) -> None:
        self.device = device(**options)
        self.backend = backend or CudaBackend(contract=False)

    def compile_sized(self, graph: Any, refused: Any) -> Any:
        return self.backend.compile_sized(graph_on(graph, self.device), refused)

    def compile(self, graph: Any) -> Any:
        return self.backend.compile(graph_on(graph, self.device))


def of_ops(names: Iterable[str], most: int) -> Iterator[Sized]:
    """Calls of ops, for up to so many samples of each."""
    for name in names:
        samples = samples_of(name)
        for k, each in enumerate(graphs_of(name, samples[:: max(len(samples) // most, 1)])):
            case = symbolized(each.name, each.graph, 2 * (k % 2), shared=k % 3 > 0)
            if case is not None:
                yield case


def of_random(count: int) -> Iterator[Sized]:
    """Forward and backward graphs of random programs."""
    for number, journey in enumerate(journeys(count)):
        for graph in (journey.partition.forward, journey.partition.backward):
            case = None if graph is None else symbolized(f"{graph.name} {number}", graph)
            if case is not None:
                yield case


def of_functions() -> Iterator[Sized]:
    """The graphs of the functions that laws are checked with."""
    for case in graphs("forward", "backward"):
        found = symbolized(case.name, case.graph)
        if found is not None:
            yield found


def every() -> Iterator[Sized]:
    """All programs of the suite with symbols for sizes."""
    for low in (0, 2):
        yield from programs(low)
    yield from of_ops(OPS_WITH_LOOPS, 6)
    yield from of_functions()
    yield from of_random(100)


@attrs.define
class Count:
    """What became of graphs with symbols."""

    graphs: int = 0
    sized: int = 0
    """Graphs with a text."""
    as_loops: int = 0
    """Graphs that the interpreter serves for all sizes."""
    modules: set[str] = attrs.field(factory=set)
    accepted: int = 0
    refused: list[str] = attrs.field(factory=list)

    def __str__(self) -> str:
        return (
            f"{self.graphs} graphs with symbols: {self.as_loops} have kernels for all sizes, "
            f"{self.sized} have a CUDA text for all sizes\n"
            f"{len(self.modules)} different modules with kernels; NVRTC {nvrtc.version()} accepts "
            f"{self.accepted}, refuses {len(self.refused)}"
        )


def counted(cases: Iterable[Sized], share: int = 1) -> Count:
    """Gives NVRTC the texts of every `share`-th graph, for each architecture in turn."""
    found, backend = Count(), OnDevice(target=H100)
    for case in list(cases)[::share]:
        found.graphs += 1
        found.as_loops += LOOPS.compile_sized(case.graph) is not None
        made = backend.compile_sized(case.graph, lambda reason: None)
        if made is None:
            continue
        found.sized += 1
        for each in made.versions[0][1].texts:
            text = each.printed.text
            if each.printed.launches and text not in found.modules:
                found.modules.add(text)
                _compile(found, case.name, text)
    return found


def _compile(found: Count, name: str, text: str) -> None:
    architecture = ARCHITECTURES[len(found.modules) % len(ARCHITECTURES)]
    try:
        nvrtc.compile_cubin(text, architecture, quick_flags())
    except BackendError as error:
        found.refused.append(f"{name}: {error}")
    else:
        found.accepted += 1


if __name__ == "__main__":
    settings.register_profile("texts", suppress_health_check=list(HealthCheck))
    settings.load_profile("texts")
    count = counted(every(), int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    print(count)
    print(*count.refused, sep="\n")
    sys.exit(bool(count.refused))
