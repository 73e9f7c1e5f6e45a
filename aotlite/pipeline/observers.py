"""Observers: functions that a compilation calls with the result of each stage; dumps into files.

An observer is called as `observer(stage_name, result)`, under the names that the verifier's errors
use. The option `observer=` gives one, `dump=` gives a folder that a `Dump` writes. Used by the
journey and by compiled autograd; the public API is `aotlite.inspect`. Spec: `specs/pipeline.md`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import attrs

from aotlite.backends.native.warn_once import warn_once
from aotlite.ir.deferred import deferred
from aotlite.ir.errors import ArgumentError, noted
from aotlite.ir.graph import Graph
from aotlite.ir.graph.effect_chains import same_effects
from aotlite.ir.graph.verify import verify
from aotlite.ir.logs import is_heard, timed, within
from aotlite.ir.meta import table_in
from aotlite.ir.symbols.assumption import unassuming
from aotlite.ir.symbols.table import SymbolTable
from aotlite.pipeline.checks.verification import StageRunner
from aotlite.pipeline.logs.artifact_text import call_count, text_of
from aotlite.pipeline.logs.loggers import refresh
from aotlite.pipeline.logs.stage_events import emit_artifact
from aotlite.pipeline.options import Observer, Options
from aotlite.stages.records.backward.partition import Partition
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.guards.size_conditions import SizeConditions
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.records.metadata.region_report import region_report

if TYPE_CHECKING:
    from aotlite.ir.filesystem import atomic_files
else:  # for dumps alone
    atomic_files = deferred("aotlite.ir.filesystem.atomic_files")

RunT = TypeVar("RunT")

_PURPOSES = {
    "1 capture": "the function ran once on fake tensors: every op it ran, views and writes too",
    "1 capture, regions": "the calls of functions that are marked as regions",
    "2 analyze": "what it does to its inputs, what its results alias, what is differentiable",
    "3 convention": "the inputs of the compiled forward, in order",
    "4 joint": "the tape continued: forward and backward in one imperative graph",
    "5 desugar": "of dense tensors only: ops of wrapper subclasses became ops of their parts",
    "6 functionalize": "no op writes any more: input writes are outputs",
    "7 simplify": "without dead code, repeated computations, needless views and scatters",
    "pass 'decompose_normalizations'": "normalizations in simpler ops: some save one number a row",
    "8 partition": "which values are saved for the backward, and why",
    "8 partition, conditions": "the symbols, and for which sizes the graphs are right",
    "8 partition, forward": "what a call runs",
    "8 partition, backward": "what the first backward through its results runs",
    "8 partition, forward unlifted": "the forward that makes and sinks its tokens itself",
    "8 partition, backward unlifted": "the backward that makes and sinks its tokens itself",
    "9 lower, forward_kernels": "the loops that a call runs, and their text",
    "9 lower, backward_kernels": "the loops that a backward runs, and their text",
}


@attrs.frozen(eq=False, repr=False)
class StageRecord:
    """The result of one stage: a graph, or a record; prints as Python or as sentences."""

    name: str
    """The stage, as the verifier's errors name it: `4 joint`, `8 partition, forward`,
    `pass 'fuse'`."""
    made: Any

    @property
    def purpose(self) -> str:
        """One line on what the stage does."""
        return _PURPOSES.get(self.name, "the graph after a pass of the user's")

    @property
    def text(self) -> str:
        """The graph as runnable Python, or the record as sentences."""
        return text_of(self.made)

    def __str__(self) -> str:
        return f"# {self.name}: {self.purpose}\n{self.text}"


# ---------------------------------------------------------------------------- of one compilation
@runtime_checkable
class Numbering(Protocol):
    """An observer whose `number` is set to that of the compilation before the first stage."""

    number: int


@attrs.frozen(eq=False, repr=False)
class Observers:
    """The checks behind each stage of one compilation: observers, verifier, comparing run."""

    observers: tuple[Observer, ...]
    verifies: bool
    runner: StageRunner | None
    """Runs the graphs of stages and compares them, with `verify=True`."""
    within: Callable[[], AbstractContextManager[None]] = nullcontext
    """A block whose log events belong to the compilation."""

    @classmethod
    def of(cls, options: Options, number: int) -> Observers:
        """The checks that the options ask for; `number` is the compilation's."""
        dump = None if options.dump is None else Dump(options.dump)
        log = emit_artifact if options.enable_log and is_heard() else None
        observers = tuple([each for each in (options.observer, dump, log) if each is not None])
        for observer in observers:
            if isinstance(observer, Numbering):
                observer.number = number
        runner = StageRunner() if options.verify >= 2 else None
        block = partial(within, str(number), is_silent=not options.enable_log)
        return cls(observers, options.verify >= 1, runner, block)

    def show(self, stage: str, made: object) -> None:
        """Calls every observer with the result of a stage."""
        for observer in self.observers:
            show_to(observer, stage, made)

    def check(
        self, stage: str, graph: Graph, *, functional: bool = False, of: Graph | None = None
    ) -> None:
        """Shows and verifies the graph of a stage.

        With `functional` no op may write. With `of`, the stage's input, effects must be the same.
        """
        self.show(stage, graph)
        if of is not None:
            same_effects(stage, of, graph)
        if self.verifies:
            with timed("verify", checked=stage):
                verify(graph, functional=functional, stage=stage)

    def captured(self, captured: Captured) -> None:
        """Checks the captured graph, and shows the calls of marked regions, if there are any."""
        self.check("1 capture", captured.graph)
        if self.observers:
            report = region_report(captured.graph)
            for observer in self.observers if report.calls else ():
                show_to(observer, "1 capture, regions", report)

    def compare(self, stage: str, graph: Graph, *, exact: bool = True) -> None:
        """With `verify=True`, runs a graph; raises where results differ from the stage before.

        Not `exact`, results may differ by rounding.
        """
        if self.runner is not None:
            self.runner.compare(stage, graph, exact=exact)

    def check_and_compare(
        self, stage: str, graph: Graph, *, functional: bool = False, of: Graph | None = None
    ) -> None:
        """Shows, verifies and runs the graph of a stage that must keep all values exactly."""
        self.check(stage, graph, functional=functional, of=of)
        self.compare(stage, graph)

    def show_kernels(self, half: str, run: object) -> None:
        """Shows the kernels of a compiled half, where its backend exposes them."""
        kernels = getattr(run, "kernels", None)
        if kernels is not None:
            self.show(f"9 lower, {half}_kernels", kernels)

    def shown(self, lower_backward: Callable[[Graph], RunT]) -> Callable[[Graph], RunT]:
        """A lowering that also shows the kernels: a backward is lowered when it first runs."""

        def lower_and_show(graph: Graph) -> RunT:
            refresh()
            with self.within():
                with timed("backward", graph=graph.name, nodes=call_count(graph)):
                    run = lower_backward(graph)
                self.show_kernels("backward", run)
            return run

        return lower_and_show


def show_to(observer: Observer, stage: str, made: object) -> None:
    """Calls an observer with the result of a stage. What it looks at adds no guard."""
    with unassuming(_table_of(made)):
        observer(stage, made)


def _table_of(made: object) -> SymbolTable | None:
    """The symbols of the result of a stage."""
    match made:
        case Graph():
            return table_in([node.meta for node in made.nodes])
        case FunctionMeta():
            return table_in([each.meta for each in made.inputs])
        case Partition():
            return _table_of(made.forward)
        case SizeConditions():
            return made.table
    return None


# ----------------------------------------------------------------------------------------- dumps
def dump_to(folder: str | os.PathLike[str]) -> Observer:
    """An observer that writes each stage of each compilation into `folder`, a file each.

    `0001_loss_4_joint.py` is stage 4 of the process's first compilation, of a function `loss`.
    Graphs are Python that `ir.graph.text.source.graph_from_source` reads back. Records are
    sentences in `.txt`. Raises ArgumentError where `folder` cannot be made, or where a link of
    another user leads to it.
    """
    try:
        atomic_files.make(folder)
    except OSError as error:
        raise noted(
            ArgumentError(
                f"dump: the folder is {os.fspath(folder)!r}, expected one that can be made"
            ),
            str(error),
        ) from error
    return Dump(os.fspath(folder))


class Dump:
    """An observer that writes one file per stage, named after compilation, function and stage.

    A file that cannot be written is a warning, given once; the compilation goes on (PIP-9).
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.number = 0
        self.prefix = ""
        self.passes = 0

    def __call__(self, stage: str, made: Any) -> None:
        if stage == "1 capture":
            self.prefix = f"{self.number:04}_{_word(made.name)}"
            self.passes = 0
        record = StageRecord(stage, made)
        ending = "py" if isinstance(made, Graph) else "txt"
        name = f"{self.prefix}_{self._name(stage)}.{ending}"
        try:
            atomic_files.write(self.folder, name, f"{record}\n")
        except OSError as error:
            warn_once(
                f"aotlite: stages are not dumped: {self.folder} gives {error.strerror}, expected a "
                "folder that can be written, with room in it; name another one, or unset "
                "AOTLITE_DUMP"
            )

    def _name(self, stage: str) -> str:
        """The stage's part of the file name: listings sort it in the order of the stages."""
        if stage[0].isdigit():
            half = {"forward": "1_forward", "backward": "2_backward"}
            first, _, last = stage.partition(", ")
            return _word(f"{first} {half.get(last, last)}")
        self.passes += 1
        return f"7_simplify_{self.passes}_{_word(stage)}"


def _word(text: str) -> str:
    return re.sub(r"\W+", "_", text).strip("_")
