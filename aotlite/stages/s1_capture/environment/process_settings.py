"""Refuses functions that change a setting of the process: `os.environ["A"] = "1"`, `np.seterr`.

Eager sets it in each call, a compiled call would not. Settings are compared before and after the
captured run. One that changed is refused if code that may run names what sets it: it may as well be
another thread that did. Used by `python_numbers`. Rule: CAP-15. Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

import abc
import contextlib
import decimal
import gc
import locale
import logging
import os
import random
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import attrs
import numpy as np

from aotlite.backends.threads import get_num_threads, set_num_threads
from aotlite.ir.provenance.location import Location
from aotlite.stages.s1_capture.capture_trace import CaptureTrace
from aotlite.stages.s1_capture.environment.bytecode_reads import steps_of, with_inner
from aotlite.stages.s1_capture.environment.number_reads import texts_in

_ADVICE = (
    "change it outside the compiled function, or in al.effects.callback(function), which runs in "
    "each call"
)

_CALLABLE = (types.FunctionType, types.MethodType, types.BuiltinFunctionType)


@attrs.frozen
class _Setting:
    """A setting of the process."""

    text: str
    names: frozenset[str]
    """Names by which code asks for what sets it."""
    read: Callable[[], object]
    write: Callable[[Any], object]
    module: str = ""
    """A name that the code has, too, where the others may be of anything."""

    def location(
        self, codes: Sequence[types.CodeType], things: Iterable[object]
    ) -> Location | None:
        """The first instruction that asks for one of the names. The first of all if a function of
        that name is in a variable: `set_to = os.environ.update`."""
        for code in [inner for outer in codes for inner in with_inner(outer)]:
            names = {*code.co_names, *code.co_freevars, *texts_in(code)}
            if self.names.isdisjoint(names) or self.module and self.module not in names:
                continue
            for step in steps_of(code):
                if type(step.argval) is str and step.argval in self.names:
                    return code, step.offset
        if any(type(each) in _CALLABLE and each.__name__ in self.names for each in things):  # type: ignore[attr-defined]
            return next(((code, 0) for code in codes), None)
        return None


@attrs.define(eq=False, repr=False)
class ProcessSettings:
    """The check of one captured run."""

    _before: dict[str, object] = attrs.field(factory=dict)

    def look(self) -> None:
        """Notes all settings, before the run."""
        self._before = {each.text: each.read() for each in _SETTINGS}

    def check(
        self, recorder: CaptureTrace, codes: Sequence[types.CodeType], things: Iterable[object]
    ) -> None:
        """Raises UnsupportedError if the function has changed a setting, and puts it back. `codes`
        may run, `things` are what their variables hold."""
        for setting in self._changed():
            location = setting.location(codes, things)
            if location is not None:
                what = setting.text + _key(self._before[setting.text], setting.read())
                self.put_back()
                what = f"a change of {what}, which a compiled call would not make again,"
                raise recorder.refuse(what, _ADVICE, location)

    def put_back(self) -> None:
        """Sets what has changed to what it was; never raises."""
        for each in self._changed():
            with contextlib.suppress(Exception):
                each.write(self._before[each.text])

    def _changed(self) -> list[_Setting]:
        return [
            each
            for each in _SETTINGS
            if each.text in self._before and self._before[each.text] != each.read()
        ]


def _key(before: object, now: object) -> str:
    """The key of a mapping that has changed."""
    if type(before) is not dict or type(now) is not dict:
        return ""
    keys = {**before, **now}
    key = next(key for key in keys if before.get(key) != now.get(key))
    return f"[{os.fsdecode(key) if type(key) is bytes else key!r}]"


# ---------------------------------------------------------------------------------- the settings
def _environment() -> dict[Any, Any]:
    """The variables, as they are stored. The artifact cache puts another dictionary in their place,
    which notes who asks, and holds the first one as `data`."""
    stored = vars(os.environ)["_data"]
    return dict(stored if type(stored) is dict else vars(stored)["data"])


def _set_environment(before: Mapping[Any, Any]) -> None:
    decode = vars(os.environ)["decodekey"]
    for key in {**_environment(), **before}:
        if key not in before:
            del os.environ[decode(key)]
        elif _environment().get(key) != before[key]:
            os.environ[decode(key)] = vars(os.environ)["decodevalue"](before[key])


def _set_filters(before: tuple[Any, ...]) -> None:
    warnings.resetwarnings()  # which tells the C code that there are others
    cast("list[Any]", warnings.filters)[:] = before


def _decimal() -> object:
    context = decimal.getcontext()
    names = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")
    return tuple([(name, getattr(context, name)) for name in names])


def _set_decimal(before: tuple[tuple[str, Any], ...]) -> None:
    for name, value in before:
        setattr(decimal.getcontext(), name, value)


def _numpys_random() -> object:
    """None if nobody has drawn yet: NumPy loads its generators when they are asked for."""
    loaded = vars(np).get("random")
    if loaded is None:
        return None
    kind, keys, *rest = loaded.get_state()
    return kind, keys.tobytes(), *rest


def _set_numpys_random(before: tuple[Any, ...]) -> None:
    kind, keys, *rest = before
    np.random.set_state((kind, np.frombuffer(keys, np.uint32), *rest))


def _logging() -> object:
    root = logging.root
    return root.level, root.manager.disable, tuple(root.handlers)


def _set_logging(before: tuple[Any, ...]) -> None:
    level, disabled, handlers = before
    logging.root.setLevel(level)
    logging.disable(disabled)
    logging.root.handlers[:] = handlers


def _streams() -> object:
    return sys.stdin, sys.stdout, sys.stderr, sys.excepthook


def _set_streams(before: tuple[Any, ...]) -> None:
    sys.stdin, sys.stdout, sys.stderr, sys.excepthook = before


def _setting(
    text: str,
    names: str,
    read: Callable[[], object],
    write: Callable[[Any], object],
    module: str = "",
) -> _Setting:
    return _Setting(text, frozenset(names.split()), read, write, module)


_SETTINGS = (
    _setting("os.environ", "environ environb putenv unsetenv", _environment, _set_environment),
    _setting(
        "the filters of warnings",
        "simplefilter filterwarnings resetwarnings filters",
        lambda: tuple(warnings.filters),
        _set_filters,
    ),
    _setting(
        "the state of Python's random numbers (random)",
        "seed setstate",
        random.getstate,
        random.setstate,
    ),
    _setting(
        "the state of NumPy's random numbers (numpy.random)",
        "seed set_state",
        _numpys_random,
        _set_numpys_random,
    ),
    _setting(
        "NumPy's handling of errors",
        "seterr setbufsize",
        lambda: tuple(np.geterr().items()),
        lambda before: np.seterr(**dict(before)),
    ),
    _setting(
        "NumPy's print options",
        "set_printoptions",
        lambda: np.get_printoptions(),
        lambda before: np.set_printoptions(**before),
    ),
    _setting(
        "the context of decimal",
        "getcontext setcontext",
        _decimal,
        _set_decimal,
    ),
    _setting(
        "the locale",
        "setlocale",
        lambda: locale.setlocale(locale.LC_ALL),
        lambda before: locale.setlocale(locale.LC_ALL, before),
    ),
    _setting(
        "the recursion limit", "setrecursionlimit", sys.getrecursionlimit, sys.setrecursionlimit
    ),
    _setting(
        "the switch interval", "setswitchinterval", sys.getswitchinterval, sys.setswitchinterval
    ),
    _setting(
        "sys.path",
        "path",
        lambda: tuple(sys.path),
        lambda before: sys.path.__setitem__(slice(None), before),
        "sys",
    ),
    _setting("the current directory", "chdir fchdir", os.getcwd, os.chdir),
    _setting(
        "the thresholds of the garbage collector",
        "set_threshold",
        gc.get_threshold,
        lambda before: gc.set_threshold(*before),
    ),
    _setting(
        "the level or the handlers of logging",
        "setLevel disable addHandler removeHandler handlers",
        _logging,
        _set_logging,
    ),
    _setting(
        "sys.stdin, stdout, stderr or excepthook",
        "stdin stdout stderr excepthook",
        _streams,
        _set_streams,
    ),
    _setting(
        "the classes registered with abstract ones (ABC.register)",
        "register",
        abc.get_cache_token,
        lambda before: None,  # there is no way back
    ),
    _setting(
        "the number of threads (al.set_num_threads)",
        "set_num_threads",
        get_num_threads,
        set_num_threads,
    ),
)
