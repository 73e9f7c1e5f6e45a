/* CUDA's names for text that runs on a CPU: what `backends/cuda/emit/cuda_program.py` prints is included behind
 * this header unchanged, and linked with `host.cpp`. C++17 with GNU extensions; no other header is
 * included, so that a text compiles in the time that the text itself takes.
 *
 * AOTLITE_HOST is defined: what the printed prelude writes as inline PTX for a device is a function
 * here (`cvt_*`). Compiled with -fsanitize=thread,bounds every access is checked by
 * `host_checks.cpp`; functions marked UNCHECKED are no accesses of the kernel.
 * Spec: specs/cuda_host.md. Not here: textures, inline PTX, waiting for the grid. */
#pragma once
#define AOTLITE_HOST 1

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
/* Of the thread that a launch makes, so that launches at one time have memory of their own. */
#if defined(__GNUC__) && !defined(__clang__)
/* And without a guard that says whether it is initialized, which would be accessed as well. */
#define __shared__ __constinit thread_local
#else
#define __shared__ thread_local
#endif
#define UNCHECKED __attribute__((no_sanitize("thread", "undefined")))

namespace cuda_host {

struct Position {
    unsigned x, y, z;
};
struct Any { /* an argument of whatever type the kernel wants: a pointer, or a size */
    void *address;
    UNCHECKED operator int() const { return (int)(long long)address; }
    UNCHECKED operator long long() const { return (long long)address; }
    template <class To> UNCHECKED operator To *() const { return static_cast<To *>(address); }
};

Position thread_index();
Position block_index();
Position block_size();
Position grid_size();
unsigned lane();
/* Waits for the block; gives how many of its threads voted. */
int barrier(unsigned site, bool vote = false);
/* Waits for the lanes of a mask; gives the values of the warp's lanes. */
const unsigned long long *collect(unsigned site, unsigned mask, unsigned long long value = 0);
unsigned ballot(unsigned site, unsigned mask, bool vote);
enum Way { from, up, down, across };
unsigned long long shuffled(
    Way way, unsigned site, unsigned mask, unsigned long long bits, unsigned by, unsigned width);
/* Orders memory within a mask, which shuffles and votes do not. */
void sync_warp(unsigned site, unsigned mask = 0xffffffffu);
unsigned active_mask();
/* An atomic access is no race with another one. */
void touch_atomically(const void *address, unsigned bytes);
#if defined(__SANITIZE_THREAD__)
#define CUDA_HOST_TOUCH(address) ::cuda_host::touch_atomically(address, sizeof *(address))
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CUDA_HOST_TOUCH(address) ::cuda_host::touch_atomically(address, sizeof *(address))
#endif
#endif
#if !defined(CUDA_HOST_TOUCH)
#define CUDA_HOST_TOUCH(address) ((void)0)
#endif
[[noreturn]] void trap();
/* The dynamic shared memory of a text that declares some; it is written beside the text. */
char *dynamic_memory() __attribute__((weak));

template <class To, class From> UNCHECKED inline To same_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "types of one size");
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}

template <class Value>
UNCHECKED inline Value shuffle(
    Way way, unsigned site, unsigned mask, Value value, unsigned by, unsigned width = 32)
{
    static_assert(sizeof(Value) <= 8, "values of 8 bytes at most");
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    bits = shuffled(way, site, mask, bits, by, width);
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

template <class Value, class Combine>
UNCHECKED inline Value reduced(unsigned site, unsigned mask, Value value, Combine combine)
{
    const unsigned long long *values = collect(site, mask, (unsigned long long)value);
    Value result = value;
    for (unsigned k = 0; k < 32; ++k)
        if (mask >> k & 1 && k != lane()) result = combine(result, (Value)values[k]);
    return result;
}

template <class Value> UNCHECKED inline unsigned matching(unsigned site, unsigned mask, Value value)
{
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    const unsigned long long *values = collect(site, mask, bits);
    unsigned found = 0;
    for (unsigned k = 0; k < 32; ++k)
        if (mask >> k & 1 && values[k] == bits) found |= 1u << k;
    return found;
}

} // namespace cuda_host

/* --- places and barriers */
#define threadIdx (::cuda_host::thread_index())
#define blockIdx (::cuda_host::block_index())
#define blockDim (::cuda_host::block_size())
#define gridDim (::cuda_host::grid_size())
#define warpSize 32
#define __syncthreads() ((void)::cuda_host::barrier(__COUNTER__))
#define __syncthreads_count(vote) ::cuda_host::barrier(__COUNTER__, (vote) != 0)
#define __syncthreads_or(vote) int(::cuda_host::barrier(__COUNTER__, (vote) != 0) != 0)
#define __syncthreads_and(vote) int(::cuda_host::barrier(__COUNTER__, (vote) == 0) == 0)
#define __threadfence() ((void)0)
#define __threadfence_block() ((void)0)
#define __threadfence_system() ((void)0)
#define __trap() ::cuda_host::trap()

/* --- collectives of a warp */
#define __syncwarp(...) ::cuda_host::sync_warp(__COUNTER__, ##__VA_ARGS__)
#define __activemask() ::cuda_host::active_mask()
#define __ballot_sync(mask, vote) ::cuda_host::ballot(__COUNTER__, mask, (vote) != 0)
#define __any_sync(mask, vote) int(::cuda_host::ballot(__COUNTER__, mask, (vote) != 0) != 0)
#define __all_sync(mask, vote) int(::cuda_host::ballot(__COUNTER__, mask, (vote) == 0) == 0)
#define __match_any_sync(mask, value) ::cuda_host::matching(__COUNTER__, mask, value)
#define __shfl_sync(...) ::cuda_host::shuffle(::cuda_host::from, __COUNTER__, __VA_ARGS__)
#define __shfl_up_sync(...) ::cuda_host::shuffle(::cuda_host::up, __COUNTER__, __VA_ARGS__)
#define __shfl_down_sync(...) ::cuda_host::shuffle(::cuda_host::down, __COUNTER__, __VA_ARGS__)
#define __shfl_xor_sync(...) ::cuda_host::shuffle(::cuda_host::across, __COUNTER__, __VA_ARGS__)
#define CUDA_HOST_REDUCE(mask, value, result) \
    ::cuda_host::reduced(__COUNTER__, mask, value, [](auto a, auto b) { return result; })
#define __reduce_add_sync(mask, value) CUDA_HOST_REDUCE(mask, value, a + b)
#define __reduce_min_sync(mask, value) CUDA_HOST_REDUCE(mask, value, a < b ? a : b)
#define __reduce_max_sync(mask, value) CUDA_HOST_REDUCE(mask, value, a > b ? a : b)
#define __reduce_and_sync(mask, value) CUDA_HOST_REDUCE(mask, value, (a & b))
#define __reduce_or_sync(mask, value) CUDA_HOST_REDUCE(mask, value, (a | b))
#define __reduce_xor_sync(mask, value) CUDA_HOST_REDUCE(mask, value, (a ^ b))

/* --- vectors: an access of a whole one needs its alignment. What is stored into memory straight
 * from a call is not seen by the compiler's checks, so that nothing here is one. */
#define CUDA_HOST_VECTOR(type, part, bytes) \
    struct __align__(2 * bytes) type##2 { part x, y; }; \
    struct __align__(4 * bytes > 16 ? 16 : 4 * bytes) type##4 { part x, y, z, w; }; \
    static __forceinline__ type##2 make_##type##2(part x, part y) { return {x, y}; } \
    static __forceinline__ type##4 make_##type##4(part x, part y, part z, part w) \
    { \
        return {x, y, z, w}; \
    }
CUDA_HOST_VECTOR(char, signed char, 1)
CUDA_HOST_VECTOR(uchar, unsigned char, 1)
CUDA_HOST_VECTOR(short, short, 2)
CUDA_HOST_VECTOR(ushort, unsigned short, 2)
CUDA_HOST_VECTOR(int, int, 4)
CUDA_HOST_VECTOR(uint, unsigned, 4)
CUDA_HOST_VECTOR(float, float, 4)
CUDA_HOST_VECTOR(longlong, long long, 8)
CUDA_HOST_VECTOR(ulonglong, unsigned long long, 8)
CUDA_HOST_VECTOR(double, double, 8)

/* --- loads and stores with hints */
#define CUDA_HOST_LOAD(name) \
    template <class Value> static __forceinline__ Value name(const Value *from) { return *from; }
#define CUDA_HOST_STORE(name) \
    template <class Value> static __forceinline__ void name(Value *to, Value value) { *to = value; }
CUDA_HOST_LOAD(__ldg)
CUDA_HOST_LOAD(__ldca)
CUDA_HOST_LOAD(__ldcg)
CUDA_HOST_LOAD(__ldcs)
CUDA_HOST_LOAD(__ldcv)
CUDA_HOST_LOAD(__ldlu)
CUDA_HOST_STORE(__stwb)
CUDA_HOST_STORE(__stcg)
CUDA_HOST_STORE(__stcs)
CUDA_HOST_STORE(__stwt)

/* --- atomics, of the types that CUDA has them for */
#define CUDA_HOST_ATOMIC(name, type, result) \
    UNCHECKED static inline type name(type *address, type value) \
    { \
        CUDA_HOST_TOUCH(address); \
        const type old = *address; \
        *address = result; \
        return old; \
    }
#define CUDA_HOST_INTEGER_ATOMICS(type) \
    CUDA_HOST_ATOMIC(atomicAdd, type, old + value) \
    CUDA_HOST_ATOMIC(atomicExch, type, value) \
    CUDA_HOST_BIT_ATOMICS(type)
#define CUDA_HOST_BIT_ATOMICS(type) \
    CUDA_HOST_ATOMIC(atomicMin, type, value < old ? value : old) \
    CUDA_HOST_ATOMIC(atomicMax, type, value > old ? value : old) \
    CUDA_HOST_ATOMIC(atomicAnd, type, (type)(old & value)) \
    CUDA_HOST_ATOMIC(atomicOr, type, (type)(old | value)) \
    CUDA_HOST_ATOMIC(atomicXor, type, (type)(old ^ value))
#define CUDA_HOST_CAS(type) \
    UNCHECKED static inline type atomicCAS(type *address, type expected, type value) \
    { \
        CUDA_HOST_TOUCH(address); \
        const type old = *address; \
        if (old == expected) *address = value; \
        return old; \
    }
CUDA_HOST_INTEGER_ATOMICS(int)
CUDA_HOST_INTEGER_ATOMICS(unsigned)
CUDA_HOST_INTEGER_ATOMICS(unsigned long long)
CUDA_HOST_BIT_ATOMICS(long long)
CUDA_HOST_ATOMIC(atomicAdd, float, old + value)
CUDA_HOST_ATOMIC(atomicAdd, double, old + value)
CUDA_HOST_ATOMIC(atomicExch, float, value)
CUDA_HOST_ATOMIC(atomicSub, int, old - value)
CUDA_HOST_ATOMIC(atomicSub, unsigned, old - value)
CUDA_HOST_ATOMIC(atomicInc, unsigned, old >= value ? 0 : old + 1)
CUDA_HOST_ATOMIC(atomicDec, unsigned, old == 0 || old > value ? value : old - 1)
CUDA_HOST_CAS(int)
CUDA_HOST_CAS(unsigned)
CUDA_HOST_CAS(unsigned long long)
CUDA_HOST_CAS(unsigned short)
/* What the printed text has for a device: of bytes, and plain accesses that others may make at the
 * same time. */
CUDA_HOST_CAS(unsigned char)
template <class T> UNCHECKED static inline void settle(T *place, T value)
{
    CUDA_HOST_TOUCH(place);
    *place = value;
}
template <class T> UNCHECKED static inline T glance(const T *place)
{
    CUDA_HOST_TOUCH(place);
    return *place;
}

/* --- numbers. 16 bits: rounded to even once, whatever the source's width; a NaN stays one. */
unsigned short cvt_f16_f32(float x);
unsigned short cvt_f16_f64(double x);
float cvt_f32_f16(unsigned short bits);
unsigned short cvt_bf16_f32(float x);
float cvt_f32_bf16(unsigned short bits);

extern "C" {
#define CUDA_HOST_MATH(name) float name##f(float) noexcept; double name(double) noexcept;
#define CUDA_HOST_MATH2(name) \
    float name##f(float, float) noexcept; double name(double, double) noexcept;
CUDA_HOST_MATH(fabs)
CUDA_HOST_MATH(sqrt)
CUDA_HOST_MATH(floor)
CUDA_HOST_MATH(ceil)
CUDA_HOST_MATH(trunc)
CUDA_HOST_MATH(rint)
CUDA_HOST_MATH2(fmin)
CUDA_HOST_MATH2(fmax)
CUDA_HOST_MATH2(copysign)
float fmaf(float, float, float) noexcept;
double fma(double, double, double) noexcept;
}

UNCHECKED static inline int __float_as_int(float x) { return cuda_host::same_bits<int>(x); }
UNCHECKED static inline unsigned __float_as_uint(float x)
{
    return cuda_host::same_bits<unsigned>(x);
}
UNCHECKED static inline float __int_as_float(int x) { return cuda_host::same_bits<float>(x); }
UNCHECKED static inline float __uint_as_float(unsigned x)
{
    return cuda_host::same_bits<float>(x);
}
UNCHECKED static inline long long __double_as_longlong(double x)
{
    return cuda_host::same_bits<long long>(x);
}
UNCHECKED static inline double __longlong_as_double(long long x)
{
    return cuda_host::same_bits<double>(x);
}
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
#define CUDA_HOST_ROUNDED(name, sign) \
    static inline float __f##name##_rn(float a, float b) { return a sign b; } \
    static inline double __d##name##_rn(double a, double b) { return a sign b; }
CUDA_HOST_ROUNDED(add, +)
CUDA_HOST_ROUNDED(sub, -)
CUDA_HOST_ROUNDED(mul, *)
CUDA_HOST_ROUNDED(div, /)
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline double __dsqrt_rn(double x) { return sqrt(x); }

static inline int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return unsigned((unsigned long long)a * b >> 32);
}
static inline long long __mul64hi(long long a, long long b)
{
    return (long long)((__int128)a * b >> 64);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
static inline int __clzll(long long x)
{
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by)
{
    return unsigned((((unsigned long long)high << 32 | low) << (by & 31)) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by)
{
    return unsigned(((unsigned long long)high << 32 | low) >> (by & 31));
}
#define CUDA_HOST_EXTREMES(type) \
    static inline type min(type a, type b) { return b < a ? b : a; } \
    static inline type max(type a, type b) { return b > a ? b : a; }
CUDA_HOST_EXTREMES(int)
CUDA_HOST_EXTREMES(unsigned)
CUDA_HOST_EXTREMES(long long)
CUDA_HOST_EXTREMES(unsigned long long)

/* --- how it is called */
#define CUDA_HOST_EXPORT extern "C" __attribute__((visibility("default"))) UNCHECKED
