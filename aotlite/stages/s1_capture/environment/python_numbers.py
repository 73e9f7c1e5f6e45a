"""Refuses functions that change a Python number and read it: `self.step += 1; x * self.step`.

The graph would have the number of the first call at every call. Numbers that the function can reach
by name are compared before and after its run. If one changed, and code that may run reads it
(`bytecode_reads`), the function is refused and its changes are undone, as far as objects can be
written. No code of a user's class runs for it.
Used by the recorder. Rule: CAP-14. Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import gc
import itertools
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

import attrs
import numpy as np

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.tracked_objects import TrackedObject
from aotlite.ir.errors import UnsupportedError
from aotlite.ir.meta import table_in
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.floats.symfloat import SymFloat
from aotlite.ir.symbols.symint import SymInt
from aotlite.stages.records.guards.access_paths import ARGS, NOTHING, AccessPath, attributes_of
from aotlite.stages.records.guards.snapshots import IN_ALL, PLAIN
from aotlite.stages.s1_capture.capture_trace import CaptureTrace
from aotlite.stages.s1_capture.environment.attribute_watch import AttributeWatch, without_watches
from aotlite.stages.s1_capture.environment.bytecode_reads import (
    ANY,
    GONE,
    LENGTH,
    ORDER,
    SIZE,
    Instruction,
    ItemMark,
    Items,
)
from aotlite.stages.s1_capture.environment.number_reads import (
    Change,
    SearchedCode,
    first_read,
    variable,
)
from aotlite.stages.s1_capture.environment.number_search import (
    Name,
    World,
    name_of,
    world_of,
)
from aotlite.stages.s1_capture.environment.object_contents import (
    DICTS,
    HELD,
    NUMBERS,
    ValueComparison,
    attributes,
    base_of,
    content_of,
    is_a,
    is_made,
    is_object,
    spread,
)
from aotlite.stages.s1_capture.environment.process_settings import ProcessSettings
from aotlite.stages.s1_capture.environment.symbol_numbers import HOLDERS, in_numbers, put_numbers_in

_CACHED = type(functools.lru_cache(print))
_PLAIN = frozenset(PLAIN)
_Change = tuple[AccessPath, Items, object, object]
_Place = tuple[AccessPath, Items]
REFUSAL_TAKER: ContextVar[RefusalTaker | None] = ContextVar("REFUSAL_TAKER", default=None)
"""Who takes refusals in this thread, and raises them later."""
_ALONE = _PLAIN | {Tensor, types.ModuleType, type, types.FunctionType, types.BuiltinFunctionType}
"""Most of the things that a function can name: none holds others, or attributes to look at."""


class RefusalTaker(Protocol):
    """Takes the refusal of a run, to see whether a next run from the state that it left is the
    same: a table that is filled once, a flag that says that a warning was given."""

    function: Any

    def take(
        self,
        error: Exception,
        read: list[_Place],
        put_back: Callable[[], None],
        before: World,
        after: World,
    ) -> None:
        """`read` are the places that were changed and read; `put_back` undoes all changes."""


@attrs.define(eq=False, repr=False)
class EarlyReads(AttributeWatch):
    """Reads of attributes, and which of them found that the object did not hold the attribute."""

    _early: dict[tuple[int, str], set[Instruction]] = attrs.field(factory=dict)

    def note(self, thing: object, name: str, frame: types.FrameType) -> None:
        AttributeWatch.note(self, thing, name, frame)
        if name not in attributes_of(thing) and name not in attributes(thing):
            self._early.setdefault((id(thing), name), set()).add((frame.f_code, frame.f_lasti))

    def names_read(self, thing: object) -> list[str]:
        """The attributes of an object that this run has read, and code may change."""
        of = id(thing) in self._objects and self._is_known
        return [name for at, name in self._reads if of and at == id(thing)]

    def early(self, thing: object, name: str) -> set[Instruction] | None:
        """The instructions that read an attribute before it came; None if that is not known."""
        known = self.reads(thing, name)
        return None if known is None else self._early.get((id(thing), name), set())


@attrs.define(eq=False, repr=False)
class SelfChangedNumbers:
    """The check of one function."""

    roots: list[AccessPath] = attrs.field(factory=list)
    before: World = attrs.field(factory=World)
    watch: EarlyReads = attrs.field(factory=EarlyReads)
    """What is known of the attributes that the run has read."""
    _settings: ProcessSettings = attrs.field(factory=ProcessSettings)

    def look(self, function: object, roots: Sequence[AccessPath], leaves: list[object]) -> None:
        """Takes the first snapshot; `roots` are the variables, and Modules among the arguments."""
        self.roots = list(roots)
        self.before = without_watches(world_of(function, leaves, keeps=True))
        self._settings.look()

    def reaches(self, container: int) -> bool:
        """Whether the function reaches a container, given by `id`, by a variable."""
        return container in self.before.containers

    def put_numbers(self, recorder: CaptureTrace, error: BaseException | None = None) -> None:
        """Puts numbers in place of the symbolic sizes that the function has stored (DYN-23), and of
        those in an error that it raised: `raise KeyError(x.shape[0])`."""
        if error is not None and recorder.sizes is not None:
            put_numbers_in(error)
        if (recorder.sizes, table_in([x.meta for x in recorder.placeholders])) != (None, None):
            _put_numbers([*self.roots, *_stored(recorder.compared())], recorder.leaves)

    def check(self, recorder: CaptureTrace) -> None:
        """Raises UnsupportedError where the function reads a number that it has changed."""
        self.put_numbers(recorder)
        leaves = recorder.leaves
        after = without_watches(world_of(recorder.function, leaves, keeps=False))
        if changes := list(changes_between(self.before, after, leaves)):
            self._refuse_reads(recorder, after, changes)
        codes = [*(self.before.codes | after.codes)]
        self._settings.check(recorder, codes, self.before.met.values())

    def _refuse_reads(
        self,
        recorder: CaptureTrace,
        after: World,
        changes: Sequence[_Change],
    ) -> None:
        leaves, taker = recorder.leaves, REFUSAL_TAKER.get()
        taker = taker if taker and taker.function is recorder.function else None
        self.watch.forget_what_runs_later(after)
        searched = SearchedCode.of(self.before, after)
        error, read = None, list[_Place]()
        for place, items, was, became in changes:
            was, became = self._containers(place, items, was, became, leaves)
            change = self._change(place, items, was, became, leaves)
            location = first_read(change, leaves, searched)
            if location is not None and error is None:
                what = _text(place, items, leaves, recorder.function)
                error = recorder.refuse(
                    f"a read of {what}, which the function itself changed from {_told(was)} to "
                    f"{_told(became)},",
                    _WAY_OUT + _other_way(place, items, was, change.owner),
                    location,
                )
            if location is not None and taker is None:
                break
            if location is not None:
                read.append((place, items))
        if error is not None and taker is not None:
            taker.take(error, read, lambda: self._put_back(leaves, changes), self.before, after)
        elif error is not None:
            self._put_back(leaves, changes)
            raise error

    def _change(
        self, place: AccessPath, items: Items, was: object, became: object, leaves: list[Any]
    ) -> Change:
        """A change, with what is known of the reads of its place."""
        above = AccessPath(place.argument, place.function, place.path[:-1])
        owner = self.before.objects.get(name_of(above), NOTHING)
        is_one = bool(place.path) and place.path[-1][0] == "attr" and above.resolve(leaves) is owner
        _, numbers = self.before.numbers.get(name_of(place), (place, {}))
        comes = not (items or numbers or is_a(became, NUMBERS))
        watch = self.watch.early if comes else self.watch.reads
        return Change(
            place,
            (*items, GONE) if became is NOTHING and not is_a(was, NUMBERS) else items,
            owner,
            existence=not items
            and (was is NOTHING or became is NOTHING or comes and is_made(became)),
            is_number=type(was) in _PLAIN and type(became) in _PLAIN,
            is_count=type(numbers.get(items[:-1])) is itertools.count,
            comes=comes,
            read_at=watch(owner, place.path[-1][1]) if is_one else None,
        )

    def _containers(
        self, place: AccessPath, items: Items, was: object, became: object, leaves: list[Any]
    ) -> tuple[object, object]:
        """Both values, also where one is a container, of which the snapshot has the items."""
        at = functools.reduce(lambda at, key: at.then("item", key), items, place)
        if became is NOTHING and not any(type(key) is ItemMark for key in items):
            became = at.resolve(leaves)
        if was is NOTHING and name_of(place) in self.before.numbers and not items:
            known = {name_of(each): value for each, value in self.before.variables}
            above = AccessPath(place.argument, place.function, place.path[:-1])
            owner = self.before.objects.get(name_of(above), NOTHING)
            _, held = self.before.held.get((id(owner), "attributes"), (owner, {}))
            was = known.get(name_of(place), held.get(place.path[-1][1], NOTHING))
        return was, became

    def _put_back(self, leaves: list[Any], changes: Iterable[_Change]) -> None:
        """Undoes the changes, as far as objects can be written; never raises."""
        for place, items, was, _ in changes:
            if was is NOTHING and not items and place.path[-1:] and place.path[-1][0] == "module":
                with contextlib.suppress(Exception):
                    bind(place, NOTHING, leaves)
        self._settings.put_back()
        for thing, copy in self.before.held.values():
            with contextlib.suppress(Exception):
                fill(thing, copy)
        for place, value in self.before.variables:
            with contextlib.suppress(Exception):
                if place.resolve(leaves) is not value:
                    bind(place, value, leaves)


_WAY_OUT = (
    "pass the number as an argument, keep it in a tensor that is written in place, or change it "
    "outside the compiled function"
)
_IF_LAZY = ", or compute it before the first compiled call"
_IF_CACHED = ", or read it once before the first compiled call"
_IF_FLAG = ", or set it before the first compiled call"


def _other_way(place: AccessPath, items: Items, was: object, owner: object) -> str:
    """A further way out, for a value that only the first call changes."""
    if was is False:
        return _IF_FLAG
    kind, key = place.path[-1] if place.path else ("", None)
    if kind != "attr" or items or not (was is NOTHING or was is None):
        return ""
    of_class = [vars(cls).get(str(key)) for cls in type(owner).__mro__]
    is_cached = any(isinstance(each, functools.cached_property) for each in of_class)
    return _IF_CACHED if is_cached else _IF_LAZY


# ------------------------------------------------------------------------------ symbolic sizes
def _stored(functions: Iterable[object]) -> Iterator[AccessPath]:
    """The global variables of these functions that are sizes: such that are written alone, too."""
    for function in functions:
        if isinstance(function, types.FunctionType):
            for name in function.__code__.co_names:
                if type(function.__globals__.get(name)) in (SymInt, SymFloat, SizeFloat):
                    yield AccessPath(None, function, (("global", name),))


def _put_numbers(roots: Sequence[AccessPath], leaves: list[object]) -> None:
    """Puts numbers in place of symbolic sizes that the function has stored where it can be found
    by name: writes to Python objects happen once, in the call that is traced.

    An `lru_cache` with symbolic sizes is cleared: nobody can write numbers into it.
    """
    left, met = IN_ALL, set()
    queue = [(place, place.resolve(leaves)) for place in roots]
    for place, value in queue:  # grows while it is walked
        if type(value) is types.FunctionType:  # its variables are roots of their own
            put_numbers_in(vars(value))
            continue
        if type(value) in _ALONE and not is_a(value, HOLDERS):
            continue
        for _, inner, at in spread(place, value):
            left -= 1
            if left < 0:
                return
            number = _number(inner)
            if number is not inner:
                bind(at, number, leaves)
            elif type(inner) is _CACHED and _has_size(gc.get_referents(inner), 3):
                inner.cache_clear()
            elif id(inner) not in met and is_a(inner, HOLDERS):
                met.add(id(inner))
                put_numbers_in(inner)
            elif id(inner) not in met and is_object(inner):
                met.add(id(inner))
                queue += [(at.then("attr", k), each) for k, each in attributes(inner).items()]


def _number(value: object) -> object:
    with contextlib.suppress(UnsupportedError):  # a size that nobody knows yet
        return in_numbers(value)
    return value


def _has_size(things: Iterable[object], depth: int) -> bool:
    """Whether there is a symbolic size among these things, or that deep in containers there."""
    for each in things:
        if type(each) in (SymInt, SymFloat, SizeFloat):
            return True
        if depth and isinstance(each, dict) and _has_size((*each, *each.values()), depth - 1):
            return True
        if depth and isinstance(each, (tuple, list)) and _has_size(each, depth - 1):
            return True
    return False


# ----------------------------------------------------------------------------------- comparing
def changes_between(before: World, after: World, leaves: list[Any]) -> Iterator[_Change]:
    """(path, keys, before, after) of each number that changed, appeared or vanished, of each other
    object in whose place another one is, and of what came into an attribute that was empty."""
    comparison = ValueComparison(before.known)
    for name in dict.fromkeys((*before.numbers, *after.numbers)):
        if not all(name in world.numbers or _owner_is_in(world, name) for world in (before, after)):
            continue
        was, now = before.numbers.get(name), after.numbers.get(name)
        place: AccessPath = (now or was)[0]  # type: ignore[index]
        one, other = (each[1] if each is not None else {} for each in (was, now))
        if other and not one:
            given, held = _inherited(place, leaves), place.resolve(leaves)
            if comparison.comes(given, held):
                yield place, (), given, held
                continue
        for items in dict.fromkeys((*one, *other)):
            a, b = one.get(items, NOTHING), other.get(items, NOTHING)
            if a is not b and comparison.is_change(a, b):
                yield place, items, a, b


def _inherited(place: AccessPath, leaves: list[Any]) -> object:
    """What reading an empty place gives: of an attribute the value of the class, of the body of a
    class that of a base, of a global variable the builtin; NOTHING if that is an error."""
    if not place.path:
        return NOTHING
    kind, key = place.path[-1]
    if kind == "global":
        return vars(builtins).get(key, NOTHING)
    owner: Any = AccessPath(place.argument, place.function, place.path[:-1]).resolve(leaves)
    if kind == "class":
        return _in_bodies(owner.__mro__[key[0] + 1 :], key[1])
    if kind != "attr":
        return NOTHING
    found = _in_bodies(type(owner).__mro__, key)
    if type(found) is types.FunctionType:
        return types.MethodType(found, owner)
    if type(found) is classmethod:
        return types.MethodType(found.__func__, type(owner))
    if type(found) is types.MemberDescriptorType:
        return NOTHING
    return found.__func__ if type(found) is staticmethod else found


def _in_bodies(classes: Iterable[type], name: str) -> Any:
    return next((vars(each)[name] for each in classes if name in vars(each)), NOTHING)


def _owner_is_in(world: World, name: Name) -> bool:
    """Whether the path is an attribute of an object in the snapshot: absent, not unseen."""
    return bool(name[2]) and (name[0], name[1], name[2][:-1]) in world.objects


def _told(value: object) -> str:
    """A value in an error: of what is no number, the kind."""
    is_number = value is NOTHING or is_a(value, NUMBERS)
    return f"{value}" if is_number else f"a {type(value).__name__}"


def _text(place: AccessPath, items: Items, leaves: list[object], root: object) -> str:
    """The source text by which the function reaches a number: `self.sizes[0]`. A compiled object,
    or one of which a partial was compiled, is what its method calls `self`."""
    at, is_own = AccessPath(place.argument, place.function), place.function is root
    is_own = is_own and not is_a(root, (types.FunctionType, types.MethodType, type))
    text = "self" if is_own and place.argument is None else ""
    for kind, key in place.path:
        owner, at = at.resolve(leaves), at.then(kind, key)
        if kind in ("cell", "default") and isinstance(owner, types.FunctionType):
            text = variable(owner, kind, key)
        elif kind == "global":
            text = key
        elif key == "__self__":
            text = "self"
        else:
            text = f"{text}{_step(kind, key)}" if text else str(at)
    if items and (items[-1] is LENGTH or items[-1] is SIZE):
        return f"the length of {text}{_keys(items[:-1])}"
    if items and items[-1] is ORDER:
        return f"the order of the keys of {text}{_keys(items[:-1])}"
    return text + _keys(each for each in items if each is not ANY)


def _step(kind: str, key: object) -> str:
    step = AccessPath(0, None).then(kind, key)
    return str(step).removeprefix("argument 0")


def _keys(items: Iterable[object]) -> str:
    return "".join(f"[{key!r}]" for key in items)


# ----------------------------------------------------------------------------------- restoring
def fill(thing: object, copy: Any) -> None:
    """Restores the contents of a container, an array or an object, if they changed."""
    if type(copy) is list:
        _fill_container(thing, copy)
    elif type(thing) is np.ndarray:
        if thing.tobytes() != copy.tobytes():
            thing[...] = copy
    elif is_a(thing, type):
        _fill_class(thing, copy)
    elif not is_a(thing, TrackedObject):
        _fill_object(thing, copy)


def _fill_container(thing: Any, content: list[Any]) -> None:
    base, now = base_of(thing), content_of(thing)
    if _identities(now, base) == _identities(content, base):
        return
    base.clear(thing)
    if base in DICTS:
        for key, value in content:
            base.__setitem__(thing, key, value)
    else:
        (base.update if base is set else base.extend)(thing, content)


def _identities(content: list[Any], base: type) -> list[object]:
    if base in DICTS:
        return [(id(key), id(value)) for key, value in content]
    return [id(each) for each in content]


def _fill_class(kind: Any, own: Mapping[str, object]) -> None:
    now = dict(vars(kind))
    for name in now.keys() | own.keys():
        was = own.get(name, NOTHING)
        if now.get(name, NOTHING) is not was:
            type.__delattr__(kind, name) if was is NOTHING else type.__setattr__(kind, name, was)


def _fill_object(thing: object, held: Mapping[str, object]) -> None:
    now, own = attributes(thing), attributes_of(thing)
    for name in now.keys() | held.keys():
        was = held.get(name, NOTHING)
        if now.get(name, NOTHING) is was:
            continue
        if name in own or was is not NOTHING and not _slot(thing, name):
            own.pop(name, None) if was is NOTHING else own.__setitem__(name, was)
        elif was is NOTHING:
            _slot(thing, name).__delete__(thing)
        else:
            _slot(thing, name).__set__(thing, was)


def _slot(thing: object, name: str) -> Any:
    """The descriptor of a slot; None if the name is not a slot."""
    found = (vars(cls).get(name) for cls in type(thing).__mro__)
    return next((x for x in found if type(x) is types.MemberDescriptorType or x is ARGS), None)


def bind(place: AccessPath, value: object, leaves: list[object]) -> None:
    """Sets a variable, an item, or an attribute of an object, module or class."""
    kind, key = place.path[-1]
    owner = AccessPath(place.argument, place.function, place.path[:-1]).resolve(leaves)
    if kind == "cell":
        cell = owner.__closure__[key]
        cell.cell_contents = value
    elif kind in ("global", "module"):
        names = owner.__globals__ if kind == "global" else vars(owner)
        names.pop(key, None) if value is NOTHING else names.__setitem__(key, value)
    elif kind == "item" and is_a(owner, HELD):
        base_of(owner).__setitem__(owner, key, value)
    elif kind == "attr" and _slot(owner, key) is not None:
        _slot(owner, key).__set__(owner, value)
    elif kind == "attr":
        attributes_of(owner)[key] = value
    elif kind == "class":
        kind = (owner if isinstance(owner, type) else type(owner)).__mro__[key[0]]
        delattr(kind, key[1]) if value is NOTHING else setattr(kind, key[1], value)
