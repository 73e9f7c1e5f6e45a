"""C types, literals and the prelude of printed kernels.

A value of a 16-bit float is a C float that holds such a number: each operation is rounded
afterwards, as NumPy rounds it. In memory each dtype has a type of its own with `may_alias`, since
the arena holds one dtype after another in the same bytes. No header is included: parsing it would
take most of the compile time. Spec: `specs/c_printer.md`.
"""

from __future__ import annotations

import math

from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import GraphError
from aotlite.ir.scalar.expression import Scalar

_VALUES = {
    dtypes.bool_: "_Bool",
    dtypes.int8: "i8",
    dtypes.int16: "i16",
    dtypes.int32: "i32",
    dtypes.int64: "i64",
    dtypes.uint8: "u8",
    dtypes.uint16: "u16",
    dtypes.uint32: "u32",
    dtypes.uint64: "u64",
    dtypes.float16: "f32",
    dtypes.bfloat16: "f32",
    dtypes.float32: "f32",
    dtypes.float64: "f64",
}
_IN_MEMORY = {**_VALUES, dtypes.bool_: "u8", dtypes.float16: "f16", dtypes.bfloat16: "u16"}
SUPPORTED = frozenset(_VALUES)
"""The dtypes with which kernels compute."""
SHORT = (dtypes.float16, dtypes.bfloat16)
"""The dtypes whose values are C floats, rounded after each operation."""

PRELUDE = """\
typedef __INT8_TYPE__ i8;
typedef __INT16_TYPE__ i16;
typedef __INT32_TYPE__ i32;
typedef __INT64_TYPE__ i64;
typedef __UINT8_TYPE__ u8;
typedef __UINT16_TYPE__ u16;
typedef __UINT32_TYPE__ u32;
typedef __UINT64_TYPE__ u64;
typedef float f32;
typedef double f64;
#define MEMORY(type) typedef type m_##type __attribute__((may_alias))
MEMORY(i8); MEMORY(i16); MEMORY(i32); MEMORY(i64);
MEMORY(u8); MEMORY(u16); MEMORY(u32); MEMORY(u64);
MEMORY(f32); MEMORY(f64);
#define INLINE static inline __attribute__((always_inline, unused))
#ifdef __clang__
#define NEVER_INLINE __attribute__((noinline, unused))
#define APART()
#else
#define NEVER_INLINE __attribute__((noinline, noclone, unused))
/* Stands in branches and loops of which gcc is to make no vectors. */
#define APART() __asm__ volatile("")
#endif
#define BITS(name, to, from) \\
    INLINE to name(from x) { to y; __builtin_memcpy(&y, &x, sizeof y); return y; }
BITS(bits_i32_f32, i32, f32)
BITS(bits_u32_f32, u32, f32)
BITS(bits_f32_i32, f32, i32)
BITS(bits_f32_u32, f32, u32)
BITS(bits_i64_f64, i64, f64)
BITS(bits_u64_f64, u64, f64)
BITS(bits_f64_i64, f64, i64)
BITS(bits_f64_u64, f64, u64)
/* a b + c of functions of the library; rounded once where that is asked for and as fast. */
#if defined CONTRACT && (defined __FMA__ || defined __ARM_FEATURE_FMA || defined __FP_FAST_FMAF)
#define fma_f32(a, b, c) __builtin_fmaf(a, b, c)
#define fma_f64(a, b, c) __builtin_fma(a, b, c)
#else
#define fma_f32(a, b, c) ((a) * (b) + (c))
#define fma_f64(a, b, c) ((a) * (b) + (c))
#endif
INLINE i64 least(i64 a, i64 b) { return a < b ? a : b; }
INLINE i64 most(i64 a, i64 b) { return a < b ? b : a; }
typedef struct call { void **slots; i64 chunks; } call;
"""
DIVISIONS = """\
/* Quotients that no divisor traps on. */
#define DIVISION(type, unsigned_type) \\
    INLINE type idiv_##type(type a, type b) \\
    { \\
        const type d = b == 0 ? (type)1 : b; \\
        return (type)~d == 0 && (type)-1 < 0 ? (type)(0 - (unsigned_type)a) : (type)(a / d); \\
    } \\
    INLINE type irem_##type(type a, type b) \\
    { \\
        const type d = b == 0 ? (type)1 : b; \\
        return (type)~d == 0 && (type)-1 < 0 ? (type)0 : (type)(a % d); \\
    }
DIVISION(i8, u32) DIVISION(i16, u32) DIVISION(i32, u32) DIVISION(i64, u64)
DIVISION(u8, u32) DIVISION(u16, u32) DIVISION(u32, u32) DIVISION(u64, u64)
"""

FLOAT16 = """\
typedef _Float16 f16;
MEMORY(f16);
INLINE f32 round_f16(f32 x) { return (f32)(f16)x; }
INLINE f32 load_f16(m_f16 x) { return (f32)x; }
INLINE f16 store_f16(f32 x) { return (f16)x; }
INLINE u16 bits_u16_f16(f32 x) { f16 h = (f16)x; u16 y; __builtin_memcpy(&y, &h, 2); return y; }
INLINE i16 bits_i16_f16(f32 x) { return (i16)bits_u16_f16(x); }
INLINE f32 bits_f16_u16(u16 x) { f16 h; __builtin_memcpy(&h, &x, 2); return (f32)h; }
INLINE f32 bits_f16_i16(i16 x) { return bits_f16_u16((u16)x); }
"""
BFLOAT16 = """\
INLINE u16 bits_u16_bf16(f32 x)
{
    const u32 b = bits_u32_f32(x);
    const u32 nan = (b >> 16) & 0x8000u;
    return (u16)(x != x ? nan | 0x7fc0u : (b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}
INLINE f32 bits_bf16_u16(u16 x) { return bits_f32_u32((u32)x << 16); }
INLINE i16 bits_i16_bf16(f32 x) { return (i16)bits_u16_bf16(x); }
INLINE f32 bits_bf16_i16(i16 x) { return bits_bf16_u16((u16)x); }
INLINE f32 round_bf16(f32 x) { return bits_bf16_u16(bits_u16_bf16(x)); }
INLINE f32 load_bf16(u16 x) { return bits_bf16_u16(x); }
INLINE u16 store_bf16(f32 x) { return bits_u16_bf16(x); }
"""

STREAM = """\
/* Copies whole lines past the caches: what is not read soon need not be loaded to be written. */
#if defined(__has_builtin)
#if __has_builtin(__builtin_nontemporal_store)
#define PAST_CACHES(to, x) __builtin_nontemporal_store(x, to)
#endif
#endif
#if defined(__AVX512F__)
#define AT_ONCE 64
#else
#define AT_ONCE 32
#endif
#if !defined(PAST_CACHES) && defined(__AVX512F__)
#define PAST_CACHES(to, x) __builtin_ia32_movntps512((f32 *)(to), x)
#elif !defined(PAST_CACHES) && defined(__AVX__)
#define PAST_CACHES(to, x) __builtin_ia32_movntps256((f32 *)(to), x)
#endif
#if defined(__SSE__)
#define STREAMED() __builtin_ia32_sfence()
#else
#define STREAMED() __sync_synchronize()
#endif
INLINE void stream(void *to, const void *from, i64 bytes)
{
#ifdef PAST_CACHES
    typedef f32 aligned __attribute__((vector_size(AT_ONCE), may_alias));
    typedef f32 line __attribute__((vector_size(AT_ONCE), may_alias, aligned(1)));
    /* Lines that are stored past the caches in parts cost more than they save. */
    const i64 before = least(-(u64)to & 63, bytes);
    const i64 end = before + ((bytes - before) & ~(i64)63);
    u8 *t = to;
    const u8 *f = from;
    if (before) __builtin_memcpy(t, f, before);
    for (i64 k = before; k < end; k += AT_ONCE) {
        const aligned x = *(const line *)(f + k);
        PAST_CACHES((aligned *)(t + k), x);
    }
    if (end < bytes) __builtin_memcpy(t + end, f + end, bytes - end);
#else
    __builtin_memcpy(to, from, bytes);
#endif
}
"""


def value_type(dtype: DType) -> str:
    """Returns the C type of a value in a register."""
    found = _VALUES.get(dtype)
    if found is None:
        raise GraphError(f"c printer: dtype is {dtype}, expected a real one of 16 bits or more")
    return found


def memory_type(dtype: DType) -> str:
    """Returns the C type of an element in memory, which may alias others."""
    return f"m_{_IN_MEMORY[dtype]}"


def from_memory(dtype: DType, element: str) -> str:
    """Returns the C text of an element's value, loaded from memory."""
    if dtype is dtypes.bool_:
        return f"({element} != 0)"
    return f"load_{dtype.short}({element})" if dtype in SHORT else element


def to_memory(dtype: DType, value: str) -> str:
    """Returns the C text of the element that is stored for a value."""
    return f"store_{dtype.short}({value})" if dtype in SHORT else value


def rounded(dtype: DType, value: str) -> str:
    """Returns the C text of an operation's result, rounded if its dtype is a 16-bit float."""
    return f"round_{dtype.short}({value})" if dtype in SHORT else value


def literal(scalar: Scalar) -> str:
    """Returns the C literal of a constant."""
    number, dtype = scalar.args[0], scalar.dtype
    if dtype is dtypes.bool_:
        return str(int(number))
    if dtype.is_floating_point:
        return _float_literal(number, "" if dtype is dtypes.float64 else "f")
    return _integer_literal(number, dtype)


def _float_literal(number: float, suffix: str) -> str:
    if math.isnan(number):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(number):
        text = f"__builtin_inf{suffix}()"
        return text if number > 0 else f"(-{text})"
    short = repr(number)
    exact = len(short) <= 8 and number == round(number * 1024) / 1024
    text = (short if exact else number.hex()) + suffix
    return f"({text})" if text.startswith("-") else text


def _integer_literal(number: int, dtype: DType) -> str:
    if type(number) is not int:  # a symbolic size, which has a name
        return str(number)
    if dtype.itemsize == 8:
        if number == -(2**63):
            return "(-9223372036854775807LL - 1)"
        text = f"{number}{'LL' if dtype.is_signed else 'ULL'}"
    elif number == -(2**31):
        return "(-2147483647 - 1)"
    else:
        text = str(number) if dtype.is_signed else f"{number}u"
    return f"({text})" if number < 0 else text
