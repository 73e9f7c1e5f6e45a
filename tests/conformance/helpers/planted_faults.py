"""Mistakes planted in the conformance suite itself.

A plant replaces a function's code, with the function's file name, so that it looks like a mistake
in the suite's own lines.
"""

import contextlib
import inspect
import sys
import types
from importlib import import_module

from aotlite.conformance.rules import all_rules

SOURCE = """
def planted(*arguments, **named):
    if __plant__.is_due():
        raise __plant__.error
    return __plant__.original(*arguments, **named)
"""
PARTS = {
    "generator": (
        "aotlite.conformance.rules.cases",
        "aotlite.conformance.models.random_chains",
        "aotlite.conformance.models.random_writes",
        "aotlite.conformance.models.compiled_functions",
    ),
    "spelling": ("aotlite.conformance.witnesses.call_source",),
    "script": ("aotlite.conformance.witnesses.recording",),
    "oracle": (
        "aotlite.conformance.models.memory_model",
        "aotlite.conformance.models.dual_numbers",
        "aotlite.conformance.models.model_arrays",
        "aotlite.conformance.models.scenarios",
        "aotlite.conformance.models.call_effects",
    ),
    "rules": (
        "aotlite.conformance.rules",
        "aotlite.conformance.witnesses.functions",
        *sorted({rule.check.__module__ for rule in all_rules()}),
    ),
}
"""Part of the suite -> its modules. The adapter is the fifth part; its mistakes are of its own."""
FILES = {import_module(name).__file__: part for part, names in PARTS.items() for name in names}
ERRORS = (
    ValueError, TypeError, KeyError, IndexError, AttributeError, NameError, ZeroDivisionError,
    AssertionError, RuntimeError, RecursionError, NotImplementedError, OSError, SystemExit,
    StopIteration, ArithmeticError, UnicodeError, ImportError,
)  # fmt: skip


def part_of(code):
    """The part of a piece of code; None for other code."""
    return FILES.get(code.co_filename)


class Plant:
    """A mistake at the `call`-th call of a function, counted from 0."""

    def __init__(self, original, error, call):
        self.original, self.error, self.call, self.calls = original, error, call, 0

    def is_due(self):
        self.calls += 1
        return self.calls == self.call + 1


@contextlib.contextmanager
def planted(function, error, call):
    """A block in which a function makes a mistake in one of its calls."""
    names = function.__globals__
    original = types.FunctionType(
        function.__code__, names, function.__name__, function.__defaults__
    )
    original.__kwdefaults__ = function.__kwdefaults__
    plant = Plant(original, error, call)
    space = {}
    exec(compile(SOURCE, function.__code__.co_filename, "exec"), space)
    names["__plant__"] = plant
    kept = function.__code__
    function.__code__ = space["planted"].__code__
    try:
        yield plant
    finally:
        function.__code__ = kept
        del names["__plant__"]


def is_plain(value):
    """Whether a function is the only one of its code: neither a closure nor made in a function."""
    is_function = isinstance(value, types.FunctionType)
    return is_function and not value.__code__.co_freevars and "<locals>" not in value.__qualname__


def functions_of_the_suite():
    """Code -> function, for every plain function and method of its parts without a closure."""
    found = {}
    for name in {name for names in PARTS.values() for name in names}:
        module = import_module(name)
        for value in vars(module).values():
            inner = vars(value).values() if isinstance(value, type) else ()
            for each in (value, *inner):
                each = getattr(each, "check", each)  # a rule's
                each = getattr(each, "fget", each)
                if is_plain(each):
                    found[each.__code__] = each
    return {code: each for code, each in found.items() if part_of(code)}


def calls_of(run):
    """Code -> the number of calls in `run()`, for functions that can get a plant."""
    counts = {}

    def heard(frame, event, _):
        if event == "call" and part_of(frame.f_code):
            is_generator = frame.f_code.co_flags & inspect.CO_GENERATOR  # each value is an event
            before = 0 if is_generator else counts.get(frame.f_code, 0)
            counts[frame.f_code] = before + 1

    profile = sys.getprofile()
    sys.setprofile(heard)
    try:
        run()
    finally:
        sys.setprofile(profile)
    return counts
