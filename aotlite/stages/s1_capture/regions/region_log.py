"""`RegionLog`: the ops, and the reads of Modules, of one call of a region, to be repeated.

    operands   what the call was given, and what it read: numbers 0, 1, ...
    made       the tensors that its ops returned: -1, -2, ...

While the function runs, dispatch hands each op to the log, which runs it. An op that takes a tensor
of another origin, and a change of the recorder between two ops, forbid to repeat the call.
Rules: REG-22 to REG-26. Spec: `specs/equal_regions.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs

from aotlite.eager.autograd.differentiable_views import link_view
from aotlite.eager.autograd.nodes.op_nodes import Calls, calls_of
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.dispatch.pure import link_result, note_origin
from aotlite.eager.tracked_objects import TrackedCallable, own_attributes
from aotlite.ir.errors import GraphError
from aotlite.ir.op import InplaceOp, MultiViewOp, Op, PureOp, RandomOp, ViewOp
from aotlite.ir.ops.views.view_ops import AS_STRIDED, HIDDEN_ALIAS
from aotlite.stages.records.guards.access_paths import NOTHING
from aotlite.stages.s1_capture.capture_trace import CaptureTrace
from aotlite.stages.s1_capture.regions.region_operands import (
    Key,
    Operands,
    UnlikeError,
    is_literal,
    tensor_facts,
    unlike,
)
from aotlite.stages.s1_capture.regions.region_proof import RegionVariables

_KINDS = (PureOp, ViewOp, MultiViewOp, InplaceOp, RandomOp)


@attrs.frozen
class _Place:
    """A tensor among the arguments of an op, or in the result: its number."""

    number: int


@attrs.frozen(eq=False)
class _Ran:
    """An op that ran."""

    op: Op
    args: tuple[Any, ...]
    grad_mode: bool | None
    location: Any
    metas: tuple[Any, ...]
    new: tuple[bool, ...]
    """Of each result, whether it is a tensor that was not there before."""
    holes: tuple[tuple[int, int], ...] = ()
    """(position, number) of the tensors among the arguments, where all are numbers there."""
    calls: Calls | None = None
    """Of a pure op with such arguments: the cache of the calls that its tape nodes are of."""
    start: int | None = None
    """Of a view with such arguments: where it begins in its operand, in elements."""


@attrs.frozen(eq=False)
class _Read:
    """An attribute of a Module that was read."""

    owner: _Place | object
    name: str
    key: Key


@attrs.frozen(eq=False)
class _Scope:
    """A Module was called ("enter"), tags were set ("tag"), a region began ("region"), or one of
    these has ended ("leave")."""

    what: str
    of: Any = None


class RegionLog:
    """One call of a region."""

    def __init__(self, mark: str, key: Key, operands: Operands, recorder: CaptureTrace) -> None:
        self.mark, self.key, self.operands = mark, key, operands
        self.recorder = recorder
        self.outer: RegionLog | None = recorder.scopes.log
        self.events: list[_Ran | _Read | _Scope] = []
        self.against: str | None = None
        """Why the call cannot be repeated."""
        self.made: list[Tensor] = []
        self._numbers: dict[int, int] = {}
        self._own: set[int] = set()
        """The ids of the storages that it has made."""
        self._fixed: dict[int, tuple[Any, Key]] = {}
        """Tensors and Modules that are variables: their facts must stay."""
        self.variables = RegionVariables((), (), ())
        self.result: Any = None
        self._now = self._state()

    # --- while the function runs
    def run(self, op: Op, args: tuple[Any, ...]) -> Any:
        """The result of an op, which all logs note that are open."""
        scopes, mode, start = self.recorder.scopes, STATE.grad_mode, len(self.recorder.nodes)
        logs = [log for log in self._chain() if log.against is None]
        filled = [log._before(op, args) for log in logs]
        scopes.log = None
        try:
            result = Tensor._apply(None, op, args)  # type: ignore[arg-type]
        except BaseException:
            for log in logs:
                log.forbid("an op in it raises")
            raise
        finally:
            scopes.log = self
        nodes = self.recorder.nodes[start:]
        place = nodes[0].location if nodes else None
        for log, each in zip(logs, filled, strict=True):
            log._after(op, args, each, mode, place, result)
        return result

    def read(self, owner: object, name: str, value: object) -> object:
        """The value of an attribute of a Module, which is read."""
        logs = [log for log in self._chain() if log.against is None]
        for log in logs:
            log._check()
        value = self.recorder.read_attribute(owner, name, value)
        for log in logs:
            try:
                key = log.operands.key(value)
                log.events.append(_Read(log._owner(owner), name, key))
                log._now = log._state()
            except UnlikeError as error:
                log.forbid(str(error))
        return value

    def scope(self, what: str, of: Any = None) -> None:
        """A Module is called, tags are set, a region begins, or one of these ends."""
        for log in self._chain():
            if log.against is None:
                try:
                    of_it = log._owner(of) if what == "enter" else of
                    log.events.append(_Scope(what, of_it))
                except UnlikeError as error:
                    log.forbid(str(error))

    def forbid(self, why: str) -> None:
        """The call cannot be repeated."""
        if self.against is None:
            self.against = why
            self.events.clear()

    def _chain(self) -> Iterator[RegionLog]:
        log: RegionLog | None = self
        while log is not None:
            yield log
            log = log.outer

    @property
    def _trace(self) -> Any:
        """The recorder with all that its parts hold."""
        return self.recorder

    def _state(self) -> Key:
        """What the recorder and the modes hold, as far as ops and reads alone may change it."""
        recorder, trace = self.recorder, self._trace
        streams, changes, grads, hooks = trace.streams, trace.changes, trace.grads, trace.hooks
        counts = (
            *(recorder.nodes, recorder.guards, recorder.placeholders, recorder.offset_read),
            *(changes.of, changes.viewed),
            *(changes.puts, changes.growths, changes.moved),
            *(grads._now, grads._looked_at, hooks._placed, hooks._retained),
        )
        modes = STATE.watch, STATE.draws, STATE.in_region, STATE.nested, recorder.recompute
        flags = recorder.sequence, recorder.unrecorded, id(streams.state), streams._explicit
        return (*map(len, counts), *map(id, modes), recorder.origin is None, *flags)

    def _check(self) -> None:
        """Something other than an op, or a read, has changed the recorder."""
        if self._now != self._state():
            self.forbid("it does more than ops to the capture")

    def _before(self, op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self._check()
        try:
            if type(op) not in _KINDS or op in (AS_STRIDED, HIDDEN_ALIAS):
                raise UnlikeError(f"it calls {op.name}")
            if op.writes and id(args[0].storage) not in self._own:
                raise UnlikeError("it writes a tensor from outside of it")
            return tuple([self._filled(each) for each in args])
        except UnlikeError as error:
            self.forbid(str(error))
            return ()

    def _filled(self, value: Any) -> Any:
        """An argument, with numbers for the tensors in it."""
        if isinstance(value, Tensor):
            return self._place(value)
        if type(value) is tuple:
            return tuple([self._filled(each) for each in value])
        if not is_literal(value):
            raise UnlikeError(f"{type(value).__name__} is an argument of an op in it")
        return value

    def _place(self, tensor: Tensor) -> _Place | Tensor:
        number = self._numbers.get(id(tensor))
        number = self.operands.number(tensor) if number is None else number
        if number is not None:
            return _Place(number)
        if id(tensor) not in self._fixed:
            facts = tensor_facts(tensor, self.operands.fakes)
            self._fixed[id(tensor)] = tensor, facts
        return tensor

    def _owner(self, owner: object) -> _Place | object:
        number = self.operands.number(owner)
        if number is None:
            self._fixed[id(owner)] = owner, ()
            return owner
        return _Place(number)

    def _after(
        self,
        op: Op,
        given: tuple[Any, ...],
        args: tuple[Any, ...],
        mode: bool | None,
        location: Any,
        result: Any,
    ) -> None:
        results = result if type(result) is tuple else (result,)
        if self.against is None:
            new = [self._is_new(each) for each in results]
            metas = tuple([each.meta for each in results])
            known = () if type(result) is tuple else self._known(op, given, args)
            ran = _Ran(op, args, mode, location, metas, tuple(new), *known)
            self.events.append(ran)
            for each, is_new in zip(results, new, strict=True):
                if is_new:
                    self._numbers[id(each)] = ~len(self.made)
                    self.made.append(each)
                    if type(op) in (PureOp, RandomOp):
                        self._own.add(id(each.storage))
            self._now = self._state()

    def _known(self, op: Op, given: tuple[Any, ...], args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The holes, calls and start of an op with one result that can run without its keys."""
        if any(isinstance(each, Tensor) or _holds_places(each) for each in args):
            return ()
        holes = tuple([(k, each.number) for k, each in enumerate(args) if type(each) is _Place])
        given = self.recorder.admit(given)
        if type(op) is PureOp:
            return holes, calls_of(op, op.key(given))
        if type(op) is ViewOp and not (op.recasts or op.cuts_history):
            return holes, None, op.result(given)[1]
        return ()

    def _is_new(self, tensor: Tensor) -> bool:
        return id(tensor) not in self._numbers and self.operands.number(tensor) is None

    # --- when it has returned
    def close(self, result: Any, variables: RegionVariables) -> None:
        """The function has returned: notes the result, and what the function read by name."""
        self._check()
        if STATE.grad_mode != self.key[0]:
            self.forbid("it leaves grad mode changed")
        if self.against is not None:
            return
        known = {id(each) for each in variables.values()}
        if any(id(each) not in known for each, _ in self._fixed.values()):
            self.forbid("it reaches a tensor or Module by a way that is not followed")
        self.variables = variables
        try:
            self.result = self._template(result, set())
        except UnlikeError as error:
            self.forbid(str(error))
        depth = 0
        for each in self.events:
            if isinstance(each, _Scope):
                depth += -1 if each.what == "leave" else 1
                if depth < 0:
                    break
        if depth:
            self.forbid("it leaves a Module or tags that it has not entered")
        self._numbers, self._own, self.made = {}, set(), []

    @property
    def modules(self) -> list[object]:
        """The Modules that it was given or has read, or that are variables."""
        things = [*self.operands.things, *[each for each, _ in self._fixed.values()]]
        return [each for each in things if isinstance(each, TrackedCallable)]

    def _template(self, value: Any, seen: set[int]) -> Any:
        """The result, with numbers for tensors. Its containers must be its own."""
        if isinstance(value, Tensor):
            return self._place(value)
        kind = type(value)
        if kind in (tuple, list, dict):
            if value and (id(value) in seen or self.operands.number(value) is not None):
                raise UnlikeError("it returns a container that is not its own")
            seen.add(id(value))
            if kind is dict:
                return {name: self._template(each, seen) for name, each in value.items()}
            return kind([self._template(each, seen) for each in value])
        if kind not in (bool, int, float, complex, str, type(None)):
            raise UnlikeError(f"it returns a {kind.__name__}")
        return value

    # --- when it is called again
    def unlike(self, key: Key, operands: Operands) -> str | None:
        """Why a call is not equal to this one; None if it is. Adds what it reads to `operands`."""
        if key != self.key:
            return _difference(self.key, key)
        changed = self.variables.changed()
        if changed is not None:
            return f"{changed} has changed"
        for thing, facts in self._fixed.values():
            if isinstance(thing, Tensor) and tensor_facts(thing, operands.fakes) != facts:
                return "a tensor among its variables has changed"
        for event in self.events:
            if isinstance(event, _Read):
                owner = _at(event.owner, operands.things, [])
                value = _attribute(owner, event.name)
                found = operands.key(value)
                if found != event.key:
                    what = f"attribute {event.name!r} of {type(owner).__name__}"
                    return f"{what} {unlike(event.key, found)}"
        return None

    def again(self, operands: Operands, tag: Callable[[str], Any]) -> Any:
        """Repeats the ops and reads on other operands; returns the result."""
        things, made = operands.things, list[Tensor]()
        mode, stack = STATE.grad_mode, list[Any]()
        scopes = self._trace.scopes
        try:
            for event in self.events:
                if isinstance(event, _Ran):
                    STATE.grad_mode, scopes.place = event.grad_mode, event.location
                    if event.holes and scopes.log is None:
                        made.append(self._run_again(event, things, made))
                    else:
                        args = tuple([_at(each, things, made) for each in event.args])
                        made += self._apply_again(event, args)
                elif isinstance(event, _Read):
                    owner = _at(event.owner, things, made)
                    value = _attribute(owner, event.name)
                    reader = self.recorder.read_attribute if scopes.log is None else scopes.log.read
                    reader(owner, event.name, value)
                elif event.what == "leave":
                    scopes.leave(stack.pop())
                elif event.what == "enter":
                    stack.append(scopes.enter(_at(event.of, things, made)))
                else:
                    stack.append((tag if event.what == "region" else scopes.tag)(event.of))
        finally:
            scopes.place, STATE.grad_mode = None, mode
        return _at(self.result, things, made)

    def _run_again(self, event: _Ran, things: list[Any], made: list[Tensor]) -> Tensor:
        """The result of an op whose meta and gradient are known: what dispatch does, without
        keys."""
        recorder, (meta,) = self.recorder, event.metas
        op: Any = event.op
        args, values = [*event.args], [*event.args]
        for position, number in event.holes:
            each = things[number] if number >= 0 else made[~number]
            if each.storage.capture is not recorder or each.value is None:
                each = recorder.here(each)
            args[position], values[position] = each, each.value
        if event.start is not None:
            source = args[0]
            out = Tensor(source.storage, meta, source.offset + event.start)
            out.value = recorder.add_node(op, tuple(values), meta)
            link_view(out, source, op, tuple(args[1:]))
            if out._node is not None:
                note_origin(out._node, out.value, recorder)
            return out
        out = Tensor(Storage(None, capture=recorder), meta)
        out.value = recorder.add_node(op, tuple(values), meta)
        if op.vjp is not None and event.calls is not None and event.grad_mode:
            link_result(op, op.vjp, tuple(args), event.calls, out)
        return out

    def _apply_again(self, event: _Ran, args: tuple[Any, ...]) -> list[Tensor]:
        """The new tensors that any op returns."""
        result = Tensor._apply(None, event.op, args)  # type: ignore[arg-type]
        results = result if type(result) is tuple else (result,)
        for each, meta in zip(results, event.metas, strict=True):
            if each.meta is not meta and each.meta != meta:
                raise _wrong(self.mark, event.op, each.meta, meta)
        return [each for each, is_new in zip(results, event.new, strict=True) if is_new]


def fakes_of(recorder: CaptureTrace) -> dict[int, Tensor]:
    """Id of a tensor from outside -> the fake that stands for it."""
    trace: Any = recorder
    found: dict[int, Tensor] = trace._met.fakes
    return found


def _holds_places(value: object) -> bool:
    """Whether it is a list of tensors."""
    return type(value) is tuple and any(not is_literal(each) for each in value)


def _at(value: Any, things: list[Any], made: list[Tensor]) -> Any:
    """A value with the things for their numbers, in new containers."""
    kind = type(value)
    if kind is _Place:
        number = value.number
        return things[number] if number >= 0 else made[~number]
    if kind is tuple or kind is list:
        return kind([_at(each, things, made) for each in value])
    if kind is dict:
        return {name: _at(each, things, made) for name, each in value.items()}
    return value


def _attribute(owner: Any, name: str) -> Any:
    """The attribute of a Module as a read returns it; no guard is added."""
    found = own_attributes(owner).get(name, NOTHING)
    return object.__getattribute__(owner, name) if found is NOTHING else found


def _difference(mine: Key, other: Key) -> str:
    """Which argument of two calls is unlike."""
    if mine[0] != other[0]:
        return "grad mode is another"
    for what, first, second in zip(("", "keyword "), mine[1:], other[1:], strict=True):
        if len(first) != len(second):
            return f"the number of {what}arguments is another"
        for number, (one, two) in enumerate(zip(first[2:], second[2:], strict=True)):
            if one != two:
                return f"{what}argument {number} {unlike(one, two)}"
    return "its arguments are not alike"


def _wrong(mark: str, op: Op, got: object, expected: object) -> GraphError:
    return GraphError(f"region {mark}: repeated, {op.name} gives {got}, expected {expected}")
