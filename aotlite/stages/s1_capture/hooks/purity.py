"""Proves that a user's hook is pure, from its bytecode and its variables.

A pure hook is run once, on fakes, and the ops that it records replace it. Any other hook is called
at each backward: one run cannot show that it prints, or changes an object. The proof: the hook can
change nothing but tensors and objects that it makes itself, and reads nothing that can change.
Used by `hooks/registered.py`, and by compiled autograd for backwards of custom functions
(`loads_of`, CAG-30). Rules: HOOK-2, HOOK-3. Spec: `specs/hooks_inside.md`.
"""

from __future__ import annotations

import builtins
import dis
import functools
import types
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import attrs
import numpy as np

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.tracked_objects import TrackedCallable
from aotlite.effects import callback
from aotlite.ir.arrays.device import Device
from aotlite.ir.dtypes import DType
from aotlite.ir.geometry.memory_format import MemoryFormat
from aotlite.ir.symbols.floats.call_code import own_code
from aotlite.stages.records.guards.access_paths import NOTHING, attributes_of
from aotlite.stages.s1_capture.environment.access_search import is_users
from aotlite.stages.s1_capture.environment.bytecode_reads import steps_of
from aotlite.stages.s1_capture.hooks.reachable import (
    Known,
    article,
    changes_of,
    variables_of,
    words_of,
)

_Found = tuple[str, Any]
"""(name, object): the name by which code loads the object; empty where it is passed to the code."""

_VALUES = (
    bool, int, float, complex, str, bytes, range, types.NoneType, types.EllipsisType,
    np.generic, np.ufunc, np.dtype, DType, Device, MemoryFormat,
)  # fmt: skip
_FUNCTIONS = frozenset(
    "abs all any bin chr divmod format hex isinstance issubclass iter len max min next oct ord pow "
    "repr round sorted sum".split()
)
_TYPES = frozenset((
    bool, int, float, complex, str, bytes, slice, range, tuple, list, dict, set, frozenset,
    zip, enumerate, map, filter, reversed, object, type, functools.partial,
))  # fmt: skip
_LIBRARIES = ("math", "cmath", "operator", "functools", "numpy")
_OURS = frozenset(("aotlite", *(f"aotlite.{each}" for each in (
    "autograd", "effects", "linalg", "nn", "nn.functional", "ops",
))))  # fmt: skip
_SETTERS = ("set_", "manual_")
_OPERATORS_THAT_WRITE = frozenset(
    "setitem delitem iadd iand iconcat ifloordiv ilshift imatmul imod imul ior ipow irshift isub "
    "itruediv ixor call".split()
)
_NAMES = ("LOAD_GLOBAL", "LOAD_DEREF", "LOAD_FAST", "LOAD_NAME")
_NO_LOADS = ("LOAD_CONST", "LOAD_CLOSURE", "LOAD_ASSERTION_ERROR")
_LOADS = ("LOAD_ATTR", "LOAD_METHOD")
_REBINDS = ("STORE_DEREF", "DELETE_DEREF")
_CALLS = ("__call__",)
_READS = frozenset(("__getattr__", "__getattribute__"))
_CALLABLE = (types.FunctionType, functools.partial)
_STEPS = {
    "STORE_GLOBAL": "rebinds the global",
    "DELETE_GLOBAL": "deletes the global",
    "STORE_ATTR": "sets the attribute",
    "DELETE_ATTR": "deletes the attribute",
    "IMPORT_NAME": "imports",
    "LOAD_BUILD_CLASS": "makes a class",
}
_DOORS = frozenset(("grad_fn", "metadata"))
"""Attributes of tensors and tape nodes that lead to other objects."""


def more_than_computes(hook: object, known: Known, given: Sequence[object] = ()) -> str | None:
    """Why a hook is not proven pure, such as "reads a dict"; None if it is.

    `known` has the objects that existed before the captured run. Other containers were made by the
    run, and only its own functions can reach them. `given` are the gradients that it is called
    with, if known.
    """
    walk = _Walk(known, queue=[("", grad) for grad in given])
    return walk.along(hook) or walk.changes_a_container() or walk.asks_a_class()


@attrs.frozen(eq=False)
class Loads:
    """What a function can load by name, with the functions that it calls."""

    against: str | None
    """Why it is not proven pure, if it is not."""
    functions: tuple[types.FunctionType, ...]
    """It, and the users' functions that it may call."""
    modules: tuple[types.ModuleType, ...]
    attributes: frozenset[str]
    """The names of the attributes that the code loads, of whatever."""


def loads_of(function: object) -> Loads:
    """What a function can load that is called with objects of which nothing is known."""
    walk = _Walk(_Outside())
    against = walk.along(function) or walk.asks_a_class()
    modules = [each for _, each in walk.owners if isinstance(each, types.ModuleType)]
    return Loads(
        against,
        tuple(walk.functions),
        tuple(dict.fromkeys(modules)),
        frozenset(walk.attributes),
    )


class _Outside:
    """Stands for `Known`: all objects were there before, and the caller compares all variables."""

    def __contains__(self, thing: object) -> bool:
        return True

    def is_compared(self, function: types.FunctionType) -> bool:
        """Whether somebody compares the function's variables."""
        return True


class _KnownObjects(Protocol):
    """`Known`, or `_Outside`."""

    def __contains__(self, thing: object) -> bool: ...

    def is_compared(self, function: types.FunctionType) -> bool:
        """Whether somebody compares the function's variables."""


@attrs.define(eq=False, repr=False)
class _Walk:
    """A search over all objects that a hook can load by name."""

    known: _KnownObjects
    words: set[str] = attrs.field(factory=set)
    """Attribute names and storing opcodes in the functions found."""
    attributes: dict[str, None] = attrs.field(factory=dict)
    bare: set[str] = attrs.field(factory=lambda: {""})
    """Names whose value is used itself, and not only for an attribute."""
    owners: list[_Found] = attrs.field(factory=list)
    """Objects whose attributes the code may load: Python modules, `nn.Module`s, functions, and
    tensors of users' classes."""
    containers: list[Any] = attrs.field(factory=list)
    functions: list[types.FunctionType] = attrs.field(factory=list)
    """The users' functions found."""
    queue: list[_Found] = attrs.field(factory=list)

    def along(self, hook: object) -> str | None:
        """The first reason why the hook is not proven pure."""
        self.queue.append(("", hook))
        seen, asked = set[tuple[str, int]](), set[tuple[int, str]]()
        while self.queue:
            for name, thing in self.queue:  # grows while it is walked
                if (name, id(thing)) not in seen:
                    seen.add((name, id(thing)))
                    against = self._inside(name, thing)
                    if against is not None:
                        return against
            self.queue.clear()
            for name, owner in self.owners:
                names = [*self.attributes, *(("forward",) if name in self.bare else ())]
                for each in names:
                    if (id(owner), each) not in asked:
                        asked.add((id(owner), each))
                        found = _attribute(owner, each)
                        if found is not NOTHING and isinstance(owner, _CALLABLE):
                            return f"reads the attribute {each!r} of a function"
                        self.queue.append((each, found))
        return None

    def changes_a_container(self) -> str | None:
        """The reason, if the code may change a container that the captured run made."""
        for each in self.containers:
            if not self.words.isdisjoint(changes_of(each)):
                return f"may change {article(each)}"
        return None

    def asks_a_class(self) -> str | None:
        """The reason, if the code may read attributes of a Module's class: nothing guards those."""
        modules = [each for _, each in self.owners if isinstance(each, TrackedCallable)]
        return (
            f"asks {article(modules[0])} for its class" if modules and "type" in self.bare else None
        )

    def _inside(self, name: str, thing: object) -> str | None:
        """Queues the objects one step from a harmless object; the reason, if it is not harmless."""
        if isinstance(thing, Tensor):
            if is_users(type(thing)):
                self.owners.append((name, thing))
            return None
        if isinstance(thing, _VALUES) and not is_users(type(thing)):
            return None
        match thing:
            case tuple() | frozenset() if type(thing) in (tuple, frozenset):
                self._follow(name, thing)
            case list() | dict() | set() if self._is_made(thing):
                self.containers.append(thing)
                self._follow(name, thing)
                self._follow(name, thing.values() if isinstance(thing, dict) else ())
            case slice():
                self._follow(name, (thing.start, thing.stop, thing.step))
            case types.FunctionType():
                return self._inside_function(name, thing)
            case types.MethodType():
                of = getattr(thing.__func__, "__code__", None)
                self._follow("" if of is None else of.co_varnames[0], [thing.__self__])
                self._follow(name, [thing.__func__])
            case functools.partial() if type(thing) is functools.partial:
                self.owners.append((name, thing))
                self._follow("", (thing.func, *thing.args, *thing.keywords.values()))
            case types.ModuleType() if _may_be_read(thing):
                self.owners.append((name, thing))
            case TrackedCallable():
                return self._inside_module(name, thing)
            case type() if issubclass(thing, Tensor):
                self.owners.append((name, thing))
            case _ if thing is not NOTHING and not _is_silent(thing):
                return f"reaches {_named(thing)}" + (f" ({name!r})" if name else "")
        return None

    def _is_made(self, container: object) -> bool:
        """Whether the captured run made this list, dict or set."""
        return type(container) in (list, dict, set) and container not in self.known

    def _follow(self, name: str, things: Iterable[object]) -> None:
        self.queue += [(name, each) for each in things]

    def _inside_module(self, name: str, module: TrackedCallable) -> str | None:
        """An `nn.Module`: its named attributes may be read, and it may be called."""
        self.owners.append((name, module))
        for cls in type(module).__mro__:
            if not is_users(cls):  # a library class calls the Modules among its attributes
                self._follow(
                    "",
                    [v for v in attributes_of(module).values() if isinstance(v, TrackedCallable)],
                )
                break
            if not vars(cls).keys().isdisjoint(_READS):
                return f"reaches a module ({name!r}) that has a way of its own to read attributes"
            self._follow("", [vars(cls)[each] for each in _CALLS if each in vars(cls)])
        return None

    def _inside_function(self, name: str, function: types.FunctionType) -> str | None:
        if not is_users(function):
            is_silent = _is_ours(function) and not function.__name__.startswith(_SETTERS)
            return None if is_silent else f"calls {function.__name__!r}"
        read = _Read.of(function)
        self.functions.append(function)
        if read.against is not None:
            return read.against
        if not self.known.is_compared(function):
            return f"reaches a function ({name!r}) whose variables no call compares"
        self.words.update(words_of(function))
        self.bare |= read.bare
        self.attributes.update(dict.fromkeys(read.attributes))
        if attributes_of(function):
            self.owners.append((name, function))
        self.queue += [each for each in variables_of(function) if each[0] in read.used]
        return None


@attrs.define(eq=False, repr=False)
class _Read:
    """The loads and stores in the bytecode of a function and of the functions nested in it."""

    against: str | None = None
    """The reason why the code is not pure."""
    bare: set[str] = attrs.field(factory=set)
    """Names whose value is used itself, and not only for an attribute."""
    attributes: list[str] = attrs.field(factory=list)
    used: set[str] = attrs.field(factory=set)
    """Names of variables, without those that are only passed to `effects.callback`."""

    @classmethod
    def of(cls, function: types.FunctionType) -> _Read:
        """Reads the bytecode. Functions passed to `effects.callback` are skipped: it runs them."""
        found, loads, given = cls(), Counter[str](), Counter[str]()
        stack = [own_code(function.__code__)]
        while stack:
            code = stack.pop()
            steps = steps_of(code)
            found.against = found.against or _against_code(code, steps)
            later = []
            for place, step in enumerate(steps):
                if step.opname in _LOADS:
                    found.attributes.append(step.argval)
                elif step.opname.startswith("LOAD_") and step.opname not in _NO_LOADS:
                    loads.update((step.argval,) if isinstance(step.argval, str) else step.argval)
                found.bare.update(_bare(steps, place))
                if _calls_back(function, steps, place):
                    what = _first_argument(steps, place + 1)
                    given.update([what] if isinstance(what, str) else ())
                    later.append(what)
            stack += [c for c in code.co_consts if isinstance(c, types.CodeType) and c not in later]
        found.used = {name for name, count in loads.items() if count > given[name]}
        return found


def _against_code(code: types.CodeType, steps: Sequence[dis.Instruction]) -> str | None:
    for step in steps:
        name, value = step.opname, step.argval
        if name in _STEPS:
            return f"{_STEPS[name]} {value!r}" if value is not None else _STEPS[name]
        if name in _REBINDS and value in code.co_freevars:
            return f"rebinds the variable {value!r}"
        if name in _LOADS and (value in _DOORS or value.startswith("__")):
            return f"reads the attribute {value!r}"
    return None


def _bare(steps: Sequence[dis.Instruction], place: int) -> Iterable[str]:
    """The names that a step loads, unless the next step loads an attribute of the value."""
    step, after = steps[place], steps[place + 1 : place + 2]
    is_load = step.opname.startswith("LOAD_") and step.opname not in _NO_LOADS
    if not is_load or (after and after[0].opname in _LOADS):
        return ()
    return (step.argval,) if isinstance(step.argval, str) else step.argval


def _calls_back(function: types.FunctionType, steps: Sequence[dis.Instruction], place: int) -> bool:
    """Whether a step loads `effects.callback`, by its name or as an attribute of the module."""
    first = place
    while steps[first].opname in _LOADS and first:
        first -= 1
    if not steps[first].opname.startswith("LOAD_") or not isinstance(steps[first].argval, str):
        return False
    found = dict(variables_of(function)).get(steps[first].argval)
    for step in steps[first + 1 : place + 1]:
        found = getattr(found, step.argval, None) if isinstance(found, types.ModuleType) else None
    return found is callback


def _first_argument(steps: Sequence[dis.Instruction], place: int) -> str | types.CodeType | None:
    """The first argument of a call: a variable's name, or the code of a lambda or inner `def`."""
    first = place
    while steps[place].opname in ("LOAD_CLOSURE", "BUILD_TUPLE"):
        place += 1
    step = steps[place]
    if step.opname == "LOAD_CONST" and isinstance(step.argval, types.CodeType):
        return step.argval
    is_name = step.opname in _NAMES and isinstance(step.argval, str) and place == first
    return step.argval if is_name and steps[place + 1].opname not in _LOADS else None


def _is_silent(thing: object) -> bool:
    """Whether calling a builtin function or a class is pure."""
    if isinstance(thing, types.BuiltinFunctionType):
        return _is_known_builtin(thing)
    if not isinstance(thing, type):
        return False
    known = thing in _TYPES or _is_ours(thing)
    return known or (issubclass(thing, (np.generic, BaseException)) and not is_users(thing))


def _is_ours(thing: types.FunctionType | type) -> bool:
    return not is_users(thing) and (thing.__module__ or "").split(".")[0] == "aotlite"


def _is_known_builtin(thing: types.BuiltinFunctionType) -> bool:
    """Whether a function written in C is pure: it is in a list, or in a pure module."""
    module, name = thing.__module__, thing.__name__
    if module == "builtins":
        return name in _FUNCTIONS and getattr(builtins, name) is thing
    if module == "_operator":
        return name not in _OPERATORS_THAT_WRITE
    return module in ("math", "cmath") or thing is functools.reduce


def _may_be_read(module: types.ModuleType) -> bool:
    name = module.__name__
    return name in _OURS or name in _LIBRARIES or is_users(module)


def _named(thing: object) -> str:
    if isinstance(thing, (type, types.ModuleType, types.BuiltinFunctionType)):
        return f"{thing.__name__!r}"
    return article(thing)


def _attribute(owner: Any, name: str) -> object:
    """The value of an attribute, or the getter of a property; NOTHING if it need not be searched.

    Methods of a user's tensor class are not searched: like those of its ops, they run in captures.
    """
    if isinstance(owner, types.ModuleType):
        return getattr(owner, name, NOTHING)
    found: Any = NOTHING
    is_class = isinstance(owner, type)
    if not is_class:
        found = attributes_of(owner).get(name, NOTHING)
    if found is NOTHING and not isinstance(owner, _CALLABLE):
        mro = (owner if is_class else type(owner)).__mro__
        found = next((vars(c)[name] for c in mro if name in vars(c)), NOTHING)
    if isinstance(found, property):
        found = found.fget
    if isinstance(found, classmethod) and isinstance(owner, TrackedCallable):
        return found  # it gets the class, whose attributes nothing guards: not proven pure
    found = found.__func__ if isinstance(found, (staticmethod, classmethod)) else found
    of_tensors = is_class or isinstance(owner, Tensor)
    return NOTHING if of_tensors and isinstance(found, types.FunctionType) else found
