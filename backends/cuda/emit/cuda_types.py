"""The prelude of CUDA texts: types, bits and conversions under the names of the C printer.

`backends/c_family/scalar_text.py` prints expressions in the common part of C and C++. Conversions
of 16-bit floats are PTX, since NVRTC has no headers. Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

PRELUDE = """\
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;
typedef i8 m_i8;
typedef i16 m_i16;
typedef i32 m_i32;
typedef i64 m_i64;
typedef u8 m_u8;
typedef u16 m_u16;
typedef u32 m_u32;
typedef u64 m_u64;
typedef f32 m_f32;
typedef f64 m_f64;
#define _Bool bool
#define INLINE static __device__ __forceinline__
/* Elements that are accessed at once, by as many of their bytes as are aligned. */
template <class T, int n> struct alignas((sizeof(T) * n & -(sizeof(T) * n)) > 16
    ? 16 : sizeof(T) * n & -(sizeof(T) * n)) many { T at[n]; };
template <int n, class T> INLINE many<T, n> fetched(const T *place)
{
    return *(const many<T, n> *)place;
}
template <class T, int n> INLINE void put(T *place, const many<T, n> &value)
{
    *(many<T, n> *)place = value;
}
/* One instruction, which compilers do not find in a product of 64 bits. */
#ifdef AOTLITE_HOST
INLINE u64 wide_product(u32 a, u32 b) { return (u64)a * b; }
#else
INLINE u64 wide_product(u32 a, u32 b)
{
    u64 c;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(c) : "r"(a), "r"(b));
    return c;
}
#endif
#define APART()
#ifdef CONTRACT
#define fma_f32(a, b, c) __fmaf_rn(a, b, c)
#define fma_f64(a, b, c) __fma_rn(a, b, c)
#else
#define fma_f32(a, b, c) ((a) * (b) + (c))
#define fma_f64(a, b, c) ((a) * (b) + (c))
#endif
INLINE i32 bits_i32_f32(f32 x) { return __float_as_int(x); }
INLINE u32 bits_u32_f32(f32 x) { return __float_as_uint(x); }
INLINE f32 bits_f32_i32(i32 x) { return __int_as_float(x); }
INLINE f32 bits_f32_u32(u32 x) { return __uint_as_float(x); }
INLINE i64 bits_i64_f64(f64 x) { return __double_as_longlong(x); }
INLINE u64 bits_u64_f64(f64 x) { return (u64)__double_as_longlong(x); }
INLINE f64 bits_f64_i64(i64 x) { return __longlong_as_double(x); }
INLINE f64 bits_f64_u64(u64 x) { return __longlong_as_double((i64)x); }
#define __builtin_fabsf fabsf
#define __builtin_fabs fabs
#define __builtin_sqrtf sqrtf
#define __builtin_sqrt sqrt
#define __builtin_floorf floorf
#define __builtin_floor floor
#define __builtin_ceilf ceilf
#define __builtin_ceil ceil
#define __builtin_truncf truncf
#define __builtin_trunc trunc
#define __builtin_rintf rintf
#define __builtin_rint rint
#define __builtin_inff() bits_f32_u32(0x7f800000u)
#define __builtin_inf() bits_f64_u64(0x7ff0000000000000ull)
#define __builtin_nanf(text) bits_f32_u32(0x7fc00000u)
#define __builtin_nan(text) bits_f64_u64(0x7ff8000000000000ull)
"""

FLOAT16 = """\
/* The hardware rounds once, to even, from either type. On a CPU host.h has these functions. */
#ifndef AOTLITE_HOST
INLINE u16 cvt_f16_f32(f32 x) { u16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x)); return h; }
INLINE u16 cvt_f16_f64(f64 x) { u16 h; asm("cvt.rn.f16.f64 %0, %1;" : "=h"(h) : "d"(x)); return h; }
INLINE f32 cvt_f32_f16(u16 h) { f32 x; asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h)); return x; }
#endif
struct f16 {
    u16 bits;
    f16() = default;
    __device__ explicit f16(f32 x) : bits(cvt_f16_f32(x)) {}
    __device__ explicit f16(f64 x) : bits(cvt_f16_f64(x)) {}
    __device__ operator f32() const { return cvt_f32_f16(bits); }
};
typedef f16 m_f16;
INLINE f32 round_f16(f32 x) { return (f32)(f16)x; }
INLINE f32 load_f16(f16 x) { return (f32)x; }
INLINE f16 store_f16(f32 x) { return (f16)x; }
INLINE u16 bits_u16_f16(f32 x) { return cvt_f16_f32(x); }
INLINE i16 bits_i16_f16(f32 x) { return (i16)bits_u16_f16(x); }
INLINE f32 bits_f16_u16(u16 x) { return cvt_f32_f16(x); }
INLINE f32 bits_f16_i16(i16 x) { return bits_f16_u16((u16)x); }
"""

BFLOAT16 = """\
#ifndef AOTLITE_HOST
INLINE u16 cvt_bf16_f32(f32 x)
{
    u16 h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}
INLINE f32 cvt_f32_bf16(u16 h) { return bits_f32_u32((u32)h << 16); }
#endif
INLINE u16 bits_u16_bf16(f32 x) { return cvt_bf16_f32(x); }
INLINE f32 bits_bf16_u16(u16 x) { return cvt_f32_bf16(x); }
INLINE i16 bits_i16_bf16(f32 x) { return (i16)bits_u16_bf16(x); }
INLINE f32 bits_bf16_i16(i16 x) { return bits_bf16_u16((u16)x); }
INLINE f32 round_bf16(f32 x) { return bits_bf16_u16(bits_u16_bf16(x)); }
INLINE f32 load_bf16(u16 x) { return bits_bf16_u16(x); }
INLINE u16 store_bf16(f32 x) { return bits_u16_bf16(x); }
"""
