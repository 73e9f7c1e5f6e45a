"""`SizedSource`: the text of a generated call that serves many sizes, while it is written.

Constants that hold symbols, and facts of inputs with symbols, are those of each vector of sizes.
All others are globals that instances share. Rule: DYN-41. Spec: `specs/size_regions.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from types import FunctionType
from typing import Any, Final

import attrs

from aotlite.backends.python_source import Making
from aotlite.eager.base.tape.view_chain import ViewChain
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.graph.symbolic.size_code import SizeCode
from aotlite.ir.meta import TensorMeta
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.proving import Unproved
from aotlite.ir.symbols.symint import SymInt
from aotlite.ir.symbols.table import SymbolTable
from aotlite.stages.records.capture_inputs import InputRole
from aotlite.stages.s10_runtime.guards.guard_sources import name_of
from aotlite.stages.s10_runtime.source import FunctionSource, may_name_a_function, words
from aotlite.stages.shared.size_values import AtSizes

Given = Callable[[Mapping[Any, Any], Mapping[str, Any]], object]
"""Makes a value of the tensors of a call, by role, and of the values by name made before it."""


def size_code(table: SymbolTable) -> SizeCode:
    """The code for the sizes of records."""
    return SizeCode(lambda sizes: AtSizes(sizes).put, table.hints)


class SizedSource(FunctionSource):
    """The source of a function for many sizes: some constants are those of each vector of sizes."""

    def __init__(
        self, table: SymbolTable, inputs: Mapping[InputRole, TensorMeta | None] | None = None
    ) -> None:
        self.table, self.code = table, size_code(table)
        super().__init__(sizes=self.code)
        self.roles = {name_of(role): role for role in inputs or ()}
        """The inputs of other sizes in other calls, by their variables."""
        self.given: dict[str, Given] = {}
        """Names whose values are made of the tensors of a call."""

    def give(self, kind: str, make: Given) -> str:
        """The name of a value that is made of the tensors of a call."""
        name = f"{kind}0{len(self.given)}"
        self.given[name] = make
        return name

    def of_tensor(self, kind: str, name: str, make: Callable[[Tensor], object]) -> str | None:
        """The name of what is made of an input's tensor, whose variable is `name`; None where it
        has no symbols."""
        role = self.roles.get(name)
        return None if role is None else self.give(kind, lambda given, _: make(given[role]))

    def all_of(self, names: Sequence[str]) -> str:
        """The name of the tuple of these constants."""
        scope = self.scope
        return self.give("V", lambda _, made: tuple([made.get(n) or scope[n] for n in names]))

    def sized_function(
        self, name: str, number: str, first: Sequence[str], parameters: str = "leaves"
    ) -> tuple[Making, str]:
        """What makes the function for each vector of sizes, and the source of all these functions.

        It takes the values of the names `first`, of `given`, and of `sized`. Raises Unproved where
        another constant holds a symbol.
        """
        name = name if may_name_a_function(name) else "call"
        while name in (*self.scope, *self.sized, *self.given, *first):  # it would hide these
            name += "_"
        text = self.text(name, parameters)
        whole = self.wrapped(text, name, [*first, *self.given])
        for each, value in self.scope.items():
            if each not in self.sized and _held_size(value, self.table):
                raise Unproved(f"the constant {each}, {words(value)}, for each size")
        return self.executed(whole, "making", f"<aotlite {name} {number}>"), text


def _held_size(value: object, table: SymbolTable) -> bool:
    """Whether a constant holds a symbol of the table: in records, and functions of aotlite's. What
    is a user's is not looked into."""
    waiting, seen = [value], set()
    while waiting:
        each = waiting.pop()
        kind: Any = type(each)
        if kind in _SIZED:
            if each.table is table:  # type: ignore[attr-defined]
                return True
        elif id(each) not in seen:
            seen.add(id(each))
            waiting += _held_by(each, kind)
    return False


def _held_by(each: Any, kind: Any) -> Iterable[object]:
    if kind in (tuple, ViewChain):
        return each
    if kind is partial:
        return (*each.args, *each.keywords.values())
    if kind is FunctionType:
        cells = each.__closure__ if str(each.__module__).startswith(_OURS) else None
        return [cell.cell_contents for cell in cells or ()]
    if not (str(kind.__module__).startswith(_OURS) and attrs.has(kind)):
        return ()
    inside: list[Any] = [getattr(each, field.name, None) for field in kind.__attrs_attrs__]
    many = [x for x in inside if type(x) in (list, set, frozenset)]
    maps = [x for x in inside if type(x) is dict]
    return chain(inside, *many, *maps, *[x.values() for x in maps])


_SIZED: Final = (SymInt, SizeFloat, TensorMeta)
_OURS: Final = ("aotlite.backends.", "aotlite.eager.", "aotlite.ir.", "aotlite.stages.")
"""Packages without objects of users."""
