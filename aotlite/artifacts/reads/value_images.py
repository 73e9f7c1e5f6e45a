"""Images: values in words, equal in two processes iff a captured function cannot tell them apart.

    1.0                     float 0x1.0000000000000p+0
    [w, {"by": 2}, w]       [#0 Tensor f32[3]..., #1 {'by': int 2}, #0]
    helper                  function mine:helper 5f0c..., with the digest if its code ran

Containers, tensors and objects are numbered as they are met, so that the pattern of identities
counts. A function whose code did not run in the capture is just a function: whatever it does, the
capture did not see it. A value without such words raises `NoImage`, and the artifact is not kept.
Rules: CACHE-7, CACHE-8. Spec: `specs/artifacts.md`.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import fractions
import functools
import pathlib
import re
import types
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from hashlib import sha256
from typing import Any

import numpy as np

from aotlite.artifacts.reads.code_digests import digest_of, nested
from aotlite.artifacts.reads.code_owners import CHECKED, owner_of
from aotlite.artifacts.reads.function_names import library_name_of
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.eager.tensor_facts import TensorFacts, fact_words, facts_of
from aotlite.eager.tracked_objects import TrackedObject
from aotlite.ir.arrays.device import Device
from aotlite.ir.dtypes import DType
from aotlite.ir.provenance.purity import impure_words
from aotlite.stages.records.guards.access_paths import NOTHING, attributes_of
from aotlite.stages.s1_capture.environment.access_search import is_users

MOST_VALUES = 100_000
"""The most values in the images of one artifact."""
MOST_DEPTH = 100
_PLAIN_OBJECTS = (
    *(re.Pattern, pathlib.PurePath, fractions.Fraction, decimal.Decimal, uuid.UUID),
    *(datetime.date, datetime.time, datetime.timedelta, range, slice, type(...)),
)
"""Immutable values of Python's library, whose `repr` tells them apart."""
_COMPOUND = (Tensor, TrackedObject, list, tuple, dict)
_CALLED = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)
_ALWAYS_NAMED = ("forward", "backward", "vjp", "setup_context")
"""Methods that aotlite calls: no code of the user's names them."""
_IN_FUNCTIONS = frozenset(
    "__doc__ __defaults__ __kwdefaults__ __code__ __name__ __qualname__ __module__ __annotations__ "
    "__closure__ __globals__ __dict__ __wrapped__".split()
)
"""Names by which code looks into a function that it does not call."""
_NO_CODE = frozenset(("__module__", "__doc__", "__dict__", "__weakref__", "__annotations__"))
_OPENED = {
    staticmethod: "__func__",
    classmethod: "__func__",
    property: "fget",
    functools.cached_property: "func",
}


class NoImage(Exception):
    """Raised for a value without words that mean the same in another process: its text says why."""


class Images:
    """Makes the images of the values of one artifact, in order."""

    def __init__(self, ran: Collection[str], names: Collection[str] | None) -> None:
        """`ran` are the digests of the code that ran; `names` the names that it reads of classes,
        None for all."""
        self._ran = ran
        self._names = None if names is None else {*names, *_ALWAYS_NAMED}
        is_open = self._names is None
        self._looks_into_functions = is_open or not _IN_FUNCTIONS.isdisjoint(names or ())
        self._met: dict[int, int] = {}
        self._alive: list[object] = []
        self._left = MOST_VALUES
        self.covered: set[str] = set()
        """The digests of the code that the images so far have compared."""
        self.modules: list[types.ModuleType] = []
        """The modules that were met."""
        self.files: set[str] = set()
        """The files of this code."""

    def of(self, value: object) -> str:
        """The image of a value. Raises NoImage."""
        return self._of(value, 0)

    def of_sized(self, value: object) -> str:
        """The image of a tensor but for its sizes and strides, or of an int but for its value.
        Raises NoImage for a wrapper."""
        if isinstance(value, Tensor) and id(value) not in self._met:
            return self._numbered(value) + facts_words(value, sized=True)
        return "an int" if type(value) is int else self.of(value)

    def _of(self, value: Any, depth: int) -> str:
        self._left -= 1
        if self._left < 0 or depth > MOST_DEPTH:
            raise NoImage("more values, or a deeper nesting, than are compared")
        make = _PLAIN.get(type(value))
        if make is not None:
            return make(value)
        number = self._met.get(id(value))
        if number is not None:
            return f"#{number}"
        return self._image(value, depth + 1)

    def _image(self, value: Any, depth: int) -> str:
        match value:
            case np.ndarray() | np.generic():
                return self._array(value, depth)
            case enum.Enum():
                return self._member_of_enum(value, depth)
            case DType() | Device():
                return repr(value)
            case Tensor():
                return self._numbered(value) + facts_words(value)
            case TrackedObject():
                return self._module(value, depth)
            case type():
                return self._kind(value, depth)
            case types.FunctionType():
                return self._function(value, depth)
            case types.MethodType():
                bound = self._of(value.__func__, depth), self._of(value.__self__, depth)
                return f"method {bound[0]} of {bound[1]}"
            case types.BuiltinFunctionType():
                return self._builtin(value, depth)
            case functools.partial():
                parts = value.func, value.args, value.keywords
                return f"partial({self._items(parts, depth)})"
            case types.ModuleType():
                self.modules.append(value)
                return _module_name(value)
        return self._other(value, depth)

    def _other(self, value: Any, depth: int) -> str:
        kind = type(value)
        if kind in _CONTAINERS:
            name = "" if kind in (list, tuple, dict, set) else f"{kind.__name__} "
            return f"{self._numbered(value)}{name}{self._contents(value, depth)}"
        if kind is types.MappingProxyType:
            return f"mappingproxy {self._contents(dict(value), depth)}"
        if kind in _OPENED:
            return f"{kind.__name__} {self._of(getattr(value, _OPENED[kind]), depth)}"
        if isinstance(value, _PLAIN_OBJECTS) and kind.__module__ in _LIBRARY:
            return f"{kind.__name__} {value!r}"
        if isinstance(value, np.dtype):
            return f"numpy dtype {dtype_words(value)}"
        if kind.__module__.split(".")[0] == "numpy" and callable(value):
            return _numpy_function(value)
        if kind is types.SimpleNamespace:
            return f"{self._numbered(value)}namespace {self._contents(vars(value), depth)}"
        if isinstance(value, tuple) and kind.__mro__[1:] == (tuple, object):  # a named tuple
            return f"{self._kind(kind, depth)}({self._fields(value, depth)})"
        if kind.__module__ == "aotlite.api":  # a compiled function is part of the capture (CAP-11)
            return f"compiled {self._of(value.function, depth)}"
        return self._object(value, depth)

    def _member_of_enum(self, value: enum.Enum, depth: int) -> str:
        start = self._numbered(value)
        held = {name: each for name, each in vars(value).items() if name != "__objclass__"}
        return f"{start}{self._kind(type(value), depth)}.{value.name} {self._contents(held, depth)}"

    def _numbered(self, value: object) -> str:
        number = self._met[id(value)] = len(self._met)
        self._alive.append(value)
        return f"#{number} "

    def _array(self, value: Any, depth: int) -> str:
        """An array by its bytes and those of the array it is a view of, where code may ask for
        that. A scalar is an array of no dimensions."""
        words = self._numbered(value) + array_words(value)
        if isinstance(value.base, np.ndarray) and self._asks_for("base"):
            words += f" of {self._of(value.base, depth)}"
        return words

    # --- containers and objects
    def _contents(self, value: Any, depth: int) -> str:
        if isinstance(value, dict):
            factory = getattr(value, "default_factory", None)
            items = [f"{self._of(k, depth)}: {self._of(v, depth)}" for k, v in value.items()]
            made = "" if factory is None else f"{self._of(factory, depth)} "
            return f"{made}{{{', '.join(items)}}}"
        brackets = "()" if isinstance(value, tuple) else "{}" if isinstance(value, _SETS) else "[]"
        return f"{brackets[0]}{self._items(value, depth)}{brackets[1]}"

    def _items(self, values: Iterable[object], depth: int) -> str:
        return ", ".join([self._of(each, depth) for each in values])

    def _fields(self, value: tuple[object, ...], depth: int) -> str:
        """The items of a named tuple, with the names of its fields."""
        names = vars(type(value)).get("_fields", ())
        if len(names) != len(value):
            return self._items(value, depth)
        pairs = zip(names, value, strict=True)
        return ", ".join([f"{name}: {self._of(each, depth)}" for name, each in pairs])

    def _module(self, value: TrackedObject, depth: int) -> str:
        """A Module by its class, and the attributes that are no plain values: those are read one by
        one (CAP-5)."""
        start = self._numbered(value)
        kind = self._kind(type(value), depth)
        parts = [
            f"{name}: {self._of(each, depth)}"
            for name, each in list(attributes_of(value).items())
            if isinstance(each, (*_COMPOUND, type(None), *_CALLED)) and self._may_read(value, name)
        ]
        return f"{start}{kind}({', '.join(parts)})"

    def _object(self, value: Any, depth: int) -> str:
        """An object of a user's class by its class, and the attributes that code may ask for."""
        kind = type(value)
        bases = [base for base in kind.__mro__ if base is not object and not is_users(base)]
        if bases or not is_users(kind):
            raise NoImage(f"a {kind.__module__}.{kind.__qualname__}")
        for name in ("__getattribute__", "__getattr__"):
            if any(name in vars(base) for base in kind.__mro__[:-1]):
                raise NoImage(f"a {kind.__qualname__}, whose class has {name}")
        start = self._numbered(value)
        held = dict(attributes_of(value))
        for base in kind.__mro__:
            for name, slot in vars(base).items():
                if isinstance(slot, types.MemberDescriptorType) and name not in held:
                    held[name] = getattr(value, name, NOTHING)
        parts = [f"{n}: {self._of(v, depth)}" for n, v in held.items() if self._may_read(value, n)]
        return f"{start}{self._kind(kind, depth)}({', '.join(parts)})"

    def _may_read(self, owner: object, name: str) -> bool:
        """Whether the code that ran may have asked for an attribute of an object: aotlite's own
        code asks for those of its own classes, and for names with an underscore in front."""
        is_ours = self._names is None or not is_users(type(owner))
        return is_ours or name in self._names or name.startswith("_")  # type: ignore[operator]

    # --- code
    def _function(self, value: types.FunctionType, depth: int) -> str:
        own = {n: v for n, v in vars(value).items() if n != "__wrapped__" and self._asks_for(n)}
        held = f" with {self._contents(own, depth)}" if own else ""
        if owner_of(value.__code__) not in CHECKED:
            return f"{self._of_library(value, depth)}{held}"
        codes = list(map(digest_of, nested(value.__code__)))
        if not (self._looks_into_functions or any(each in self._ran for each in codes)):
            return f"a function{held}"
        self.covered.update(codes)
        self.files.add(value.__code__.co_filename)
        if self._looks_into_functions:
            defaults = value.__defaults__, value.__kwdefaults__
            held = f" {self._of(defaults, depth)}{held}"
        return f"function {value.__module__}:{_names_of(value)} {codes[0]}{held}"

    def _of_library(self, value: types.FunctionType, depth: int) -> str:
        """A function of a library, which no watch sees: by its name, if it is found there; one that
        was made of others, such as `vmap(f)`, with its variables."""
        name = library_name_of(value)
        if name is not None:
            return f"function {name}"
        name = f"{value.__module__}:{value.__qualname__}"
        start = self._numbered(value)
        cells = [each.cell_contents for each in value.__closure__ or ()]
        parts = value.__defaults__, value.__kwdefaults__, cells
        return f"{start}function {name} {digest_of(value.__code__)} of {self._of(parts, depth)}"

    def _asks_for(self, name: str) -> bool:
        return self._names is None or name in self._names

    def _builtin(self, value: types.BuiltinFunctionType, depth: int) -> str:
        impure = impure_words(value)
        if impure:
            raise NoImage(f"{impure}, which is not known to be pure")
        owner = value.__self__
        if owner is None or isinstance(owner, types.ModuleType):
            return f"builtin {value.__module__}.{value.__qualname__}"
        return f"builtin {value.__qualname__} of {self._of(owner, depth)}"

    def _kind(self, kind: type, depth: int) -> str:
        """A class by its name; of users' classes also what the code that ran may ask for."""
        number = self._met.get(id(kind))
        if number is not None:
            return f"#{number}"
        name = f"{kind.__module__}.{_names_of(kind)}"
        if kind.__module__.startswith("numpy.random"):
            raise NoImage(f"the class {name}")
        impure = impure_words(kind)
        if impure:
            raise NoImage(f"the class {impure}, whose calls no profiler sees")
        if not is_users(kind):
            return name
        start = self._numbered(kind)
        bases = [self._body(base, depth) for base in kind.__mro__ if is_users(base)]
        others = [f"{b.__module__}.{b.__qualname__}" for b in kind.__mro__ if not is_users(b)]
        meta = "" if type(kind) is type else f" of {self._kind(type(kind), depth)}"
        return f"{start}class {name}{meta}<{'; '.join([*bases, *others])}>"

    def _body(self, base: type, depth: int) -> str:
        found = []
        for name, value in list(vars(base).items()):
            if self._is_asked_for(name, value):
                opened = getattr(value, _OPENED.get(type(value), ""), value)
                found.append(f"{name}: {type(value).__name__} {self._member(opened, depth)}")
        return f"{base.__module__}.{base.__qualname__}{{{', '.join(sorted(found))}}}"

    def _is_asked_for(self, name: str, value: object) -> bool:
        if name in _NO_CODE:
            return False
        if name == "_fields":  # of a named tuple: where each is
            return True
        if name.startswith("__") and name.endswith("__"):
            is_named = self._names is not None and name in self._names
            is_code = callable(value) or type(value) in _OPENED
            return is_code or is_named or name == "__match_args__" and self._names is None
        return self._names is None or name in self._names

    def _member(self, value: Any, depth: int) -> str:
        if isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType)):
            return f"a slot {value.__name__}"
        if isinstance(value, _TUPLE_FIELD):
            return f"the item {value.__reduce__()[1][0]}"
        return self._of(value, depth)


# ------------------------------------------------------------------------------------- plain values
def _hex(value: float) -> str:
    return f"float {value.hex()}"


def _integer(value: int) -> str:
    return f"int {value}" if value.bit_length() < 4096 else f"int {value:#x}"


_PLAIN: dict[type, Callable[[Any], str]] = {
    int: _integer,
    bool: repr,
    str: repr,
    bytes: repr,
    type(None): repr,
    float: _hex,
    complex: lambda value: f"complex {value.real.hex()} {value.imag.hex()}",
    type(NOTHING): repr,
}
_SETS = (set, frozenset)
_TUPLE_FIELD = type(vars(collections.namedtuple("_One", "field"))["field"])
_CONTAINERS = (
    *(list, tuple, dict, *_SETS),
    *(collections.OrderedDict, collections.defaultdict, collections.deque, collections.Counter),
)
_LIBRARY = ("builtins", "re", "pathlib", "fractions", "decimal", "uuid", "datetime")


def _names_of(value: Any) -> str:
    """The qualified name of a class or function, and its name, where that is another."""
    name, full = value.__name__, value.__qualname__
    return str(full) if full.rpartition(".")[2] == name else f"{full} named {name}"


def dtype_words(dtype: np.dtype[Any]) -> str:
    """A dtype of NumPy, with the names, places and titles of its fields. Raises NoImage."""
    if dtype.metadata is not None:
        raise NoImage("a dtype of NumPy with metadata")
    if dtype.subdtype is not None:
        return f"({dtype_words(dtype.subdtype[0])}, {dtype.subdtype[1]})"
    if dtype.fields is None:
        return dtype.str
    parts = [f"{name!r}: {_field(dtype.fields[name])}" for name in dtype.names or ()]
    return f"{{{', '.join(parts)}}} in {dtype.itemsize}, {dtype.flags:#x}, {dtype.type.__name__}"


def _field(field: tuple[Any, ...]) -> str:
    dtype, *where = field
    return f"{dtype_words(dtype)} at {where!r}"


def array_words(value: Any) -> str:
    """An array by all of its bytes: a capture makes it a constant. Raises NoImage."""
    if type(value) is not np.ndarray and not isinstance(value, np.generic):
        raise NoImage(f"a {type(value).__qualname__}, a subclass of ndarray")
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise NoImage("an array of Python objects")
    digest = sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:32]
    kind = f"{type(value).__module__}.{type(value).__name__}"
    flags = f"{array.flags.num:#x}"
    return f"{kind} {dtype_words(array.dtype)} {array.shape} {array.strides} {flags} {digest}"


def facts_words(tensor: Tensor, *, sized: bool = False) -> str:
    """The facts of a tensor that guards compare (GRD-1), with its strides; `sized` leaves out sizes
    and strides. Raises NoImage for a wrapper."""
    if is_wrapper(tensor):
        raise NoImage(f"a wrapper subclass, {type(tensor).__qualname__}")
    found, meta = facts_of(tensor), tensor.meta
    base = f"{type(tensor).__module__}.{type(tensor).__qualname__} {meta.dtype.name}"
    if sized:
        words = f"{base} of {meta.ndim} sizes on {meta.device}"
    else:
        words = f"{base}{list(meta.shape)} strides {list(meta.stride)} on {meta.device}"
    if not isinstance(found, TensorFacts):
        return words
    node = ", with a tape node of its own" if found.has_view_node else ""
    return f"{words}, {fact_words(found, 'Tensor', '') if sized else found}{node}"


def _module_name(module: types.ModuleType) -> str:
    if module.__name__.startswith(("numpy.random", "random")):
        raise NoImage(f"the module {module.__name__}, whose numbers are drawn")
    return f"module {module.__name__}"


def _numpy_function(value: Any) -> str:
    name = getattr(value, "__qualname__", getattr(value, "__name__", ""))
    module = getattr(value, "__module__", None) or "numpy"
    if not name or "random" in module:
        raise NoImage(f"a {type(value).__qualname__} of NumPy")
    return f"numpy function {module}.{name}"


def differing_part(before: str, now: str, width: int = 60) -> tuple[str, str]:
    """Two images in a few words each, around the first difference.

    >>> differing_part("int 1", "int 2")
    ('int 1', 'int 2')
    """
    at = next((i for i, (a, b) in enumerate(_pairs(before, now)) if a != b), 0)
    start = max(0, at - width // 2)
    lead = "..." if start else ""
    return tuple(  # type: ignore[return-value]
        [
            lead + t[start : start + width] + ("..." if len(t) > start + width else "")
            for t in (before, now)
        ]
    )


def _pairs(before: str, now: str) -> Iterator[tuple[str, str]]:
    yield from zip(before + "\0", now + "\0", strict=False)
