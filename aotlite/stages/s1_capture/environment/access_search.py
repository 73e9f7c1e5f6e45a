"""Finds access paths: how each call reaches a tensor or object that is not an argument.

An access path is a root (an argument, or the compiled function) and steps from it:
`function · cell 0 · attr 'weight'`. `AccessPathIndex` searches breadth first: the closure, globals,
defaults and bound object of the function, and the Modules, optimizers, wrappers and classes found
there or among the arguments. Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

import dis
import enum
import functools
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from inspect import getattr_static, getfile
from typing import Any

import attrs
import numpy as np

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import inner_tensors, is_wrapper
from aotlite.eager.tracked_objects import TrackedObject
from aotlite.stages.records.guards.access_paths import (
    NOTHING,
    AccessPath,
    _cell,
    _opened,
    attributes_of,
    take,
)


@attrs.define(eq=False, repr=False)
class AccessPathIndex:
    """Access paths of the tensors and tracked objects reachable from a function, by identity.

    The search runs at the first query; many captures make none.
    """

    function: Any
    leaves: list[Any]
    _found: dict[int, list[AccessPath]] | None = None
    _roots: list[AccessPath] = attrs.field(factory=list)
    _alive: list[object] = attrs.field(factory=list)

    def find(self, thing: object) -> AccessPath | None:
        """The first place at which `thing` is found, breadth first."""
        return next(iter(self.all_of(thing)), None)

    def all_of(self, thing: object) -> list[AccessPath]:
        """All places at which `thing` is found, breadth first; an argument itself is none."""
        if self._found is None:
            self._found = self._search()
        return self._found.get(id(thing), [])

    def tensors(self) -> list[Tensor]:
        """All tensors found, the arguments too."""
        self.roots()
        return [thing for thing in self._alive if isinstance(thing, Tensor)]

    def functions(self) -> list[types.FunctionType]:
        """All functions found: guards compare their variables at each call."""
        self.roots()
        return [thing for thing in self._alive if isinstance(thing, types.FunctionType)]

    def roots(self) -> list[AccessPath]:
        """The access paths of all variables that the function, or one that it names, can read."""
        if self._found is None:
            self._found = self._search()
        return self._roots

    def _search(self) -> dict[int, list[AccessPath]]:
        search = _Search(self.function, self.leaves)
        found = search.run()
        self._roots, self._alive = search.roots, search.alive
        return found


@attrs.define(eq=False, repr=False)
class _Search:
    """One breadth-first search. Class attributes come last: only names that code reads count."""

    function: Any
    leaves: list[Any]
    roots: list[AccessPath] = attrs.field(factory=list)
    alive: list[object] = attrs.field(factory=list)
    _found: dict[int, list[AccessPath]] = attrs.field(factory=dict)
    _seen: set[int] = attrs.field(factory=set)
    _names: set[str] = attrs.field(factory=set)
    """The attribute names that the code of some function reads."""
    _classes: list[tuple[type, AccessPath]] = attrs.field(factory=list)
    _taken: set[tuple[int, int, str]] = attrs.field(factory=set)
    _queue: list[tuple[object, AccessPath]] = attrs.field(factory=list)

    def run(self) -> dict[int, list[AccessPath]]:
        observed = [
            i for i, leaf in enumerate(self.leaves) if isinstance(leaf, (TrackedObject, Tensor))
        ]
        self._queue = [(self.leaves[i], AccessPath(i, self.function)) for i in observed]
        self._queue.append((self.function, AccessPath(None, self.function)))
        self._names.update(_ALWAYS_NAMED)
        while self._queue:
            for thing, place in self._queue:  # grows while it is walked
                self._visit(thing, place)
            self._queue = [each for found in self._classes for each in self._named_in(*found)]
        return self._found

    def _visit(self, thing: Any, place: AccessPath) -> None:
        argument = not place.path and place.argument is not None
        if isinstance(thing, TrackedObject) or isinstance(thing, Tensor) and not argument:
            self._found.setdefault(id(thing), []).append(place)
        if is_wrapper(thing) and not argument:  # its parts lie wherever it lies
            self._queue.extend(_parts_of(thing, place))
        if id(thing) in self._seen:
            return
        self._seen.add(id(thing))
        self.alive.append(thing)
        if isinstance(thing, type):
            self._classes.append((thing, place))
            return
        further = list(self._inside(thing, place))
        self._queue.extend(further)
        if isinstance(thing, _NAMING) or thing is self.function:
            self.roots += [at for _, at in further]

    def _inside(self, thing: Any, place: AccessPath) -> Iterator[tuple[object, AccessPath]]:
        if not isinstance(thing, types.FunctionType):
            yield from _inside(thing, place)
        elif _is_ours(thing.__module__) or _is_ours(thing.__globals__.get("__name__")):
            yield from _what_it_wraps(thing, place)
        else:
            variables, attributes = names_used(thing.__code__)
            if (thing.__module__ or "").split(".")[0] in _LIBRARY:
                variables = ()  # the library's own state: tables that any package may add to
            self._names.update(attributes if is_users(thing) else ())
            yield from _inside_function(thing, place, variables, attributes)

    def _named_in(self, kind: type, place: AccessPath) -> Iterator[tuple[object, AccessPath]]:
        """The attributes of users' classes whose names some code reads."""
        for number, base in enumerate(kind.__mro__):
            if not is_users(base):
                continue
            for name in [name for name in vars(base) if name in self._names]:
                key = id(kind), number, name
                value = _opened(vars(base)[name])
                if key not in self._taken and isinstance(value, (*_VALUES, type)):
                    self._taken.add(key)
                    for at in _hiding(kind, number, name, place):
                        self.roots.append(at)
                        yield NOTHING, at
                    at = place.then("class", (number, name))
                    self.roots.append(at)
                    yield value, at


def _hiding(kind: type, number: int, name: str, place: AccessPath) -> Iterator[AccessPath]:
    """Where an attribute, put into a class before base `number`, would hide that of the base."""
    for before, base in enumerate(kind.__mro__[:number]):
        if name not in vars(base):
            yield place.then("class", (before, name))


_NAMING = (types.FunctionType, types.MethodType, functools.partial)
"""Objects whose contents count as variables, and are guarded."""
_PLAIN = (int, float, complex, bool, str, type(None), np.generic)
_VALUES = (*_PLAIN, enum.Enum, Tensor, TrackedObject, list, dict, tuple, types.FunctionType)
"""Attributes of a module or class are searched if they are of these types."""
_FOREIGN = ("numpy", "builtins")
_LIBRARY = sys.stdlib_module_names - {"__main__"}
_ALWAYS_NAMED = ("__init__", "__new__", "__call__", "forward", "backward", "vjp", "setup_context")
"""Methods that Python, Modules and `Function`s call without naming them in code."""


def parts_at(wrapper: Tensor, place: AccessPath) -> Iterator[tuple[Tensor, AccessPath]]:
    """The inner tensors of a wrapper at an access path, at any depth, with their paths."""
    for part, at in _parts_of(wrapper, place):
        yield part, at
        if is_wrapper(part):
            yield from parts_at(part, at)


def _parts_of(wrapper: Tensor, place: AccessPath) -> Iterator[tuple[Tensor, AccessPath]]:
    """The inner tensors of a wrapper (SUB-1), one level deep; none of a wrapper of a capture."""
    if wrapper.storage.capture is None:
        for name, part in inner_tensors(wrapper).items():
            yield part, place.then("part", name)


def _inside(thing: Any, place: AccessPath) -> Iterator[tuple[object, AccessPath]]:
    """The objects one step from an object, with their access paths."""
    match thing:
        case Tensor():
            if thing._grad is not None:
                yield thing._grad, place.then("grad", None)
        case TrackedObject():
            for name, value in list(attributes_of(thing).items()):
                yield value, place.then("attr", name)
            yield from _functions_of(type(thing), place)
        case dict():
            for key, value in list(thing.items()):
                if not isinstance(value, _PLAIN):
                    yield value, place.then("item", key)
        case list() | tuple():
            for i, value in enumerate(thing):
                if not isinstance(value, _PLAIN):
                    yield value, place.then("item", i)
        case types.MethodType():
            bound = place.then("member", "__self__")
            yield thing.__self__, bound
            yield thing.__func__, place.then("member", "__func__")
            if not isinstance(thing.__self__, (TrackedObject, types.ModuleType, type)):
                yield from _inside_object(thing.__self__, bound)
        case functools.partial():
            yield thing.func, place.then("member", "func")
            yield thing.args, place.then("member", "args")
            yield thing.keywords, place.then("member", "keywords")
        case _ if _wraps_a_function(thing):
            yield thing.__wrapped__, place.then("member", "__wrapped__")
        case _ if not place.path and place.argument is None:
            yield from _inside_object(thing, place)


def _wraps_a_function(thing: object) -> bool:
    """Whether an object has a `__wrapped__` that is a function.

    Looked up statically: a user's `__getattr__` must not run, since the function did not call it.
    """
    if getattr_static(thing, "__wrapped__", None) is None:
        return False
    return isinstance(getattr(thing, "__wrapped__", None), types.FunctionType)


def _inside_object(thing: object, place: AccessPath) -> Iterator[tuple[object, AccessPath]]:
    """The attributes, slots and class attributes of the object that a method is bound to."""
    for name, value in list(attributes_of(thing).items()):
        yield value, place.then("attr", name)
    for cls in type(thing).__mro__:
        for name, value in vars(cls).items():
            if name.startswith("__"):
                continue
            at = place.then("attr", name)
            if isinstance(value, types.MemberDescriptorType):  # a slot
                yield take(thing, "attr", name), at
            elif isinstance(value, (*_PLAIN, list, tuple, dict)):
                yield value, at
    yield from _functions_of(type(thing), place)


def _functions_of(kind: type, place: AccessPath) -> Iterator[tuple[object, AccessPath]]:
    """The methods of a user's class: a caller may reach what they read."""
    for number, cls in enumerate(kind.__mro__):
        if is_users(cls):
            for name, value in vars(cls).items():
                function = _opened(value)
                if isinstance(function, types.FunctionType):
                    yield function, place.then("class", (number, name))


def _inside_function(
    function: types.FunctionType,
    place: AccessPath,
    variables: tuple[str, ...],
    attributes: tuple[str, ...],
) -> Iterator[tuple[object, AccessPath]]:
    for i in range(len(function.__closure__ or ())):
        value, at = _cell(function, i), place.then("cell", i)
        yield value, at
        if isinstance(value, types.ModuleType):  # imported by the function around
            yield from _inside_module(value, attributes, at)
    for i, value in enumerate(function.__defaults__ or ()):
        yield value, place.then("default", i)
    for name, value in (function.__kwdefaults__ or {}).items():
        yield value, place.then("default", name)
    for name in variables:
        value = function.__globals__.get(name, NOTHING)
        at = place.then("global", name)
        yield value, at  # a name that is not there yet may be bound later
        if isinstance(value, types.ModuleType):
            yield from _inside_module(value, attributes, at)
    yield from _what_it_wraps(function, place)


def _what_it_wraps(
    function: types.FunctionType, place: AccessPath
) -> Iterator[tuple[object, AccessPath]]:
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is not None:
        yield wrapped, place.then("member", "__wrapped__")


def _inside_module(
    module: types.ModuleType, names: tuple[str, ...], place: AccessPath
) -> Iterator[tuple[object, AccessPath]]:
    package = module.__name__.split(".")[0]
    if package in ("aotlite", *_FOREIGN):
        return
    for name in names:
        value = vars(module).get(name, NOTHING)
        is_module = isinstance(value, types.ModuleType)
        if isinstance(value, (*_VALUES, type)) or not is_module and package not in _LIBRARY:
            yield value, place.then("module", name)
        elif is_module and value.__name__ == f"{module.__name__}.{name}":
            yield from _inside_module(value, names, place.then("module", name))


@functools.lru_cache(maxsize=4096)
def names_used(code: types.CodeType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The global names and the attribute names that a function's code reads, with those of the
    functions nested in it.

    Cached: each capture asks for all functions that its own can reach.
    """
    variables: dict[str, None] = {}
    attributes: dict[str, None] = {}
    stack = [code]
    while stack:
        each = stack.pop()
        for step in dis.get_instructions(each):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                # Not a name of the user's: pytest writes `@pytest_ar` into each assertion, and all
                # of pytest lies behind it.
                if not step.argval.startswith("@"):
                    variables[step.argval] = None
            elif step.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
                attributes[step.argval] = None
        stack.extend(c for c in each.co_consts if isinstance(c, types.CodeType))
    return tuple(variables), tuple(attributes)


def is_users(thing: types.FunctionType | types.ModuleType | type) -> bool:
    """Whether a function, class or module is a user's: not of aotlite, NumPy or the stdlib."""
    is_module = isinstance(thing, types.ModuleType)
    return is_users_name(thing.__name__ if is_module else thing.__module__)


def is_users_name(module: str | None) -> bool:
    """Whether a module with this name is a user's."""
    package = (module or "").split(".")[0]
    return not _is_ours(module) and package != "numpy" and package not in _LIBRARY


_STANDS_FOR_USERS = ("aotlite.testing.", "aotlite.conformance.")


def _is_ours(module: str | None) -> bool:
    """Whether a module is aotlite's own. Functions of tests and conformance count as users'."""
    module = module or ""
    return module.split(".")[0] == "aotlite" and not module.startswith(_STANDS_FOR_USERS)


INSTALLED = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib")})
"""Folders of packages: a name that their code computes is hardly one of a user's object."""


def _in_package(kind: type) -> bool:
    try:
        return getfile(kind).startswith(INSTALLED)
    except (TypeError, OSError):  # its module has no file
        functions = [each for each in vars(kind).values() if type(each) is types.FunctionType]
        return any(each.__code__.co_filename.startswith(INSTALLED) for each in functions)


is_installed: Callable[[type], bool] = functools.lru_cache(maxsize=512)(_in_package)
"""Whether a class is of an installed package: by the file of its module, since packages such as
attrs put methods of their own into users' classes."""
