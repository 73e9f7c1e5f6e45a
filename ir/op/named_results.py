"""Named tuples for the results of ops and composites: `x.max(0).indices`.

Ground floor. The fields are the names of the results in the schema, which are PyTorch's. Graphs,
tapes and the interpreter pass several results as a plain tuple; only the functions and methods that
users call return named tuples.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from aotlite.ir.op.schema import Schema

_TYPES: dict[str, Any] = {}


def results_type(name: str, *fields: str) -> Any:
    """The named tuple type with this name and these fields, the same object each time.

    >>> results_type("max", "values", "indices")(3, 0)
    max(values=3, indices=0)
    """
    known = _TYPES.get(name)
    if known is None or known._fields != fields:
        make: Any = namedtuple  # its first argument is a literal for type checkers
        known = _TYPES[name] = make(name, fields, module=__name__)
    return known


def results_of(schema: Schema | None) -> Any:
    """The named tuple type of a schema's results; None unless there are several, all with names."""
    names = () if schema is None else tuple(returned.name for returned in schema.returns)
    if schema is None or len(names) < 2 or not all(names):
        return None
    return results_type(schema.name, *names)


def known_type(name: str, fields: tuple[str, ...]) -> Any:
    """The type of this name, which some op has; None where there is none with these fields."""
    known = _TYPES.get(name)
    return known if known is not None and known._fields == fields else None


def __getattr__(name: str) -> Any:
    """The type of this name: unpickling looks it up here."""
    if name not in _TYPES:
        raise AttributeError(name)
    return _TYPES[name]
