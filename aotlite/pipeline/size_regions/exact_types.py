"""Whether a function asks what a symbol cannot answer as an int does: `type(n)`, `n is m`, `id(n)`.

    type(n) is int       False for a symbol, whose class says `int` to `isinstance` alone
    n is 6, id(n)        another object
    pickle.dumps(n)      other bytes
    hasattr(n, "key")    attributes that ints do not have

Nothing raises there, so the function would go on with another answer than eager's. So its numbers
stay numbers (`choice.py`): it is searched for these names before symbols are made, with all that it
can call: functions and classes of users and of packages that are no part of Python, NumPy or
aotlite, by the names that code uses. Rule: DYN-33. Spec: `specs/size_regions.md`.
"""

from __future__ import annotations

import builtins
import dis
import functools
import sys
import types
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs
import numpy as np

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.tracked_objects import TrackedObject
from aotlite.ir.arrays.device import Device
from aotlite.ir.dtypes import DType
from aotlite.ir.provenance.location import Location, place_of
from aotlite.ir.symbols.floats.python_functions import UserCode
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.floats.symfloat import SymFloat
from aotlite.ir.symbols.symint import SymInt
from aotlite.stages.records.guards.access_paths import NOTHING, attributes_of
from aotlite.stages.s1_capture.environment.access_search import (
    _ALWAYS_NAMED,
    is_users,
    names_used,
)


def _split(names: str) -> list[tuple[str, str]]:
    """The module and the own name of each function."""
    of_module = [name.rpartition(".") for name in names.split()]
    return [(module, name) for module, _, name in of_module]


_ASKING: Final = _split("""
    builtins.type builtins.id operator.is_ operator.is_not sys.getsizeof sys.getrefcount
    pickle.dumps pickle.dump pickle.Pickler random.seed random.Random numpy.void
    weakref.ref weakref.proxy weakref.finalize
    builtins.eval builtins.exec builtins.__import__ importlib.import_module
""")
"""Functions that look at the object, or may call what cannot be found."""
_REFUSING: Final = _split("""
    json.dumps json.dump json.JSONEncoder marshal.dumps marshal.dump sqlite3.connect
    decimal.Decimal datetime.timedelta datetime.date datetime.datetime statistics.mean
    math.ldexp collections.deque numpy.datetime64 numpy.timedelta64
    numpy.random.permutation numpy.random.default_rng
""")
"""Functions that raise for a symbol. Code that catches the error asks so."""
_OWN: Final = {*dir(SymInt), *dir(SymFloat), *dir(SizeFloat)} - {*dir(int), *dir(float)}
"""The attributes of symbols that ints and floats do not have."""
_OWN_PROTOCOLS: Final = {name for name in _OWN if name.startswith("__")}
_MOST: Final = 20_000
"""Where more objects can be reached, the function counts as one that asks."""
_PLAIN: Final = (
    *(int, float, complex, str, bytes, types.NoneType, np.generic, np.ndarray),
    *(Device, DType),
)
"""Classes of objects whose functions get no sizes."""


@attrs.frozen
class TypeQuestion:
    """What asks: a name, and the user's line."""

    name: str
    place: str

    def __str__(self) -> str:
        return f"{self.name} ({self.place})" if self.place else self.name


def type_question(function: object, leaves: Sequence[object]) -> TypeQuestion | None:
    """What a function, or something that it can call, asks of the type or identity of an object;
    None if nothing does. An answer that only goes into an error that is raised does not count."""
    return _Search().run([function, *leaves])


def searched(function: object, leaves: Sequence[object]) -> tuple[TypeQuestion | None, UserCode]:
    """`type_question`, and the functions that were found before that, with their modules."""
    search = _Search()
    question = search.run([function, *leaves])
    functions = tuple([weakref.ref(each) for each in search.functions])
    scopes = {id(each.__globals__): each.__globals__ for each in search.functions}
    return question, UserCode(tuple(scopes.values()), functions)


def names_types_in_errors(function: object, leaves: Sequence[object]) -> bool:
    """Whether it asks so at least for the text of an error that it raises."""
    return _Search(raises=True).run([function, *leaves]) is not None


# ----------------------------------------------------------------------------------- one function
@attrs.frozen
class _Load:
    """A global that code reads."""

    name: str
    at: Location
    is_raised: bool
    """Whether what is made of it goes into an error that is raised at once."""
    of_self: bool
    """Whether it is called with `self` alone."""


_Identity = tuple[Location, tuple[str, ...], tuple[str, ...]]
"""Where `a is b` stands; a and b as the names of a variable and its attributes, else ()."""


@attrs.frozen
class _Code:
    """What the code of a function, and of those nested in it, names."""

    loads: tuple[_Load, ...]
    attributes: frozenset[str]
    texts: frozenset[str]
    """Those that may be names of attributes."""
    identities: tuple[_Identity, ...]
    """Each `a is b` of which no part is known to be no number."""
    modules: tuple[str, ...]
    """Those that it imports."""
    catches: bool
    """Whether it catches errors."""


@functools.lru_cache(maxsize=4096)
def _read(code: types.CodeType) -> _Code:
    loads: list[_Load] = []
    identities: list[_Identity] = []
    modules: list[str] = []
    attributes, texts, catches = {*names_used(code)[1]}, set[str](), False
    stack = [code]
    while stack:
        each = stack.pop()
        steps = [step for step in dis.get_instructions(each) if step.opname not in _SILENT]
        for i, step in enumerate(steps):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and not step.argval.startswith("@"):
                of_self = each is code and _is_of_self(code, steps[i + 1 :])
                at = (each, step.offset)
                loads.append(_Load(step.argval, at, _is_raised(steps[i:]), of_self))
            elif step.opname == "IS_OP":
                right, start = _named(steps, i - 1)
                left, _ = _named(steps, start)
                if None not in (left, right):
                    identities.append(((each, step.offset), left or (), right or ()))
            elif step.opname == "IMPORT_NAME":
                modules.append(step.argval)
            elif step.opname == "IMPORT_FROM":
                attributes.add(step.argval)
            catches |= step.opname == "CHECK_EXC_MATCH"
        texts |= {x for x in each.co_consts if isinstance(x, str) and x.isidentifier()}
        stack += [x for x in each.co_consts if isinstance(x, types.CodeType)]
    named = frozenset(attributes), frozenset(texts)
    return _Code(tuple(loads), *named, tuple(identities), tuple(modules), catches)


_SILENT: Final = {"CACHE", "EXTENDED_ARG", "NOP", "RESUME", "PUSH_NULL", "PRECALL", "KW_NAMES"}
_LEAVING: Final = ("STORE_FAST", "STORE_GLOBAL", "STORE_NAME", "STORE_DEREF", "STORE_ATTR")


def _is_raised(steps: Sequence[dis.Instruction]) -> bool:
    """Whether each way from the first step ends in a `raise` before the result is stored."""
    for n, step in enumerate(steps):
        if step.opname == "RAISE_VARARGS":
            return True
        is_jump = step.opcode in dis.hasjrel or step.opcode in dis.hasjabs
        left = step.opname in _LEAVING and not str(step.argval).startswith("@")  # pytest's asserts
        left |= step.opname.startswith(("RETURN", "YIELD", "POP_TOP"))
        if is_jump or left or n and step.is_jump_target:
            return False
    return False


def _is_of_self(code: types.CodeType, after: Sequence[dis.Instruction]) -> bool:
    """Whether what was loaded is called with the first parameter of a method."""
    if len(after) < 2 or code.co_varnames[:1] != ("self",) or not code.co_argcount:
        return False
    is_self = after[0].opname.startswith("LOAD_FAST") and after[0].argval == "self"
    is_called = after[1].opname.startswith("CALL") and after[1].arg == 1
    stores = [x for x in dis.get_instructions(code) if x.opname.startswith(("STORE_", "DELETE_"))]
    return is_self and is_called and all(x.argval != "self" for x in stores)


def _named(
    steps: Sequence[dis.Instruction], last: int | None
) -> tuple[tuple[str, ...] | None, int | None]:
    """The variable and attributes that make an operand which ends at a step: () if it is none, None
    if it is no number; and the step before it."""
    if last is None or last < 0:
        return (), None
    step = steps[last]
    if step.opname == "LOAD_CONST":
        return (() if _is_number(step.argval) else None), last - 1
    if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"):
        return (step.argval,), last - 1
    if step.opname == "LOAD_ATTR":
        found, before = _named(steps, last - 1)
        if step.argval == "__class__":
            return None, before
        return (*found, step.argval) if found else (), before
    if step.opname in ("LOAD_FAST", "LOAD_FAST_BORROW"):
        return (None if _is_constant(steps, last) else ()), last - 1
    return (), last - 1 if step.opname == "LOAD_SMALL_INT" else None


def _is_constant(steps: Sequence[dis.Instruction], at: int) -> bool:
    """Whether a variable that is read here was set to a constant that is no number, just before."""
    name = steps[at].argval
    for n in range(at - 1, 0, -1):
        step = steps[n]
        if step.opname == "STORE_FAST" and step.argval == name:
            before = steps[n - 1]
            return before.opname == "LOAD_CONST" and not _is_number(before.argval)
        if step.is_jump_target or step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            return False
    return False


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# ------------------------------------------------------------------------------------- the search
@attrs.define(eq=False, repr=False)
class _Search:
    """One walk over what a function can reach, until something asks."""

    raises: bool = False
    """Whether what is asked for an error counts."""
    _ask_ids: set[int] = attrs.field(factory=lambda: _listed(_ASKING))
    _refuse: set[int] = attrs.field(factory=lambda: _listed(_REFUSING))
    found: TypeQuestion | None = None
    _seen: dict[tuple[int, bool], object] = attrs.field(factory=dict)
    """With the objects, whose ids stay theirs so."""
    _names: set[str] = attrs.field(factory=lambda: {*_ALWAYS_NAMED})
    _places: list[types.ModuleType | type] = attrs.field(factory=list)
    """Modules and classes, of which the attributes count whose names code uses."""
    _taken: set[tuple[int, str]] = attrs.field(factory=set)
    _waiting: deque[tuple[object, bool]] = attrs.field(factory=deque)
    _catches: bool = False
    """Whether some code catches errors."""
    functions: list[types.FunctionType] = attrs.field(factory=list)
    """Those of users that can be called."""
    _refusing: str | None = None
    """What raises an error for a symbol."""

    def run(self, roots: Iterable[object]) -> TypeQuestion | None:
        """What asks, from these objects on."""
        self._waiting.extend((root, False) for root in roots)
        while self._waiting and self.found is None:
            while self._waiting and self.found is None:
                self._visit(*self._waiting.popleft())
            for place in list(self._places):
                self._take_named(place)
        if self._catches and self._refusing is not None:
            self._ask(self._refusing)
        return self.found

    def _asks(self, value: object) -> bool:
        return id(value) in self._ask_ids

    def _ask(self, name: str, at: Location | None = None) -> None:
        if self.found is None:
            self.found = TypeQuestion(name, "" if at is None else str(place_of(at)))

    def _ask_if(self, names: Iterable[str], before: str, at: Location) -> None:
        for name in sorted(names):
            self._ask(f"{before}{name}", at)

    def _push(self, things: Iterable[object]) -> None:
        self._waiting.extend((x, False) for x in things if not issubclass(type(x), _PLAIN))

    def _visit(self, thing: Any, of_class: bool) -> None:
        kind = type(thing)  # `isinstance` would ask an object of a user's for its `__class__`
        if issubclass(kind, _PLAIN) or (id(thing), of_class) in self._seen:
            return
        self._seen[id(thing), of_class] = thing
        if len(self._seen) > _MOST:
            self._ask(f"one of more than {_MOST} objects")
        elif self._asks(thing):
            self._ask(_name(thing))
        elif id(thing) in self._refuse:
            self._refusing = _name(thing)
        elif kind is types.FunctionType:
            self._visit_function(thing, of_class)
        elif issubclass(kind, (types.ModuleType, type)):
            if not _is_of_attrs(thing):
                self._places.append(thing)
            self._push([kind] if is_users(kind) else [])
        elif kind is types.MethodType:
            self._push([thing.__self__])
            self._waiting.append((thing.__func__, True))
        else:
            self._visit_object(thing, of_class)

    def _visit_object(self, thing: Any, of_class: bool) -> None:
        kind = type(thing)
        for container in _CONTAINERS:
            if issubclass(kind, container):
                self._push(container.__iter__(thing))
        if issubclass(kind, dict):
            self._push(dict.values(thing))
        if kind.__module__ in ("builtins", "functools"):
            members = [getattr(thing, name, NOTHING) for name in _WRAPPED]
            self._waiting.extend((x, of_class) for x in members if x is not NOTHING)
        if issubclass(kind, Tensor):
            self._push([kind] if is_users(kind) else [])
            return
        slots = [x for cls in kind.__mro__ for x in vars(cls).values()]
        held = [_slot(x, thing) for x in slots if type(x) is types.MemberDescriptorType]
        held += attributes_of(thing).values()
        if not any(map(is_users, kind.__mro__)) and not issubclass(kind, TrackedObject):
            held = [x for x in held if type(x) in _CALLED]
        self._push([kind, *held] if is_users(kind) else held)

    def _visit_function(self, function: types.FunctionType, of_class: bool) -> None:
        cells = [_contents(cell) for cell in function.__closure__ or ()]
        kept = (function.__defaults__ or (), (function.__kwdefaults__ or {}).values(), cells)
        self._push(x for each in (*kept, vars(function).values()) for x in each)
        if not is_users(function) or _is_of_attrs(function):
            return
        read, scope = _read(function.__code__), function.__globals__
        self.functions.append(function)
        self._names |= read.attributes | read.texts
        self._catches |= read.catches
        for load in read.loads:
            value = scope.get(load.name, vars(builtins).get(load.name, NOTHING))
            if not self._asks(value):
                self._push([value])
            elif not (of_class and load.of_self) and (self.raises or not load.is_raised):
                self._ask(load.name, load.at)
            if value is builtins.getattr or value is builtins.hasattr:
                self._ask_if(read.texts & _OWN, f"{load.name} of ", load.at)
        self._ask_if(read.attributes & _OWN_PROTOCOLS, "", (function.__code__, 0))
        variables = {**scope, **dict(zip(function.__code__.co_freevars, cells, strict=True))}
        for at, *parts in read.identities:
            values = [_resolved(each, variables) for each in parts]
            if all(x is NOTHING or _is_number(x) for x in values):
                self._ask("is", at)
        for name in read.modules:
            self._import(name, function)

    def _import(self, name: str, function: types.FunctionType) -> None:
        package = str(function.__globals__.get("__package__"))
        names = (name, f"{package}.{name}", name.partition(".")[0] or package)
        found = [module for module in map(_loaded, names) if module is not None]
        self._push(found)
        if not found:
            self._ask(f"import {name}", (function.__code__, 0))

    def _take_named(self, place: types.ModuleType | type) -> None:
        """Pushes the attributes of a module or class whose names code uses."""
        if isinstance(place, types.ModuleType):
            for name in self._new_names(place, self._names & vars(place).keys()):
                value = vars(place)[name]
                known = type(value) is types.ModuleType or id(value) in self._refuse
                if is_users(place) or known or self._asks(value):
                    self._push([value])
            return
        called = any(_calls_methods(base) for base in place.__mro__)
        for base in filter(is_users, place.__mro__):
            names = {x for x in vars(base) if called or x in self._names or x.startswith("__")}
            for name in self._new_names(base, names - _OF_EVERY_CLASS):
                self._waiting.append((vars(base)[name], True))

    def _new_names(self, place: object, names: set[str]) -> list[str]:
        new = [name for name in names if (id(place), name) not in self._taken]
        self._taken.update((id(place), name) for name in new)
        return new


_CONTAINERS: Final = (list, tuple, set, frozenset, deque, dict)
_CALLED: Final = (types.FunctionType, types.MethodType, functools.partial)
_WRAPPED: Final = ("__wrapped__", "__func__", "fget", "func", "args", "keywords", "__self__")
_OF_EVERY_CLASS: Final = {"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__"}


def _listed(names: Sequence[tuple[str, str]]) -> set[int]:
    """The ids of functions by the names of modules, which may be imported, and their own."""
    found = [getattr(_loaded(module), name, None) for module, name in names]
    return {*map(id, found)} - {id(None)}


def _loaded(name: str) -> types.ModuleType | None:
    """A module that somebody has imported."""
    return sys.modules.get(name)


def _calls_methods(base: type) -> bool:
    """Whether a class may call methods of classes made of it by names that no user's code has."""
    is_ours = base.__module__.partition(".")[0] == "aotlite"
    return not is_users(base) and not is_ours and base is not object


def _is_of_attrs(thing: types.FunctionType | types.ModuleType | type) -> bool:
    """Whether a function or class is one of attrs, which asks what its own classes have. What it
    writes for a class has the module of the class."""
    return (getattr(thing, "__module__", None) or "").startswith("attr.")


def _name(thing: object) -> str:
    return str(getattr(thing, "__name__", thing))


def _slot(member: types.MemberDescriptorType, thing: object) -> object:
    try:
        return member.__get__(thing)
    except AttributeError:  # an empty one
        return NOTHING


def _contents(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return NOTHING


def _resolved(names: tuple[str, ...], scope: dict[str, Any]) -> object:
    """The value of a variable and its attributes; NOTHING where that is not known."""
    if not names:
        return NOTHING
    value: Any = scope.get(names[0], vars(builtins).get(names[0], NOTHING))
    for name in names[1:]:
        if not isinstance(value, (types.ModuleType, type)):
            return NOTHING
        if str(getattr(value, "__name__", "")).startswith("aotlite"):
            value = getattr(value, name, NOTHING)  # of a table of names
        else:
            value = vars(value).get(name, NOTHING)
    return value
