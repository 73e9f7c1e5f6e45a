"""Random graphs to torch.fx and back, and run in PyTorch (XFX-5, XFX-11).

    python -m tests.interchange.torch_fx --graphs 200 --seed 0

draws random programs with views and writes, compiles them, and takes their forward, backward and
joint graphs. Each crosses to torch.fx and back, must come back as its normal form, node by node,
and must give in PyTorch what the reference interpreter gives, inputs that are written included.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np

from aotlite.interchange.torch_fx import from_fx, normal_form, to_fx
from aotlite.interchange.torch_fx.values import array_from, meta_of, tensor_from
from aotlite.ir.errors import UnsupportedError
from aotlite.ir.graph import Constant, Graph
from aotlite.ir.graph.compare import structurally_equal
from aotlite.ir.run.interpreter import ArrayValue
from aotlite.partition import default_partition
from aotlite.pipeline.checks.verification import DRAWS
from aotlite.testing.compiled import differences_of
from aotlite.testing.generate.choices import ANYTHING, Limits
from aotlite.testing.generate.random_programs import draw
from aotlite.testing.laws.graphs import runs
from tests.interchange.op_samples import same

LIMITS: Limits = ANYTHING


def differences(graph: Graph, arrays: list[Any]) -> Iterator[str]:
    """How a graph that crosses to torch.fx differs: on its way back, and in what it computes.
    Raises UnsupportedError for one that does not cross."""
    module = to_fx(graph)
    found = structurally_equal(normal_form(graph), with_constants_of(from_fx(module), graph))
    if found is not None:
        yield f"back: {found}"
    yield from run_differences(graph, module, arrays)


def run_differences(graph: Graph, module: Any, arrays: list[Any]) -> Iterator[str]:
    """How PyTorch's results and written inputs differ from the interpreter's."""
    ours = inputs_of(graph, arrays)
    theirs = [tensor_of(value) for value in inputs_of(graph, arrays)]
    with np.errstate(all="ignore"):
        expected = runs.run(graph, ours).results
    try:
        got = module(*theirs)
    except RuntimeError as error:
        yield f"PyTorch raises {error}"
        return
    for role, value, tensor in zip(graph.output_roles, expected, got, strict=True):
        if not hasattr(value, "array"):
            if value is not tensor and value != tensor:
                yield f"{role} is {tensor!r}, expected {value!r}"
        elif value.meta.numel and meta_of(tensor) is not value.meta:
            yield f"{role} is {meta_of(tensor)}, expected {value.meta}"
        elif not same(np.asarray(value.array), array_from(tensor)):
            yield f"{role} is {array_from(tensor)!r}, expected {value.array!r}"
    for node, value, tensor in zip(graph.placeholders, ours, theirs, strict=True):
        if not same(np.asarray(value.array), array_from(tensor)):
            yield f"input {node.role} is {array_from(tensor)!r}, expected {value.array!r}"


def inputs_of(graph: Graph, arrays: list[Any]) -> list[ArrayValue]:
    """Copies of the inputs, each a few elements after the start of its memory."""
    metas: Any = tuple([node.meta for node in graph.placeholders])
    return runs.Given(metas, tuple(arrays)).fresh(16)


def tensor_of(value: ArrayValue) -> Any:
    """PyTorch's tensor of the same geometry on a copy of the memory."""
    memory = tensor_from(np.array(value.buffer))
    return memory.as_strided(value.meta.shape, value.meta.stride, value.start)


def with_constants_of(graph: Graph, other: Graph) -> Graph:
    """The graph with equal constants of another one in the place of its own: `structurally_equal`
    compares them by identity."""
    known = other.constants
    nodes: list[Any] = []
    new: dict[Any, Any] = {}
    for node in graph.nodes:
        args = _replaced(node.args, new)
        made = node if args is node.args else attrs.evolve(node, args=args)
        if node.op == "get_attr" and node.target.name in known:
            value = known[node.target.name]
            if np.asarray(value).tobytes() == np.asarray(node.target.value).tobytes():
                made = attrs.evolve(node, target=Constant(node.target.name, value))
        new[node] = made
        nodes.append(made)
    return Graph(tuple(nodes), graph.name)


def _replaced(args: Any, new: dict[Any, Any]) -> Any:
    if isinstance(args, tuple):
        found = tuple([_replaced(each, new) for each in args])
        return args if all(a is b for a, b in zip(args, found, strict=True)) else found
    return new.get(args, args) if type(args).__name__ == "Node" else args


@attrs.define
class Collector:
    """Takes the graphs of compilations: a backend that runs them in PyTorch, and a partitioner."""

    graphs: list[tuple[str, Graph, list[Any] | None]] = attrs.field(factory=list)

    def compiled(self, graph: Graph) -> Callable[[list[Any]], Any]:
        """A backend of `compile`: PyTorch. It notes each graph with its first inputs."""
        module = to_fx(graph)
        seen: list[bool] = []

        def run(arrays: list[Any]) -> Any:
            if not seen:
                seen.append(True)
                kind = "backward" if any(n.is_backward for n in graph.calls) else "forward"
                self.graphs.append((kind, graph, [np.array(each) for each in arrays]))
            results = module(*[tensor_from(each) for each in arrays])
            arrays.clear()
            return [array_from(x) if hasattr(x, "stride") else x for x in results]

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def partition(self, graph: Graph) -> Any:
        """A partitioner: the default, which notes the joint graph."""
        self.graphs.append(("joint", graph, None))
        return default_partition(graph)


def random_graphs(seed: int) -> Iterator[tuple[str, Any, list[Any]]]:
    """(kind, graph, inputs) of the graphs of random programs, from a seed on. Without a graph: how
    a program that PyTorch runs differs from eager."""
    while True:
        collector = Collector()
        program = draw(seed, None, LIMITS)
        options: dict[str, Any] = {"backend": collector.compiled, "partition": collector.partition}
        for line in differences_of(program, **options):
            yield f"program of seed {seed}: {line}", None, []
        for kind, graph, arrays in collector.graphs:
            if arrays is None:
                arrays = list(runs.drawn(graph, DRAWS[0], (0, 1)).arrays)
            yield f"{kind} of seed {seed}", graph, arrays
        seed += 1


def main() -> int:
    """Prints what differs, and the counts; the status is 1 if a graph differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.interchange.torch_fx")
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    total: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    graphs = random_graphs(given.seed)
    while total["equal"] + total["differ"] < given.graphs:
        name, graph, arrays = next(graphs)
        kind = name.split()[0]
        if graph is None:
            print(name[:300], flush=True)
            total["programs that differ"] += 1
            continue
        try:
            found = list(differences(graph, arrays))
        except UnsupportedError as error:
            total["refused"] += 1
            reasons[str(error).partition("none: ")[2] or str(error)] += 1
            continue
        total["differ" if found else "equal"] += 1
        total[kind] += 1
        total["calls"] += len(graph.calls)
        for line in found[:2]:
            print(f"{name}: {line[:300]}", flush=True)
    print(f"torch_fx: {dict(total)}")
    for reason, count in reasons.most_common(10):
        print(f"{count} graphs refused: {reason}")
    return int(total["differ"] + total["programs that differ"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
