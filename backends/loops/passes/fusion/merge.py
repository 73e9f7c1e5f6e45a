"""Merging: one kernel in place of two, a producer and its consumer or two with the same loads.

    amax[i0<4, *i1<8]:  v0 = reduce<max>(b0[8*i0 + i1])        fused[i0<4, *i1<8]:
                        each row: b1[i0] = v0             ->     v0 = reduce<max>(b0[8*i0 + i1])
    sub[j0<4, j1<8]:    b2[8*j0 + j1] = b0[..] - b1[j0]          b2[8*i0 + i1] = b0[..] - v0

Input: two kernels, of which the second comes later and depends on the first directly or not at all.
Output: one kernel that does what both do, or None where their points do not correspond or the cost
model says no. Spec: `specs/fusion.md`.
"""

from __future__ import annotations

from collections.abc import Iterator

from aotlite.backends.loops.analysis.affine import Split, solve, unit, whole
from aotlite.backends.loops.analysis.cost import (
    ABREAST,
    FEW_ROWS,
    KEPT_BYTES,
    LONG_ROW,
    inner_points,
    is_too_big,
    points,
    row_bytes,
    rows,
)
from aotlite.backends.loops.analysis.expression_facts import facts
from aotlite.backends.loops.analysis.size_proofs import is_axis
from aotlite.backends.loops.passes.fusion.align_kernels import Link, aligned, is_flexible
from aotlite.backends.loops.passes.fusion.inline import is_plain
from aotlite.backends.loops.passes.split_reductions import is_inexact
from aotlite.backends.loops.passes.vectorization import across, vector_axis
from aotlite.backends.loops.program import (
    Kernel,
    Reduce,
    Scan,
    Statement,
    Store,
    loads_in,
    loads_of,
    names_of,
    names_used,
    stores_of,
)
from aotlite.backends.loops.rewrite import (
    free_name,
    moved,
    renumbered,
    replaced,
    replaced_body,
    split_axis,
)
from aotlite.ir.geometry.sizes import hint_of
from aotlite.ir.scalar.expression import Scalar, with_operands


def merged(first: Kernel, second: Kernel, kept_bytes: int = KEPT_BYTES) -> Kernel | None:
    """Returns one kernel that does what both do; None if that is impossible or slower."""
    if not (_is_mergeable(first) and _is_mergeable(second)):
        return None
    for _ in range(4):
        result = _merged(first, second, kept_bytes)
        if not isinstance(result, Split):
            return result
        second = split_axis(second, result.axis, result.inner)
    return None


def _is_mergeable(kernel: Kernel) -> bool:
    return 0 not in kernel.extents and all(map(is_plain, stores_of(kernel)))


def _merged(first: Kernel, second: Kernel, kept_bytes: int) -> Kernel | Split | None:
    wanted: Split | None = None
    for link in _links(first, second):
        pair = aligned(first, second, link)
        if isinstance(pair, Split):
            wanted = pair
        elif pair is not None:
            kernel = joined(*pair)
            if kernel is None or is_too_big(kernel):
                continue
            if not _is_slower((first, second), kernel, kept_bytes):
                return kernel
    return wanted


def _links(first: Kernel, second: Kernel) -> Iterator[Link]:
    """Yields the links that may align the axes: buffers that the first stores and the second loads;
    if there are none, buffers that both load."""
    stored = {store.buffer: store for store in stores_of(first)}
    loads = loads_of(second)
    direct = False
    for value in loads:
        store = stored.get(value.args[0])
        if store is not None:
            direct = True
            yield Link(store.address, value.args[1], store.each_row)
    if direct:
        return
    whole_loads = {v.args[0]: v.args[1] for v in loads_of(first) if _is_whole(v, first)}
    for value in loads:
        if value.args[0] in whole_loads and points(first) == points(second):
            yield Link(whole_loads[value.args[0]], value.args[1], of_rows=False)


def _is_whole(value: Scalar, kernel: Kernel) -> bool:
    address = value.args[1]
    return not address.dynamic and all(
        c or not is_axis(n) for c, n in zip(address.coefficients, kernel.extents, strict=True)
    )


# ---------------------------------------------------------------------------------------- joining
def joined(first: Kernel, second: Kernel) -> Kernel | None:
    """Returns a kernel of both bodies, in which the second's loads of buffers that the first stores
    are replaced by the stored values; None where a load needs another point's value."""
    later = renumbered(second.body, free_name(first.body))
    stored = {store.buffer: store for store in stores_of(first)}
    memo: dict[Scalar, Scalar] = {}
    for value in loads_in(later):
        store = stored.get(value.args[0])
        if store is not None:
            # The indices of a gather may be values of the first kernel, too: replace them before.
            positions = tuple([replaced(each, memo) for each in value.operands])
            new = _stored_value(with_operands(value, positions), store, first)
            if new is None:
                return None
            memo[value] = new
    body = (*first.body, *replaced_body(later, memo))
    kernel = Kernel(name_of_both(first, second), first.extents, first.space, body)
    return kernel if _keeps_memory(kernel) else None


def name_of_both(first: Kernel, second: Kernel) -> str:
    """Returns the name of the kernel that does what both do."""
    return f"{first.name}_{second.name}"[:60]


def _stored_value(value: Scalar, store: Store, kernel: Kernel) -> Scalar | None:
    """Returns the value that the load finds: the one stored at this point, or at another inner
    point of this row, where it is computed again; None where neither is possible."""
    address = value.args[1]
    if address == store.address:
        return store.value
    count, space = len(kernel.extents), kernel.space
    if store.each_row:
        return None
    forms = solve(address, whole(kernel.extents), store.address, kernel.extents)
    if not isinstance(forms, tuple) or forms[:space] != tuple(
        [unit(k, count) for k in range(space)]
    ):
        return None
    scans = {k for s in kernel.body if type(s) is Scan for k in s.names}
    if not scans.isdisjoint(facts(store.value).names):
        return None
    return moved(store.value, forms, count, {})


def _keeps_memory(kernel: Kernel) -> bool:
    """Whether the kernel keeps K-6 and stores each buffer once."""
    stores = stores_of(kernel)
    addresses = {store.buffer: store.address for store in stores}
    return len(addresses) == len(stores) and all(
        value.args[1] == addresses.get(value.args[0], value.args[1]) for value in loads_of(kernel)
    )


# ------------------------------------------------------------------------------------------- cost
def _is_slower(pair: tuple[Kernel, Kernel], kernel: Kernel, kept_bytes: int) -> bool:
    """Whether the merged kernel is slower than two: it goes over rows more often, and these do not
    stay in a cache, or it needs accesses with large strides."""
    if is_flexible(kernel):
        return False
    if points(kernel) > LONG_ROW and _lies_across_now(pair, kernel):
        return True
    if _passes(kernel.body) <= max(_passes(each.body) for each in pair):
        return False
    few = rows(kernel) < FEW_ROWS and inner_points(kernel) > LONG_ROW
    vector = vector_axis(kernel)
    of_columns = vector < kernel.space
    together = min(hint_of(kernel.extents[vector]), ABREAST) if of_columns else 1
    if of_columns and is_inexact(kernel):
        return True
    return few or row_bytes(kernel) * together > kept_bytes


def _lies_across_now(pair: tuple[Kernel, Kernel], kernel: Kernel) -> bool:
    """Whether accesses of a pointwise kernel, which it transposes in tiles, would get large strides
    in the merged kernel, where inner axes forbid tiles."""
    before = sum([across(each) for each in pair if not is_flexible(each)])
    return across(kernel) > before


def _passes(body: tuple[Statement, ...]) -> int:
    """Returns the number of passes over the inner points: the longest chain of reductions, and of
    element-level statements that use their results."""
    depth: dict[int, int] = {}
    most = 0
    for statement in body:
        own = 1 + max([depth[k] for k in names_used(statement)], default=0)
        if type(statement) is Reduce:
            depth.update(dict.fromkeys(names_of(statement), own))
        elif type(statement) is Scan:
            depth.update(dict.fromkeys(names_of(statement), own - 1))
        elif type(statement) is Store and statement.each_row:
            continue
        most = max(most, own)
    return most
