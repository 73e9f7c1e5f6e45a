"""Transposition through tiles, for accesses that lie across the vector axis.

In b1[i0*n + i1] = b0[i1*m + i0], with vector axis i1, the load has stride 1 along i0. Both axes are
tiled: the load's 64 x 64 elements are transposed into a local tile by vector shuffles before the
loop reads them with stride 1. A store that lies across goes through a tile after the loop. Spec:
`specs/c_printer.md`.
"""

from __future__ import annotations

from collections.abc import Iterable

from aotlite.backends.loops.program import Kernel, Reduce, Scan, Store, loads_of, stores_of
from aotlite.ir.geometry.sizes import hint_of
from aotlite.ir.scalar.expression import Affine, Scalar

ACROSS = 64
"""The points of the vector axis in a tile."""
LEAST = 8
"""Tiles pay if both axes have at least so many points."""

TILES = """\
#define TRANSPOSED(size, type, stages) \\
    static NEVER_INLINE void transposed_##size( \\
        const type *from, i64 from_row, type *to, i64 to_row, i64 rows, i64 columns) \\
    { \\
        i64 i = 0; \\
        stages \\
        for (; i < rows; ++i) \\
            for (i64 j = 0; j < columns; ++j) to[j * to_row + i] = from[i * from_row + j]; \\
    }
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define SHUFFLES
#endif
#endif
#ifdef SHUFFLES
typedef u32 lanes_4 __attribute__((vector_size(32), may_alias, aligned(4)));
typedef u64 lanes_8 __attribute__((vector_size(32), may_alias, aligned(8)));
#define MIX(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
INLINE void block_4(const m_u32 *from, i64 from_row, m_u32 *to, i64 to_row)
{
    lanes_4 r[8], s[8];
    for (int i = 0; i < 8; ++i) r[i] = *(const lanes_4 *)(from + i * from_row);
    for (int i = 0; i < 8; i += 2) {
        s[i] = MIX(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        s[i + 1] = MIX(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = MIX(s[i], s[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        r[i + 1] = MIX(s[i], s[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        r[i + 2] = MIX(s[i + 1], s[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
        r[i + 3] = MIX(s[i + 1], s[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
    }
    for (int i = 0; i < 4; ++i) {
        *(lanes_4 *)(to + i * to_row) = MIX(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        *(lanes_4 *)(to + (i + 4) * to_row) = MIX(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}
INLINE void block_8(const m_u64 *from, i64 from_row, m_u64 *to, i64 to_row)
{
    lanes_8 r[4], s[4];
    for (int i = 0; i < 4; ++i) r[i] = *(const lanes_8 *)(from + i * from_row);
    for (int i = 0; i < 4; i += 2) {
        s[i] = MIX(r[i], r[i + 1], 0, 4, 2, 6);
        s[i + 1] = MIX(r[i], r[i + 1], 1, 5, 3, 7);
    }
    for (int i = 0; i < 2; ++i) {
        *(lanes_8 *)(to + i * to_row) = MIX(s[i], s[i + 2], 0, 1, 4, 5);
        *(lanes_8 *)(to + (i + 2) * to_row) = MIX(s[i], s[i + 2], 2, 3, 6, 7);
    }
}
#define BY_BLOCKS(size, lanes) \\
    for (; i + lanes <= rows; i += lanes) { \\
        i64 j = 0; \\
        for (; j + lanes <= columns; j += lanes) \\
            block_##size(from + i * from_row + j, from_row, to + j * to_row + i, to_row); \\
        for (; j < columns; ++j) \\
            for (i64 k = 0; k < lanes; ++k) \\
                to[j * to_row + i + k] = from[(i + k) * from_row + j]; \\
    }
TRANSPOSED(4, m_u32, BY_BLOCKS(4, 8))
TRANSPOSED(8, m_u64, BY_BLOCKS(8, 4))
#else
TRANSPOSED(4, m_u32, )
TRANSPOSED(8, m_u64, )
#endif
TRANSPOSED(2, m_u16, )
TRANSPOSED(1, m_u8, )
"""


def tile_axis(kernel: Kernel, vector: int) -> int | None:
    """Returns the other axis of tiles; None if no access of the kernel lies across."""
    body_is_plain = not any(type(each) in (Reduce, Scan) for each in kernel.body)
    if not body_is_plain or kernel.space < len(kernel.extents):
        return None
    if hint_of(kernel.extents[vector]) < LEAST:
        return None
    found: dict[int, int] = {}
    weights = [(load.args[1], 1) for load in loads_of(kernel)]
    weights += [(store.address, 2) for store in stores_of(kernel) if store.combine is None]
    for address, weight in weights:
        k = across(address, vector)
        if k is not None and hint_of(kernel.extents[k]) >= LEAST:
            found[k] = found.get(k, 0) + weight
    return max(found, key=lambda k: (found[k], k), default=None)


def across(address: Affine, vector: int) -> int | None:
    """Returns the axis along which an address has stride 1, if it has a large stride along the
    vector axis; else None."""
    if address.dynamic or abs(hint_of(address.coefficients[vector])) < LEAST:
        return None
    ones = [k for k, c in enumerate(address.coefficients) if c == 1]
    return ones[0] if len(ones) == 1 else None


def loads_across(loads: Iterable[Scalar], vector: int, tile: int) -> list[Scalar]:
    """Returns the loads that go through tiles."""
    return [load for load in loads if across(load.args[1], vector) == tile]


def is_across(store: Store, vector: int, tile: int) -> bool:
    """Whether a store goes through a tile."""
    return store.combine is None and across(store.address, vector) == tile
