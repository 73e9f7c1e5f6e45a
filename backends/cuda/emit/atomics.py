"""Stores in any order (K-12) as atomic operations: several threads may store at one address.

A sum of integers or floats, and an extreme of integers, is one instruction; other combinations are
loops of compare-and-swap. Input: a store, with the C texts of its place and its value; output:
lines, and the functions that they call. Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

from aotlite.backends.c_family.c_types import from_memory, memory_type, to_memory
from aotlite.backends.c_family.loop_body import Body
from aotlite.backends.c_family.scalar_text import CScope, FunctionTexts
from aotlite.backends.loops.combiners import combiner
from aotlite.backends.loops.program import Store
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType

SETTLE = """\
/* On a CPU host.h has these: there what they access is checked as an atomic access. */
#ifndef AOTLITE_HOST
template <class T> INLINE void settle(T *place, T value) { *place = value; }
template <class T> INLINE T glance(const T *place) { return *(const volatile T *)place; }
/* Hardware compares words of 16 bits and more: of the word around a byte the rest stays. */
INLINE u8 atomicCAS(u8 *place, u8 expected, u8 value)
{
    u32 *word = (u32 *)((u64)place & ~3ull);
    const u32 shift = (u32)((u64)place & 3) * 8;
    u32 old = glance(word);
    while ((u8)(old >> shift) == expected) {
        const u32 found = atomicCAS(word, old, (old & ~(255u << shift)) | (u32)value << shift);
        if (found == old) return expected;
        old = found;
    }
    return (u8)(old >> shift);
}
#endif
template <int size> struct word_of { typedef u8 type; };
template <> struct word_of<2> { typedef u16 type; };
template <> struct word_of<4> { typedef u32 type; };
template <> struct word_of<8> { typedef u64 type; };
/* Until nobody else has stored between what was read and what is stored. */
template <class T, class Combined> INLINE void combine_at(T *place, Combined combined)
{
    typedef typename word_of<sizeof(T)>::type word;
    word old = glance((word *)place);
    for (;;) {
        T made = combined(*(T *)&old);
        const word next = *(word *)&made;
        if (next == old) return;
        const word found = atomicCAS((word *)place, old, next);
        if (found == old) return;
        old = found;
    }
}"""

_WORDS = {4: "u32", 8: "u64"}
_ATOMIC = {"sum": "atomicAdd", "max": "atomicMax", "min": "atomicMin"}
"""Combiners with an atomic instruction; others use compare-and-swap."""


class AtomicStores:
    """Prints stores in any order into a body, and adds the functions that they call."""

    def __init__(self, body: Body, library: FunctionTexts) -> None:
        self.body, self.library = body, library

    def lines(self, store: Store, place: str, value: str) -> list[str]:
        """Returns the lines of a store of a value at a place."""
        self._take()
        dtype = store.value.dtype
        if store.combine is None:
            return [f"settle(&{place}, ({memory_type(dtype)}){to_memory(dtype, value)});"]
        call = _by_hardware(store.combine, dtype, place, value)
        return [call] if call else self._by_words(store.combine, dtype, place, value)

    def run(self, kind: str, place: str, value: str) -> str:
        """Returns the line that stores a vector of elements of this type."""
        self._take()
        return f"settle(({kind} *)({place}), {value});"

    def _take(self) -> None:
        self.library.texts.setdefault("settle", SETTLE)

    def _by_words(self, combine: str, dtype: DType, place: str, value: str) -> list[str]:
        inside, kind = CScope(None), memory_type(dtype)
        old = from_memory(dtype, "old")
        (made,) = self.body.combined(combiner(combine), [dtype], [old], [value], inside)
        result = f"return ({kind}){to_memory(dtype, made)};"
        return [f"combine_at(&{place}, [&]({kind} old) {{", *inside.lines, result, "});"]


def _by_hardware(combine: str, dtype: DType, place: str, value: str) -> str:
    """Returns the call of one atomic instruction; empty if none computes the same."""
    name, size = _ATOMIC.get(combine), dtype.itemsize
    if name is None or size not in _WORDS or dtype.kind > dtypes.FLOATING:
        return ""
    if dtype.is_floating_point:
        # There is no atomic maximum of floats.
        return f"{name}(&{place}, {value});" if combine == "sum" else ""
    if combine == "sum":  # wrapping sums have the same bits, signed or not
        return f"{name}(({_WORDS[size]} *)&{place}, ({_WORDS[size]})({value}));"
    return f"{name}(&{place}, {value});"
