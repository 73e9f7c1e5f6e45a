"""Which functions in C are pure, and which others a code object may hand on to C. Ground floor.

    time.time()                 a profiler sees the call
    map(time.time, ...)         it sees `map` alone: here the code hands the clock on
    partial(time.time)()        it sees nothing: here an object holds it

A function in C is *pure* if it has equal results in each process for equal arguments, and no
effect. One that is not known here is taken for impure. `handed_on` finds, in bytecode, what code
loads otherwise than to call it; `impure_in` what an object holds. Rules: CACHE-3, CACHE-4, PRG-7.
Spec: `specs/artifacts.md`.
"""

from __future__ import annotations

import builtins
import collections
import dis
import functools
import importlib.machinery
import re
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from inspect import getattr_static
from typing import Any

import attrs

_FUNCTION = re.compile(r"<built-in method (?:([\w.]+)\.)?(\w+)>")
_METHOD = re.compile(r"<(?:method|slot wrapper) '(\w+)' of '([\w.]+)' objects>")

_PURE_BUILTINS = frozenset(
    "__build_class__ abs aiter all anext any ascii bin callable chr delattr divmod format getattr "
    "hasattr hex isinstance issubclass iter len max min next oct ord pow repr round setattr "
    "sorted sum".split()
)
PURE_MODULES = frozenset(
    "math cmath _operator operator itertools _functools functools _collections collections "
    "_bisect bisect _heapq heapq _struct struct _json _sre unicodedata numpy numbers typing types "
    "dataclasses enum abc contextlib copy string re aotlite fractions statistics warnings".split()
)
_IMPURE_NUMPY = frozenset(
    "fromfile memmap load save frombuffer seterr seterrobj set_printoptions tofile dump".split()
)
_PURE_TYPES = frozenset(
    "str bytes bytearray list tuple dict set frozenset int float complex bool range slice object "
    "type property function method mappingproxy generator dict_keys dict_values dict_items cell "
    "builtin_function_or_method BaseException code super zip map filter enumerate reversed "
    "classmethod staticmethod memoryview types.GenericAlias re.Pattern re.Match functools.partial "
    "_lsprof.Profiler".split()
)
_PURE_PACKAGES = ("numpy", "collections", "itertools", "optree", "ml_dtypes")
_CLASS_METHODS = frozenset("fromkeys maketrans fromhex from_bytes".split())
"""Methods of classes of Python, which a profiler names without their class."""
_IMPURE_METHODS = frozenset(("__hash__", "__sizeof__"))
"""Methods whose results differ in another process."""


def is_pure(text: str) -> bool:
    """Whether a C function has equal results in each process for equal arguments, and no effect."""
    found = _METHOD.fullmatch(text)
    if found is not None:
        name, kind = found.groups()
        return _is_pure_method(name, kind)
    found = _FUNCTION.fullmatch(text)
    if found is None:
        return False
    module, name = found.groups()
    if module in (None, "builtins"):
        return name in (_PURE_BUILTINS if module else _CLASS_METHODS)
    if "random" in module:
        return False
    package = module.split(".")[0]
    return (module in PURE_MODULES or package in _PURE_PACKAGES) and name not in _IMPURE_NUMPY


def _is_pure_method(name: str, kind: str) -> bool:
    is_known = kind in _PURE_TYPES or kind.split(".")[0] in _PURE_PACKAGES
    is_impure = name in _IMPURE_NUMPY or name in _IMPURE_METHODS or "random" in kind
    return is_known and not is_impure


# ------------------------------------------------------------------------------------ of objects
_FUNCTIONS = types.BuiltinFunctionType
_DESCRIPTORS = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
)
_SUFFIXES = tuple(importlib.machinery.EXTENSION_SUFFIXES)
_PURE_CLASSES = frozenset(
    "builtins _io.StringIO _io.BytesIO _abc types array _decimal _datetime _types".split()
)
"""Modules, and classes of others, whose classes only compute."""
_IMPURE_CLASSES = frozenset(("numpy.datetime64",))
"""Those whose objects may be made of the time: of the text "now"."""
_MOST = 1000


def impure_words(value: Any) -> str:
    """The name of a function or class in C that is not known to be pure; empty for any other
    object.

    >>> import math, time
    >>> impure_words(time.time), impure_words(math.sin), impure_words({}.get), impure_words(print)
    ('time.time', '', '', 'builtins.print')
    """
    if issubclass(type(value), type):
        return _class_words(value)
    name = getattr(value, "__name__", "") if issubclass(type(value), _NAMED) else ""
    if issubclass(type(value), _FUNCTIONS):
        owner = value.__self__
        if owner is None or isinstance(owner, types.ModuleType):
            module = value.__module__ or getattr(owner, "__name__", None) or "?"
            is_known = is_pure(f"<built-in method {module}.{name}>")
            return "" if is_known else f"{module}.{name}"
        kind = owner if isinstance(owner, type) else type(owner)
        if isinstance(owner, type) and name in _CLASS_METHODS:
            return ""
        if isinstance(owner, type) and name == "__new__":
            return _class_words(owner)
        return _method_words(name, _definer(kind, name))
    if issubclass(type(value), types.MethodWrapperType):
        return _method_words(name, _definer(type(value.__self__), name))
    if issubclass(type(value), _DESCRIPTORS):
        return _method_words(name, value.__objclass__)
    return ""


_NAMED = (_FUNCTIONS, types.MethodWrapperType, *_DESCRIPTORS)


def _definer(kind: type, name: str) -> type:
    """The base of a class that has a method: of a user's class it may be one in C."""
    return next((base for base in kind.__mro__ if name in vars(base)), kind)


def _method_words(name: str, kind: type) -> str:
    module, of = kind.__module__, kind.__qualname__
    text = of if module == "builtins" else f"{module}.{of}"
    return "" if _is_pure_method(name, text) else f"{name} of {text}"


def _class_words(kind: type) -> str:
    for base in kind.__mro__:
        module, name = base.__module__, f"{base.__module__}.{base.__qualname__}"
        is_known = module in PURE_MODULES or module.split(".")[0] in _PURE_PACKAGES
        is_known = is_known or not _PURE_CLASSES.isdisjoint((module, name))
        if name in _IMPURE_CLASSES or not is_known and _is_in_c(module):
            return name
    return ""


def _loaded(name: str) -> types.ModuleType | None:
    """The module of this name, if it is loaded; nothing is imported."""
    return next((each for of, each in list(sys.modules.items()) if of == name), None)


@functools.cache
def _is_in_c(module: str) -> bool:
    file = getattr(_loaded(module), "__file__", None)
    return module in sys.builtin_module_names or str(file).endswith(_SUFFIXES)


def impure_in(value: object) -> str:
    """The name of an impure function that an object is, or holds where C calls it: in a `partial`,
    a container, or a class that has it for a method.

    >>> import time
    >>> impure_in([functools.partial(time.monotonic)])
    'time.monotonic'
    """
    waiting, seen = [value], set[int]()
    while waiting and len(seen) < _MOST:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if found := impure_words(each):
            return found
        waiting += _held_by(each)
    return ""


def _held_by(value: Any) -> Iterable[object]:
    kind = type(value)  # no `isinstance`, which asks an object for its class
    if issubclass(kind, functools.partial):
        return value.func, *value.args, *value.keywords.values()
    if issubclass(kind, collections.defaultdict):
        return value.default_factory, *dict.values(value)
    if issubclass(kind, dict):
        return list(dict.values(value))
    for plain in (list, tuple, set, frozenset, collections.deque):
        if issubclass(kind, plain):
            return list(plain.__iter__(value))
    if kind is property:
        return (value.fget,)
    if kind in (staticmethod, classmethod):
        return (value.__func__,)
    owner = value if issubclass(kind, type) else kind
    return () if _is_in_c(owner.__module__) else _methods_of(owner)


def _methods_of(kind: type) -> list[object]:
    """What Python calls of a class without a name in code: `__call__`, `__add__` and the like."""
    own = [base for base in kind.__mro__ if not _is_in_c(base.__module__)]
    pairs = [pair for base in own for pair in list(vars(base).items())]
    kinds = (_FUNCTIONS, functools.partial, staticmethod, classmethod, property)
    return [v for n, v in pairs if n.startswith("__") and issubclass(type(v), kinds)]


# --------------------------------------------------------------------------------------- of code
def handed_on(
    code: types.CodeType,
    variables: Mapping[str, object],
    modules: Iterable[types.ModuleType] = (),
) -> Iterator[tuple[str, int]]:
    """The impure functions in C that a code object loads otherwise than to call them, and the
    impure classes, whose calls no profiler sees; each with its line. `variables` are those of its
    globals and closure; `modules` others that it may reach.

    >>> import time
    >>> def f(): return next(iter(time.monotonic, None)), time.perf_counter()
    >>> [name for name, _ in handed_on(f.__code__, f.__globals__)]
    ['time.monotonic']
    """
    attributes: dict[str, int] = {}
    values = _texts_for_getters(code)
    roots: list[Any] = [*modules, *_imported(code)]
    for load in _loads(code):
        if load.is_variable:
            found = variables.get(load.name, vars(builtins).get(load.name))
            roots.append(found)
            if not load.is_called or issubclass(type(found), type):
                yield from _said(found, load.line)
        else:
            attributes.setdefault(load.name, load.line)
            if not load.is_called:
                values.add(load.name)
    attributes |= dict.fromkeys(values - attributes.keys(), code.co_firstlineno)
    seen = set[int]()
    while roots:
        each = roots.pop()
        if id(each) in seen or not issubclass(type(each), (types.ModuleType, type)):
            continue
        seen.add(id(each))
        for name in attributes.keys() & vars(each).keys():
            value = vars(each)[name]
            if name in values or issubclass(type(value), type):
                yield from _said(value, attributes[name])
            roots.append(value)


def _texts_for_getters(code: types.CodeType) -> set[str]:
    """The attributes that a code object may ask for by `attrgetter`."""
    if _GETTERS.isdisjoint(code.co_names):
        return set()
    return {part for each in code.co_consts if isinstance(each, str) for part in each.split(".")}


_GETTERS = frozenset(("attrgetter", "methodcaller"))


def held_in(code: types.CodeType, variables: Mapping[str, object]) -> Iterator[tuple[str, int]]:
    """The impure functions in C that the variables of a code object hold, or attributes of these
    that it loads; each with the line. `variables` are its own, too.

    >>> import time
    >>> clock = functools.partial(time.monotonic)
    >>> def f(): return clock()
    >>> [name for name, _ in held_in(f.__code__, {"clock": clock})]
    ['time.monotonic']
    """
    loads = _loads(code)
    names = {*(each.name for each in loads if each.is_variable), *code.co_varnames}
    lines = {each.name: each.line for each in loads}
    for name in [name for name in variables if name in names]:
        value = variables[name]
        if issubclass(type(value), (types.ModuleType, type, types.FunctionType, *_NAMED)):
            continue
        held = {name: value, **{n: v for n, v in _attributes(value) if n in lines}}
        held |= {text: getattr_static(value, text, None) for text in _texts_for_getters(code)}
        for at, each in held.items():
            if words := impure_in(each):
                yield words, lines.get(at, code.co_firstlineno)


def modules_in(code: types.CodeType, variables: Mapping[str, Any]) -> list[types.ModuleType]:
    """The modules among these variables of a code object, and among the attributes of these that
    it names."""
    names = {*code.co_names, *code.co_varnames, *code.co_freevars}
    values = [value for name, value in variables.items() if name in names]
    inside = [v for each in values for n, v in _attributes(each) if n in names]
    return [each for each in (*values, *inside) if issubclass(type(each), types.ModuleType)]


def _attributes(value: object) -> list[tuple[str, Any]]:
    if issubclass(type(value), type):  # `handed_on` looks into classes
        return []
    slots = [vars(base).get("__dict__") for base in type(value).__mro__]
    found = next((each for each in slots if type(each) is types.GetSetDescriptorType), None)
    if found is None:
        return []
    own = found.__get__(value)  # no `vars`: a capture notes who asks an object
    return list(own.items()) if type(own) is dict else []


def _said(value: object, line: int) -> Iterator[tuple[str, int]]:
    words = impure_words(value)
    if words:
        yield words, line


def _imported(code: types.CodeType) -> Iterator[types.ModuleType]:
    """The modules that a code object imports when it runs."""
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            names = step.argval, step.argval.partition(".")[0]
            yield from filter(None, map(_loaded, names))


def _line_of(step: dis.Instruction) -> int | None:
    """The line that begins with an instruction; from 3.13 on the one that it belongs to."""
    if sys.version_info >= (3, 13):
        return step.line_number
    return step.starts_line


@attrs.define
class _Load:
    """One instruction that loads a variable or an attribute."""

    name: str
    line: int
    is_variable: bool
    is_called: bool
    """Whether the code itself calls it, or asks it for an attribute, and does nothing else."""


def _loads(code: types.CodeType) -> list[_Load]:
    """What a code object loads by name. The bytecode tells a function that is called from a value:
    by a bit, by LOAD_METHOD, or by PUSH_NULL before the chain of loads, from 3.13 on behind it."""
    found: list[_Load] = []
    line, is_pushed, was_load = code.co_firstlineno, False, False
    chain: _Load | None = None
    """The last load of a chain whose value is called."""
    for step in dis.get_instructions(code):
        line = _line_of(step) or line
        if step.opname in ("EXTENDED_ARG", "CACHE", "NOP"):
            continue
        is_variable = step.opname in _VARIABLES
        is_attribute = step.opname in _ATTRIBUTES
        if chain is not None and not is_attribute:  # here it ends
            chain.is_called = True
            chain = None
        if _NULL_BEHIND and step.opname == "PUSH_NULL" and found and was_load:
            found[-1].is_called = True
        was_before, was_load = was_load, is_variable or is_attribute
        if was_load:
            is_flagged = step.opname in _FLAGGED and bool((step.arg or 0) & 1)
            is_called = step.opname == "LOAD_METHOD" or is_flagged and is_attribute
            if is_attribute and was_before and not step.argval.startswith("__"):
                found[-1].is_called = True  # asked for an attribute, and for nothing else
            found.append(_Load(step.argval, line, is_variable, is_called))
            if is_variable and (is_pushed or is_flagged) or chain is not None:
                chain = found[-1]
        is_pushed = step.opname == "PUSH_NULL" and not _NULL_BEHIND
    return found


_NULL_BEHIND = sys.version_info >= (3, 13)
_VARIABLES = (
    *("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"),
    *("LOAD_FROM_DICT_OR_GLOBALS", "LOAD_FROM_DICT_OR_DEREF"),
)
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM")
_FLAGGED = (
    "LOAD_GLOBAL",
    *(("LOAD_ATTR", "LOAD_SUPER_ATTR") if sys.version_info >= (3, 12) else ()),
)
"""The instructions whose lowest bit says that a call follows."""
