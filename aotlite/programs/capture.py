"""`captured_program`: stages 1 to 8 on a function, and all that a program keeps of them.

Nothing runs but the function itself, once, on fakes: its writes reach no tensor of the caller's.
Spec: `specs/programs.md`, PRG-1.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import attrs
import optree

from aotlite.api import CompiledFunction
from aotlite.descriptors.argument_words import ArgumentWords
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.storage_overlap import foreign_overlaps, have_common_memory
from aotlite.eager.tracked_objects import TrackedObject
from aotlite.ir.errors import ExportError, UnsupportedError, noted
from aotlite.ir.graph import name_from
from aotlite.ir.graph.role import Hidden, Primal
from aotlite.ir.provenance.fixed_calls import watching
from aotlite.nn.module import Module
from aotlite.pipeline import STAGES, Request
from aotlite.pipeline.arguments import FlatArguments, call_of, flat_results, on_leaves
from aotlite.pipeline.containers.leaf_paths import leaf_paths, steps_text
from aotlite.pipeline.derivatives import Arriving, OrderCut, orders_of
from aotlite.pipeline.journey import retraced
from aotlite.pipeline.logs.stage_events import compiling
from aotlite.pipeline.options import Options, make_options
from aotlite.pipeline.record_files import at_rest, joint_at_rest
from aotlite.pipeline.request import Compilation
from aotlite.pipeline.size_regions.choice import symbolic_sizes
from aotlite.pipeline.size_regions.records import StageRecords
from aotlite.pipeline.size_regions.region_entries import checked_symbols
from aotlite.programs.parameters import Parameters
from aotlite.programs.read_values import texts_of_read
from aotlite.programs.records import Arguments, ProgramRecords
from aotlite.programs.state import ProgramState, Slots, StateTensor, copied, slot
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.guards.access_paths import NOTHING, AccessPath
from aotlite.stages.records.guards.float_guards import FloatArgumentGuard, FloatFactGuard
from aotlite.stages.records.guards.guard_records import (
    EnvironmentGuard,
    GradAttributeGuard,
    Guard,
    HiddenInputGuard,
    NoHooksGuard,
    SameTensorGuard,
    ValueGuard,
    hidden_places,
    reached_arguments,
)
from aotlite.stages.records.guards.snapshots import PLAIN
from aotlite.stages.s10_runtime.guards.call_facts import ComparedCall
from aotlite.stages.s10_runtime.guards.guard_sources import GuardedFacts

MOST_GRAPHS = 128
"""The most derivatives, of all orders together, for all choices of gradients that arrive."""
MOST_RESULTS = 16
"""The most differentiable results for which further orders are exported."""


@attrs.frozen
class Made:
    """A program as it is captured: its records and its state."""

    records: ProgramRecords
    state: ProgramState


def captured_program(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    order: int,
    dynamic_shapes: Any = None,
) -> Made:
    """The program of a function, a Module or a compiled function, for arguments like these."""
    fn, options = _options(function, dynamic_shapes)
    words = ArgumentWords.of(fn, args, kwargs)
    with words.naming():
        call = call_of(args, kwargs)
    words.check(call.leaves)
    refused: list[str] = []
    with words.naming():
        sizes = symbolic_sizes(fn, call, (), options, {}, refused)
    name = name_from(getattr(fn, "__name__", type(fn).__name__))
    given = call.leaves, call.tensors(), flat_results, name, sizes, refused
    request = Request(fn, on_leaves(fn, call), *given)
    compilation = Compilation.begin(options, STAGES)
    arguments = _arguments(fn, call)
    made: list[Made] = []

    def rest(captured: Captured, cut: StageRecords) -> None:
        if captured.recorder.sizes:
            checked_symbols(cut.partition, captured, request, compilation, retraced)
        taking = _Taking(captured, cut, call, arguments, compilation, fn)
        made.append(taking.program(name, order, seen))

    with words.naming(), watching() as seen, compiling(request, compilation):
        retraced(request, compilation, rest)
    (program,) = made
    return attrs.evolve(
        program,
        records=attrs.evolve(
            program.records, baked_in=tuple(dict.fromkeys((*program.records.baked_in, *seen)))
        ),
    )


def _options(function: Any, dynamic_shapes: Any) -> tuple[Callable[..., Any], Options]:
    if isinstance(function, CompiledFunction):
        options = function.options
        if dynamic_shapes is not None:
            options = attrs.evolve(options, dynamic_shapes=dynamic_shapes, dynamic=None)
        return function.function, options
    dynamic = None if dynamic_shapes is not None else False
    return function, make_options(dynamic=dynamic, dynamic_shapes=dynamic_shapes)


# -------------------------------------------------------------------------------------- arguments
def _arguments(function: Any, call: FlatArguments) -> Arguments:
    whole: Any = (call.args, call.kwargs)
    paths = leaf_paths(whole)
    named = _parameters(function)
    names = tuple([_leaf_name(path, named) for path in paths])
    places = [k for k, leaf in enumerate(call.leaves) if not isinstance(leaf, TrackedObject)]
    for k, (path, leaf) in enumerate(zip(paths, call.leaves, strict=True)):
        if isinstance(leaf, TrackedObject) and len(path) != 2:
            raise noted(
                ExportError(
                    f"export: argument {names[k]} is a {type(leaf).__name__} in a container, "
                    "expected one that is an argument itself"
                ),
                "Modules and optimizers become state; pass them as arguments of their own.",
            )
    args: Any = tuple([x for x in call.args if not isinstance(x, TrackedObject)])
    kwargs = {k: x for k, x in call.kwargs.items() if not isinstance(x, TrackedObject)}
    rest: Any = (args, kwargs)
    spec = optree.tree_structure(rest, none_is_leaf=True)
    arrays = tuple([j for j, k in enumerate(places) if call.given[k] is not call.leaves[k]])
    whole = call.args, call.kwargs
    parameters = Parameters.of(function, whole, lambda leaf: isinstance(leaf, TrackedObject))
    return Arguments(names, tuple(places), spec, arrays, parameters)


def _parameters(function: Any) -> list[str]:
    """The names of the positional parameters, and that of `*args` again and again."""
    called = function.forward if isinstance(function, Module) else function
    try:
        found = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):  # a function of C
        return []
    return [x.name for x in found if x.kind in (x.POSITIONAL_ONLY, x.POSITIONAL_OR_KEYWORD)]


def _leaf_name(path: Sequence[Any], named: Sequence[str]) -> str:
    which, first, *rest = path
    if which:
        name = str(first)
    else:
        name = named[first] if first < len(named) else f"args[{first}]"
    return name + steps_text(rest)


# ------------------------------------------------------------------------------------------ taking
class _Taking:
    """Takes a program from a capture, while its recorder is open."""

    def __init__(
        self,
        captured: Captured,
        cut: StageRecords,
        call: FlatArguments,
        arguments: Arguments,
        compilation: Compilation,
        function: Any,
    ) -> None:
        self.function = function
        self.captured, self.cut, self.call = captured, cut, call
        self.arguments, self.compilation = arguments, compilation
        real_of = captured.recorder.real_of
        self.reals = {given.role: real_of(given.fake) for given in captured.inputs}
        self.facts = GuardedFacts.of(captured, cut.meta)
        self.leaves = [None if isinstance(leaf, TrackedObject) else leaf for leaf in call.leaves]

    def program(self, name: str, order: int, seen: Sequence[str]) -> Made:
        """The program, with a copy of the state."""
        self._check()
        state = self._state()
        facts = attrs.evolve(self.facts, guards=tuple(self._guards(state)), hooks=())
        cut, sizes = self.cut, self.captured.recorder.sizes
        records = at_rest(cut)
        values = facts.values(
            self.leaves,
            {role: self._own(role, state) for role in self.reals},
            records.meta,
            records.convention.bases,
            records.partition,
        )
        call = ComparedCall.of(values)
        table = None if sizes is None or not sizes.table.symbols else sizes.table
        if sizes is not None and table is not None:
            call = _with_symbols(call, sizes)
        orders, reached = self._orders(order, symbolic=table is not None)
        made = ProgramRecords(
            name=name,
            arguments=self.arguments,
            records=records,
            facts=facts,
            call=call,
            baked_in=tuple(self._read()),
            order=order,
            orders=orders,
            reached=reached,
            sources={} if table is None else dict(sizes.sources),  # type: ignore[union-attr]
            guards=() if table is None else tuple(table.log),
            rooms={} if table is None else _rooms(sizes),
        )
        return Made(made, state)

    def _check(self) -> None:
        captured, meta = self.captured, self.cut.meta
        if captured.hooks:
            _refuse("registers hooks", "Register them on the results of the program.")
        if meta.wrappers:
            _refuse("has wrapper subclasses", "Unwrap their parts outside.")
        sizes = captured.recorder.sizes
        if sizes is not None and sizes.counts:
            _refuse(
                "has sizes that depend on values", "Use a form of fixed size, such as al.where."
            )
        floats = (FloatArgumentGuard, FloatFactGuard)
        if any(isinstance(each, floats) for each in self.facts.guards):
            _refuse(
                "has floats that each call reads",
                "Leave them out of dynamic_shapes: they are fixed then. Or pass 0-d tensors.",
            )

    # --- state
    def _state(self) -> ProgramState:
        hidden = {role.index: real for role, real in self.reals.items() if isinstance(role, Hidden)}
        numbers = {id(real): k for k, real in hidden.items()}
        tied: dict[int, list[str]] = {}
        for guard in self.facts.guards:
            if isinstance(guard, SameTensorGuard) and isinstance(guard.role, Hidden):
                tied.setdefault(guard.role.index, []).append(self._words(str(guard.place)))
        places = {x.role.index: x.place for x in self.captured.inputs if isinstance(x.role, Hidden)}
        entries, taken = [], set[str]()
        for k in range(len(hidden)):
            found = dict.fromkeys((self._words(places[k]), *tied.get(k, ())))
            path, *more = sorted(found, key=_is_of_optimizer)
            path = path if path not in taken else f"{path} ({k})"
            taken.update((path, *more))
            owner = next((n for n, t in hidden.items() if t.grad is hidden[k]), None)
            entries.append(StateTensor(path, tuple(more), owner))
        tensors = [hidden[k] for k in range(len(hidden))]
        self._check_apart(tensors, entries)
        assert len(numbers) == len(hidden)
        return ProgramState(entries, Slots(copied(entries, tensors)))

    def _check_apart(self, tensors: Sequence[Tensor], entries: Sequence[StateTensor]) -> None:
        """Raises ExportError where a tensor is both an argument's and state (PRG-3)."""
        for index, place in reached_arguments(self.facts.guards).items():
            _refuse(
                f"reaches argument {self.arguments.names[index]} also as {self._words(str(place))}",
                "Pass that tensor as an argument alone, or reach it only outside of the arguments.",
            )
        self._check_arrays(tensors, entries)
        places = hidden_places(self.facts.guards)
        given = [real for role, real in self.reals.items() if isinstance(role, Primal)]
        for number, (each, tensor) in enumerate(zip(entries, tensors, strict=True)):
            if any(t.storage is tensor.storage or have_common_memory(t, tensor) for t in given):
                _refuse(
                    f"has an argument on the memory of {each.path}",
                    "The state of a program is its own: pass that tensor as an argument, too.",
                )
            owner = places[number].argument
            if owner is not None and self.leaves[owner] is not None:
                _refuse(
                    f"reads {each.path}, which is found by an argument",
                    "Set it to None before the export and each call; or let the function reach "
                    f"{self.arguments.names[owner]} outside of the arguments: it is state then.",
                )

    def _check_arrays(self, tensors: Sequence[Tensor], entries: Sequence[StateTensor]) -> None:
        """Raises ExportError for written state on the ndarray of another: copies are apart."""
        roles = {role.index: role for role in self.reals if isinstance(role, Hidden)}
        for pair in foreign_overlaps(tensors):
            if any(_is_written(self.cut.meta.input_of(roles[k])) for k in pair):
                one, other = (entries[k].path for k in pair)
                _refuse(
                    f"writes {one} or {other}, tensors on one ndarray",
                    "Make one tensor of the ndarray, and the other as a view of it.",
                )

    def _words(self, text: str) -> str:
        """A path with the names of arguments: `model.weight` for `argument 0.weight`."""
        for k, name in sorted(enumerate(self.arguments.names), reverse=True):
            text = text.replace(f"argument {k}", name)
        code = getattr(self.function, "__code__", None)
        for k, name in sorted(enumerate(code.co_freevars if code else ()), reverse=True):
            text = text.replace(f"closure of {self.function.__name__}, cell {k}", name)
        return text

    def _own(self, role: Any, state: ProgramState) -> Tensor:
        """The tensor of the program for an input."""
        return state.slots.tensors[role.index] if isinstance(role, Hidden) else self.reals[role]

    # --- guards
    def _guards(self, state: ProgramState) -> Iterator[Guard]:
        for k in range(len(state)):
            yield HiddenInputGuard(k, AccessPath(None, state.slots, slot(k)))
        for guard in self.facts.guards:
            if isinstance(guard, NoHooksGuard):
                yield guard
            elif isinstance(guard, GradAttributeGuard):
                place = self._gradient(guard.place, state)
                if place is not None:
                    yield GradAttributeGuard(place, guard.is_so)

    def _gradient(self, place: AccessPath, state: ProgramState) -> AccessPath | None:
        """The path of a `.grad` in the program; None where its tensor is no input."""
        *before, last = place.path
        owner = AccessPath(place.argument, place.function, tuple(before))
        tensor = owner.resolve(list(self.call.leaves))
        for role, real in self.reals.items():
            if tensor is not NOTHING and real is tensor:
                if isinstance(role, Hidden):
                    return AccessPath(None, state.slots, (*slot(role.index), last))
                return AccessPath(role.index, None, (last,))  # type: ignore[union-attr]
        return None

    def _read(self) -> Iterator[str]:
        """What the function has read outside, and is fixed now."""
        leaves = list(self.call.leaves)
        for guard in self.facts.guards:
            places = guard.places if isinstance(guard, EnvironmentGuard) else ()
            for place in (guard.place,) if isinstance(guard, ValueGuard) else places:
                value = place.resolve(leaves)
                if value is not NOTHING:
                    yield from texts_of_read(self._words(str(place)), value)
        for k, leaf in enumerate(self.leaves):
            symbolic = self.captured.recorder.sizes
            numbers: Mapping[int, object] = {} if symbolic is None else symbolic.numbers
            if isinstance(leaf, PLAIN) and leaf is not None and k not in numbers:
                yield f"argument {self.arguments.names[k]} = {leaf!r}"[:120]

    # --- orders
    def _orders(self, order: int, *, symbolic: bool) -> tuple[Any, tuple[Any, ...]]:
        tape = self.cut.joint.kept_tape
        if order == 1 or self.cut.partition.backward is None:
            return (), ()
        if tape is None:
            _refuse(
                f"is exported to order {order}, and its backward has effects, draws, writes "
                "memory, or passes hooks",
                "Export it with order=1.",
            )
        if symbolic:
            _refuse(
                f"is exported to order {order} with symbols for sizes",
                "Export it for fixed sizes, or with order=1.",
            )
        found = orders_of(
            self.cut.joint,
            self.cut.partition,
            self.cut.convention.bases,
            self.cut.derivable,
            self.compilation,
        )
        first: Any = found.orders
        higher, tape, values = _first(first)
        tangents = tuple(self.cut.joint.layouts)
        tree = _tree(higher, tape, values, tangents, order, count(1))
        return tree, tuple(tape.higher_order_inputs)


def _first(orders: Any) -> tuple[Any, Any, Any]:
    """The maker of orders, the tape, and the values of the first order."""
    make = orders._make
    return make.func.__self__, *make.args


def _tree(
    higher: Any,
    tape: Any,
    values: Any,
    tangents: Sequence[Any],
    order: int,
    numbers: Iterator[int],
) -> Any:
    """For each choice of arriving gradients the next order, with the orders behind it."""
    found = []
    for arriving in _choices(tangents):
        if next(numbers) > MOST_GRAPHS:
            _refuse(
                f"has more than {MOST_GRAPHS} derivatives",
                "Export it for a lower order, or detach results and inputs that need no gradient.",
            )
        try:
            cut: OrderCut = higher.cut(tape, values, arriving)
        except UnsupportedError:  # which the run raises, too: there is no such order
            continue
        records = attrs.evolve(cut.records, joint=joint_at_rest(cut.records.joint))
        behind: Any = ()
        if order > 2 and records.partition.backward is not None:
            results = tuple(records.joint.layouts)
            behind = _tree(higher, cut.kept_tape, higher.values(cut), results, order - 1, numbers)
        found.append((tuple(arriving.items()), records, behind))
    return tuple(found)


def _choices(tangents: Sequence[Any]) -> Iterator[Arriving]:
    """All gradients together, and each alone; with a history, and without."""
    if len(tangents) > MOST_RESULTS:
        _refuse(
            f"has {len(tangents)} differentiable results",
            f"Further orders are exported for at most {MOST_RESULTS}: detach the others.",
        )
    sets = [tuple(tangents)] if tangents else []
    sets += [(each,) for each in tangents] if len(tangents) > 1 else []
    for each in sets:
        for has_history in (False, True):
            yield dict.fromkeys(each, has_history)


def _is_written(given: Any) -> bool:
    return bool(given.writes or given.version_bumps or given.written_late)


def _is_of_optimizer(path: str) -> bool:
    """Whether it is the place of a parameter in an optimizer, which has a better name elsewhere."""
    return path.endswith("]") and ".params[" in path


def _with_symbols(call: ComparedCall, sizes: Any) -> ComparedCall:
    """The facts with symbols in the metas of inputs, and for ints."""
    inputs = [attrs.evolve(x, meta=sizes.metas.get(x.role, x.meta)) for x in call.inputs]
    leaves = [sizes.numbers.get(k, leaf) for k, leaf in enumerate(call.leaves)]
    return attrs.evolve(call, inputs=tuple(inputs), leaves=tuple(leaves))


def _rooms(sizes: Any) -> dict[str, Any]:
    """The bounds that the user asked for, by name of a symbol."""
    asked = {name: (each.least, each.most) for name, each in sizes.asked.items()}
    return {name: room for name, room in asked.items() if room != (None, None)}


def _refuse(what: str, advice: str) -> Any:
    raise noted(ExportError(f"export: the program {what}, expected one that a file holds"), advice)
