"""The limits of saved graphs, by which reading one takes time and memory linear in its length.

Ground floor. The writer checks them as well, so that it refuses whatever the reader would. A few
meta rules take unbounded time for some arguments (a split into a billion parts, the exact overlap
test on adversarial strides); `Work` refuses such calls before the rule runs.
Spec: `specs/serialize.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from aotlite.ir.errors import AotliteError
from aotlite.ir.geometry import sizes
from aotlite.ir.geometry.sizes import Shape, Stride
from aotlite.ir.graph.graph import Result
from aotlite.ir.graph.role import (
    BackwardToken,
    Current,
    Gradient,
    Incoming,
    MutatedInput,
    Part,
    Piece,
    Rewritten,
    Role,
    Size,
    Tangent,
    Token,
)
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import MultiViewOp, Op
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.ops.views import multi_views, scatters

__all__ = [
    "DEPTH",
    "DIGITS",
    "INTEGER",
    "RANK",
    "TEXT",
    "WORK",
    "WORK_PER_NODE",
    "Json",
    "Work",
    "geometry_fault",
    "long_lists",
    "role_fits",
]

Json = dict[str, Any]
"""An object of JSON."""
DEPTH: Final = 8
"""The deepest nesting of brackets; the format needs six."""
DIGITS: Final = 600
"""The most digits of a number. Converting longer ones takes quadratic time, and Python may refuse.
"""
INTEGER: Final = (1 << 63) - 1
"""The largest magnitude of sizes, strides, offsets and positions: of all integers but a `Scalar`.
"""
RANK: Final = 64
"""The most dimensions of a tensor, as in NumPy, and items of an `int[]` with one per dimension."""
TEXT: Final = 1_000
"""The most characters of a name."""
WORK: Final = 5_000_000
WORK_PER_NODE: Final = 100
"""The steps that all meta rules of a graph may take together: WORK + WORK_PER_NODE * nodes."""


# ------------------------------------------------------------------------------------- geometry
def geometry_fault(shape: Shape, stride: Stride, itemsize: int) -> tuple[str, str] | None:
    """(got, expected) for an error, where this geometry is not addressable; None if it is.

    Sizes and strides must not be negative, and products of them must not overflow. Sizes of 0
    count as 1, so that the row-major strides of the shape do not overflow either.

    >>> geometry_fault((2, 3), (3, 1), 4) is None, geometry_fault((1 << 40, 1 << 40), (0, 0), 4)
    (True, ('2 dimensions of 1208925819614629174706176 elements', 'less than 2**63 bytes'))
    """
    if len(shape) > RANK:
        return f"{len(shape)} dimensions", f"at most {RANK}"
    if len(stride) != len(shape):
        return f"{len(shape)} sizes and {len(stride)} strides", "a stride for each size"
    if min((*shape, *stride), default=0) < 0:
        return f"the number {min(*shape, *stride)}", "none below 0"
    count, reach = 1, 1
    for size, step in zip(shape, stride, strict=True):
        count *= max(size, 1)
        reach += max(size, 1) * step
    if count * itemsize > INTEGER:
        return f"{len(shape)} dimensions of {count} elements", "less than 2**63 bytes"
    if reach * itemsize > INTEGER:
        return f"strides that reach over {reach} elements", "less than 2**63 bytes"
    return None


# ----------------------------------------------------------------------------------------- roles
def role_fits(role: Role) -> bool:
    """Whether the parts of a role have the types that its class declares.

    Python can construct `Gradient(of=Seed())`, which means nothing.

    >>> from aotlite.ir.graph.role import Primal, Seed
    >>> role_fits(Gradient(of=Primal(0))), role_fits(Gradient(of=Seed()))
    (True, False)
    """
    match role:
        case MutatedInput() | Gradient():
            own = ("output", "incoming") if type(role) is Gradient else ()
            is_known = _whole(role.of).prefix in ("primals", "hidden", "family", *own)
            return is_known and role_fits(role.of)
        case Incoming():
            is_known = _whole(role.of).prefix in ("output", "updated", "base", "incoming")
            return is_known and role_fits(role.of)
        case Tangent():
            return _whole(role.of).prefix in ("output", "updated", "base") and role_fits(role.of)
        case Current() | Rewritten():
            whole = _whole(role.of)
            return whole.prefix in ("primals", "hidden", "output", "base") and role_fits(role.of)
        case Part():
            whole = _whole(role)
            known = ("primals", "hidden", "output", "base", "updated")
            return whole.prefix in known[: 5 if type(role) is Piece else 4] and role_fits(whole)
        case Size():
            whole = _whole(role.of)
            return whole.prefix == "primals" and 0 <= role.dim < RANK and role_fits(role.of)
        case Token() | BackwardToken():
            return role.effect.isidentifier()
    return not hasattr(role, "index") or 0 <= role.index <= INTEGER


def _whole(role: object) -> Any:
    return role.whole if isinstance(role, Part) else role


# ---------------------------------------------------------------------- calls whose rule is slow
class Work:
    """Estimates the cost of a graph's meta rules before they run, against a budget (SER-9)."""

    __slots__ = ("left", "most", "tangled")

    def __init__(self, nodes: int) -> None:
        self.left = self.most = WORK + WORK_PER_NODE * nodes
        self.tangled: set[TensorMeta] = set()
        """Metas whose overlap test was counted. Its result is cached, so it runs once."""

    def fault(self, op: Op, args: tuple[object, ...], meta: Result) -> tuple[str, str] | None:
        """(got, expected) for a call whose meta rule would take too long; None if it may run.

        The arguments have the schema's types; `meta` is the result that the file claims.
        """
        if type(meta) is TensorMeta:
            rank = len(meta.shape)
            # TensorIterator's insertion sort of the dimensions is quadratic.
            self.left -= rank * rank
        elif type(meta) is tuple:
            self.left -= sum(len(part.shape) + 1 for part in meta)
        check = _CHECKS.get(op)
        found = None if check is None else check(self, args, meta)
        if found is None and self.left < 0:
            return "a rule that takes long", f"at most {self.most} steps for all rules"
        return found

    def results(self, args: tuple[object, ...], meta: Result, count: int | None) -> Any:
        """The fault of a wrong number of results; None for a count of None: the rule checks it."""
        claimed = len(meta) if type(meta) is tuple else None
        if count is None or count == claimed:
            return None
        return ("one result" if claimed is None else f"{claimed} results"), f"{count} results"

    def scatter(self, args: tuple[Any, ...], meta: Result) -> object:
        """Counts the overlap test that the rule of a scatter runs on its first operand."""
        into: TensorMeta = args[0].meta
        if into not in self.tangled:
            self.tangled.add(into)
            self.left -= overlap_steps(into.shape, into.stride)
        return None


def overlap_steps(shape: Shape, stride: Stride) -> int:
    """A rough upper bound of the steps of `has_internal_overlap` (`ir/geometry/overlap.py`).

    0 for at most two dimensions, for a stride of 0, and where each stride is larger than the reach
    of the smaller ones. Otherwise the test searches the differences of indices.

    >>> overlap_steps((4, 3), (3, 1)), overlap_steps((5, 5, 5), (10, 11, 12))
    (0, 3000)
    """
    wide = sorted((step, size) for size, step in zip(shape, stride, strict=True) if size > 1)
    if 0 in shape or len(wide) <= 2 or wide[0][0] == 0:
        return 0
    reach = 0
    for step, size in wide:
        if step <= reach:
            break
        reach += step * (size - 1)
    else:
        return 0
    steps = sizes.numel(shape) << len(wide)
    return len(wide) * (steps if len(wide) <= 6 else min(steps, 100_000))


def _split(work: Work, args: tuple[Any, ...], meta: Result) -> Any:
    operand, size, dim = args
    have = _size_of(operand.meta, dim)
    known = have is not None and size > 0
    count = max(-(-have // size), 1) if known else None  # type: ignore[operator]
    return work.results(args, meta, count)


def _split_with_sizes(work: Work, args: tuple[Any, ...], meta: Result) -> object:
    return work.results(args, meta, len(args[1]))


def _unbind(work: Work, args: tuple[Any, ...], meta: Result) -> object:
    return work.results(args, meta, _size_of(args[0].meta, args[1]))


def _size_of(meta: TensorMeta, dim: int) -> int | None:
    """The size of a dimension; None for a dimension out of range, which the rule refuses."""
    try:
        return meta.shape[sizes.wrap_dim(dim, len(meta.shape))]
    except (AotliteError, IndexError):
        return None


def _getitem(work: Work, args: tuple[Any, ...], meta: Result) -> tuple[str, str] | None:
    count = len(args[0].meta)
    return None if 0 <= args[1] < count else (f"result {args[1]}", f"0 to {count - 1}")


_CHECKS: Final[dict[Op, Callable[[Work, tuple[Any, ...], Result], Any]]] = {
    multi_views.SPLIT: _split,
    multi_views.SPLIT_WITH_SIZES: _split_with_sizes,
    multi_views.UNBIND: _unbind,
    GETITEM: _getitem,
    scatters.SELECT_SCATTER: Work.scatter,
    scatters.SLICE_SCATTER: Work.scatter,
    scatters.DIAGONAL_SCATTER: Work.scatter,
    scatters.UNFOLD_SCATTER: Work.scatter,
    scatters.AS_STRIDED_SCATTER: Work.scatter,
}
"""Ops whose meta rule may take time that is not linear in the length of its arguments."""


def long_lists(op: Op) -> bool:
    """Whether an `int[]` of the op may have more items than a tensor has dimensions."""
    return isinstance(op, MultiViewOp)
