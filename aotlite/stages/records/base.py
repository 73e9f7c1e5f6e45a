"""`Record`: the base class of records that stages pass on: a repr of one line, and comparison.

Both go field by field, so a new field is printed and compared without further work. Nodes, fakes
and tape edges live in one compilation: they are neither printed nor compared.
Rules: META-5, META-25, META-26. Spec: `specs/rules/meta.md`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any, SupportsIndex

import attrs

from aotlite.eager.base.tape.view_chain import ViewChain
from aotlite.ir.errors import FormatError
from aotlite.ir.graph import Graph
from aotlite.ir.graph.files import dumps
from aotlite.ir.graph.node_text import literal
from aotlite.ir.graph.role import ROLES
from aotlite.ir.meta import TensorMeta
from aotlite.ir.meta.text import meta_text
from aotlite.stages.records.pickle_format import FORMAT, refusal, restored

_MOST = 4
"""The number of items of a tuple that are printed."""


class Record:
    """The base class of frozen records."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(_parts(self))})"

    def differences(self, other: object) -> list[str]:
        """The differences of another record from this one, a line each; empty without any."""
        return list(_differences("", self, other))

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[object, ...]:
        """The pickled form: the format's version, the class, the fields in order (META-26)."""
        values = tuple([getattr(self, field.name) for field in _fields(self)])
        return restored, (FORMAT, type(self), values)

    def __init_subclass__(cls) -> None:
        # attrs writes a method that takes the state of a pickle without a version.
        if "__setstate__" in cls.__dict__:
            cls.__setstate__ = Record.__setstate__  # type: ignore[method-assign]

    def __setstate__(self, state: object) -> None:
        """Raises FormatError: only pickles without a version have a state."""
        raise FormatError(refusal(f"unpickling: {type(self).__name__}", 0))


def chain_text(chain: ViewChain) -> str:
    """The views of a chain as calls: `.t().select(0, 0)`."""
    calls = (f".{s.op.name}({', '.join(literal(a, {}) for a in s.args)})" for s in chain)
    return "".join(calls)


def _fields(record: Any) -> Any:
    return attrs.fields(type(record))


# --------------------------------------------------------------------------------------- printing
def _parts(record: object) -> Iterator[str]:
    metas: list[TensorMeta] = []
    for position, field in enumerate(_fields(record)):
        value = getattr(record, field.name)
        if field.name in _LIVING or (position and type(value) is int and value == 0):
            continue
        if isinstance(value, bool):
            if value != (field.default is True):
                yield field.name if value else f"not {field.name}"
        elif isinstance(value, TensorMeta):
            if value not in metas:  # the final geometry, where it is another
                yield f"{field.name}={meta_text(value)}" if metas else meta_text(value)
            metas.append(value)
        elif value != field.default and value is not None:
            yield from _part(field.name, value)


def _part(name: str, value: object) -> Iterator[str]:
    """The text of a value that is no flag; empty for an object of one compilation."""
    match value:
        case ViewChain():
            if value:
                yield chain_text(value) if name == "chain" else f"{name}={chain_text(value)}"
        case tuple() | frozenset() | dict():
            if value:
                yield _several(name, value)
        case enum.Enum():
            yield str(value.value)
        case int() | float() | str():
            yield f"{name}={value!r}"
        case Record() | Graph():
            yield repr(value)
        case _ if isinstance(value, ROLES):
            yield str(value)


def _several(name: str, values: Any) -> str:
    """A few roles, steps or numbers one by one; the count of other items."""
    shown = (*ROLES, enum.Enum, int)
    if len(values) <= _MOST and all(isinstance(value, shown) for value in values):
        words = [value.value if isinstance(value, enum.Enum) else str(value) for value in values]
        return f"{name}=[{', '.join(words)}]"
    return f"{len(values)} {name if len(values) > 1 else name.removesuffix('s')}"


# -------------------------------------------------------------------------------------- comparing
_LIVING = {"node", "witness"}
"""Fields by which a stage finds its values; they are no facts of the function."""


def _differences(path: str, a: Any, b: Any) -> Iterator[str]:
    if type(a) is not type(b):
        yield f"{path or 'the record'} is {a!r}, expected {b!r}"
    elif isinstance(a, Record) or _is_part_of_record(a):
        for field in _fields(a):
            if field.name not in _LIVING:
                inner = f"{path}.{field.name}" if path else field.name
                yield from _differences(inner, getattr(a, field.name), getattr(b, field.name))
    elif isinstance(a, ViewChain):
        if where_it_leads(a) != where_it_leads(b):
            yield f"{path} is {chain_text(a) or 'none'}, expected {chain_text(b) or 'none'}"
    elif isinstance(a, Graph):
        if a is not b and dumps(a, places=False) != dumps(b, places=False):
            yield f"{path} is {b!r} with other nodes, expected those of {a!r}"
    elif isinstance(a, dict):
        yield from _differences(f"the keys of {path}", tuple(a), tuple(b))
        yield from _differences(path, tuple(a.values()), tuple(b.values()))
    elif isinstance(a, BaseException):
        yield from _differences(f"the arguments of {path}", a.args, b.args)
    elif isinstance(a, tuple):
        if len(a) != len(b):
            yield f"the number of {path} is {len(a)}, expected {len(b)}"
        for index, (one, other) in enumerate(zip(a, b, strict=False)):
            yield from _differences(f"{path}[{index}]", one, other)
    elif not _same(a, b):
        yield f"{path} is {a!r}, expected {b!r}"


def _is_part_of_record(value: object) -> bool:
    """Whether it is no `Record`, and has fields like one: guards, states of the generator."""
    kind = type(value)
    is_plain = isinstance(value, (*ROLES, TensorMeta, Graph))
    return (
        attrs.has(kind) and kind.__module__.startswith("aotlite.stages.records.") and not is_plain
    )


def _same(a: object, b: object) -> bool:
    """Whether values are equal: nan equals nan, 0.0 does not equal -0.0."""
    if isinstance(a, frozenset):  # which is printed in any order
        return a == b
    return a is b or (a == b and repr(a) == repr(b)) or (a != a and b != b)


def where_it_leads(chain: ViewChain) -> tuple[TensorMeta, int, tuple[int, ...]] | None:
    """The geometry at the end of a view chain, its start in elements, and its detaches.

    View chains are compared by it (META-25): `.t().t()` equals no view at all. None for a chain
    that ends in the geometry in which it starts.
    """
    start, cuts = 0, []
    for step in chain:  # an as_strided step follows that from which its offset counts
        start = step.op.at((_Operand(step.operand), *step.args), start)
        if step.op.cuts_history:
            cuts.append(start)
    if not chain or (chain[-1].result is chain[0].operand and start == 0 and not cuts):
        return None
    return chain[-1].result, start, tuple(cuts)


class _Operand:
    __slots__ = ("meta",)

    def __init__(self, meta: TensorMeta) -> None:
        self.meta = meta
