"""`Op`: the classes of ops, and the table of all ops.

Ground floor. Each op is declared once (in `aotlite.ir.ops`), as an object of one of seven classes:

    PureOp       fresh results from operands                     mul, sum, matmul, select_scatter
    ViewOp       one result that shares the operand's storage    view, select, as_strided, detach
    MultiViewOp  several results that share it                   split, unbind
    InplaceOp    writes its first operand; derived from a PureOp mul_, copy_, fill_
    GeometryOp   changes the geometry of its first operand       t_, squeeze_
    RandomOp     draws from a generator; has a pure form         rand
    DataOp       fresh results whose shapes depend on values     nonzero, masked_select

Three more are elsewhere: in `ir/effects/__init__.py` `EffectOp`, which has a side effect, and
`TokenOp`, its form in pure graphs; in `ir/ops/structure.py` `ResultOp`, which takes one result of
several.

Eager mode, stages and backends ask the fields of an op; none of them keeps a table of op names.
Spec: `specs/op_declaration.md`.
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
from aotlite.ir.geometry.sizes import recast
from aotlite.ir.meta import Outline, TensorMeta, table_in
from aotlite.ir.meta.devices import check_devices
from aotlite.ir.op.binding import CACHE_LIMIT, FAST_KEYS, KINDS, Binder, key_of_first
from aotlite.ir.op.dims import Rule as DimsRule
from aotlite.ir.op.formula import Formula as Formula
from aotlite.ir.op.formula import Source as Source
from aotlite.ir.op.formula import Vjp as Vjp
from aotlite.ir.op.formula import parse_vjp as parse_vjp
from aotlite.ir.op.schema import Schema, parse_schema
from aotlite.ir.scalar import Element
from aotlite.ir.symbols.cases import fewest
from aotlite.ir.symbols.table import SymbolTable


class Cost(enum.Enum):
    """The cost class of an op, by which the partitioner decides what to recompute."""

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
    """The base class of ops: a schema, a meta rule, a cost class.

    The meta rule takes the *key* of a call and returns the meta of the result. The key is the
    canonical arguments, with a meta for each tensor, and with its Python type for each number that
    stands in a tensor's place: a result's meta never depends on such a number's value.

        mul(x, 2.0)    args: (x, 2.0)    key: (f32[2, 3], float)    rule(*key): f32[2, 3]
    """

    schema: Schema
    rule: Callable[..., Any]
    cost: Cost = attrs.field(kw_only=True)
    name: str = attrs.field(init=False)
    mixed: tuple[int, ...] = attrs.field(init=False)
    """Positions of parameters of types with `Scalar`."""
    tensors: tuple[int, ...] = attrs.field(init=False)
    lists: tuple[int, ...] = attrs.field(init=False)
    key: Callable[[tuple[Any, ...]], tuple[Any, ...]] = attrs.field(init=False)
    """Canonical arguments -> the key of the call (see above)."""
    results: dict[tuple[Any, ...], Any] = attrs.field(init=False, factory=dict)
    """Key -> the meta rule's result: a cache of at most `CACHE_LIMIT` entries."""
    calls: dict[tuple[Any, ...], Any] = attrs.field(init=False, factory=dict)
    """Key -> what tape nodes of calls with this key share (`op_nodes.Calls`). As many at most."""
    _binder: Binder = attrs.field(init=False)

    writes: ClassVar[bool] = False
    """Changes bytes of an operand."""
    views: ClassVar[bool] = False
    """Every tensor result shares the storage of the first operand."""
    pure: ClassVar[bool] = False
    """Results depend on the operands alone, and nothing else changes."""
    one_device: ClassVar[bool] = True
    """All operands must be on one device; tokens and a generator's state are on the host."""

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

    def __reduce__(self) -> tuple[object, ...]:
        return op_named, (self.name,)

    @property
    def shown(self) -> Op:
        """The op for pure graphs: itself, or the copying form of a view (`ViewOp.copies`)."""
        return self

    def bind(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> tuple[Any, ...]:
        """The canonical positional arguments, defaults filled in. Raises ArgumentError."""
        return self._binder.bind(args, kwargs)

    def _any_key(self, args: tuple[Any, ...]) -> tuple[object, ...]:
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

    def result(self, args: tuple[object, ...]) -> Any:
        """The meta rule's result, cached, for canonical arguments: operands have a `meta`."""
        key = self.key(args)
        found = self.results.get(key)
        return self.new_result(key) if found is None else found

    def result_for(self, key: tuple[object, ...]) -> Any:
        """`result` for the arguments with this key."""
        found = self.results.get(key)
        return self.new_result(key) if found is None else found

    def new_result(self, key: tuple[object, ...]) -> Any:
        """`result_for` a key that `results` does not have, as none with symbols is there."""
        table = (getattr(key[0], "table", None) if key else None) or table_in(key)
        if table is not None:
            found = table.cache.get((self, key))
            if found is not None and table.spelled is None and not table.closed:  # `is_passing`
                return found
        elif len(self.results) >= CACHE_LIMIT:
            self.results.clear()
        try:
            if self.one_device:
                drawn = self.pure and self.cost is Cost.RANDOM
                check_devices(self.name, key[_PLACE:] if drawn else key)
            if table is not None:
                return self._symbolic_result(key, table)
            return self.results.setdefault(key, self.rule(*key))
        except AotliteError as error:
            raise in_op(error, self.name) from error.__cause__

    # Note [symbolic rules]
    #     x + y of f32[s0] and f32[s1], first with sizes 3 and 3
    # The rule asks whether s0 equals s1, and the table logs the answer of the hints. So its cache
    # gets the result: in the op's another trace would find it, and run its code for 3 and 1, too.
    def _symbolic_result(self, key: tuple[object, ...], table: SymbolTable) -> object:
        """`result_for` where sizes are symbolic. It is cached in the table, beside its log."""
        with table.rule_of(self.name):
            found = fewest(table, self.rule, key)
        if not table.is_passing:
            table.cache[self, key] = found
        return found

    def infer(self, args: tuple[Any, ...]) -> TensorMeta | tuple[TensorMeta, ...]:
        """The meta of the result, a tuple of metas for an op with several."""
        result: TensorMeta | tuple[TensorMeta, ...] = self.result(args)
        return result

    def operands(self, args: tuple[Any, ...]) -> list[Any]:
        """The tensors among canonical arguments, with those in lists."""
        found = [args[i] for i in self.tensors if args[i] is not None]
        found += [args[i] for i in self.mixed if args[i] is not None and type(args[i]) not in KINDS]
        for i in self.lists:
            found += args[i]
        return found


_PLACE = 3
"""The number of leading arguments (seed, offset, advance) of a random op's pure form."""


@attrs.define(eq=False, slots=True, repr=False)
class PureOp(Op):
    """An op that computes fresh results from its operands.

    `kernel(arrays, meta, *args)` computes on arrays of the backend `arrays`. Its result may have
    any strides, and may be an operand's memory: the caller copies then (`ArrayBackend.adopt`).
    """

    kernel: Callable[..., Any] = attrs.field(kw_only=True)
    vjp: Vjp | None = attrs.field(kw_only=True)
    scalar: Callable[..., Element] | None = attrs.field(kw_only=True, default=None)
    """Pointwise: the result's element as an expression of the operands' (`ir/scalar`)."""
    compute: Callable[..., Any] | None = attrs.field(kw_only=True, default=None)
    """Pointwise: `compute(xp, *operands)`, the kernel on operands that need no cast."""
    function: str | None = attrs.field(kw_only=True, default=None)
    """Pointwise: the name of the array namespace's function that equals the kernel on operands of
    the dtype `computes(promoted dtype)`; None where the kernel does more."""
    computes: Callable[[Any], Any] | None = attrs.field(kw_only=True, default=None)
    namespaced: Callable[..., tuple[str, dict[str, Any]] | None] | None = attrs.field(
        kw_only=True, default=None
    )
    """`namespaced(meta, *key)`: (name, keyword arguments) of the namespace's function that equals
    the kernel for this key; it takes the tensor operands, which come first. None where the kernel
    does more."""
    numbers: str = attrs.field(kw_only=True, default="held")
    """Pointwise: how a number in a tensor's place is rounded. "held": to the dtype that the op
    computes in. "wide": the same, but to float32 for a 16-bit float. "unwrapped": as "held", but
    integers are left as they are. ", computed" at the end: the kernel computes with the number
    itself, as Python does (`1 - weight`), so that no tensor can have its place."""
    held: tuple[int, ...] = attrs.field(kw_only=True, default=())
    """Pointwise: positions of numbers that are rounded to `holds(promoted dtype)` instead."""
    holds: Callable[[Any], Any] | None = attrs.field(kw_only=True, default=None)
    """Pointwise: the dtype of operands before 16-bit floats are widened to `computes`."""
    loops: Callable[..., Any] | None = attrs.field(kw_only=True, default=None)
    """`loops(k, meta, *args)`: writes the op as loops with the writer k (`specs/lowering.md`);
    None where these arguments have no loop form."""
    shortcuts: dict[tuple[Any, ...], tuple[TensorMeta, Callable[..., Any], Any, Any, Any]] = (
        attrs.field(init=False, factory=dict)
    )
    """The eager engine's cache: key -> (the result's meta; the function on the operands' arrays;
    how to adopt its result, None where that is new memory with the meta's layout; how many of the
    arguments it takes, None for all; what the tape nodes of all such calls share)."""
    expands: Callable[..., Any] | None = attrs.field(kw_only=True, default=None)
    """The op's decomposition: a function of its parameters, in operand methods. It may return
    NotImplemented for operands for which there is nothing simpler."""
    dims: DimsRule | None = attrs.field(kw_only=True, default=None)
    """Which dimensions of operands and results belong together, so that the op can be sharded
    (`dims.py`); None where that is unknown, and it cannot be sharded then."""
    linear: tuple[tuple[str, ...], ...] = attrs.field(kw_only=True, default=())
    """Groups of operands in which the op is linear: f(a + a', b + b') = f(a, b) + f(a', b') for a
    group (a, b)."""
    moves: tuple[str, ...] = attrs.field(kw_only=True, default=())
    """Operands whose elements the result consists of, unchanged: `gather` moves `self`, `scatter`
    `self` and `src`. A mask of the elements moves by the same op."""
    neutral: Callable[..., object] | None = attrs.field(kw_only=True, default=None)
    """Of a reduction or scan: `neutral(dtype)` is the element that changes nothing; None if there
    is none. Masked tensors have it in place of masked elements."""
    workspace: Mapping[str, Any] | None = attrs.field(kw_only=True, default=None)
    """The memory that the kernel may hold beside its results; None for that of its cost class
    (`ir/op/workspace.py`)."""
    pure: ClassVar[bool] = True


@attrs.define(eq=False, slots=True, repr=False)
class ViewOp(Op):
    """An op with one result, on the storage of its first operand.

    The rule gives (meta, start): `start` is the position of the result's first element, counted in
    elements from the operand's first.
    """

    put: Callable[..., Any] = attrs.field(kw_only=True)
    """`put(parent, value, *args)`: the inverse of the view: the parent's value, with the part that
    the view shows replaced by `value`. Functionalization makes writes through views of it."""
    vjp: Vjp | None = attrs.field(kw_only=True)
    keeps_all: bool = attrs.field(kw_only=True, default=False)
    """Each element of the operand is shown once, so that `put` does not read the parent."""
    recasts: bool = attrs.field(kw_only=True, default=False)
    """The view may change the dtype of the bytes. Offsets count elements of each own dtype."""
    copies: PureOp | None = attrs.field(kw_only=True, default=None)
    """The op that copies what the view shows, for a view that only some layouts allow, such as
    `view`. Pure graphs hold it instead."""
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
        """Whether the result is not a differentiable view of the operand: `detach` (TEN-4)."""
        return self.vjp is None

    def at(self, args: tuple[Any, ...], before: int) -> int:
        """The offset of the result in its storage; `before` is the operand's. Each counts elements
        of its own dtype."""
        meta, start = self.result(args)
        place: int = recast(before, args[0].meta.dtype.itemsize, meta.dtype.itemsize) + start
        return place


@attrs.define(eq=False, slots=True, repr=False)
class MultiViewOp(Op):
    """An op with several results, all on the storage of its first operand.
    The rule gives for each result the equal single view, as (ViewOp, arguments after the operand).
    """

    vjp: Vjp | None = attrs.field(kw_only=True)
    pure: ClassVar[bool] = True
    views: ClassVar[bool] = True

    def infer(self, args: tuple[object, ...]) -> tuple[TensorMeta, ...]:
        return tuple(view.infer((args[0], *rest)) for view, rest in self.result(args))

    def parts(self, args: tuple[object, ...]) -> tuple[tuple[ViewOp, tuple[Any, ...]], ...]:
        """The equal single views: (ViewOp, arguments after the operand) for each result."""
        parts: tuple[tuple[ViewOp, tuple[Any, ...]], ...] = self.result(args)
        return parts


@attrs.define(eq=False, slots=True, repr=False)
class InplaceOp(Op):
    """An op that writes the result of `functional` into its first operand, and returns that."""

    functional: PureOp = attrs.field(kw_only=True)
    overwrites: bool = attrs.field(kw_only=True, default=False)
    """The result does not depend on the operand's old values (`copy_`, `fill_`)."""
    writes: ClassVar[bool] = True

    def infer(self, args: tuple[Any, ...]) -> TensorMeta:
        meta: TensorMeta = args[0].meta
        return meta


@attrs.define(eq=False, slots=True, repr=False)
class GeometryOp(Op):
    """An op that gives its first operand the shape and strides of `view`'s result, in place."""

    view: ViewOp = attrs.field(kw_only=True)

    def infer(self, args: tuple[Any, ...]) -> TensorMeta:
        return self.view.infer(args)


@attrs.define(eq=False, slots=True, repr=False)
class RandomOp(Op):
    """Draws from a generator. The pure form is `functional(seed, offset, advance, *args)`."""

    functional: PureOp = attrs.field(kw_only=True)
    consumes: Callable[[TensorMeta], int] = attrs.field(kw_only=True)
    """By how much a draw of this meta advances the offset; a multiple of 4 (RNG-12)."""


@attrs.define(eq=False, slots=True, repr=False)
class DataOp(Op):
    """An op with fresh results whose shapes depend on the operands' values, in one size (DYN-30).

    Graphs hold two pure ops instead: `number` gives that size, `fitted` takes it. The rule gives an
    `Outline` for each result. `kernel(arrays, outline, *args)` computes as a `PureOp`'s does.
    """

    kernel: Callable[..., Any] = attrs.field(kw_only=True)
    vjp: Vjp | None = attrs.field(kw_only=True)
    workspace: Mapping[str, Any] | None = attrs.field(kw_only=True, default=None)
    number: PureOp = attrs.field(kw_only=True)
    fitted: PureOp = attrs.field(kw_only=True)
    advice: str = attrs.field(kw_only=True)
    """What a captured program may do instead; the error quotes it."""

    def outlines(self, args: tuple[object, ...]) -> Outline | tuple[Outline, ...]:
        """The outline of the result, a tuple for several results: all but the sizes."""
        return self.result(args)

    def infer(self, args: tuple[object, ...]) -> TensorMeta | tuple[TensorMeta, ...]:
        """Raises UnsupportedError: there is no meta before the values are known."""
        raise noted(
            UnsupportedError(f"{self.name}: its shape depends on values, expected a known one"),
            f"Instead: {self.advice}.",
        )


# ------------------------------------------------------------------------------------- registry
OPS: dict[str, Op] = {}
"""Every op by name."""


def register(op: Op) -> Any:
    """Adds `op` to the table and returns it. Raises GraphError for a name that is taken."""
    if op.name in OPS:
        raise GraphError(f"ops: the name {op.name!r} is declared twice, expected once")
    OPS[op.name] = op
    return op


class UnknownOpError(ArgumentError, AttributeError):
    """A name that no op has. Also an AttributeError, so that `hasattr(ops, name)` works."""


def op_named(name: str) -> Op:
    """The op of this name. Raises UnknownOpError, which suggests similar names."""
    found = OPS.get(name)
    if found is None:
        near = get_close_matches(name, OPS, 3)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise UnknownOpError(f"ops: {name!r} is not an op{hint}")
    return found


def schema_of(text: str) -> Schema:
    """The parsed schema of a declaration."""
    return parse_schema(text)
