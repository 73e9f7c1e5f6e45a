"""`container_text`: results in their containers, as an expression, and the classes that it needs.

The text is that of the very object that eager returns, with the texts of results for its leaves: so
dicts keep the order of their keys. A named tuple or a dataclass is defined in the file, by its name
and its fields, for a file imports no module of the user's. Rule: PYX-8. Spec: `specs/to_python.md`.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Collection, Iterable
from typing import Any

import attrs
import optree
from optree import PyTreeSpec

from aotlite.ir.errors import UnsupportedError, noted
from aotlite.python_export.file_parts import FileParts, entry_name
from aotlite.python_export.kernels.argument_text import literal
from aotlite.stages.records.guards.snapshots import PLAIN

_FACTORIES = (list, dict, set, int, float, tuple, str)
"""The factories of defaultdicts that a file can name."""


@attrs.frozen(eq=False)
class _Leaf:
    """A leaf of the containers."""

    text: str


def container_text(
    spec: PyTreeSpec, items: Iterable[str], parts: FileParts, taken: Collection[str]
) -> str:
    """The text of the first of these results in their containers; those behind are no results of
    the function's own. `taken` are names that no class may have.

    Raises UnsupportedError for containers that a file cannot make.
    """
    own = itertools.islice(items, spec.num_leaves)
    try:
        tree = optree.tree_unflatten(spec, map(_Leaf, own))
    except Exception as error:  # the user's own code, which makes a container
        raise _refused(f"the containers of the results compute with them ({error})") from error
    return _Writer(parts, taken).text(tree)


class _Writer:
    """Writes containers; the classes that they need go to the parts of the file."""

    def __init__(self, parts: FileParts, taken: Collection[str]) -> None:
        self.parts, self.taken = parts, taken

    def text(self, value: Any) -> str:
        """The expression of a container, or of a leaf."""
        kind = type(value)
        if kind is _Leaf:
            return str(value.text)
        if value is None:
            return "None"
        if kind is tuple:
            return f"({', '.join(map(self.text, value))}{',' * (len(value) == 1)})"
        if kind is list:
            return f"[{', '.join(map(self.text, value))}]"
        if kind is dict:
            return self._pairs(value)
        if kind is collections.OrderedDict:
            return f"{self.parts.module('collections')}.OrderedDict({self._pairs(value)})"
        if kind is collections.defaultdict and value.default_factory in (None, *_FACTORIES):
            factory = value.default_factory
            name = "None" if factory is None else factory.__name__
            return f"{self.parts.module('collections')}.defaultdict({name}, {self._pairs(value)})"
        if kind is collections.deque:
            most = "" if value.maxlen is None else f", maxlen={value.maxlen}"
            items = ", ".join(map(self.text, value))
            return f"{self.parts.module('collections')}.deque([{items}]{most})"
        if optree.is_namedtuple_class(kind):
            return self._named_tuple(value)
        if dataclasses.is_dataclass(kind):
            return self._dataclass(value)
        raise _refused(f"the results are in a {kind.__name__}")

    def _pairs(self, value: dict[Any, Any]) -> str:
        return f"{{{', '.join([f'{literal(k)}: {self.text(of)}' for k, of in value.items()])}}}"

    def _named_tuple(self, value: Any) -> str:
        kind: Any = type(value)
        fields = kind._fields
        for place, field in enumerate(fields):
            if field.startswith("_") and field != f"_{place}":
                raise _refused(f"the results are in a {kind.__name__} with a field {field!r}")
        made = f"{self.parts.module('collections')}.namedtuple"
        rename = ", rename=True" if any(field.startswith("_") for field in fields) else ""
        names = ", ".join([f'"{field}"' for field in fields])
        name = self._class(kind.__name__, f'{{name}} = {made}("{{name}}", [{names}]{rename})')
        return f"{name}({self._fields(zip(fields, value, strict=True))})"

    def _dataclass(self, value: Any) -> str:
        kind = type(value)
        fields = dataclasses.fields(kind)
        if hasattr(kind, "__post_init__") or not all(each.init for each in fields):
            raise _refused(f"{kind.__name__}, in which results are, computes fields itself")
        frozen = "(frozen=True)" if kind.__dataclass_params__.frozen else ""
        head = f"@{self.parts.module('dataclasses')}.dataclass{frozen}\nclass {{name}}:"
        rows = [f"    {each.name}: object" for each in fields]
        name = self._class(kind.__name__, "\n".join([head, *(rows or ["    pass"])]))
        pairs = [(each.name, getattr(value, each.name)) for each in fields]
        return f"{name}({self._fields(pairs)})"

    def _fields(self, pairs: Iterable[tuple[str, Any]]) -> str:
        return ", ".join([f"{field}={self._field(value)}" for field, value in pairs])

    def _field(self, value: Any) -> str:
        """A field's text; one that is no child of the container is a plain value."""
        return literal(value) if type(value) in PLAIN else self.text(value)

    def _class(self, name: str, text: str) -> str:
        """The variable of a class with this definition."""
        free = entry_name(name)
        while free in self.taken:
            free += "_"
        return self.parts.container_class(free, name, text)


def _refused(what: str) -> Exception:
    error = UnsupportedError(
        f"to_python: {what}, expected tuples, lists, dicts, named tuples and dataclasses"
    )
    return noted(error, "Return a tuple or a dict. (PYX-9)")
