"""Whose code asks a symbolic number: aotlite's, or a user's (DYN-23). Ground floor.

Spec: `specs/symbols.md`.
"""

from __future__ import annotations

import functools
import sys
from abc import ABCMeta
from collections.abc import Callable
from types import CellType, FrameType, FunctionType, MethodType, ModuleType, NoneType
from typing import Any, Final

from aotlite.ir.provenance.location import Location

__all__ = ["CountSymbols", "asked_outside", "asking_place", "held_symbol"]

_WRITTEN_AS_BY_USERS: Final = frozenset(("conformance", "data", "nn", "optim", "testing"))
"""Packages of aotlite that take sizes for ints, as users do: layers, and programs of tests."""
_OF_ABC = ABCMeta.__instancecheck__.__code__
_OUTSIDE: dict[object, bool] = {}
"""By the name of a module: whether symbols are shown to it as ints."""


def asked_outside(depth: int) -> bool:
    """Whether the frame `depth` above the caller runs code outside aotlite: a user's, or Python's
    for a user."""
    frame = sys._getframe(depth + 1)
    known = _OUTSIDE.get(frame.f_globals.get("__name__"))
    return _is_outside(frame) if known is None else known


def _is_outside(frame: FrameType) -> bool:
    if frame.f_code is _OF_ABC and frame.f_back is not None:
        return _is_outside(frame.f_back)
    name = frame.f_globals.get("__name__")
    package, _, inner = str(name).partition(".")
    found = package != "aotlite" or inner.partition(".")[0] in _WRITTEN_AS_BY_USERS
    _OUTSIDE[name] = found
    return found


def asking_place() -> Location | None:
    """The user's line that asks: of the innermost frame outside aotlite, Python's library and
    NumPy; of the innermost one outside aotlite if there is no such frame."""
    frame: FrameType | None = sys._getframe(1)
    found: Location | None = None
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package != "aotlite":
            of_library = package == "numpy" or package in sys.stdlib_module_names
            if not of_library or found is None:
                found = frame.f_code, frame.f_lasti
            if not of_library:
                return found
        frame = frame.f_back
    return found


# ------------------------------------------------------------------- symbols that code keeps
MOST_HELD = 10_000
"""At most so many objects are looked at."""


def held_symbol(function: object) -> object:
    """A symbolic number that a function, hook or object holds, to be read when it is called: in its
    closure, defaults, object, and containers there; None if there is none."""
    stack, seen = [function], set[int]()
    while stack and len(seen) < MOST_HELD:
        each = stack.pop()
        kind = type(each)
        if hasattr(kind, "with_value"):
            return each
        if id(each) in seen or kind in _HOLDS_NONE:
            continue
        seen.add(id(each))
        stack += _held_by(each)
    return None


_HOLDS_NONE = frozenset((int, float, complex, bool, str, bytes, NoneType, ModuleType, type))


def _held_by(each: object) -> list[object]:
    if isinstance(each, (list, tuple, set, frozenset)):
        return list(each)
    if isinstance(each, dict):
        return [*each, *each.values()]
    if isinstance(each, MethodType):
        return [each.__self__, each.__func__]
    if isinstance(each, FunctionType):
        cells = [cell.cell_contents for cell in each.__closure__ or () if _is_filled(cell)]
        return [*cells, each.__defaults__, each.__kwdefaults__, vars(each)]
    if isinstance(each, functools.partial):
        return [each.func, each.args, each.keywords]
    is_ours = str(type(each).__module__).partition(".")[0] == "aotlite"
    return [] if is_ours or not hasattr(each, "__dict__") else [vars(each)]


def _is_filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


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
        if self.open and _is_user_asking():
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
        return set().union(*[_of_atom(atom) for atom in atoms])
    if hasattr(value, "operands"):
        return symbols_in(value.operands)
    return symbols_in((value.left, value.right)) if hasattr(value, "relation") else set()


def _of_atom(atom: Any) -> set[str]:
    return {atom.name} if hasattr(atom, "hint") else symbols_in((atom.left, atom.right))


def _is_user_asking() -> bool:
    """Whether the innermost frame outside of this package runs code outside aotlite."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).startswith(_HERE):
        frame = frame.f_back
    package, _, inner = str("" if frame is None else frame.f_globals.get("__name__")).partition(".")
    return package != "aotlite" or inner.startswith(("testing", "conformance"))


_HERE: Final = __name__.rpartition(".")[0]
