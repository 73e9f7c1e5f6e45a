"""The form of each field in a file, by the field's declared type.

A record's class declares the types of its fields. `fields_of` makes a `ValueForm` of each, once: it
writes a value as JSON, and reads it back. A form takes values of its type alone, on both sides.
Spec: `specs/record_files.md`, REC-3.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Protocol

import attrs
from optree import PyTreeSpec

from aotlite.eager.base.tape.view_chain import ViewChain
from aotlite.ir.errors import GraphError, UnsupportedError, noted
from aotlite.ir.graph import Graph
from aotlite.ir.graph.files.values import Said, Unread, each, role_from
from aotlite.ir.graph.files.writer import role_entry
from aotlite.ir.graph.role import ROLES, Incoming, Part, Piece, is_number
from aotlite.ir.meta import TensorMeta
from aotlite.ir.symbols.symint import SymInt
from aotlite.pipeline.record_files.table import ENUMS, OMITTED, RECORDS
from aotlite.stages.records.guards.access_paths import AccessPath
from aotlite.stages.records.guards.float_guards import FloatFactGuard, FloatPath
from aotlite.stages.records.guards.snapshots import Snapshot
from aotlite.stages.records.metadata.subclass_meta import SubclassMeta
from aotlite.stages.shared.double_backward import EarlierResult

LONGEST: Final = 100_000
"""The most characters of a text."""
_ROLES: Final = frozenset((*ROLES, Piece))
_NO_DATA: Final[Mapping[Any, tuple[str, str]]] = {
    SubclassMeta: (
        "a wrapper subclass",
        "Unwrap its parts before the function, and wrap the results after it.",
    ),
    FloatFactGuard: (
        "a condition on a float argument",
        "Leave floats out of dynamic_shapes and use dynamic=False: they are fixed then.",
    ),
    FloatPath: (
        "a tensor made of float arguments",
        "Leave floats out of dynamic_shapes and use dynamic=False: they are fixed then.",
    ),
}
"""Classes that are no data: functions and classes of users are in them. (Words for one, advice)."""


class Out(Protocol):
    """The writer, as forms see it."""

    def size(self, value: int) -> object: ...
    def meta(self, value: TensorMeta) -> int: ...
    def graph(self, value: Graph) -> int: ...
    def reference(self, value: object) -> object: ...
    def data(self, value: object) -> object: ...
    def spec(self, value: PyTreeSpec) -> object: ...
    def error(self, value: BaseException) -> object: ...


class Given(Protocol):
    """The reader, as forms see it."""

    def size(self, value: object) -> int: ...
    def meta(self, value: object) -> TensorMeta: ...
    def graph(self, value: object) -> Graph: ...
    def reference(self, value: object) -> object: ...
    def data(self, value: object) -> object: ...
    def spec(self, value: object) -> PyTreeSpec: ...
    def error(self, value: object) -> Exception: ...


@attrs.frozen
class ValueForm:
    """How values of one declared type are written."""

    takes: Callable[[Any], bool]
    """Whether a value is of the type."""
    fits: Callable[[Any], bool]
    """Whether JSON may be a value of the type."""
    write: Callable[[Any, Any], Any]
    """The JSON of a value, with the writer."""
    read: Callable[[Any, Any], Any]
    """The value of JSON, with the reader. Raises Unread."""
    name: str
    """The type in words."""
    same: frozenset[type] = frozenset()
    """The types of JSON values that are the value itself, whatever they are."""
    refuses: bool = False
    """Whether `read` says of JSON that does not fit what it says of the type."""


# ---------------------------------------------------------------------------------- single values
def _of_class(*kinds: type) -> Callable[[object], bool]:
    return lambda value: type(value) in kinds


def _tagged(tag: str) -> Callable[[object], bool]:
    return lambda value: type(value) is dict and tag in value


def _same(kind: type, what: str) -> ValueForm:
    def read(value: object, given: Given) -> object:
        if type(value) is not kind:
            raise Unread(value, what)
        return value

    of_kind = _of_class(kind)
    return ValueForm(of_kind, of_kind, lambda value, out: value, read, what, frozenset((kind,)))


def read_text(value: object, given: Given) -> str:
    """A text of any length that files have."""
    if type(value) is not str or len(value) > LONGEST:
        got = Said(f"a text of {len(value)} characters") if type(value) is str else value
        raise Unread(got, f"a text of at most {LONGEST} characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unread(value, "text without surrogates") from None
    return value


def written_text(value: str, out: Out) -> str:
    """A text as a file has it. Raises UnsupportedError for one that is too long, or has lone
    surrogates, of which a JSON text would make other characters."""
    if len(value) > LONGEST:
        raise UnsupportedError(
            f"records: a text has {len(value)} characters, expected at most {LONGEST}"
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise noted(
            UnsupportedError(
                f"records: a text is {ascii(value)[:80]}, expected one without surrogates"
            ),
            'Decode file names and the like with errors="backslashreplace", or pass bytes.',
        ) from None
    return value


def _write_role(value: object, out: Out) -> object:
    if is_number(value):
        raise noted(
            UnsupportedError(f"records: {value} is made of float arguments, expected numbers"),
            "Leave floats out of dynamic_shapes and use dynamic=False: they are fixed then.",
        )
    return role_entry(value)


def _roles(kinds: Sequence[type]) -> ValueForm:
    def read(value: object, given: Given) -> object:
        role = role_from(value)
        if type(role) not in kinds:
            raise Unread(str(role), f"one of {what}")
        return role

    what = ", ".join([kind.__name__ for kind in kinds])
    return ValueForm(
        _of_class(*kinds),
        lambda value: type(value) is str or (type(value) is dict and "role" in value),
        _write_role,
        read,
        f"a role ({what})",
    )


def _enum(kind: type[Enum]) -> ValueForm:
    def read(value: Any, given: Given) -> Enum:
        word = value["enum"] if type(value) is dict and value.keys() == {"enum"} else None
        if type(word) is not str or word not in kind.__members__:
            raise Unread(value, f"one of {', '.join(kind.__members__)}")
        return kind.__members__[word]

    def write(value: Enum, out: Out) -> object:
        return {"enum": value.name}

    return ValueForm(_of_class(kind), _tagged("enum"), write, read, kind.__name__)


def _references(kinds: Sequence[type]) -> ValueForm:
    def read(value: object, given: Given) -> object:
        found = given.reference(value)
        if type(found) not in kinds:
            raise Unread(Said(f"a {type(found).__name__}"), f"one of {what}")
        return found

    what = ", ".join([kind.__name__ for kind in kinds])

    def write(value: object, out: Out) -> object:
        return out.reference(value)

    return ValueForm(_of_class(*kinds), _tagged("ref"), write, read, what)


_INT: Final = ValueForm(
    _of_class(int, SymInt),
    lambda value: type(value) is int or (type(value) is dict and "size" in value),
    lambda value, out: out.size(value),
    lambda value, given: given.size(value),
    "an integer",
)
_SIMPLE: Final[dict[Any, ValueForm]] = {
    int: _INT,
    bool: _same(bool, "true or false"),
    types.NoneType: _same(types.NoneType, "null"),
    str: ValueForm(_of_class(str), _of_class(str), written_text, read_text, "a text"),
    TensorMeta: ValueForm(
        _of_class(TensorMeta),
        _tagged("meta"),
        lambda value, out: {"meta": out.meta(value)},
        lambda value, given: given.meta(value),
        "a meta",
    ),
    Graph: ValueForm(
        _of_class(Graph),
        _tagged("graph"),
        lambda value, out: {"graph": out.graph(value)},
        lambda value, given: given.graph(value),
        "a graph",
    ),
    PyTreeSpec: ValueForm(
        lambda value: isinstance(value, PyTreeSpec),
        _tagged("tree"),
        lambda value, out: out.spec(value),
        lambda value, given: given.spec(value),
        "containers",
    ),
    Exception: ValueForm(
        lambda value: isinstance(value, Exception),
        _tagged("error"),
        lambda value, out: out.error(value),
        lambda value, given: given.error(value),
        "an error",
    ),
}


def _refused(kind: type) -> ValueForm:
    """The form of a class that is no data."""
    what, advice = _NO_DATA[kind]

    def write(value: object, out: Out) -> object:
        error = UnsupportedError(f"records: {what} is no data, expected a program without one")
        raise noted(error, advice)

    def read(value: object, given: Given) -> object:
        raise Unread(value, f"no value: {what} is no data")

    return ValueForm(_of_class(kind), lambda value: False, write, read, what)


_ANYTHING: Final = ValueForm(
    lambda value: True,
    lambda value: True,
    lambda value, out: out.data(value),
    lambda value, given: given.data(value),
    "data",
)


# -------------------------------------------------------------------------------------- several
def _items(items: ValueForm, make: Callable[[list[Any]], Any], kind: type) -> ValueForm:
    def read(value: object, given: Given) -> Any:
        return make(each(lambda item: items.read(item, given), value, ""))

    def write(value: Any, out: Out) -> object:
        return [written(items, item, out) for item in value]

    return ValueForm(_of_class(kind), _of_class(list), write, read, f"a list ({items.name})")


def _set(items: ValueForm) -> ValueForm:
    def read(value: Any, given: Given) -> frozenset[Any]:
        found = frozenset(each(lambda item: items.read(item, given), value, ""))
        if len(found) != len(value):
            raise Unread(value, "no item twice")
        return found

    def write(value: frozenset[Any], out: Out) -> object:
        return sorted([written(items, item, out) for item in value], key=json.dumps)

    return ValueForm(_of_class(frozenset), _of_class(list), write, read, f"a set ({items.name})")


def _several(forms: Sequence[ValueForm]) -> ValueForm:
    """A tuple with a form for each item."""

    def read(value: Any, given: Given) -> tuple[Any, ...]:
        if type(value) is not list or len(value) != len(forms):
            raise Unread(value, f"a list of {len(forms)}")
        pairs = iter(forms)
        return tuple(each(lambda item: next(pairs).read(item, given), value, ""))

    def write(value: tuple[Any, ...], out: Out) -> object:
        return [written(form, item, out) for form, item in zip(forms, value, strict=True)]

    return ValueForm(_of_class(tuple), _of_class(list), write, read, f"a list of {len(forms)}")


def _mapping(keys: ValueForm, items: ValueForm) -> ValueForm:
    pair = _several((keys, items))

    def read(value: Any, given: Given) -> dict[Any, Any]:
        found = dict(each(lambda item: pair.read(item, given), value, ""))
        if len(found) != len(value):
            raise Unread(value, "no key twice")
        return found

    def write(value: Mapping[Any, Any], out: Out) -> object:
        return [pair.write(item, out) for item in value.items()]

    return ValueForm(_of_class(dict), _of_class(list), write, read, f"a dict ({keys.name})")


def _union(forms: Sequence[ValueForm]) -> ValueForm:
    what = " or ".join([form.name for form in forms])

    def read(value: object, given: Given) -> Any:
        for form in forms:
            if form.fits(value):
                return form.read(value, given)
        raise Unread(value, what)

    def write(value: object, out: Out) -> object:
        return next(form for form in forms if form.takes(value)).write(value, out)

    return ValueForm(
        lambda value: any(form.takes(value) for form in forms),
        lambda value: any(form.fits(value) for form in forms),
        write,
        read,
        what,
        frozenset().union(*[form.same for form in forms]),
        refuses=True,
    )


def written(form: ValueForm, value: Any, out: Out) -> Any:
    """The JSON of a value. Raises UnsupportedError for one that is not of the form."""
    if not form.takes(value):
        raise UnsupportedError(
            f"records: a value is a {type(value).__name__}, expected {form.name}"
        )
    return form.write(value, out)


# ---------------------------------------------------------------------------------- declared types
_CHAINS: Final = (ViewChain, Snapshot)
"""Classes that are written as entries like records, by a form of their own."""


def form_of(declared: Any) -> ValueForm:
    """The form of a declared type. Raises GraphError for a type that no file has: a bug of ours."""
    found = _SIMPLE.get(declared)
    if found is not None:
        return found
    if declared in (Any, object):
        return _ANYTHING
    origin, parameters = typing.get_origin(declared), typing.get_args(declared)
    if origin in (types.UnionType, typing.Union):
        return _form_of_union(parameters)
    if origin is tuple and parameters[-1] is not ...:
        return _several([form_of(each) for each in parameters])
    if origin in (tuple, list):
        return _items(form_of(parameters[0]), origin, origin)
    if origin is frozenset:
        return _set(form_of(parameters[0]))
    if origin in (dict, Mapping) or origin is typing.get_origin(Mapping[str, str]):
        return _mapping(*map(form_of, parameters))
    if declared in _ROLES:
        return _roles((declared,))
    if declared in ENUMS.values():
        return _enum(declared)
    if declared in _NO_DATA:
        return _refused(declared)
    if declared is AccessPath:
        return _union([_refused(FloatPath), _references((AccessPath,))])
    if declared in RECORDS.values() or declared in _CHAINS:
        return _references((declared,))
    raise GraphError(f"records: a field is declared {declared}, expected a type that a file has")


def _form_of_union(parameters: Sequence[Any]) -> ValueForm:
    roles = [kind for kind in parameters if kind in _ROLES]
    records = [kind for kind in parameters if kind in RECORDS.values()]
    rest = [kind for kind in parameters if kind not in roles and kind not in records]
    if Part in roles:
        roles.append(Piece)
    if Incoming in roles:  # the owner of memory, at a later order a result of the one before
        records.append(EarlierResult)
    forms = [form_of(kind) for kind in rest]
    forms += [_roles(roles)] if roles else []
    forms += [_references(records)] if records else []
    return forms[0] if len(forms) == 1 else _union(forms)


@attrs.frozen
class FieldForm:
    """A field of a record, with its form."""

    name: str
    form: ValueForm | None
    """None for a field that no file holds."""
    default: Any
    """The value of such a field."""


def fields_of(kind: type[Any]) -> tuple[FieldForm, ...]:
    """The fields of a class of records, in order."""
    found = _FIELDS.get(kind)
    if found is None:
        found = _FIELDS[kind] = _declared_fields(kind)
    return found


_FIELDS: Final[dict[type[Any], tuple[FieldForm, ...]]] = {}


def _declared_fields(kind: type[Any]) -> tuple[FieldForm, ...]:
    declared = typing.get_type_hints(kind)
    return tuple([_field(kind, each, declared[each.name]) for each in attrs.fields(kind)])


def _field(kind: type, field: Any, declared: object) -> FieldForm:
    if (kind.__name__, field.name) not in OMITTED:
        return FieldForm(field.name, form_of(declared), None)
    default = field.default
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        default = default.factory()
    nothing = () if kind.__name__ == "GuardedFacts" else None
    return FieldForm(field.name, None, nothing if default is attrs.NOTHING else default)
