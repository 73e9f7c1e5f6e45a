"""What an op is, and the table of all ops.

Ground floor. An op is declared in one place (`aotlite.ir.ops`), as one of seven classes:

    PureOp       fresh results from operands                     mul, sum, matmul, select_scatter
    ViewOp       one result that shares the operand's storage    view, select, as_strided, detach
    MultiViewOp  several results that share it                   split, unbind
    InplaceOp    writes its first operand; derived from a PureOp mul_, copy_, fill_
    GeometryOp   changes the geometry of its first operand       t_, squeeze_
    RandomOp     draws from a generator; has a pure form         rand
    DataOp       fresh results whose shapes depend on values     nonzero, masked_select

Two more are in `ir/effects/__init__.py`: `EffectOp`, of which something happens, and `TokenOp`, its
form in pure graphs.

A layer asks an op's fields; nobody keeps tables of op names. Spec: `specs/op_declaration.md`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, ClassVar

import attrs

from aotlite.ir.errors import (
    AotliteError,
    ArgumentError,
    GraphError,
    UnsupportedError,
    in_op,
    noted,
)
from aotlite.ir.meta import Outline, TensorMeta, table_in
from aotlite.ir.meta.devices import check_devices
from aotlite.ir.op.binding import CACHE_LIMIT, FAST_KEYS, KINDS, Binder, key_of_first
from aotlite.ir.op.dims import Rule as DimsRule
from aotlite.ir.op.formula import Formula as Formula
from aotlite.ir.op.formula import Source as Source
from aotlite.ir.op.formula import Vjp as Vjp
from aotlite.ir.op.formula import parse_vjp as parse_vjp
from aotlite.ir.op.schema import Schema, parse_schema
from aotlite.ir.symbols.table import SymbolTable


class Cost(enum.Enum):
    """What computing an op's result costs, as the partitioner sees it."""

    POINTWISE = "pointwise"
    VIEW = "view"
    REDUCTION = "reduction"
    CONTRACTION = "contraction"
    INDEXING = "indexing"
    RANDOM = "random"
    FACTORY = "factory"
    OPAQUE = "opaque"


# ------------------------------------------------------------------------------------------ ops
@attrs.define(eq=False, slots=True, repr=False)
class Op:
    """What all ops share: a schema, a meta rule, a cost class.

    The meta rule takes the canonical arguments with metas for tensors and the Python *type* for
    numbers given where a tensor may stand (a result's meta never depends on a number's value).
    """

    schema: Schema
    rule: Callable[..., Any]
    cost: Cost = attrs.field(kw_only=True)
    name: str = attrs.field(init=False)
    mixed: tuple[int, ...] = attrs.field(init=False)
    """Positions where a number may stand."""
    tensors: tuple[int, ...] = attrs.field(init=False)
    lists: tuple[int, ...] = attrs.field(init=False)
    key: Callable[[tuple[Any, ...]], tuple[Any, ...]] = attrs.field(init=False)
    """What the meta rule sees of canonical arguments: metas for tensors, types for numbers in a
    tensor's place."""
    results: dict[tuple[Any, ...], Any] = attrs.field(init=False, factory=dict)
    """What the meta rule gave, by key. At most `CACHE_LIMIT` of them."""
    calls: dict[tuple[Any, ...], Any] = attrs.field(init=False, factory=dict)
    """What tape nodes of calls with a key share (`op_nodes.Calls`), by key. As many."""
    _binder: Binder = attrs.field(init=False)

    writes: ClassVar[bool] = False
    """Changes bytes of an operand."""
    views: ClassVar[bool] = False
    """Every tensor result shares the storage of the first operand."""
    pure: ClassVar[bool] = False
    """Results depend on the operands alone, and nothing else changes."""
    one_device: ClassVar[bool] = True
    """All operands are on one device. Tokens and the state of a generator are on none: the host."""

    def __attrs_post_init__(self) -> None:
        self.name = self.schema.name
        self._binder = Binder(self.schema)
        kinds = [parameter.type for parameter in self.schema.parameters]
        self.mixed = tuple(i for i, k in enumerate(kinds) if "Scalar" in k.text)
        self.tensors = tuple(i for i, k in enumerate(kinds) if k.is_tensor)
        self.lists = tuple(i for i, k in enumerate(kinds) if k.is_tensor_list)
        self.key = FAST_KEYS.get(tuple([kind.text for kind in kinds])) or self._any_key
        if self.tensors == (0,) and not self.mixed and not self.lists and len(kinds) > 1:
            if kinds[0].text == "Tensor":
                self.key = key_of_first

    def __repr__(self) -> str:
        return f"ops.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return op_named, (self.name,)

    @property
    def shown(self) -> Op:
        """The op that gives what this one does of a value that may lie anywhere."""
        return self

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """The canonical positional arguments, defaults filled in. Raises ArgumentError."""
        return self._binder.bind(args, kwargs)

    def _any_key(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        key = list(args)
        for i in self.tensors:
            if key[i] is not None:
                key[i] = key[i].meta
        for i in self.mixed:
            value = key[i]
            if value is not None:
                key[i] = KINDS.get(type(value)) or value.meta
        for i in self.lists:
            key[i] = tuple([value.meta for value in key[i]])
        return tuple(key)

    def result(self, args: tuple[Any, ...]) -> Any:
        """What the meta rule says for these canonical arguments (anything with a `meta`),
        cached.
        """
        key = self.key(args)
        found = self.results.get(key)
        return self.result_for(key) if found is None else found

    def result_for(self, key: tuple[Any, ...]) -> Any:
        """`result` by its key."""
        found = self.results.get(key)
        if found is None:
            table = table_in(key)
            if table is None and len(self.results) >= CACHE_LIMIT:
                self.results.clear()
            try:
                if self.one_device:
                    drawn = self.pure and self.cost is Cost.RANDOM
                    check_devices(self.name, key[_PLACE:] if drawn else key)
                if table is not None:
                    return self._symbolic_result(key, table)
                found = self.results[key] = self.rule(*key)
            except AotliteError as error:
                raise in_op(error, self.name) from error.__cause__
        return found

    # Note [symbolic rules]
    #     x + y of f32[s0] and f32[s1], first with sizes 3 and 3
    # The rule asks whether s0 equals s1. Nothing decides that, so the hints do, and the table logs
    # the answer as an assumption. What the rule gave is therefore kept in the table and not with
    # the op: a result found in the next trace without the question would leave the assumption out
    # there, and that trace would be taken for one of sizes 3 and 1, too.
    def _symbolic_result(self, key: tuple[Any, ...], table: SymbolTable) -> Any:
        """`result_for` where sizes are symbolic. What the rule assumed is in the table's log, whose
        cache the result therefore belongs to."""
        found = table.cache.get((self, key))
        if found is None:
            with table.rule_of(self.name):
                found = table.cache[self, key] = self.rule(*key)
        return found

    def infer(self, args: tuple[Any, ...]) -> TensorMeta | tuple[TensorMeta, ...]:
        """The meta of the result, a tuple of metas for an op with several."""
        result: TensorMeta | tuple[TensorMeta, ...] = self.result(args)
        return result

    def operands(self, args: tuple[Any, ...]) -> list[Any]:
        """The tensors among canonical arguments, in order, those in lists too."""
        found = [args[i] for i in self.tensors if args[i] is not None]
        found += [args[i] for i in self.mixed if args[i] is not None and type(args[i]) not in KINDS]
        for i in self.lists:
            found += args[i]
        return found


_PLACE = 3
"""Of a random op's pure form the arguments that say where in a stream it draws."""


@attrs.define(eq=False, slots=True, repr=False)
class PureOp(Op):
    """Fresh results from operands.

    `kernel(arrays, meta, *args)` computes on arrays of the backend `arrays`; its result may have
    any strides and must not be an operand's memory unless the caller copies (see
    `ArrayBackend.adopt`).
    """

    kernel: Callable[..., Any] = attrs.field(kw_only=True)
    vjp: Vjp | None = attrs.field(kw_only=True)
    scalar: Callable[..., Any] | None = attrs.field(kw_only=True, default=None)
    """Pointwise: the result's element as an expression of the operands' (`ir/scalar.py`)."""
    compute: Callable[..., Any] | None = attrs.field(kw_only=True, default=None)
    """Pointwise: `compute(xp, *operands)`, what the kernel is on operands that need no cast."""
    function: str | None = attrs.field(kw_only=True, default=None)
    """Pointwise: the function of the array namespace that the kernel is, on operands that have the
    dtype `computes(promoted dtype)`; None where it does more."""
    computes: Callable[[Any], Any] | None = attrs.field(kw_only=True, default=None)
    namespaced: Callable[..., tuple[str, dict[str, Any]] | None] | None = attrs.field(
        kw_only=True, default=None
    )
    """`namespaced(meta, *key)`: the namespace's function of the tensor operands, and its keyword
    arguments, that the kernel is on operands of this key, which are its first arguments; None where
    it does more."""
    numbers: str = attrs.field(kw_only=True, default="held")
    """Pointwise: what a number in a tensor's place is first: "held" as the dtype that the op
    computes in holds it, "wide" as float32 does where that is a 16-bit float, or "unwrapped": held,
    but integers as they are."""
    held: tuple[int, ...] = attrs.field(kw_only=True, default=())
    """Pointwise: positions of numbers that are first what `holds(promoted dtype)` holds of them."""
    holds: Callable[[Any], Any] | None = attrs.field(kw_only=True, default=None)
    """Pointwise: the dtype that operands have before 16-bit floats are widened to `computes`."""
    loops: Callable[..., Any] | None = attrs.field(kw_only=True, default=None)
    """`loops(k, meta, *args)`: the result as loops, told to the writer k (`specs/lowering.md`);
    None where these arguments have no loop form."""
    shortcuts: dict[tuple[Any, ...], tuple[TensorMeta, Callable[..., Any], Any, Any, Any]] = (
        attrs.field(init=False, factory=dict)
    )
    """What the eager engine found for a key: the result's meta; the function that computes on the
    operands' arrays; how to adopt what it gives, None where that is new memory which lies as the
    meta says; how many of the arguments it takes, None for all; and what the tape nodes of all
    such calls share."""
    expands: Callable[..., Any] | None = attrs.field(kw_only=True, default=None)
    """What the op is in simpler ops: a function of its parameters, in operand methods. It may give
    NotImplemented for operands for which there is nothing simpler."""
    dims: DimsRule | None = attrs.field(kw_only=True, default=None)
    """Which dimensions of operands and results go together (`dims.py`); None where nobody
    says, and nothing may be cut then."""
    linear: tuple[tuple[str, ...], ...] = attrs.field(kw_only=True, default=())
    """Groups of operands: the result for a sum of what is in a group is the sum of the results."""
    additive: bool = attrs.field(kw_only=True, default=False)
    """Of a reduction: the result for a sum of operands is the sum of the results."""
    workspace: Mapping[str, Any] | None = attrs.field(kw_only=True, default=None)
    """What the kernel may hold beside its results, if not as its cost says
    (`ir/op/workspace.py`)."""
    pure: ClassVar[bool] = True


@attrs.define(eq=False, slots=True, repr=False)
class ViewOp(Op):
    """One result on the storage of the first operand. The rule gives (meta, start): where the
    result's first element lies, in elements from the operand's first."""

    put: Callable[..., Any] = attrs.field(kw_only=True)
    """`put(parent, value, *args)`: the parent's value with the part seen through the view
    replaced.
    """
    vjp: Vjp | None = attrs.field(kw_only=True)
    keeps_all: bool = attrs.field(kw_only=True, default=False)
    """Each element of the operand is seen exactly once, so `put` does not read the parent's
    values.
    """
    recasts: bool = attrs.field(kw_only=True, default=False)
    """The bytes may be seen as another dtype. Offsets count elements of each tensor's own."""
    copies: PureOp | None = attrs.field(kw_only=True, default=None)
    """The op that gives a copy of what is seen, for a view that may not exist where a value happens
    to lie: pure graphs have that instead."""
    pure: ClassVar[bool] = True
    views: ClassVar[bool] = True

    def infer(self, args: tuple[Any, ...]) -> TensorMeta:
        meta: TensorMeta = self.result(args)[0]
        return meta

    def start(self, args: tuple[Any, ...]) -> int:
        """Elements from the operand's first element to the result's."""
        start: int = self.result(args)[1]
        return start

    @property
    def shown(self) -> Op:
        return self.copies or self

    @property
    def cuts_history(self) -> bool:
        """The result is no differentiable view of the operand (TEN-4)."""
        return self.vjp is None

    def at(self, args: tuple[Any, ...], before: int) -> int:
        """Where the result starts in memory of which the operand starts at `before`, each in
        elements of its own.
        """
        meta, start = self.result(args)
        place: int = recast(before, args[0].meta, meta) + start
        return place


def recast(offset: int, old: TensorMeta, new: TensorMeta) -> int:
    """An offset in elements of `old` as one in elements of `new`."""
    size, wanted = old.dtype.itemsize, new.dtype.itemsize
    return offset if size == wanted else offset * size // wanted


@attrs.define(eq=False, slots=True, repr=False)
class MultiViewOp(Op):
    """Several results on the storage of the first operand.

    The rule gives, for each, the equal single view as (ViewOp, arguments after the operand).
    """

    pure: ClassVar[bool] = True
    views: ClassVar[bool] = True

    def infer(self, args: tuple[Any, ...]) -> tuple[TensorMeta, ...]:
        return tuple(view.infer((args[0], *rest)) for view, rest in self.result(args))

    def parts(self, args: tuple[Any, ...]) -> tuple[tuple[ViewOp, tuple[Any, ...]], ...]:
        """The equal single views."""
        parts: tuple[tuple[ViewOp, tuple[Any, ...]], ...] = self.result(args)
        return parts


@attrs.define(eq=False, slots=True, repr=False)
class InplaceOp(Op):
    """Writes the result of `functional` into its first operand and returns that same object."""

    functional: PureOp = attrs.field(kw_only=True)
    overwrites: bool = attrs.field(kw_only=True, default=False)
    """The operand's old values do not matter (`copy_`, `fill_`)."""
    writes: ClassVar[bool] = True

    def infer(self, args: tuple[Any, ...]) -> TensorMeta:
        meta: TensorMeta = args[0].meta
        return meta


@attrs.define(eq=False, slots=True, repr=False)
class GeometryOp(Op):
    """Gives its first operand the geometry that `view` would give; returns that same object."""

    view: ViewOp = attrs.field(kw_only=True)

    def infer(self, args: tuple[Any, ...]) -> TensorMeta:
        return self.view.infer(args)


@attrs.define(eq=False, slots=True, repr=False)
class RandomOp(Op):
    """Draws from the default generator. `functional(seed, offset, advance, *args)` is its pure
    form.
    """

    functional: PureOp = attrs.field(kw_only=True)
    consumes: Callable[[TensorMeta], int] = attrs.field(kw_only=True)
    """Offsets that a draw of this meta uses up, a multiple of 4 (RNG-12)."""


@attrs.define(eq=False, slots=True, repr=False)
class DataOp(Op):
    """Fresh results whose shapes depend on the operands' values: eager only (GEN-8).

    The rule checks the arguments and gives an `Outline` for each result. `kernel(arrays, outline,
    *args)` computes as a `PureOp`'s does, and the shapes are those of what it gives.
    """

    kernel: Callable[..., Any] = attrs.field(kw_only=True)
    vjp: Vjp | None = attrs.field(kw_only=True)
    workspace: Mapping[str, Any] | None = attrs.field(kw_only=True, default=None)
    advice: str = attrs.field(kw_only=True)
    """What a program that is captured may do instead."""

    def outlines(self, args: tuple[Any, ...]) -> Outline | tuple[Outline, ...]:
        """What is known of the results before the values are, a tuple for several results."""
        outlines: Outline | tuple[Outline, ...] = self.result(args)
        return outlines

    def infer(self, args: tuple[Any, ...]) -> TensorMeta | tuple[TensorMeta, ...]:
        """Raises UnsupportedError: there is no meta before the values are known."""
        raise noted(
            UnsupportedError(
                f"{self.name}: the shape of the result depends on values, expected an op whose "
                "result has a shape that is known beforehand"
            ),
            f"Instead: {self.advice}.",
        )


# ------------------------------------------------------------------------------------- registry
OPS: dict[str, Op] = {}
"""Every op by name."""


def register(op: Op) -> Any:
    """Enters `op` into the table and returns it. Raises GraphError for a name that is taken."""
    if op.name in OPS:
        raise GraphError(f"ops: the name {op.name!r} is declared twice, expected once")
    OPS[op.name] = op
    return op


class UnknownOpError(ArgumentError, AttributeError):
    """A name that no op has; for `hasattr`, and all that looks into modules, not an attribute."""


def op_named(name: str) -> Op:
    """The op of this name. Raises ArgumentError with the nearest names."""
    found = OPS.get(name)
    if found is None:
        near = get_close_matches(name, OPS, 3)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise UnknownOpError(f"ops: {name!r} is not an op{hint}")
    return found


def schema_of(text: str) -> Schema:
    """The parsed schema of a declaration."""
    return parse_schema(text)
