"""Scalar expressions as C: each value is declared once, in the outermost scope possible.

A scope is the body of a loop or of a branch. Loop-invariant code motion comes with it: a value is
declared in the outermost scope that knows all the axes that it uses.

    for (i0 ...) {  const f32 t1 = b0[i0];  const f32 t2 = fn_exp_f32_f32(t1);
        for (i1 ...) {  const f32 t3 = b1[i0 * 8 + i1];  b2[i0 * 8 + i1] = t3 * t2;  } }

Input: Scalars; output: lines of C. Spec: `specs/c_printer.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache

import attrs

from aotlite.backends.c_family.c_types import from_memory, literal, value_type
from aotlite.backends.c_family.primitives import operation, through_integer
from aotlite.backends.loops.analysis.size_proofs import reached
from aotlite.backends.loops.program import Statement, Store
from aotlite.ir import dtypes
from aotlite.ir.errors import GraphError
from aotlite.ir.scalar.expression import Affine, Scalar, parameter, unknown, walk
from aotlite.ir.scalar.functions import find
from aotlite.ir.scalar.primitives import PRIMITIVES
from aotlite.ir.symbols.proving import Unproved, is_proved

ROW = 1 << 62
"""Among the bits of axes, the bit of the unit of work: for values that differ between units though
they use no axis."""


class CScope:
    """A block of C: its lines, and the names of the values that are declared in it.

    `axes` are the axes that it loops over. `branch`: it is executed at some points only, so that
    unsafe loads must not be moved out of it.
    """

    def __init__(self, parent: CScope | None, axes: int = 0, *, branch: bool = False) -> None:
        self.parent = parent
        self.axes = axes
        self.bound: int = axes | (parent.bound if parent else 0)
        self.branch = branch
        self.lines: list[str] = []
        self.known: dict[Scalar, str] = {}
        self.positions: dict[int, str] = {}
        self.within: tuple[str, str] | None = parent.within if parent else None
        """The conditions under which points are loaded, and under which their results count. None:
        all are."""

    def find(self, scalar: Scalar) -> str | None:
        """Returns the name of a value in this scope or one around it; None if it has none."""
        scope: CScope | None = self
        while scope is not None:
            name = scope.known.get(scalar)
            if name is not None:
                return name
            scope = scope.parent
        return None

    def position(self, axis: int) -> str:
        """Returns the C text of the position along an axis."""
        scope: CScope | None = self
        while scope is not None:
            if axis in scope.positions:
                return scope.positions[axis]
            scope = scope.parent
        return f"i{axis}"

    def masked(self, element: str) -> str:
        """Returns the C text of an element that is loaded where the scope's points are."""
        return f"{self.within[0]} ? {element} : 0" if self.within else element

    def home(self, axes: int, safe: bool) -> CScope:
        """Returns the outermost scope that knows the axes. An unsafe value stays in its branch."""
        scope = self
        while scope.parent is not None and not axes & ~scope.parent.bound:
            if scope.branch and not safe:
                break
            scope = scope.parent
        return scope


def indented(lines: Iterable[str]) -> list[str]:
    """Returns lines of C indented by their braces."""
    found, depth = [], 0
    for line in lines:
        closes = line.startswith("}")
        found.append("    " * (depth - closes) + line if line else line)
        depth += line.count("{") - line.count("}")
    return found


@attrs.define
class KernelFacts:
    """The analysis of one kernel's scalars: the axes that each varies over, as bits, and whether
    its loads are safe wherever it is computed."""

    extents: tuple[int, ...] = ()
    space: int = 0
    sizes: Mapping[int, int] = attrs.field(factory=dict)
    regions: Mapping[int, int] = attrs.field(factory=dict)
    """For buffers that share memory with others, the number of that memory."""
    rows_only: bool = False
    """Whether the kernel has no inner axes, so that each store is of row level."""
    name_axes: dict[int, int] = attrs.field(factory=dict)
    """The axes over which each name of a reduction or scan varies."""
    _axes: dict[Scalar, int] = attrs.field(factory=dict)
    _safe: dict[Scalar, bool] = attrs.field(factory=dict)

    def is_row_store(self, statement: Statement) -> bool:
        """Whether a statement is a store once a row."""
        return type(statement) is Store and (statement.each_row or self.rows_only)

    def region(self, buffer: int) -> int:
        """Returns the number of a buffer's memory; buffers that overlap have the same."""
        return self.regions.get(buffer, buffer)

    def is_element(self, scalar: Scalar) -> bool:
        """Whether a scalar varies over inner axes."""
        return (self.axes(scalar) & ~ROW) >> self.space != 0

    def is_lazy(self, scalar: Scalar) -> bool:
        """Whether a scalar is a `where` whose branches must not both be computed: one of them has
        an unsafe load. Other `where`s become a C conditional, which vectorizes."""
        return scalar.op == "where" and not (
            self.safe(scalar.args[1]) and self.safe(scalar.args[2])
        )

    def computed_for(self, scalar: Scalar) -> Sequence[Scalar]:
        """Returns the operands that are computed wherever the scalar is: all, except for the
        branches of a lazy `where`."""
        return scalar.args[:1] if self.is_lazy(scalar) else scalar.operands

    def in_order(self, roots: Iterable[Scalar]) -> list[Scalar]:
        """Returns all scalars that are computed at each point for these values, outermost first."""
        found: dict[Scalar, None] = {}
        todo = list(roots)[::-1]
        while todo:
            scalar = todo.pop()
            if scalar not in found:
                found[scalar] = None
                todo += self.computed_for(scalar)[::-1]
        return list(found)

    def computed(self, roots: Iterable[Scalar]) -> set[Scalar]:
        """Returns the set of all scalars that are computed at each point for these values."""
        return set(self.in_order(roots))

    def axes(self, root: Scalar) -> int:
        """Returns the axes over which a value varies, as bits."""
        if root not in self._axes:
            for scalar in unknown(root, self._axes):
                self._axes[scalar] = self._own_axes(scalar)
        return self._axes[root]

    def _own_axes(self, scalar: Scalar) -> int:
        found = 0
        match scalar.op:
            case "axis":
                return 1 << int(scalar.args[0])
            case "name":
                return self.name_axes[scalar.args[0]]
            case "load":
                found = address_axes(scalar.args[1])
        for operand in scalar.operands:
            found |= self._axes[operand]
        return found

    def safe(self, root: Scalar) -> bool:
        """Whether a value may be computed at any point: none of its loads can leave its buffer."""
        safe = self._safe
        if root not in safe:
            for scalar in unknown(root, safe):
                own = scalar.op != "load" or self._in_range(*scalar.args)
                safe[scalar] = own and all(safe[each] for each in scalar.operands)
        return safe[root]

    def _in_range(self, buffer: int, address: Affine) -> bool:
        if address.dynamic:
            return False
        try:
            low, high = reach(address, self.extents)
        except Unproved:
            return False
        return is_proved(low >= 0) and is_proved(high < self.sizes[buffer])


def reach(address: Affine, extents: Sequence[int]) -> tuple[int, int]:
    """Returns the least and the greatest address of the affine part."""
    low = high = address.start
    for coefficient, extent in zip(address.coefficients, extents, strict=False):
        if coefficient:
            last = max(extent, 1) - 1 if type(extent) is int else extent - 1
            least, most = reached(coefficient, 0, last)
            low, high = low + least, high + most
    return low, high


def address_axes(address: Affine) -> int:
    """Returns the axes of the affine part, as bits."""
    return sum(1 << k for k, c in enumerate(address.coefficients) if c)


class FunctionTexts:
    """The C functions that a text calls, each printed once."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.dtypes: set[dtypes.DType] = set()
        self.streams = self.tiles = False
        """Whether the text needs the helper of streaming stores; of transposing tiles."""
        self.spreads, self.pointers = False, 0
        """Whether it needs the helper of shared kernels; the most pointers of a step of a table."""

    def name(self, scalar: Scalar) -> str:
        """Returns the C name of a function, and prints the function if it is new. A function comes
        before those that call it."""
        kinds = tuple([operand.dtype for operand in scalar.args])
        name = "_".join(["fn", scalar.op, *[kind.short for kind in kinds], scalar.dtype.short])
        if name not in self.texts:
            needed = _printed(name, scalar.op, kinds, scalar.dtype)
            self.texts.update(needed.texts)
            self.dtypes |= needed.dtypes
        return name


@cache
def _printed(
    name: str, op: str, kinds: tuple[dtypes.DType, ...], dtype: dtypes.DType
) -> FunctionTexts:
    """Returns the C text of a library function, with the functions that it calls."""
    library, scope = FunctionTexts(), CScope(None)
    given = [parameter(k, kind) for k, kind in enumerate(kinds)]
    for k, each in enumerate(given):
        scope.known[each] = f"x{k}"
    writer = ScalarWriter(KernelFacts(), library)
    writer.contracts = True
    result = writer.value(find(op, kinds).body, scope)
    parameters = ", ".join([f"{value_type(p.dtype)} x{k}" for k, p in enumerate(given)])
    head = f"INLINE {value_type(dtype)} {name}({parameters})"
    library.texts[name] = "\n".join([head, "{", *scope.lines, f"return {result};", "}"])
    return library


@attrs.frozen
class LocalElement:
    """The place of a value in a local array. It is loaded in a scope that knows the axes."""

    axes: int
    element: Callable[[CScope], str]
    dtype: dtypes.DType
    has_room: bool = False
    """Whether it may be loaded and stored at points behind the last one, too."""


# Note [contraction]
#     k0:  b1[i] = x - 0.3 * y          k1:  top = max over i of (x - 0.3 * y)
# Is one of b1 equal to top? With `-ffp-contract=fast` gcc may round x - 0.3 * y once (fma) in k1
# and twice in k0, and then none is. So kernels are compiled with contraction off, and each value
# has one set of bits wherever fusion computes it again. Bodies of library functions are the
# exception: exp has one text for all kernels, and writes `fma_f32` where a sum has a product, as
# the expression alone tells (`contracted`). `contract=False` turns that off, too: then results are
# the interpreter's.
class ScalarWriter:
    """Declares scalars in scopes, as lines of C."""

    def __init__(self, facts: KernelFacts, library: FunctionTexts, stem: str = "t") -> None:
        self.facts = facts
        self.library = library
        self.stem = stem
        self.count = 0
        self.contracts = False
        """Whether a product and a sum are written as one fma: in library functions only."""
        self.innermost: int | None = None
        """The axis of the innermost loop, if the printer has set it."""
        self.special: Callable[[Scalar, Sequence[str]], str | None] | None = None
        """A device's own text for an operation on operands; it returns None for the usual text."""
        self.places: dict[Scalar, LocalElement] = {}
        """The places of values that lie in local arrays."""

    def fresh(self) -> str:
        """Returns a new name for a variable."""
        self.count += 1
        return f"{self.stem}{self.count}"

    def value(self, root: Scalar, scope: CScope) -> str:
        """Returns the C text of a value in a scope. Declares it, and all that it needs."""
        for scalar in self._order(root, scope):
            self._declare(scalar, scope)
        return self._text(root, scope)

    def values(self, roots: Iterable[Scalar], scope: CScope) -> list[str]:
        """Returns the C texts of several values."""
        return [self.value(root, scope) for root in roots]

    def _text(self, scalar: Scalar, scope: CScope) -> str:
        if scalar.op == "const":
            return literal(scalar)
        if scalar.op == "axis":
            return scope.position(scalar.args[0])
        found = scope.find(scalar)
        if found is None:
            raise GraphError(f"c printer: {scalar} is not computed where it is used")
        return found

    def _order(self, root: Scalar, scope: CScope) -> list[Scalar]:
        """Returns the scalars that must be declared for a value, operands first. The branches of a
        lazy `where` declare theirs in their own scopes."""
        order: list[Scalar] = []
        done: set[Scalar] = set()
        stack = [(root, False)]
        while stack:
            scalar, ready = stack.pop()
            if ready:
                order.append(scalar)
                continue
            if scalar in done or scalar.op in ("const", "axis") or scope.find(scalar):
                continue
            done.add(scalar)
            stack.append((scalar, True))
            stack.extend([(each, False) for each in reversed(self._needed(scalar))])
        return order

    def _needed(self, scalar: Scalar) -> Sequence[Scalar]:
        """Returns the operands that are declared before a value."""
        if scalar in self.places:
            return ()
        return self.facts.computed_for(scalar)

    def _declare(self, scalar: Scalar, scope: CScope) -> None:
        place = self.places.get(scalar)
        if place is not None:
            home, name = scope.home(place.axes, True), self.fresh()
            kind, element = value_type(scalar.dtype), place.element(home)
            test = " != 0" if scalar.dtype is dtypes.bool_ else ""
            element = element + test if place.has_room else home.masked(element + test)
            home.lines.append(f"const {kind} {name} = {element};")
            home.known[scalar] = name
            return
        home = scope.home(self.facts.axes(scalar), self.facts.safe(scalar))
        name = self.fresh()
        self.library.dtypes.add(scalar.dtype)
        kind = value_type(scalar.dtype)
        if self.facts.is_lazy(scalar):
            self._branches(scalar, name, home)
        else:
            home.lines.append(f"const {kind} {name} = {self._operation(scalar, home)};")
        home.known[scalar] = name

    def _branches(self, scalar: Scalar, name: str, home: CScope) -> None:
        condition = self._text(scalar.args[0], home)
        lines = []
        for head, value in zip((f"if ({condition}) {{", "} else {"), scalar.args[1:], strict=True):
            inside = CScope(home, branch=True)
            text = self.value(value, inside)
            apart = ["APART();"] if self._jumps(value) else []
            lines += [head, *apart, *inside.lines, f"{name} = {text};"]
        home.lines += [f"{value_type(scalar.dtype)} {name};", *lines, "}"]

    def _jumps(self, root: Scalar) -> bool:
        """Whether a branch has loads with a stride above 1, or of unknown stride.

        gcc 12 merges two such loads into one masked load, and then loses some of its elements:
        `APART()` keeps it from vectorizing the branch.
        """
        k = self.innermost
        if k is None:
            return True
        loads = [each for each in walk([root]) if each.op == "load"]
        steps = [c for each in loads for c in each.args[1].coefficients[k : k + 1]]
        return any(type(c) is not int or abs(c) > 1 for c in steps)

    def _operation(self, scalar: Scalar, scope: CScope) -> str:
        if scalar.op == "load":
            buffer, address = scalar.args
            element = f"b{buffer}[{self.address(address, scope)}]"
            return scope.masked(from_memory(scalar.dtype, element))
        if _is_through_integer(scalar) and scope.find(scalar.args[0].args[0]):
            return through_integer(scalar, self._text(scalar.args[0].args[0], scope))
        texts = [self._text(operand, scope) for operand in scalar.args]
        if scalar.op not in PRIMITIVES:
            return f"{self.library.name(scalar)}({', '.join(texts)})"
        product = contracted(scalar) if self.contracts else None
        if product is not None:
            return self._fused(scalar, product, texts, scope)
        found = self.special(scalar, texts) if self.special is not None else None
        return operation(scalar, texts) if found is None else found

    def _fused(self, scalar: Scalar, product: int, texts: list[str], scope: CScope) -> str:
        """Returns the fma of a sum or difference of which one operand is a product."""
        a, b = [self._text(factor, scope) for factor in scalar.args[product].args]
        other = texts[1 - product]
        if scalar.op == "sub" and product == 1:
            a = f"-{a}"
        elif scalar.op == "sub":
            other = f"-{other}"
        return f"fma_{value_type(scalar.dtype)}({a}, {b}, {other})"

    def address(self, address: Affine, scope: CScope) -> str:
        """Returns the C text of an address in elements."""
        parts = [
            scope.position(k) if c == 1 else f"{scope.position(k)} * {_parenthesized(c)}"
            for k, c in enumerate(address.coefficients)
            if c
        ]
        for value, step in address.dynamic:
            text = self.value(value, scope)
            parts.append(f"(i64){text} * {_parenthesized(step)}")
        if address.start or not parts:
            parts.append(str(address.start))
        return " + ".join(parts).replace("+ -", "- ")


def contracted(scalar: Scalar) -> int | None:
    """Returns the index of the operand of a float sum or difference that is a product; else None.

    It depends on the expression alone, so that an expression is contracted in the same way wherever
    it stands.
    """
    if scalar.op not in ("add", "sub") or scalar.dtype not in (dtypes.float32, dtypes.float64):
        return None
    for place, operand in enumerate(scalar.args):
        if operand.op == "mul":
            return place
    return None


def _is_through_integer(scalar: Scalar) -> bool:
    """Whether a scalar casts a float to int32 or int64 and back: (f32)(i32)x."""
    if scalar.op != "cast" or scalar.args[0].op != "cast":
        return False
    between, inner = scalar.args[0].dtype, scalar.args[0].args[0].dtype
    signed = between in (dtypes.int32, dtypes.int64)
    return signed and scalar.dtype.is_floating_point and inner.is_floating_point


def _parenthesized(number: int) -> str:
    return f"({number})" if type(number) is int and number < 0 else str(number)
