"""Whether a function may write to what others see, or print, when it runs once more.

    total.count += 1, SEEN.append(n), print(n), log.warning("many"), next(BATCHES)

The report of witnesses runs the user's function again, which must leave no trace. So all that it
can reach is searched first: functions and classes of users, by the names that code uses. What is
not known to be harmless counts: functions written in C, objects of other libraries. A container
from outside counts where some code changes one of its kind. In-place ops on tensors are captured,
and are no writes. Used by `witnesses`. Rule: DYN-24. Spec: `specs/guards_proved.md`.
"""

from __future__ import annotations

import builtins
import collections
import enum
import functools
import sys
import types
from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs
import numpy as np

from aotlite.eager.autograd.custom_function.function import Function
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.tracked_objects import TrackedObject
from aotlite.ir.provenance.location import Location, place_of
from aotlite.pipeline.size_regions.exact_types import _loaded
from aotlite.pipeline.size_regions.proof.bytecode_writes import (
    BY_TUPLE,
    FIRST_CALLS,
    MAKERS,
    WrittenCode,
)
from aotlite.stages.records.guards.access_paths import NOTHING, attributes_of
from aotlite.stages.s1_capture.environment.access_search import is_users
from aotlite.stages.s1_capture.hooks.reachable import changes_of

_MOST: Final = 20_000
"""Where more objects can be reached, the function counts as one that writes."""
_PLAIN: Final = (
    *(int, float, complex, str, bytes, types.NoneType, types.EllipsisType, range, slice),
    *(types.NotImplementedType, types.CodeType, types.GenericAlias, types.UnionType),
    *(np.generic, np.dtype, np.ufunc),
)
_TELLING: Final = frozenset(
    "__import__ breakpoint compile delattr eval exec exit globals help input locals open print "
    "quit setattr vars".split()
)
"""Built-in functions that do more than to return a value."""
_LIBRARIES: Final = frozenset(
    "math cmath operator _operator functools _functools itertools collections _collections "
    "_collections_abc typing types dataclasses enum abc _abc contextlib copy numbers statistics "
    "string fractions decimal _decimal re builtins attr attrs numpy typing_extensions".split()
)
"""Packages whose functions return values, but for those that are listed."""
_CHANGING: Final = frozenset(
    "setitem delitem iadd iand iconcat ifloordiv ilshift imatmul imod imul ior ipow irshift isub "
    "itruediv ixor copyto put place putmask fill_diagonal put_along_axis save savez savetxt "
    "savez_compressed seterr set_printoptions redirect_stdout redirect_stderr tofile".split()
)
_SETTERS: Final = ("set_", "manual_", "register", "mark_", "save", "load", "enable", "disable")
_OF_ARRAYS: Final = ("out", "resize", "sort", "partition", "setflags", "+=", "-=", "*=", "/=")
_CONTAINERS: Final = (list, dict, set, collections.deque, np.ndarray)
_ALWAYS: Final = frozenset(("forward", "backward", "vjp", "jvp", "setup_context"))
"""Methods that the library calls without naming them in the user's code."""
_OF_EVERY_CLASS: Final = frozenset(
    ("__dict__", "__weakref__", "__doc__", "__module__", "__annotations__")
    + ("__init_subclass__", "__set_name__", "__reduce__", "__getstate__", "__setstate__")
    + ("__slots__", "__match_args__", "__dataclass_fields__", "__attrs_attrs__")
)
_MAKING: Final = frozenset(("type", "__class__", "cls"))
"""Names by which code may make an object of the class of another one."""


@attrs.frozen
class Write:
    """What a function may do outside, and the user's line."""

    what: str
    at: Location | None

    def __str__(self) -> str:
        return self.what if self.at is None else f"{self.what} ({place_of(self.at)})"


def first_write(roots: Iterable[object]) -> Write | None:
    """The first thing found that these functions and objects may do outside; None if nothing is."""
    return _Search().run(roots)


@attrs.define(eq=False, repr=False)
class _Search:
    """One walk over all that can be reached."""

    found: Write | None = None
    _waiting: list[tuple[Any, Location | None, str]] = attrs.field(factory=list)
    """With the lines and names by which code loads them."""
    _seen: dict[tuple[int, bool], object] = attrs.field(factory=dict)
    """With the objects, whose ids stay theirs so."""
    _words: dict[str, Location] = attrs.field(factory=dict)
    """The attributes that code names, and the ways in which it changes containers."""
    _owners: list[Any] = attrs.field(factory=list)
    """Objects, modules and classes, of which the attributes count whose names code uses."""
    _made: dict[int, type] = attrs.field(factory=dict)
    """The classes of which code may make objects."""
    _containers: list[tuple[object, str]] = attrs.field(factory=list)
    _handed: set[str] = attrs.field(factory=lambda: {""})
    """The names whose values are used for more than to read their items."""
    _taken: set[tuple[int, str]] = attrs.field(factory=set)
    _is_dynamic: bool = False

    def run(self, roots: Iterable[object]) -> Write | None:
        self._waiting, known = [(root, None, "") for root in roots], -1
        while self._waiting or known < len(self._words):
            for thing, at, name in self._waiting:  # grows while it is walked
                if issubclass(type(thing), _CONTAINERS):
                    self._containers.append((thing, name))
                self._visit(thing, at)
                if self.found is not None or len(self._seen) > _MOST:
                    self._say("reaches too many objects", at)
                    return self.found
            self._waiting, known = [], len(self._words)
            for owner in list(self._owners):
                self._take_named(owner)
        for thing, name in self._containers:
            kinds = changes_of(thing) + (_OF_ARRAYS if isinstance(thing, np.ndarray) else ())
            kinds += (BY_TUPLE,) if isinstance(thing, (dict, np.ndarray)) else ()
            for word in kinds:
                if word in self._words and (self._is_dynamic or name in self._handed):
                    self._say(f"may change {_article(thing)} from outside", self._words[word])
        return self.found

    def _say(self, what: str, at: Location | None) -> None:
        if self.found is None:
            self.found = Write(what, at)

    def _push(self, things: Iterable[object], at: Location | None, name: str = "") -> None:
        self._waiting += [(x, at, name) for x in things if not _is_plain(x)]

    # --- one object
    def _visit(self, thing: Any, at: Location | None) -> None:
        if _is_plain(thing) or (id(thing), False) in self._seen:
            return
        self._seen[id(thing), False] = thing
        kind = type(thing)
        if issubclass(kind, types.FunctionType):
            self._visit_function(thing, at)
        elif issubclass(kind, type):
            self._visit_class(thing, at)
        elif issubclass(kind, types.ModuleType):
            self._owners.append(thing)
        elif issubclass(kind, types.MethodType):
            self._push((thing.__self__, thing.__func__), at)
        elif issubclass(kind, types.BuiltinFunctionType):
            self._visit_builtin(thing, at)
        elif kind is functools.partial:
            self._push((thing.func, thing.args, thing.keywords), at)
        elif kind in (staticmethod, classmethod, property):
            self._push((getattr(thing, "__func__", getattr(thing, "fget", None)),), at)
        elif issubclass(kind, (tuple, frozenset, *_CONTAINERS)):
            self._visit_container(thing, at)
        else:
            self._visit_object(thing, at)

    def _visit_container(self, thing: Any, at: Location | None) -> None:
        kind = type(thing)
        if issubclass(kind, collections.defaultdict):
            self._say("reads a defaultdict from outside, which may add to it", at)
        if issubclass(kind, dict):
            self._push(dict.values(thing), at)
        elif not issubclass(kind, np.ndarray):
            self._push(list(thing), at)
        if is_users(kind):
            self._visit_object(thing, at)

    def _visit_object(self, thing: Any, at: Location | None) -> None:
        kind = type(thing)
        if is_users(kind):
            self._visit_kind(kind, at)
        bases = [base for base in kind.__mro__ if not is_users(base)]
        if issubclass(kind, Tensor):
            return
        if not all(map(_is_known_class, bases)) or not _is_inert(thing, bases):
            self._say(f"uses {_article(thing)} from outside", at)
        self._owners.append(thing)
        held = attributes_of(thing).values()
        if issubclass(kind, TrackedObject) or _is_ours(kind):  # which the library itself calls
            inner = [x for each in held if type(each) is dict for x in each.values()]
            called = (types.FunctionType, types.MethodType, functools.partial, TrackedObject)
            self._push([x for x in (*held, *inner) if isinstance(x, called)], at)

    def _visit_kind(self, kind: type, at: Location | None) -> None:
        """The class of an object: it has methods that Python calls."""
        if (id(kind), True) not in self._seen:
            self._seen[id(kind), True] = kind
            self._owners.append(kind)
            if type(kind) is not type and is_users(type(kind)):
                self._visit_kind(type(kind), at)

    def _visit_class(self, kind: type, at: Location | None) -> None:
        """A class that code names: it may make objects of it."""
        if not is_users(kind):
            if not _is_known_class(kind):
                self._say(f"uses {kind.__name__}", at)
            return
        for base in kind.__mro__:
            self._made[id(base)] = base
            if not is_users(base) and not _is_known_class(base):
                self._say(f"uses {base.__name__}", at)
        self._visit_kind(kind, at)

    def _visit_builtin(self, thing: Any, at: Location | None) -> None:
        owner, name = thing.__self__, thing.__name__
        if owner is None or isinstance(owner, types.ModuleType):
            package = (thing.__module__ or "").partition(".")[0]
            is_quiet = package in _LIBRARIES and name not in _TELLING | _CHANGING
            if not is_quiet:
                self._say(f"calls {name}", at)
        elif isinstance(owner, type):  # dict.fromkeys
            self._push((owner,), at)
        elif not _is_plain(owner) and not isinstance(owner, (tuple, frozenset)):
            self._say(f"calls {name} of {_article(owner)} from outside", at)

    # --- functions
    def _visit_function(
        self, function: types.FunctionType, at: Location | None, owner: type | None = None
    ) -> None:
        cells = [_contents(cell) for cell in function.__closure__ or ()]
        scope, code = function.__globals__, function.__code__
        package = str(scope.get("__name__")).partition(".")[0]
        if not is_users(function) or package in sys.stdlib_module_names or package == "attr":
            inner = [x for each in cells if type(each) is dict for x in each.values()]
            for each in (*cells, *inner):
                if isinstance(each, types.FunctionType):
                    self._visit_once(each, at, owner)
            if not _is_quiet(function, package):
                self._say(f"calls {function.__name__}", at)
            return
        kept = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        self._push(kept, at)
        for name, value in zip(code.co_freevars, cells, strict=True):
            if value is not NOTHING and name != "__class__":  # which `super()` reads
                self._push([value], at, name)
        self._push([x for x in vars(function).values() if callable(x)], at)
        if _is_generated(code, owner):
            return
        read = WrittenCode.of(code, owner is not None and issubclass(owner, Function))
        if read.write is not None:
            self._say(*read.write)
        for word, place in read.words.items():
            self._words.setdefault(word, place)
        self._is_dynamic |= read.is_dynamic
        self._handed |= read.handed
        if {"getattr", "hasattr", "attrgetter", "methodcaller"} & {*read.names, *read.words}:
            for text in read.texts:
                self._words.setdefault(text, (code, 0))
                self._handed.add(text)
        for name, place in read.names.items():
            value = scope.get(name, vars(builtins).get(name, NOTHING))
            if name in MAKERS and value is not vars(builtins)[name]:
                self._say(f"uses a {name} of its own", place)
            if value is not NOTHING:
                self._push([value], place, name)
            if name in _MAKING:
                self._words.setdefault(name, place)
        for name in read.modules:
            self._import(name, function)

    def _visit_once(
        self, function: types.FunctionType, at: Location | None, owner: type | None
    ) -> None:
        if (id(function), False) not in self._seen:
            self._seen[id(function), False] = function
            self._visit_function(function, at, owner)

    def _import(self, name: str, function: types.FunctionType) -> None:
        package = str(function.__globals__.get("__package__"))
        names = (name, f"{package}.{name}", name.partition(".")[0] or package)
        found = [module for module in map(_loaded, names) if module is not None]
        self._push(found, (function.__code__, 0))
        if not found:
            self._say(f"imports {name}", (function.__code__, 0))

    # --- attributes
    def _take_named(self, owner: Any) -> None:
        """Pushes the attributes of an object, module or class whose names code uses."""
        if isinstance(owner, type):
            for base in filter(is_users, owner.__mro__):
                self._take_of_class(base, owner)
            return
        is_module = isinstance(owner, types.ModuleType)
        held = dict(vars(owner) if is_module else attributes_of(owner))
        if is_module and owner.__name__.partition(".")[0] == "aotlite":  # it imports when asked
            setters = [word for word in self._words if word.startswith(_SETTERS)]
            held |= {word: getattr(owner, word, NOTHING) for word in setters}
        elif not is_module:
            for cls in type(owner).__mro__:
                slots = [(k, v) for k, v in vars(cls).items() if type(v) in _SLOTS]
                held |= {name: _slot(each, owner) for name, each in slots}
        is_wide = self._is_dynamic and not is_module
        for name in self._new(owner, held.keys() if is_wide else held.keys() & self._words.keys()):
            self._push([held[name]], self._words.get(name), name if name in self._words else "")

    def _take_of_class(self, base: type, owner: type) -> None:
        is_made = id(base) in self._made or bool(_MAKING & self._words.keys())
        skipped = _OF_EVERY_CLASS | (frozenset() if is_made else FIRST_CALLS)
        names = {x for x in vars(base) if x.startswith("__") or x in _ALWAYS or self._is_dynamic}
        names |= vars(base).keys() & self._words.keys()
        for name in self._new(base, names - skipped):
            value, at = vars(base)[name], self._words.get(name)
            inner = getattr(value, "__func__", getattr(value, "fget", value))
            if isinstance(inner, types.FunctionType):
                self._visit_once(inner, at, owner)
            elif type(value) not in _SLOTS:
                self._push([value], at, name if name in self._words else "")

    def _new(self, owner: object, names: Iterable[str]) -> Sequence[str]:
        new = [name for name in names if (id(owner), name) not in self._taken]
        self._taken.update((id(owner), name) for name in new)
        return new


# -------------------------------------------------------------------------------- what is harmless
_SLOTS: Final = (types.MemberDescriptorType, types.GetSetDescriptorType)


def _is_plain(thing: object) -> bool:
    kind = type(thing)  # `isinstance` would ask an object of a user's for its `__class__`
    return issubclass(kind, _PLAIN) and not is_users(kind)


def _package(thing: Any) -> str:
    return str(getattr(thing, "__module__", None) or "").partition(".")[0]


def _is_ours(kind: type) -> bool:
    return not is_users(kind) and _package(kind) == "aotlite"


def _is_known_class(kind: type) -> bool:
    """Whether to make an object of a class of a library, or of Python's, does no more."""
    return _package(kind) in (*_LIBRARIES, "aotlite") and not issubclass(kind, np.memmap)


_HELD: Final = (
    *(object, types.SimpleNamespace, types.MappingProxyType, enum.Enum, BaseException),
    *(types.MemberDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType),
    *(types.ClassMethodDescriptorType, *_CONTAINERS, tuple, frozenset, *_PLAIN),
)


def _is_inert(thing: object, bases: Sequence[type]) -> bool:
    """Whether to use an object changes nothing, but by code of users and by its attributes."""
    first = bases[0] if bases else object
    known = first in _HELD or issubclass(first, (BaseException, enum.Enum)) or _is_ours(first)
    if type(thing) is types.MethodDescriptorType:
        return issubclass(thing.__objclass__, (*_PLAIN, tuple, frozenset))
    names = ("typing", "abc", "_abc", "contextlib", "dataclasses", "numpy")
    return known or _package(first) in names


def _is_quiet(function: types.FunctionType, package: str) -> bool:
    """Whether a function of a library only returns a value."""
    if package == "aotlite":
        is_block = function.__name__ == "set_grad_enabled"
        return is_block or not function.__name__.startswith(_SETTERS)
    return package in _LIBRARIES and function.__name__ not in _CHANGING


def _is_generated(code: types.CodeType, owner: type | None) -> bool:
    """Whether attrs or dataclasses have written a method, which is none that makes objects."""
    is_of_dataclass = code.co_filename == "<string>" and hasattr(owner, "__dataclass_fields__")
    is_written = is_of_dataclass and code.co_name not in FIRST_CALLS
    return is_written or code.co_filename.startswith("<attrs generated")


def _contents(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return NOTHING


def _slot(member: Any, thing: object) -> object:
    try:
        found: object = member.__get__(thing) if type(member) is _SLOTS[0] else NOTHING
    except AttributeError:  # an empty one
        return NOTHING
    return found


def _article(thing: object) -> str:
    name = type(thing).__name__
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"
