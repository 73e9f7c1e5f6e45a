"""`cut_of`: stages 1 to 8 on a function and arguments, which nothing lowers or runs (EXP-16).

`apart` gives each leaf of the arguments an input of its own (EXP-1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from aotlite.descriptors.argument_words import ArgumentWords
from aotlite.eager.base.tensor import Tensor
from aotlite.export.fake_mode import check_one_mode
from aotlite.ir.errors import ArgumentError, ExportError, noted
from aotlite.ir.graph import Graph, name_from
from aotlite.ir.graph.role import Output
from aotlite.ir.provenance.fixed_calls import warning_of_fixed
from aotlite.pipeline import STAGES, Request
from aotlite.pipeline.arguments import FlatArguments, flat_results, on_leaves
from aotlite.pipeline.journey import retraced
from aotlite.pipeline.logs.stage_events import compiling
from aotlite.pipeline.options import Options
from aotlite.pipeline.request import Compilation
from aotlite.pipeline.size_regions.choice import symbolic_sizes
from aotlite.pipeline.size_regions.records import StageRecords
from aotlite.pipeline.size_regions.region_entries import checked_symbols
from aotlite.pipeline.size_regions.tensor_marks import copy_marks
from aotlite.stages.records.backward.partition import Partition
from aotlite.stages.records.capture import Captured, Containers
from aotlite.stages.records.convention import Convention
from aotlite.stages.records.guards.access_paths import AccessPath
from aotlite.stages.records.guards.guard_records import hidden_places, reached_arguments
from aotlite.stages.records.metadata.function_meta import FunctionMeta


@attrs.frozen(eq=False)
class CapturedCut:
    """What stages 1 to 8 leave of a function."""

    meta: FunctionMeta
    convention: Convention
    partition: Partition
    containers: Containers
    hidden: Mapping[int, AccessPath]
    """Where each call finds the hidden inputs, by number."""
    reached: Mapping[int, AccessPath]
    """The arguments that are reached by another path as well."""
    joint: Graph
    """The graph behind stage 7."""

    def check_arguments(self, words: ArgumentWords) -> None:
        """Raises ExportError for an argument behind the state that is reached by another path
        too: the graph has one input for both, and a caller could pass another tensor (EXP-1)."""
        for index, place in self.reached.items():
            if index >= words.count:
                way = words.named(f"{place}")
                raise noted(
                    ExportError(
                        f"export: argument {words.leaves[index]} is also reached as {way}, "
                        "expected a tensor that is reached by one path"
                    ),
                    "Pass that tensor as an argument alone, or reach it only outside. (EXP-1)",
                )


def cut_of(function: Callable[..., Any], call: FlatArguments, options: Options) -> CapturedCut:
    """Runs stages 1 to 8. Arguments may be tensors of a fake mode (EXP-18), and marked sizes are
    symbols (EXP-19). Raises ExportError for tensors of two modes. Warns of calls of clocks, files
    and random numbers whose answers the graph has fixed (PRG-7)."""
    check_one_mode(call.leaves)
    call = attrs.evolve(call, takes_fakes=True)
    graphs: dict[str, Any] = {}
    options = attrs.evolve(options, observer=graphs.__setitem__)
    refused: list[str] = []
    sizes = symbolic_sizes(function, call, (), options, {}, refused)
    name = name_from(getattr(function, "__name__", type(function).__name__))
    given = call.leaves, call.tensors(), flat_results, name, sizes, refused
    request = Request(function, on_leaves(function, call), *given)
    made: list[CapturedCut] = []

    def rest(captured: Captured, cut: StageRecords) -> None:
        partition = cut.partition
        if captured.recorder.sizes:
            partition = checked_symbols(partition, captured, request, compilation, retraced)
        records = cut.meta, cut.convention, partition, cut.containers
        guards = captured.recorder.guards
        places = hidden_places(guards), reached_arguments(guards)
        made.append(CapturedCut(*records, *places, graphs["7 simplify"]))

    compilation = Compilation.begin(options, STAGES)
    with warning_of_fixed(f"export: {name}"), compiling(request, compilation):
        retraced(request, compilation, rest)
    return made[0]


def is_size(role: object) -> bool:
    """Whether an output is the value of a size that depends on values (DYN-5)."""
    return isinstance(role, Output) and bool(role.symbol)


# ------------------------------------------------------------------------------------- arguments
def listed(args: object) -> tuple[Any, ...]:
    """The positional arguments. Raises ArgumentError for a tensor in the place of a tuple."""
    if not isinstance(args, (tuple, list)):
        raise ArgumentError(
            f"export: args is a {type(args).__name__}, expected a tuple or list of the arguments: "
            "(x,)"
        )
    return tuple(args)


def apart(call: FlatArguments) -> FlatArguments:
    """The call with a tensor of its own for each leaf, so that the graph has an input for each.

    A tensor that is there again is an alias in the same memory: a write to it is one to inputs that
    share memory, which exports refuse (EXP-5).
    """
    given, leaves, seen = list(call.given), list(call.leaves), set[int]()
    for place, leaf in enumerate(call.leaves):
        if isinstance(leaf, Tensor) and id(leaf) in seen:
            leaves[place] = _alias(leaf)
            is_array = given[place] is not leaf
            given[place] = given[place][...] if is_array else leaves[place]
        seen.add(id(leaf))
    return attrs.evolve(call, given=given if call.has_arrays else leaves, leaves=leaves)


def _alias(tensor: Tensor) -> Tensor:
    """A leaf on the same memory, which requires grad if the tensor does. Its sizes are marked as
    those of the tensor."""
    made = Tensor(tensor.storage, tensor.meta, tensor.offset)
    made.value = tensor.value
    made.requires_grad_(tensor.requires_grad)
    copy_marks(tensor, made)
    return made
