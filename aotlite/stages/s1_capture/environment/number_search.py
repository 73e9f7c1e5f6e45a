"""Finds the numbers that a function can reach, and the code that may run when it runs.

The search starts at the function and goes on by what its code names: variables, attributes, items,
and of objects and classes the methods under names that are asked for, in whatever they are wrapped
(decorators, partials, properties, bound methods, callables). A function that lies anywhere but in a
class may run; one in a class may if some code asks for its name, or Python calls it.
Used by `python_numbers`. Rule: CAP-14. Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

import builtins
import functools
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import attrs

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.tracked_objects import TrackedObject
from aotlite.stages.records.guards.access_paths import NOTHING, AccessPath, attributes_of, take
from aotlite.stages.records.guards.snapshots import IN_ALL, MANY, PLAIN
from aotlite.stages.s1_capture.environment.access_search import (
    INSTALLED,
    is_installed,
    is_users,
    is_users_name,
    names_used,
)
from aotlite.stages.s1_capture.environment.bytecode_reads import ANY, WRITES, ItemMark, Items
from aotlite.stages.s1_capture.environment.number_reads import (
    GETTERS,
    TAKE_TEXTS,
    asks_by_text,
    computed_names,
    texts_in,
)
from aotlite.stages.s1_capture.environment.object_contents import (
    HELD,
    Image,
    attributes,
    base_of,
    category,
    codes_in,
    content_of,
    inner_containers,
    is_a,
    is_object,
    is_small_array,
    spread,
)

_PLAIN = frozenset(PLAIN)
_ALWAYS = ("forward", "backward", "vjp", "setup_context")
"""Methods that aotlite calls; those with two underscores are Python's."""
_CALLED = frozenset(
    "__init__ __call__ __getattr__ __getattribute__ __iter__ __next__ __enter__ __exit__ __len__ "
    "__bool__ __eq__ __getitem__".split()
)
"""Of classes of installed packages, the methods that Python calls most."""
_OF_CLASSES = (staticmethod, classmethod, property, functools.cached_property)
_OF_WRAPPERS = ("__wrapped__", "function")
"""Attributes in which objects of libraries hold the function that they wrap."""
_MODULE = types.ModuleType
_BUILTINS = AccessPath(None, builtins)
_PARTS: dict[type, tuple[str, ...]] = {
    types.MethodType: ("__self__", "__func__"),
    functools.partial: ("func", "args", "keywords"),
    functools.partialmethod: ("func", "args", "keywords"),
    functools.singledispatchmethod: ("func", "dispatcher"),
    type(functools.lru_cache(print)): ("__wrapped__",),
}
_MOST_OF_PACKAGES = 64
"""At most so many functions of installed packages are looked into, those that are near first."""
_CONTAINERS = ("list", "dict", "set", "array")
Name = tuple[int | None, int, Any]
"""An access path as a dict key: its argument, its root and its steps."""


def name_of(place: AccessPath) -> Name:
    return place.argument, id(place.function), place.path


@attrs.frozen(eq=False, repr=False)
class World:
    """A snapshot of all numbers that a function can reach by name, and of the code that may run."""

    numbers: dict[Name, tuple[AccessPath, dict[Items, Any]]] = attrs.field(factory=dict)
    """At each path the numbers found, by their keys in nested containers, and other objects."""
    objects: dict[Name, Any] = attrs.field(factory=dict)
    """Plain objects, functions, Modules and optimizers, by the path on which they were found."""
    held: dict[tuple[int, str], tuple[Any, Any]] = attrs.field(factory=dict)
    """Containers, objects, classes and small arrays by `id`, each with a copy of its contents, or
    of its attributes."""
    variables: list[tuple[AccessPath, Any]] = attrs.field(factory=list)
    codes: dict[types.CodeType, None] = attrs.field(factory=dict)
    asked: dict[str, None] = attrs.field(factory=dict)
    """Names of attributes that getters of `operator` ask for."""
    met: dict[int, object] = attrs.field(factory=dict)
    containers: dict[int, object] = attrs.field(factory=dict)
    """The lists, dicts and sets found, by `id`."""
    keys: dict[int, object] = attrs.field(factory=dict)
    """The objects among keys of dicts and items of sets, by `id`."""

    @property
    def known(self) -> set[int]:
        """The ids of all objects that were found."""
        return {*self.met, *self.containers, *self.keys}

    def meet(self, thing: object, at: AccessPath) -> list[tuple[AccessPath, object]]:
        """Records an object; returns its attributes, with their paths."""
        held = attributes(thing)
        self.objects[name_of(at)] = thing
        self.held[id(thing), "attributes"] = thing, held
        return [(at.then("attr", name), each) for name, each in held.items()]

    def keep(self, thing: Any) -> None:
        """Copies the contents of a container or array that is not large."""
        key = id(thing), "contents"
        if key in self.held:
            return
        if is_small_array(thing):
            self.held[key] = thing, thing.copy()
        elif is_a(thing, HELD) and base_of(thing).__len__(thing) <= MANY:
            self.held[key] = thing, content_of(thing)


def world_of(function: object, leaves: list[Any], *, keeps: bool) -> World:
    """A snapshot of what a function reaches. With `keeps`, containers and objects are copied, so
    that changes can be undone."""
    walk = _Walk(leaves, keeps)
    walk.queue = [
        (AccessPath(i, function), leaf)
        for i, leaf in enumerate(leaves)
        if is_a(leaf, TrackedObject)
    ]
    walk.queue.append((AccessPath(None, function), function))
    walk.run()
    return walk.world


@attrs.define(eq=False, repr=False)
class _Walk:
    """One search, breadth first; what is asked for by name comes later."""

    leaves: list[Any]
    keeps: bool
    world: World = attrs.field(factory=World)
    queue: list[tuple[AccessPath, Any]] = attrs.field(factory=list)
    left: int = IN_ALL
    _names: list[str] = attrs.field(factory=lambda: [*_ALWAYS])
    _known: set[str] = attrs.field(factory=lambda: {*_ALWAYS})
    _owners: list[_Owner] = attrs.field(factory=list)
    _classes: set[int] = attrs.field(factory=set)
    _of_packages: int = 0
    _takes_texts: bool = False
    """Whether a function that takes names as texts is reached under a name of the user's."""
    _computed: list[tuple[str, ...]] = attrs.field(factory=list)
    """Parts of the names that code computes for attributes."""

    def run(self) -> None:
        while self.queue and self.left > 0:
            for place, value in self.queue:  # grows while it is walked
                self._look(place, value)
                if self.left < 0:
                    return
            self.queue = [each for owner in self._owners for each in owner.named(self)]

    # --- numbers
    def _look(self, place: AccessPath, value: Any) -> None:
        """Notes the numbers at a place, and opens what lies there."""
        world, name = self.world, name_of(place)
        if name in world.numbers:
            return
        numbers: dict[Items, Any] = {}
        world.numbers[name] = place, numbers
        if place.path and place.path[-1][0] != "attr":
            world.variables.append((place, value))
        if type(value) in _PLAIN:
            self.left -= 1
            numbers[()] = value
            return
        for items, inner, at in spread(place, value):
            self.left -= 1
            if self.left < 0:
                return
            if items and type(items[-1]) is ItemMark:
                numbers[items] = inner
                continue
            found = category(type(inner))
            if found in _CONTAINERS:
                world.containers[id(inner)] = inner
                if self.keeps:
                    world.keep(inner)
                if is_object(inner):
                    self._open(at, inner)
                if found == "dict" or found == "set":
                    self._open_keys(inner)
            elif inner is not NOTHING:
                numbers[items] = inner
                self._open(at, inner)

    def _open_keys(self, thing: Any) -> None:
        """Looks into objects that are keys of a dict, or items of a set."""
        base = base_of(thing)
        if base.__len__(thing) <= MANY and not _PLAIN.issuperset(map(type, base.__iter__(thing))):
            for key in list(base.__iter__(thing)):
                if type(key) not in _PLAIN:
                    self.world.keys[id(key)] = key
                if is_object(key):
                    self._open(AccessPath(None, key), key)

    # --- what is no container
    def _open(self, at: AccessPath, thing: Any) -> None:
        """Looks into an object, once."""
        kind = type(thing)
        if kind in _PLAIN or id(thing) in self.world.met:
            return
        self.world.met[id(thing)] = thing
        opens = _OPENED.get(kind)
        if opens is not None:
            opens(self, at, thing)
        elif issubclass(kind, type):
            self._class(thing)
        elif not issubclass(kind, Tensor):
            self._object(at, thing)

    def _builtin(self, at: AccessPath, thing: Any) -> None:
        """A method of a container counts as what it is bound to, unless it only writes that."""
        if any(thing is each for each in TAKE_TEXTS):
            self._getter(at, thing)
        elif thing.__name__ not in WRITES and not is_a(thing.__self__, (type, _MODULE)):
            self._push(at, thing, "__self__")

    def _parts(self, at: AccessPath, thing: Any) -> None:
        self._push(at, thing, *_PARTS[type(thing)])

    def _weak(self, at: AccessPath, thing: Any) -> None:
        self.queue.append((at.then("target", None), thing()))

    def _proxy(self, at: AccessPath, thing: Any) -> None:
        self.queue += [(at.then("item", key), each) for key, each in thing.items()]

    def _module(self, at: AccessPath, thing: Any) -> None:
        if is_users(thing):
            self.world.objects[name_of(at)] = thing
        self._owners.append(_Owner(at, thing))

    def _push(self, at: AccessPath, thing: object, *members: str) -> None:
        self.queue += [(at.then("member", each), getattr(thing, each)) for each in members]

    def _object(self, at: AccessPath, thing: Any) -> None:
        kind = type(thing)
        if is_object(thing) and is_installed(kind):
            self._owners.append(_Owner(at, thing))
            self._class(kind)
            self.world.meet(thing, at)
        elif is_object(thing):
            self.queue += self.world.meet(thing, at)
            self._class(kind)
            if not is_a(thing, TrackedObject):
                of = at.then("member", "__class__")
                self.world.numbers[name_of(of)] = of, {(): kind}
        elif own := attributes_of(thing):  # of a library: what is asked for by name
            self._owners.append(_Owner(at, thing))
            self.queue += [(at.then("attr", x), own[x]) for x in _OF_WRAPPERS if x in own]
        if category(kind) == "stateful":
            self.queue += [(at.then("attr", name), each) for name, each in inner_containers(thing)]

    def _class(self, kind: Any) -> None:
        if any(kind is each for each in GETTERS):
            self._getter(AccessPath(None, kind), kind)
        if id(kind) in self._classes:
            return
        self._classes.add(id(kind))
        at = AccessPath(None, kind)
        self._owners.append(_Owner(at, kind))
        if is_users(kind):
            self.world.objects[name_of(at)] = kind
            self.world.held[id(kind), "attributes"] = kind, dict(vars(kind))
        if type(kind) is not type and is_users(type(kind)):
            self._class(type(kind))

    def _generator(self, at: AccessPath, thing: Any) -> None:
        for code in codes_in(thing):
            self._code(code)
        own = {} if thing.gi_frame is None else thing.gi_frame.f_locals
        self.queue += [
            (at.then("local", name), each)
            for name, each in own.items()
            if callable(each) or is_object(each)
        ]

    def _getter(self, at: AccessPath, thing: Any) -> None:
        """Notes the names that a getter asks for: it is called by C code, under any name. Where its
        class or `getattr` is a variable, every text may be such a name."""
        if type(thing) in GETTERS:
            made, given, *_ = thing.__reduce__()
            given = made.args if is_a(made, functools.partial) else given
            self._ask_texts([each for each in given if type(each) is str])
        elif not self._takes_texts:
            self._takes_texts = True
            for code in self.world.codes:
                self._ask_texts(texts_in(code))

    def _ask_texts(self, texts: Iterable[str]) -> None:
        names = [name for text in texts for name in text.split(".")]
        self.world.asked.update(dict.fromkeys(names))
        self._ask(names)

    def _ask(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._known:
                self._known.add(name)
                self._names.append(name)

    # --- functions
    def _function(self, _: AccessPath, function: types.FunctionType) -> None:
        """Looks into the variables of a function, which may run."""
        at, code = AccessPath(None, function), function.__code__
        cells = [
            (at.then("cell", i), take(function, "cell", i))
            for i in range(len(function.__closure__ or ()))
        ]
        if not _is_written_by_users(function):
            self._wrapper(at, function, cells)
            return
        is_installed = code.co_filename.startswith(INSTALLED)
        self._of_packages += is_installed
        if is_installed and self._of_packages > _MOST_OF_PACKAGES:
            return
        self._code(code)
        self.queue += self.world.meet(function, at)
        self.queue += cells
        for key in [*range(len(function.__defaults__ or ())), *(function.__kwdefaults__ or ())]:
            self.queue.append((at.then("default", key), take(function, "default", key)))
        variables = names_used(code)[0]
        if "globals" in variables:
            variables = (*variables, *texts_in(code))
        for name in dict.fromkeys(variables):
            value = function.__globals__.get(name, NOTHING)
            if not (is_installed and is_a(value, (type, _MODULE))):
                self.queue.append((at.then("global", name), value))
            given = vars(builtins).get(name, NOTHING)
            if value is NOTHING and type(given) in _PLAIN:
                self.queue.append((_BUILTINS.then("module", name), given))

    def _wrapper(
        self, at: AccessPath, function: types.FunctionType, cells: list[tuple[AccessPath, Any]]
    ) -> None:
        """Looks for what a library's function wraps: its own numbers are its own business."""
        for place, value in cells:
            inner = [(place, value)]
            if type(value) is dict:
                inner = [(place.then("item", key), each) for key, each in value.items()]
            self.queue += [each for each in inner if _is_users_thing(each[1])]
        if type(vars(function).get("registry")) is types.MappingProxyType:  # singledispatch
            of = at.then("member", "registry")
            held = [(key, id(each)) for key, each in vars(function)["registry"].items()]
            image = Image(tuple(held), f"{len(held)} functions")
            self.world.numbers[name_of(of)] = of, {(ANY,): image}
        if "__wrapped__" in vars(function):
            self.queue.append((at.then("attr", "__wrapped__"), vars(function)["__wrapped__"]))

    def _code(self, code: types.CodeType) -> None:
        """Notes code that may run, and the names that it asks for."""
        if code in self.world.codes:
            return
        self.world.codes[code] = None
        variables, attributes = names_used(code)
        self._ask((*attributes, *variables, *(texts_in(code) if asks_by_text(code) else ())))
        if self._takes_texts:
            self._ask_texts(texts_in(code))
        if not code.co_filename.startswith(INSTALLED):
            self._computed += computed_names(code)

    def asked(self, start: int) -> Sequence[str]:
        """The names that code asks for, from number `start` on."""
        return self._names[start:]

    def computed(self, start: int) -> Sequence[tuple[str, ...]]:
        """The parts of names that code computes, from number `start` on."""
        return self._computed[start:]


def _is_written_by_users(function: types.FunctionType) -> bool:
    """Whether the code is a user's: `functools.wraps` gives a library's wrapper a user's module."""
    return is_users(function) and is_users_name(str(function.__globals__.get("__name__")))


def _is_users_thing(value: object) -> bool:
    """Whether a variable of a library's wrapper is what it wraps."""
    if is_a(value, types.FunctionType):
        return True
    return is_a(value, tuple(_PARTS)) or is_object(value)


def _matching(names: Iterable[str], computed: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """The names that have all parts of one that code computes: `getattr(self, "on_" + kind)`."""
    for name in names if computed else ():
        if any(all(part in name for part in parts) for parts in computed):
            yield name


@attrs.define(eq=False, repr=False)
class _Owner:
    """A class, module or object of a library, of which counts what code asks for by name."""

    place: AccessPath
    thing: Any
    _starts: tuple[int, int] | None = None
    _taken: set[Any] = attrs.field(factory=set)

    def named(self, walk: _Walk) -> Iterator[tuple[AccessPath, object]]:
        """What further names lead to, since it was asked last."""
        start, start_computed = self._starts or (0, 0)
        names, computed = walk.asked(start), walk.computed(start_computed)
        is_first = self._starts is None
        self._starts = start + len(names), start_computed + len(computed)
        if is_a(self.thing, type):
            yield from self._of_class(names, computed, is_first=is_first)
            return
        own = attributes(self.thing)
        kind = "module" if is_a(self.thing, types.ModuleType) else "attr"
        if kind == "attr" or is_users(self.thing) or self.thing is builtins:
            for name in [*filter(own.__contains__, names), *_matching(own, computed)]:
                if not (kind == "module" and _is_packages_own(self.thing, own[name])):
                    yield self.place.then(kind, name), own[name]

    def _of_class(
        self, names: Sequence[str], computed: Sequence[tuple[str, ...]], *, is_first: bool
    ) -> Iterator[tuple[AccessPath, object]]:
        for number, base in enumerate(self.thing.__mro__):
            if not is_users(base):
                continue
            own = vars(base)
            found = [*filter(own.__contains__, names), *_matching(own, computed)]
            if is_first:
                dunder = [name for name in own if name.startswith("__") and name.endswith("__")]
                found += filter(_CALLED.__contains__, dunder) if is_installed(base) else dunder
            for name in found:
                if (number, name) not in self._taken:
                    self._taken.add((number, name))
                    yield from self._entry(number, name, own[name])

    def _entry(self, number: int, name: str, value: Any) -> Iterator[tuple[AccessPath, object]]:
        """What lies in the body of a class under a name, out of its wrapper."""
        at = self.place.then("class", (number, name))
        if is_a(value, _OF_CLASSES):
            if is_a(value, property):
                body = self.place.then("body", (number, name))
                for each in ("fset", "fdel"):
                    yield body.then("member", each), getattr(value, each)
            yield at, take(self.thing, "class", (number, name))
        elif callable(value) or not name.startswith("__"):
            yield at, value
            for before, base in enumerate(self.thing.__mro__[:number]):
                if name not in vars(base):  # one that is put there would hide this one
                    yield self.place.then("class", (before, name)), NOTHING


def _is_packages_own(module: types.ModuleType, value: object) -> bool:
    """Whether a value in a module of an installed package is the state of each thread, which the
    package makes when it needs it, or all of the module: attrs notes what its `__repr__` shows."""
    is_own = is_a(value, threading.local) or value is vars(module)
    return is_own and str(vars(module).get("__file__")).startswith(INSTALLED)


_OPENED: dict[type, Callable[[_Walk, AccessPath, Any], None]] = {
    types.FunctionType: _Walk._function,
    types.BuiltinFunctionType: _Walk._builtin,
    types.MethodWrapperType: _Walk._builtin,
    weakref.ref: _Walk._weak,
    types.MappingProxyType: _Walk._proxy,
    types.GeneratorType: _Walk._generator,
    types.ModuleType: _Walk._module,
    **dict.fromkeys(_PARTS, _Walk._parts),
    **dict.fromkeys(GETTERS, _Walk._getter),
}
"""How objects of these classes are looked into."""
