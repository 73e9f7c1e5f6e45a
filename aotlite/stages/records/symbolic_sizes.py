"""`SymbolicSizes`: the symbols for sizes and ints of one capture's arguments, and their sources.

Made by the pipeline for a call, read by stage 1. Rules: DYN-1, DYN-7.
Spec: `specs/size_regions.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import attrs

from aotlite.ir.errors import ArgumentError
from aotlite.ir.forks import cached_property, lock
from aotlite.ir.geometry.sizes import is_symbolic
from aotlite.ir.graph.role import Part, Primal, Size
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.meta.symbolic import symbolic_strides
from aotlite.ir.symbols.assumption import Texts, printing
from aotlite.ir.symbols.cases.parts import names_in
from aotlite.ir.symbols.floats.python_functions import python_functions
from aotlite.ir.symbols.floats.size_expressions import Computing
from aotlite.ir.symbols.polynomial import Range
from aotlite.ir.symbols.symint import SymInt
from aotlite.ir.symbols.table import SymbolTable
from aotlite.stages.records.guards.float_guards import FloatInputs

if TYPE_CHECKING:
    from aotlite.ir.symbols.validation.verdict import Verdict

LEAST = 0
"""The least value of a symbol: sizes of 0 and 1 are symbols like others (DYN-1)."""
SHORT = 1 << 31
"""Ints among the arguments from -SHORT to SHORT - 1 become symbols; longer ones stay numbers. So
most sums and products of them are known to fit the ints that ops take."""


@attrs.frozen
class SizeSource:
    """Where each call finds the value of a symbol: in dimension `dim` of a flat argument, or of the
    part of it to which the attributes `path` lead."""

    argument: int
    dim: int
    path: tuple[str, ...] = ()

    test: ClassVar[str | None] = None

    @property
    def place(self) -> str:
        """The tensor in words: `argument 0.a`."""
        return ".".join((f"argument {self.argument}", *self.path))

    @property
    def text(self) -> str:
        """An expression of the value in a call's `leaves`."""
        tensor = ".".join((f"leaves[{self.argument}]", *self.path))
        return f"{tensor}.meta.shape[{self.dim}]"

    @property
    def role(self) -> Size:
        """The role of the size where no input of a graph has it."""
        of: GivenRole = Primal(self.argument)
        for name in self.path:
            of = Part(of, name)
        return Size(self.dim, of)

    def value(self, leaves: Sequence[object]) -> int:
        """The value in a call. Raises TypeError or IndexError if there is none."""
        meta = meta_at(leaves[self.argument], self.path)
        if type(meta) is not TensorMeta:
            raise TypeError(f"{self.place} is no tensor, expected one")
        return meta.shape[self.dim]

    def __str__(self) -> str:
        return f"size {self.dim} of {self.place}"


def meta_at(value: object, path: Iterable[str]) -> object:
    """The meta of the part to which these attributes lead; None where one is absent."""
    for name in (*path, "meta"):
        value = getattr(value, name, None)
    return value


@attrs.frozen
class NumberSource:
    """Where each call finds the value of a symbol: a flat argument that is an int (DYN-26)."""

    argument: int

    @property
    def test(self) -> str:
        """What must hold before `text` is an int: `True == 1 == 1.0`."""
        return f"type(leaves[{self.argument}]) is int"

    @property
    def text(self) -> str:
        """An expression of the value in a call's `leaves`."""
        return f"leaves[{self.argument}]"

    @property
    def role(self) -> Primal:
        """The role of the number, which is no input of a graph."""
        return Primal(self.argument)

    def value(self, leaves: Sequence[object]) -> int:
        """The value in a call. Raises TypeError if it is no int."""
        leaf = leaves[self.argument]
        if type(leaf) is not int:
            raise TypeError(f"{self} is {leaf!r}, expected an int")
        return leaf

    def __str__(self) -> str:
        return f"argument {self.argument}"


Source: TypeAlias = "SizeSource | NumberSource"


GivenRole: TypeAlias = "Primal | Part"
"""An argument, or a part of one at any depth."""


def place_of_role(role: GivenRole) -> tuple[int, tuple[str, ...]]:
    """The number of the flat argument, and the attributes that lead to the part."""
    path: list[str] = []
    whole: object = role
    while isinstance(whole, Part):
        path.insert(0, whole.attr)
        whole = whole.of
    return (role.whole if isinstance(role, Part) else role).index, tuple(path)


def sources_of(role: GivenRole, meta: TensorMeta) -> list[SizeSource]:
    """Where each call finds the sizes of an argument, or of a part of one."""
    index, path = place_of_role(role)
    return [SizeSource(index, dim, path) for dim in range(len(meta.shape))]


@attrs.frozen
class CountSource:
    """How each call finds the value of a symbol: it computes one of the last results of the
    captured graph, which are in the order of these symbols."""

    text: str
    """What is counted, and the user's line."""

    def __str__(self) -> str:
        return self.text


@attrs.frozen
class SizeRequest:
    """That a size or an int is to be a symbol, with its bounds; equal names are one symbol."""

    least: int | None = None
    most: int | None = None
    name: str | None = None
    is_marked: bool = False
    """Whether the user asked for it, so that it is an error if the program fixes it."""
    in_shapes: bool = False
    """Whether `dynamic_shapes` asks for it, and no mark."""
    is_size: bool = True
    """Whether it is a size, or a number that equals one: then it is not below 0."""
    is_float: bool = False
    """Whether it is a float, which becomes an input."""
    gaps: tuple[tuple[int, int, int, int], ...] = ()
    """(dimension, factor, rest, less) of each dimension whose stride is (factor * size + rest)
    times the stride of this one, and `less` below it: `x[:, :-1]`, `x[:, ::2]` (DYN-7)."""
    same_as: SizeSource | None = None
    """The size of a wrapper that this one, of a part, is assumed to equal (SUB-18)."""

    @property
    def how_asked(self) -> str:
        """How the user asked for it."""
        if not self.in_shapes:
            return "is marked as dynamic"
        word = "True" if self.name is None else f"named {self.name!r}"
        return f"is {word} in dynamic_shapes"

    @property
    def undoing(self) -> str:
        """What the user would do, not to ask for it."""
        return "leave it out of dynamic_shapes" if self.in_shapes else "leave out the mark"

    @property
    def bounds(self) -> str:
        """The bounds in words; empty if there are none."""
        if self.most is not None:
            return f"{self.least or 0} to {self.most}"
        return f"{self.least} or more" if self.least else ""


def undoing_all(requests: Mapping[Source, SizeRequest]) -> str:
    """What the user would do, not to ask for these sizes."""
    return " and ".join(dict.fromkeys([each.undoing for each in requests.values()]))


def all_asked(requests: Mapping[Source, SizeRequest]) -> str:
    """How the user asked for these sizes, in one text."""
    ways = {each.how_asked for each in requests.values()}
    if len(ways) == 1:
        return f"{', '.join(map(str, requests))} {ways.pop()}"
    return " and ".join([f"{source} {asked.how_asked}" for source, asked in requests.items()])


@attrs.define(eq=False, repr=False)
class SymbolicSizes:
    """The symbols of one capture."""

    requests: Mapping[Source, SizeRequest]
    table: SymbolTable = attrs.field(factory=SymbolTable)
    sources: dict[str, Source] = attrs.field(factory=dict)
    """By the name of a symbol: where its value is found."""
    counts: dict[str, CountSource] = attrs.field(factory=dict)
    """By the name of a symbol whose value depends on values of tensors: how it is computed."""
    rooms: dict[str, Range] = attrs.field(factory=dict)
    """By the name of a symbol: the bounds that it was given, which the table may narrow later."""
    metas: dict[GivenRole, TensorMeta] = attrs.field(factory=dict)
    """By the role of an argument, or of a part of one: its meta with symbols."""
    numbers: dict[int, int] = attrs.field(factory=dict)
    """By the number of a flat argument that is an int: its symbol."""
    floats: FloatInputs = attrs.field(factory=FloatInputs)
    asked: dict[str, SizeRequest] = attrs.field(factory=dict)
    proof: Verdict | None = None
    """How it was shown that the guards imply every fact that was used (DYN-11)."""
    kept: list[Callable[..., object]] = attrs.field(factory=list)
    """Hooks and callbacks that hold a symbol, which they would read in later calls."""
    lock: Any = attrs.field(factory=lock)
    """Held by who records or proves with the table: instances of several threads share it."""
    fixed: Mapping[GivenRole, TensorMeta | int] | None = None
    """The metas and ints of arguments in a capture that asks whether it differs at other sizes."""
    first: Mapping[GivenRole, TensorMeta | int] = attrs.field(factory=dict)
    """The metas and ints of the call that was captured first, where this one is a repetition."""
    _known: dict[str | Source, SymInt] = attrs.field(factory=dict)
    """By the name of a dimension, or by a source: the symbol."""

    def __attrs_post_init__(self) -> None:
        self.table.computes = Computing(self.table)
        self.floats.facts.sizes_of = self.values
        self.floats.facts.names = self.sources.keys

    @cached_property
    def _asked_of(self) -> frozenset[int]:
        """The arguments that requests are about."""
        return frozenset([source.argument for source in self.requests])

    def values(self, leaves: Sequence[object]) -> dict[str, int]:
        """The values of the symbols in the flat arguments of a call, by name."""
        return {name: each.value(leaves) for name, each in self.sources.items()}

    def __bool__(self) -> bool:
        """Whether some size or number became a symbol."""
        return bool(self.sources or self.counts)

    def count(self, hint: int, text: str, least: int | None) -> SymInt:
        """A symbol for a number that depends on values: `hint` is what it is in this call."""
        name = f"u{len(self.counts)}"
        made = self.table.named_symbol(name, hint, (least, None))
        self.table.weakest = True
        self.table.symbols[name].sources.append(text)
        self.counts[name], self.rooms[name] = CountSource(text), (least, None)
        return made

    def meta(self, role: GivenRole, meta: TensorMeta) -> TensorMeta:
        """The meta of an argument, or of a part of one, with symbols for the sizes that were asked
        for."""
        if self.fixed is not None:
            fixed = self.fixed.get(role)
            return fixed if isinstance(fixed, TensorMeta) else meta
        if place_of_role(role)[0] not in self._asked_of:
            return meta
        first = self.first.get(role)
        meta = first if isinstance(first, TensorMeta) else meta
        sources = sources_of(role, meta)
        shape = [self._size(each, size) for each, size in zip(sources, meta.shape, strict=True)]
        if not is_symbolic(shape):
            return meta
        gaps = {
            dim: (each.dim, factor, rest, less)
            for each, size in zip(sources, shape, strict=True)
            if is_symbolic((size,))
            for dim, factor, rest, less in self.requests[each].gaps
        }
        stride = symbolic_strides(tuple(shape), meta.shape, meta.stride, gaps)
        made = tensor_meta(tuple(shape), stride, meta.dtype, meta.device)
        self.metas[role] = made
        return made

    @property
    def may_have_floats(self) -> bool:
        """Whether some float argument is to be an input."""
        return any(each.is_float for each in self.requests.values())

    def number(self, argument: int, hint: object) -> object:
        """What stands for a flat argument that is an int or a float, if that was asked for; else
        the number."""
        if type(hint) is int and self.fixed is not None:
            number = self.fixed.get(Primal(argument))
            return number if isinstance(number, int) else hint
        asked = self.requests.get(NumberSource(argument))
        if asked is None:
            return hint
        hint = self.first.get(Primal(argument), hint)
        if type(hint) is float:
            return self.floats.argument(argument, hint, asked.how_asked if asked.is_marked else "")
        return hint if type(hint) is not int else self._int(NumberSource(argument), hint, asked)

    def _int(self, source: NumberSource, hint: int, asked: SizeRequest) -> int:
        if not -SHORT <= hint < SHORT:
            return hint
        if asked.is_size:
            made = self._size(source, hint)
        else:
            least = -SHORT if asked.least is None else asked.least
            most = SHORT - 1 if asked.most is None else asked.most
            made = self._symbol(source, hint, asked, least, most)
        if is_symbolic((made,)):
            self.numbers[source.argument] = made
        return made

    def _size(self, source: Source, hint: int) -> int:
        asked = self.requests.get(source)
        if asked is None:
            return hint
        if asked.same_as is not None:
            return self._known.get(asked.same_as, hint)  # type: ignore[return-value]
        least = max(LEAST, asked.least or 0)
        return self._symbol(source, hint, asked, least, asked.most)

    def _symbol(
        self, source: Source, hint: int, asked: SizeRequest, least: int, most: int | None
    ) -> int:
        if asked.name is not None and asked.name in self._known:
            return self._another(self._known[asked.name], source, hint)
        made = self.table.size(hint, str(source), lower=least, upper=most)
        (name,) = names_in(made)
        self.table.symbols[name].role = source.role
        self.sources[name], self.rooms[name], self.asked[name] = source, (least, most), asked
        self._known[source] = made
        if asked.name is not None:
            self._known[asked.name] = made
        return made

    def _another(self, found: SymInt, source: Source, hint: int) -> int:
        """The symbol of a named dimension that another argument has, too."""
        (name,) = names_in(found)
        if found.hint != hint:
            raise ArgumentError(
                f"compile: dimension {self.asked[name].name!r} is {found.hint} as "
                f"{self.sources[name]} and {hint} as {source}, expected one size"
            )
        self.table.symbols[name].sources.append(str(source))
        self._known[source] = found
        return found  # type: ignore[return-value]


def with_numbers(sizes: SymbolicSizes | None, leaves: Sequence[object]) -> list[object]:
    """The flat arguments, with symbols for the ints and floats that were asked for."""
    return list(leaves) if sizes is None else [sizes.number(i, x) for i, x in enumerate(leaves)]


def computing(sizes: SymbolicSizes | None) -> AbstractContextManager[None]:
    """A block in which code of the user's runs, and Python's functions of numbers take symbols."""
    return nullcontext() if sizes is None else python_functions(sizes.table.computes.user_code)


@contextmanager
def running(sizes: SymbolicSizes | None, texts: Texts) -> Iterator[None]:
    """A block in which code of the user's may run on these symbols, and texts are made so."""
    if sizes is None:
        yield
        return
    outer = sizes.table.shown_as_ints
    sizes.table.show_as_ints()
    try:
        with printing(sizes.table, texts):
            yield
    finally:
        sizes.table.shown_as_ints = outer
