"""A function whose state settles in its first call is captured from the state that it leaves.

    if not self.warned:                    sizes = self.sizes
        self.warned = True                 if n not in sizes:
        ...                                    sizes[n] = 1 / n
    return x * 2                           return x * sizes[n]

The first run changes what it reads, and would be refused. It is captured once more, from the state
that the first run left. If that run records the same program, and leaves everything as the first
one has left it, then so does each call after it, and its guards compare the values that it found.
If not, all changes are undone, and the refusal of the first run is raised. The second run does
nothing that is seen outside of Python's objects: an attempt to do so ends it.
Used by `journey`. Rule: CAP-16. Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import io
import sys
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType
from typing import Any, cast

import attrs

from aotlite.eager.autograd.nodes.accumulate_grad import AccumulateGrad
from aotlite.eager.autograd.nodes.op_nodes import InputNode, OpNode, SliceAssign
from aotlite.eager.base.tape.node import TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.graph.compare import structurally_equal
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.guards.access_paths import NOTHING, AccessPath
from aotlite.stages.records.guards.snapshots import snapshot_of
from aotlite.stages.s1_capture.environment.attribute_watch import without_watches
from aotlite.stages.s1_capture.environment.bytecode_reads import ANY, GONE, ItemMark, Items
from aotlite.stages.s1_capture.environment.number_search import World, world_of
from aotlite.stages.s1_capture.environment.object_contents import (
    DICTS,
    HELD,
    SETS,
    base_of,
    content_of,
    is_a,
    is_small_array,
)
from aotlite.stages.s1_capture.environment.python_numbers import (
    REFUSAL_TAKER,
    bind,
    changes_between,
    fill,
)
from aotlite.stages.s1_capture.environment.scan import Surrounded

Capture = Callable[..., Captured]
_OF_OPS = (OpNode, SliceAssign, InputNode, AccumulateGrad)
"""Nodes whose backward is that of the op; no code of users runs in it."""
_OUTPUTS = frozenset(("print", "input", "open", "breakpoint"))
_SYSTEM = frozenset("posix nt io _io _socket _posixsubprocess select mmap signal _signal".split())
"""Modules of C whose functions do something outside of Python's objects."""
_QUESTIONS = frozenset(
    "getcwd getcwdb getpid getppid stat lstat fstat access listdir scandir readlink fspath "
    "cpu_count sched_getaffinity isatty fileno tell getsignal".split()
)
"""Functions of these modules that only ask."""


def settled(capture: Capture) -> Capture:
    """`capture`, which also takes a function whose first run changes what it reads, if a second
    run from the state that it leaves records the same, and changes nothing more."""

    def captured(*call: Any) -> Captured:
        first = _FirstRun(call[0], call[2])
        try:
            found = first.made_by(capture, call)
        except Exception:
            if first.error is None:
                raise
            found = None
        if first.error is None and found is not None:
            return found
        again = None if found is None else first.repeated(found, capture, call)
        if again is None:
            first.put_back()
            raise first.error or AssertionError
        return again

    return captured


@attrs.define(eq=False, repr=False)
class _FirstRun:
    """A run that changed what it reads, and the state that it has left."""

    function: Any
    leaves: list[Any]
    error: Exception | None = None
    put_back: Callable[[], None] = attrs.field(default=lambda: None)
    _after: World = attrs.field(factory=World)
    _actions: list[Callable[[], bool]] = attrs.field(factory=list)
    """What sets the places that are read; each says whether it could."""
    _can_settle: bool = True
    _owners: list[tuple[Any, str]] = attrs.field(factory=list)
    """The objects whose attributes are read, with the names."""

    def made_by(self, capture: Capture, call: tuple[Any, ...]) -> Captured:
        token = REFUSAL_TAKER.set(self)
        try:
            return capture(*call)
        finally:
            REFUSAL_TAKER.reset(token)

    def take(
        self,
        error: Exception,
        read: list[tuple[AccessPath, Items]],
        put_back: Callable[[], None],
        before: World,
        after: World,
    ) -> None:
        self.error, self.put_back, self._after = error, put_back, after
        for place, items in read:
            now = place.resolve(self.leaves)
            above = AccessPath(place.argument, place.function, place.path[:-1])
            if place.path and place.path[-1][0] == "class":  # guards see no metaclass's attributes
                self._can_settle &= type(above.resolve(self.leaves)) is type
            if place.path and place.path[-1][0] == "attr":
                self._owners.append((above.resolve(self.leaves), place.path[-1][1]))
            inner = _inner_action(now, items, before)
            self._can_settle &= now is not NOTHING and inner is not None
            self._actions.append(functools.partial(_bound, place, now, self.leaves))
            if inner is not None:
                self._actions.append(inner)

    def repeated(self, found: Captured, capture: Capture, call: tuple[Any, ...]) -> Captured | None:
        """The capture from the state that was left; None if it is another one."""
        program = _program(found)
        watch = cast(Surrounded, found.recorder).around.numbers.watch
        is_guarded = all(
            type(each) in (type, ModuleType) or watch.reads(each, name) is not None
            for each, name in self._owners
        )
        found.recorder.close()
        self.put_back()
        if program is None or not (
            is_guarded and self._can_settle and all(act() for act in self._actions)
        ):
            return None
        try:
            with _nothing_outside() as seen:
                again = capture(*call)
        except (Exception, _Outside):
            return None
        except BaseException:
            self.put_back()
            raise
        is_same = not seen and _program(again) == program
        is_same = is_same and structurally_equal(found.graph, again.graph) is None
        now = without_watches(world_of(self.function, self.leaves, keeps=False))
        if is_same and not any(changes_between(self._after, now, self.leaves)):
            return again
        again.recorder.close()
        return None


# ------------------------------------------------------------------------ the state that was left
def _bound(place: AccessPath, value: object, leaves: list[Any]) -> bool:
    """Sets a variable or attribute, if it is another value; whether it could."""
    if place.resolve(leaves) is not value:
        with contextlib.suppress(Exception):
            bind(place, value, leaves)
    return place.resolve(leaves) is value


def _inner_action(thing: Any, items: Items, before: World) -> Callable[[], bool] | None:
    """What gives an item of a container the value of now again, after all was undone; None if it
    has no such way."""
    keys = items[: len(items) - (items[-1:] == (GONE,))]
    if not keys:
        return lambda: True
    for key in keys[:-1]:
        if not is_a(thing, HELD):
            return None
        thing = dict(_numbered(thing)).get(key, NOTHING)
    key = keys[-1]
    if (id(thing), "contents") not in before.held:  # it is new
        return lambda: True
    if is_small_array(thing):
        copy = thing.copy()
        return lambda: _filled(thing, copy)
    if not is_a(thing, HELD) or key is ANY and not is_a(thing, SETS):
        return None
    content = content_of(thing)
    if not is_a(thing, DICTS) or type(key) is ItemMark:
        return lambda: _filled(thing, content)
    value = dict(content).get(key, NOTHING)
    return lambda: _set_item(thing, key, value)


def _numbered(thing: Any) -> list[Any]:
    content = content_of(thing)
    return content if is_a(thing, DICTS) else list(enumerate(content))


def _filled(thing: object, content: object) -> bool:
    fill(thing, content)
    return True


def _set_item(thing: Any, key: object, value: object) -> bool:
    base = base_of(thing)
    base.pop(thing, key, None) if value is NOTHING else base.__setitem__(thing, key, value)
    return True


# -------------------------------------------------------------------------------------- comparing
def _program(captured: Captured) -> object:
    """All of a capture but its graph that a later stage sees; None where that is not known."""
    if captured.hooks or captured.computed_sizes or captured.parts:
        return None
    if not all(type(each.role).__name__ in ("Primal", "Hidden") for each in captured.inputs):
        return None
    tensors = [each.fake for each in captured.inputs]
    tensors += [each for each in captured.results if is_a(each, Tensor)]
    orders, history = _orders(captured), _history(tensors)
    if orders is None or history is None:
        return None
    recorder = cast(Surrounded, captured.recorder)
    *changes, _ = recorder.around.numbers.watch.effects()
    return (
        tuple(changes),
        dict(captured.reach),
        tuple([_result(each) for each in captured.results]),
        (captured.containers.spec, captured.containers.numpy_results, orders),
        (captured.grad_mode_before, captured.grad_mode_after),
        tuple([(each.role, each.place) for each in captured.inputs]),
        tuple([(each.role, each.result) for each in captured.grads]),
        tuple([(each.requires_grad, each.is_leaf) for each in tensors]),
        history,
    )


def _orders(captured: Captured) -> tuple[object, ...] | None:
    """The keys of the dicts among the results, in their orders, of which a spec says nothing; None
    if objects of a user's class, which numbers do not suit, are among them."""
    spec = captured.containers.spec
    waiting: list[Any] = []
    try:
        waiting += () if spec is None else (spec.unflatten(range(spec.num_leaves)),)
    except Exception:
        return None
    found: list[object] = []
    for each in waiting:  # grows while it is walked
        if isinstance(each, dict):
            found.append(tuple(each))
        waiting += each.values() if isinstance(each, dict) else each if _is_list(each) else ()
    return tuple(found)


def _is_list(value: object) -> bool:
    return isinstance(value, (list, tuple))


def _result(value: object) -> object:
    return "a tensor" if is_a(value, Tensor) else snapshot_of(value)


def _history(tensors: list[Tensor]) -> tuple[object, ...] | None:
    """The tape behind tensors: its nodes by kind and op, with the numbers of those before them;
    None if users' code runs in it."""
    numbers: dict[int, int] = {}
    nodes: list[TapeNode] = []

    def number(node: TapeNode | None) -> int:
        if node is None:
            return -1
        if id(node) not in numbers:
            numbers[id(node)] = len(nodes)
            nodes.append(node)
        return numbers[id(node)]

    ends = tuple([number(each.grad_fn) for each in tensors])
    found: list[object] = []
    for node in nodes:  # grows while it is walked
        if not isinstance(node, _OF_OPS) or not (node.extra is None or node.extra.is_idle):
            return None
        edges = tuple([(number(inner), at) for inner, at in node.next_functions])
        found.append((type(node).__name__, str(getattr(node, "origin", None)), edges))
    return ends, *found


# ------------------------------------------------------------------------------------ no effects
class _Outside(BaseException):
    """Raised in place of a call of C that does something outside of Python's objects."""


@contextlib.contextmanager
def _nothing_outside() -> Iterator[list[object]]:
    """A block in which such a call raises; the list gets what was called."""
    seen: list[object] = []
    outer = sys.getprofile()

    def profile(_: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and _is_outside(called):
            seen.append(called)
            raise _Outside

    sys.setprofile(profile)
    try:
        yield seen
    finally:
        sys.setprofile(outer)


def _is_outside(called: Any) -> bool:
    owner, name = getattr(called, "__self__", None), getattr(called, "__name__", "")
    if owner is builtins:
        return name in _OUTPUTS
    if name in _QUESTIONS:
        return False
    if is_a(owner, ModuleType):
        return str(getattr(owner, "__name__", "")) in _SYSTEM or name.startswith("start_")
    is_text = is_a(owner, (io.StringIO, io.BytesIO))
    kind: type = type(owner)
    return kind.__module__ in _SYSTEM and not is_text and not is_a(owner, type)
