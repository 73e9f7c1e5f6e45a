"""Whose code asks a symbolic number: aotlite's, or a user's (DYN-23). Ground floor.

Spec: `specs/symbols.md`.
"""

from __future__ import annotations

import gc
import sys
import threading
from abc import ABCMeta
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from types import CodeType, FrameType, FunctionType, ModuleType, NoneType
from typing import Any, Final, TypeVar, cast

from aotlite.ir.provenance.location import Location

__all__ = [
    "OUTSIDE",
    "UNSEARCHED",
    "CountSymbols",
    "asked_outside",
    "asking_place",
    "asks_for",
    "held_symbol",
    "is_user_asking",
    "symbols_in",
    "symbols_of_atom",
]

Run = TypeVar("Run", bound=Callable[..., object])

_WRITTEN_AS_BY_USERS: Final = frozenset(("conformance", "data", "nn", "optim", "testing"))
"""Packages of aotlite that take sizes for ints, as users do: layers, and programs of tests."""
_OF_ABC = ABCMeta.__instancecheck__.__code__
OUTSIDE: dict[object, bool] = {}
"""By the name of a module: whether symbols are shown to it as ints."""


def asked_outside(depth: int) -> bool:
    """Whether the frame `depth` above the caller runs code outside aotlite: a user's, or Python's
    for a user."""
    frame = sys._getframe(depth + 1)
    known = OUTSIDE.get(frame.f_globals.get("__name__"))
    return _is_outside(frame) if known is None else known


def _is_outside(frame: FrameType) -> bool:
    if frame.f_code is _OF_ABC and frame.f_back is not None:
        return _is_outside(frame.f_back)
    name = frame.f_globals.get("__name__")
    package, _, inner = str(name).partition(".")
    found = package != "aotlite" or inner.partition(".")[0] in _WRITTEN_AS_BY_USERS
    OUTSIDE[name] = found
    return found


# Note [the line of who asks]
#     y = (x @ w).mean()         # its backward asks for a size, when the function has returned
# The innermost frame of a user's is then that of the call. But within a frame of aotlite's that
# works on a node, what is asked is asked for that node: of a tape, or of a graph that is rewritten.
# So such functions say which of their variables it is. A hook or a backward of the user's runs
# further inside, so its own line is found first.
_NODES: dict[int, tuple[CodeType, Callable[[Mapping[str, object]], Location | None]]] = {}
"""By the id of a function's code: the line of the node in its variables."""


def asks_for(node: str) -> Callable[[Run], Run]:
    """Says that what a function asks within is asked for the node that a path from one of its
    variables leads to. Note [the line of who asks]."""
    variable, *path = node.split(".")

    def line_of(variables: Mapping[str, object]) -> Location | None:
        found: object = variables.get(variable)
        for name in (*path, "location"):
            found = getattr(found, name, None)
        return cast("Location | None", found)

    def mark(function: Run) -> Run:
        code: CodeType = function.__code__
        _NODES[id(code)] = code, line_of
        return function

    return mark


def asking_place() -> Location | None:
    """The user's line that asks: of the innermost frame outside aotlite, Python's library and
    NumPy; of the innermost one outside aotlite if there is no such frame.

    Of the node that a frame of aotlite's works on, if that is further inside."""
    frame: FrameType | None = sys._getframe(1)
    found: Location | None = None
    nodes, owners = _NODES, _OWNERS
    while frame is not None:
        name = frame.f_globals.get("__name__")
        owner = owners.get(name) or _owner_of(name)
        if owner == "aotlite":
            code = id(frame.f_code)
            line = nodes[code][1](frame.f_locals) if code in nodes else None
            if line is not None:
                return found or line
        elif owner == "user" or found is None:
            found = frame.f_code, frame.f_lasti
            if owner == "user":
                return found
        frame = frame.f_back
    return found


_OWNERS: dict[object, str] = {}
"""By the name of a module: "aotlite", "library" (Python's, and NumPy), or "user"."""


def _owner_of(name: object) -> str:
    package = str(name).partition(".")[0]
    of_library = package == "numpy" or package in sys.stdlib_module_names
    found = package if package == "aotlite" else "library" if of_library else "user"
    if type(name) is str:
        _OWNERS[name] = found
    return found


# ------------------------------------------------------------------- symbols that code keeps
MOST_HELD = 100_000
"""At most so many objects are looked at, the nearest first."""
UNSEARCHED: Final = object()
"""What `held_symbol` finds where there are more: they may hold one."""


def held_symbol(function: object) -> object:
    """A symbolic number that a function, hook or object reaches, to be read when it is called: in
    its variables, and whatever objects there hold; None if there is none. UNSEARCHED if there are
    too many objects to tell."""
    waiting, seen = deque([function]), dict[int, object]()
    while waiting and len(seen) < MOST_HELD:
        each = waiting.popleft()
        kind = type(each)
        if hasattr(kind, "with_value"):
            return each
        if id(each) not in seen and kind not in _HOLDS_NONE:
            seen[id(each)] = each  # alive, so that no other object gets its id
            waiting.extend(_held_by(each))
    return UNSEARCHED if waiting else None


_HOLDS_NONE = frozenset(
    (int, float, complex, bool, str, bytes, NoneType, ModuleType, CodeType, FrameType)
)


def _held_by(each: object) -> Iterable[object]:
    package, _, inner = str(getattr(each, "__module__", "")).partition(".")
    if package == "aotlite" and inner.partition(".")[0] not in _WRITTEN_AS_BY_USERS:
        return ()
    is_of_library = package == "numpy" or package in sys.stdlib_module_names
    if isinstance(each, FunctionType):
        inside = [each.__closure__, each.__defaults__, each.__kwdefaults__, vars(each)]
        return inside if is_of_library else [*inside, *_named_by(each.__code__, each.__globals__)]
    if isinstance(each, type):
        return () if is_of_library else [*vars(each).values(), *each.__bases__]
    if isinstance(each, ContextVar):
        return (each.get(None),)
    here = getattr(each, "__dict__", None) if isinstance(each, threading.local) else None
    return [*gc.get_referents(each), here]


def _named_by(code: CodeType, variables: Mapping[str, object]) -> Iterator[object]:
    """The globals that code names, and what it may read of those that are modules."""
    for name in code.co_names:
        found = variables.get(name)
        yield found
        if type(found) is ModuleType and not _is_known_module(found):
            yield from [vars(found).get(other) for other in code.co_names]
    for inner in code.co_consts:
        if type(inner) is CodeType:
            yield from _named_by(inner, variables)


def _is_known_module(module: ModuleType) -> bool:
    package = module.__name__.partition(".")[0]
    return package in ("aotlite", "numpy") or package in sys.stdlib_module_names


# ---------------------------------------------------------------------------- sizes of values
class CountSymbols:
    """The symbols of a trace whose values a call computes: their hints answer code of the user's
    only where it has stated a default (DYN-32)."""

    def __init__(self, refusal: Callable[[object, set[str]], Exception]) -> None:
        self.refusal = refusal
        """Makes the error for a question, and the names of the symbols without a default."""
        self.open: set[str] = set()
        """The names of those without a stated default."""
        self.values: dict[str, int] = {}
        """The stated defaults, by name: what costs are computed with (DYN-16)."""

    def cost(self, value: Any) -> int:
        """The size for questions of speed: with the stated defaults, and the hints of the rest."""
        found: int = value.table.evaluate(value, {**value.table.hints, **self.values})
        return found

    def is_open(self, value: object) -> bool:
        """Whether a size or a comparison depends on a symbol without a stated default."""
        return bool(self.open and symbols_in(value) & self.open)

    def ask(self, fact: object) -> None:
        """Raises for a question of user code that has no stated default."""
        if self.open and is_user_asking():
            names = symbols_in(fact) & self.open
            if names:
                raise self.refusal(fact, names)


def symbols_in(value: Any) -> set[str]:
    """The names of the symbols in a size, a comparison, an answer, or a tuple of these."""
    if type(value) is tuple:
        return set().union(*map(symbols_in, value))
    terms = getattr(value, "terms", None)
    if terms is not None:
        atoms = [atom for monomial in terms for atom in monomial]
        return set().union(*[symbols_of_atom(atom) for atom in atoms])
    if hasattr(value, "operands"):
        return symbols_in(value.operands)
    return symbols_in((value.left, value.right)) if hasattr(value, "relation") else set()


def symbols_of_atom(atom: Any) -> set[str]:
    """The names of the symbols in an atom of a polynomial."""
    if hasattr(atom, "operands"):
        return symbols_in(atom.operands)
    return {atom.name} if hasattr(atom, "hint") else symbols_in((atom.left, atom.right))


def is_user_asking() -> bool:
    """Whether the innermost frame outside of this package runs code outside aotlite."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).startswith(_HERE):
        frame = frame.f_back
    package, _, inner = str("" if frame is None else frame.f_globals.get("__name__")).partition(".")
    return package != "aotlite" or inner.startswith(("testing", "conformance"))


_HERE: Final = __name__.rpartition(".")[0]
