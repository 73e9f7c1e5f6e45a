"""`ExportedProgram`: one captured program as a value, which is called, printed, saved.

Spec: `specs/programs.md`. Rules: PRG-1 to PRG-9.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs

from aotlite.eager.base.modes import STATE, eager_mode
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import (
    AotliteError,
    ArgumentError,
    ExportWarning,
    FormatError,
    UnsupportedError,
    noted,
)
from aotlite.ir.filesystem.atomic_files import read_whole, write_whole
from aotlite.ir.forks import lock
from aotlite.ir.graph import Graph
from aotlite.ir.graph.files.values import Unread
from aotlite.ir.graph.role import Hidden
from aotlite.ir.provenance.fixed_calls import fixed_words
from aotlite.ir.provenance.location import one_line
from aotlite.pipeline import STAGES
from aotlite.pipeline.arguments import call_of, results_for_caller
from aotlite.pipeline.options import make_options
from aotlite.pipeline.record_files.part_check import as_error, check_bases, check_parts
from aotlite.pipeline.request import Compilation
from aotlite.programs.archive import MAX_BYTES
from aotlite.programs.capture import captured_program
from aotlite.programs.entries import entry_of
from aotlite.programs.files import packed, program_of
from aotlite.programs.numpy_file import numpy_text
from aotlite.programs.records import MOST_ORDER, ProgramRecords
from aotlite.programs.state import KINDS, ProgramState, Slots
from aotlite.python_export import check_options
from aotlite.stages.records.guards.access_paths import AccessPath
from aotlite.stages.s10_runtime.guards.call_facts import ComparedCall
from aotlite.stages.s10_runtime.guards.writer import MISS

MOST_ENTRIES = 64
"""The sizes of which a program keeps entries."""
MOST_OF_SIZES = 8
"""The entries that it keeps for one choice of sizes."""


class ExportedProgram:
    """A function for arguments like those for which it was captured, with its own state.

    Results, writes, aliases, versions and gradients are those of the compiled function. It draws
    from the default generator, as that does.
    """

    def __init__(
        self, records: ProgramRecords, state: ProgramState, *, backend: Any = None
    ) -> None:
        self.records = records
        self.state = state
        self._options = make_options(backend=backend, dynamic=False)
        self._entries: dict[Any, list[Any]] = {}
        """The entries by the values of the symbols."""
        self._form = records.arguments.form
        self._lock = lock()

    # --- what it is
    @property
    def name(self) -> str:
        return self.records.name

    @property
    def order(self) -> int:
        """How often results can be differentiated."""
        return self.records.order

    @property
    def baked_in(self) -> tuple[str, ...]:
        """What was fixed when it was captured, a line each: numbers, and calls of clocks."""
        return self.records.baked_in

    @property
    def forward_graph(self) -> Graph:
        return self.records.records.partition.forward

    @property
    def backward_graph(self) -> Graph | None:
        return self.records.records.partition.backward

    @property
    def state_names(self) -> dict[str, str]:
        """The paths of the state by the names of the graphs' inputs: hidden_0 -> model.weight."""
        return {f"{Hidden(k)}": each.path for k, each in enumerate(self.state.entries)}

    @property
    def draws(self) -> int | None:
        """By how much one call advances the generator's offset; None where it sets the state."""
        convention = self.records.records.convention
        return None if convention.sets_generator else convention.consumed

    # --- calls
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if STATE.recorder is not None:
            raise noted(
                UnsupportedError("program: it is called while a function is captured"),
                "Call it outside of compiled functions.",
            )
        call = call_of(args, kwargs)
        if call.form != self._form:
            call = self.records.arguments.in_form(call)
        leaves = self.records.arguments.leaves(call)
        values = self.records.values(leaves)
        key = tuple(values.values())
        for run in self._entries.get(key, ()):
            result = run(leaves)
            if result is not MISS:
                return self._shown(result, call)
        call.tensors()  # raises for a leaf of an unsupported type
        run = self._new(key, leaves, values)
        result = run(leaves)
        if result is MISS:
            raise ArgumentError(f"program: {self.name} does not take this call")
        return self._shown(result, call)

    def _shown(self, result: Any, call: Any) -> Any:
        kinds = self.records.records.containers.numpy_results
        return results_for_caller(result, call, kinds) if call.has_arrays else result

    def _new(self, key: Any, leaves: list[Any], values: dict[str, int]) -> Callable[..., Any]:
        """An entry for a call. Raises ArgumentError for one that the program was not made for."""
        mode = eager_mode()
        if mode:
            raise noted(
                UnsupportedError(f"program: it is called in {mode}, expected {mode} off"),
                "The function itself runs eagerly there.",
            )
        for guard in self.records.guards:
            if not guard.holds(values):
                sizes = ", ".join([f"{name} = {value}" for name, value in values.items()])
                raise ArgumentError(f"program: its sizes are {sizes}, expected {guard!r}")
        try:
            guarded = self._guarded(leaves, values)
        except AotliteError:
            raise
        except Exception as error:
            raise FormatError(
                f"program: {self.name} has parts that do not fit together, expected those of one "
                f"program ({type(error).__name__}: {error})"
            ) from error
        why = guarded.why_not(leaves)
        if why is not None:
            raise self._unlike(f"{why}")
        with self._lock:
            if len(self._entries) >= MOST_ENTRIES:
                self._entries.pop(next(iter(self._entries)))
            self._entries[key] = [*self._entries.get(key, ()), guarded.call][-MOST_OF_SIZES:]
        run: Callable[..., Any] = guarded.call
        return run

    def _guarded(self, leaves: list[Any], values: dict[str, int]) -> Any:
        """The entry's function, after the call was compared with the one that was captured."""
        program = self.records
        cut, facts, expected = program.records, program.facts, program.call
        if values:
            with _as_program():
                check_parts(cut, values)
            cut, facts, expected = cut.at(values), facts.at(values), expected.at(values)
        reals = self._tensors(facts, leaves)
        found = facts.values(leaves, reals, cut.meta, cut.convention.bases, cut.partition)
        names: dict[object, str] = dict(enumerate(program.arguments.names))
        names.update(self.state_names)
        misfit = expected.misfit(_of_plain_kinds(ComparedCall.of(found), expected), names)
        if misfit is not None:
            raise ArgumentError(f"program: {misfit}")
        with _as_program():
            check_bases(cut, reals, values)
        return entry_of(program, cut, found, Compilation.begin(self._options, STAGES))

    def _unlike(self, why: str) -> ArgumentError:
        """The error for a call that a guard refuses, with the names of arguments and state."""
        why = re.sub(r"Slots\.tensors\[(\d+)\]", lambda m: self.state.entries[int(m[1])].path, why)
        names = self.records.arguments.names
        why = re.sub(r"\bargument (\d+)", lambda m: names[int(m[1])], why)
        error = ArgumentError(f"program: {why}")
        if ".grad is " in why:
            noted(error, "Set it as it was when the program was captured: .grad = None, say.")
        return error

    def _tensors(self, facts: Any, leaves: list[Any]) -> dict[Any, Tensor]:
        reals: dict[Any, Tensor] = facts.tensors(leaves)
        for role, real in reals.items():
            if not isinstance(real, Tensor):
                name = self.records.arguments.names[role.index]
                got = type(real).__name__
                raise ArgumentError(f"program: {name} is a {got}, expected a tensor")
        return reals

    def bind(self, tensors: Mapping[str, Tensor]) -> None:
        """Puts the caller's tensors in the place of the state: the program writes those then.
        Raises ArgumentError for one that does not fit, and then has put none."""
        for path, tensor in tensors.items():
            self.state.check(path, tensor)
        for path, tensor in tensors.items():
            self.state[path] = tensor

    def __deepcopy__(self, memo: dict[int, Any]) -> ExportedProgram:
        """A program with a state of its own."""
        state = self.state.copied(memo)
        facts = self.records.facts
        guards = tuple([_on_slots(each, state.slots) for each in facts.guards])
        records = attrs.evolve(self.records, facts=attrs.evolve(facts, guards=guards))
        return ExportedProgram(records, state, backend=self._options.backend)

    # --- files
    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the program to a file, which it replaces if it exists (PRG-5)."""
        write_whole(path, packed(self.records, self.state))

    def to_python(self, path: str | None = None, **options: Any) -> str:
        """The program as one Python file that needs NumPy alone (PYX-13): its text, which is
        written to `path`.

        The options are those of `CompiledFunction.to_python`: `backward`, `state`, `ml_dtypes`,
        `array_module`.
        Raises UnsupportedError for what NumPy cannot do.

        >>> import aotlite as al
        >>> double = al.export.program(lambda x: x * 2, al.ones(3))
        >>> "_lambda_(x)" in double.to_python()
        True
        """
        check_options(options)
        return numpy_text(self.records, self.state, path, **options)

    def __str__(self) -> str:
        return "\n".join(_described(self))

    def __repr__(self) -> str:
        return (
            f"<program {one_line(self.name)}: {len(self.state)} state tensors, order {self.order}>"
        )


@contextmanager
def _as_program() -> Iterator[None]:
    """Raises FormatError where parts do not fit together."""
    try:
        yield
    except Unread as error:
        raise as_error(error, "program") from None


def _on_slots(guard: Any, slots: Slots) -> Any:
    """The guard, with its place in another state where it has one there."""
    place = getattr(guard, "place", None)
    if not isinstance(place, AccessPath) or not isinstance(place.function, Slots):
        return guard
    return attrs.evolve(guard, place=AccessPath(None, slots, place.path))


def _of_plain_kinds(call: ComparedCall, expected: ComparedCall) -> ComparedCall:
    """The call, with Parameters and Buffers as plain tensors where such were captured, or the other
    way round: a captured function does not see which of these a tensor is (PRG-4)."""
    pairs = zip(call.inputs, expected.inputs, strict=True)
    inputs = [
        attrs.evolve(one, kind=other.kind) if {one.kind, other.kind} <= KINDS.keys() else one
        for one, other in pairs
    ]
    return attrs.evolve(call, inputs=tuple(inputs))


def _described(program: ExportedProgram) -> list[str]:
    """The lines of `print(program)`."""
    records = program.records
    names = records.arguments.names
    head = f"program {program.name}, derivatives of order {program.order}"
    lines = [one_line(head), "", "arguments"]
    facts = {f"{each.role}": each for each in records.call.inputs}
    for place in records.arguments.places:
        found = facts.get(f"primals_{place}")
        leaf = records.call.leaves[place]
        shown = found if found is not None else repr(leaf)
        lines.append(one_line(f"  {names[place]}: {shown}"))
    lines += ["", "state"]
    for each in program.state.entries:
        tied = f" (also {', '.join(each.tied)})" if each.tied else ""
        lines.append(one_line(f"  {each.path}: {program.state[each.path].meta}{tied}"))
    if records.baked_in:
        lines += ["", "fixed", *[one_line(f"  {each}") for each in records.baked_in]]
    if program.draws != 0:
        lines += ["", f"draws {'and sets the state' if program.draws is None else program.draws}"]
    lines += ["", "forward", str(program.forward_graph)]
    if program.backward_graph is not None:
        lines += ["", "backward", str(program.backward_graph)]
    return lines


def program(
    function: Callable[..., Any],
    *args: Any,
    order: int = 1,
    dynamic_shapes: Any = None,
    **kwargs: Any,
) -> ExportedProgram:
    """The program of a function, Module or compiled function, for arguments like these.

    The function runs once, on fakes, and nothing is written. Modules and optimizers among the
    arguments become state, like all that the function reaches: a call passes the other arguments.
    `order` is how often results can be differentiated, up to 5; `dynamic_shapes` as for `compile`.
    Raises ExportError for what no program can hold (PRG-10). Warns (`ExportWarning`) of clocks,
    files and random numbers whose answers are fixed.

    >>> import aotlite as al
    >>> def total(layer, x):
    ...     return layer(x).sum()
    >>> found = al.export.program(total, al.nn.Linear(2, 1), al.ones(3, 2))
    >>> found
    <program total: 2 state tensors, order 1>
    >>> list(found.state)
    ['layer.weight', 'layer.bias']
    """
    if not callable(function):
        got = f"{function!r}"[:80]
        raise ArgumentError(f"export: the function is {got}, expected a function or a Module")
    if type(order) is not int or not 1 <= order <= MOST_ORDER:
        got = f"{order!r}"[:80]
        raise ArgumentError(f"export: order is {got}, expected an integer of 1 to {MOST_ORDER}")
    made = captured_program(function, args, kwargs, order=order, dynamic_shapes=dynamic_shapes)
    found = ExportedProgram(made.records, made.state)
    calls = [each for each in found.baked_in if " at " in each and " = " not in each]
    if calls:
        what = f"export: program {found.name}"
        warnings.warn(fixed_words(what, calls), ExportWarning, stacklevel=2)
    return found


def load(
    path: str | os.PathLike[str], *, backend: Any = None, max_bytes: int = MAX_BYTES
) -> ExportedProgram:
    """The program in a file, which `save` wrote. Raises FormatError for another file.

    `backend` is that of `compile`. Nothing of the file is run, and nothing is written. `max_bytes`
    limits the file, and what it holds when it is inflated.
    """
    try:
        records, state = program_of(read_whole(path, max_bytes, "program"), max_bytes)
    except FormatError as error:
        noted(error, f"in the file {os.fspath(path)!r}")
        raise
    return ExportedProgram(records, state, backend=backend)
