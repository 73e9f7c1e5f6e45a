/* CUDA's execution model on one CPU thread, for tests: text that `backends/cuda/emit.py` prints runs
 * unchanged behind this header. C++17 with GNU extensions. Spec: specs/cuda_printer.md.
 *
 * Each CUDA thread of a block is a fiber, which runs until it waits: at a barrier, in a collective
 * of its warp, or at its end. Then the next one runs, in an order that a test chooses. Blocks run
 * one after the other. What would hang or be undefined on a GPU is an error text:
 *   - a barrier that some threads of the block do not reach, or that they meet at different places;
 *   - a collective of a warp whose mask names a lane that does not come to it, or is not there, or
 *     that takes its value from a lane that the mask does not name.
 * Not here: grids and blocks of more than one dimension, dynamic shared memory, atomics, textures,
 * inline PTX, waiting for the grid. */
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
/* Of the thread that a launch makes, so that it is zeros when the first block begins: what a kernel
 * reads before it writes it is not the answer of an earlier launch. */
#define __shared__ thread_local

namespace cuda_host {

constexpr unsigned warp_size = 32;
constexpr unsigned most_threads = 1024;
constexpr size_t stack_bytes = 64 * 1024;

enum class Order { forward, reversed, shuffled };
enum class Wait { ready, barrier, warp, done };

struct Position {
    unsigned x = 0, y = 0, z = 0;
};

/* Where a fiber, or the scheduler, goes on. */
#if defined(__x86_64__)
using Context = void *;
extern "C" void cuda_host_switch(Context *from, Context to)
    __attribute__((visibility("hidden")));
/* Saves what a called function must keep, on the stack that it leaves. */
asm(R"(
.text
.p2align 4
.hidden cuda_host_switch
.weak cuda_host_switch
.type cuda_host_switch,@function
cuda_host_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp,(%rdi)
    movq %rsi,%rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size cuda_host_switch,.-cuda_host_switch
)");
inline void change(Context &from, Context &to) { cuda_host_switch(&from, to); }
inline void prepare(Context &context, char *stack, void (*entry)())
{
    void **top = reinterpret_cast<void **>(
        reinterpret_cast<uintptr_t>(stack + stack_bytes) & ~uintptr_t(63));
    *--top = nullptr; /* what `entry` would return to */
    *--top = reinterpret_cast<void *>(entry);
    for (int kept = 0; kept < 6; ++kept) *--top = nullptr;
    context = top;
}
#else
using Context = ucontext_t;
inline void change(Context &from, Context &to) { swapcontext(&from, &to); }
inline void prepare(Context &context, char *stack, void (*entry)())
{
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = stack_bytes;
    context.uc_link = nullptr;
    makecontext(&context, entry, 0);
}
#endif

/* One CUDA thread of the block that runs. */
struct Fiber {
    Context context;
    Position thread;
    Wait wait = Wait::ready;
    unsigned site = 0; /* which call in the text it waits in */
    unsigned mask = 0;
    int source = 0; /* the lane whose value it takes; -1: the votes of all */
    uint64_t value = 0;
};

struct Engine;
inline thread_local Engine *engine;
inline thread_local Fiber *current;

/* The blocks of one launch. */
struct Engine {
    Position grid, size, block;
    std::vector<Fiber> fibers;
    std::vector<unsigned> order;
    std::unique_ptr<char[]> stacks;
    Context scheduler;
    void (*body)(void *);
    void *argument;
    bool shuffles = false;
    unsigned random = 1;

    static void enter()
    {
        engine->body(engine->argument);
        engine->leave(Wait::done, 0);
        __builtin_trap();
    }

    /* Called by a fiber: the others go on until what it waits for has come. */
    void leave(Wait wait, unsigned site)
    {
        Fiber *self = current;
        self->wait = wait;
        self->site = site;
        change(self->context, scheduler);
        current = self;
    }

    void shuffle()
    {
        for (unsigned k = unsigned(order.size()) - 1; k > 0; --k) {
            random = random * 1664525u + 1013904223u;
            std::swap(order[k], order[(random >> 8) % (k + 1)]);
        }
    }

    /* Runs one block; nullptr, or what is wrong with the kernel. */
    const char *run_block()
    {
        for (unsigned k = 0; k < fibers.size(); ++k) {
            fibers[k].wait = Wait::ready;
            prepare(fibers[k].context, stacks.get() + k * stack_bytes, enter);
        }
        for (;;) {
            run_ready();
            bool moved = false;
            for (unsigned first = 0; first < fibers.size(); first += warp_size)
                if (const char *error = serve_warp(first, moved)) return error;
            if (moved) continue;
            if (all(Wait::done)) return nullptr;
            if (const char *error = serve_barrier()) return error;
        }
    }

    void run_ready()
    {
        if (shuffles) shuffle();
        for (unsigned k : order) {
            if (fibers[k].wait != Wait::ready) continue;
            current = &fibers[k];
            change(scheduler, fibers[k].context);
        }
    }

    bool all(Wait wait) const
    {
        for (const Fiber &each : fibers)
            if (each.wait != wait) return false;
        return true;
    }

    /* Lets the block go on if all of its threads wait at one barrier. */
    const char *serve_barrier()
    {
        bool warps = false;
        for (const Fiber &each : fibers) warps |= each.wait == Wait::warp;
        if (warps) return "warp: a lane that a mask names does not come";
        if (!all(Wait::barrier)) return "barrier: some threads of the block do not reach it";
        for (const Fiber &each : fibers)
            if (each.site != fibers[0].site)
                return "barrier: threads of the block wait at different ones";
        for (Fiber &each : fibers) each.wait = Wait::ready;
        return nullptr;
    }

    /* Completes the collectives of a warp to which all lanes have come. */
    const char *serve_warp(unsigned first, bool &moved)
    {
        uint64_t values[warp_size];
        for (unsigned lane = 0; lane < warp_size && first + lane < fibers.size(); ++lane)
            values[lane] = fibers[first + lane].value;
        for (unsigned lane = 0; lane < warp_size && first + lane < fibers.size(); ++lane) {
            const Fiber &one = fibers[first + lane];
            if (one.wait != Wait::warp) continue;
            if (first + 31 - __builtin_clz(one.mask) >= fibers.size())
                return "warp: a mask names a lane that is not there";
            if (!is_complete(first, one)) continue;
            if (const char *error = complete(first, one.mask, values)) return error;
            moved = true;
        }
        return nullptr;
    }

    /* Whether all lanes of the mask wait in the same collective; some may be in others first. */
    bool is_complete(unsigned first, const Fiber &one) const
    {
        for (unsigned lane = 0; lane < warp_size; ++lane) {
            if (!(one.mask >> lane & 1)) continue;
            const Fiber &each = fibers[first + lane];
            if (each.wait != Wait::warp || each.mask != one.mask || each.site != one.site)
                return false;
        }
        return true;
    }

    const char *complete(unsigned first, unsigned mask, const uint64_t *values)
    {
        uint64_t votes = 0;
        for (unsigned lane = 0; lane < warp_size; ++lane)
            if (mask >> lane & 1 && values[lane]) votes |= 1u << lane;
        for (unsigned lane = 0; lane < warp_size; ++lane) {
            if (!(mask >> lane & 1)) continue;
            Fiber &each = fibers[first + lane];
            if (each.source >= 0 && !(mask >> each.source & 1))
                return "warp: a value is taken from a lane that the mask does not name";
            each.value = each.source < 0 ? votes : values[each.source];
            each.wait = Wait::ready;
        }
        return nullptr;
    }
};

/* Runs a kernel, which `body` calls, for all threads of all blocks; nullptr or an error text. */
template <class Body>
const char *launch(unsigned blocks, unsigned threads, Order order, unsigned seed, Body &&body)
{
    if (threads < 1 || threads > most_threads) return "launch: a block has 1 to 1024 threads";
    const char *error = nullptr;
    std::thread([&] {
        Engine own;
        engine = &own;
        own.grid = {blocks, 1, 1};
        own.size = {threads, 1, 1};
        own.fibers.resize(threads);
        own.stacks.reset(new char[threads * stack_bytes]);
        own.body = [](void *it) { (*static_cast<std::remove_reference_t<Body> *>(it))(); };
        own.argument = &body;
        own.shuffles = order == Order::shuffled;
        own.random = seed;
        for (unsigned k = 0; k < threads; ++k) {
            own.fibers[k].thread = {k, 0, 0};
            own.order.push_back(order == Order::reversed ? threads - 1 - k : k);
        }
        for (unsigned k = 0; k < blocks && !error; ++k) {
            own.block = {order == Order::reversed ? blocks - 1 - k : k, 0, 0};
            error = own.run_block();
        }
    }).join();
    return error;
}

inline void barrier(unsigned site) { engine->leave(Wait::barrier, site); }

/* Gives a value to the lanes of a mask; takes that of lane `source`, or for -1 all votes. */
inline uint64_t exchange(unsigned mask, uint64_t value, int source, unsigned site)
{
    Fiber *self = current;
    /* A lane that its own mask does not name waits for lanes that do not wait for it. */
    self->mask = mask | 1u << self->thread.x % warp_size;
    self->source = source;
    self->value = value;
    engine->leave(Wait::warp, site);
    return self->value;
}

inline unsigned lane() { return current->thread.x % warp_size; }

template <class Value> Value shuffle(unsigned mask, Value value, unsigned source, unsigned site)
{
    static_assert(sizeof(Value) <= 8, "values of 8 bytes at most");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    /* Beyond the warp a lane takes its own value. */
    bits = exchange(mask, bits, int(source < warp_size ? source : lane()), site);
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

template <class To, class From> To same_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "types of one size");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

} // namespace cuda_host

#define threadIdx (::cuda_host::current->thread)
#define blockIdx (::cuda_host::engine->block)
#define blockDim (::cuda_host::engine->size)
#define gridDim (::cuda_host::engine->grid)
#define __syncthreads() ::cuda_host::barrier(__COUNTER__)
#define __syncwarp(mask) ((void)::cuda_host::exchange(mask, 0, -1, __COUNTER__))
#define __ballot_sync(mask, vote) \
    unsigned(::cuda_host::exchange(mask, (vote) != 0, -1, __COUNTER__))
#define __shfl_sync(mask, value, source) \
    ::cuda_host::shuffle(mask, value, unsigned(source) % 32u, __COUNTER__)
#define __shfl_down_sync(mask, value, delta) \
    ::cuda_host::shuffle(mask, value, ::cuda_host::lane() + (delta), __COUNTER__)
#define __shfl_up_sync(mask, value, delta) \
    ::cuda_host::shuffle(mask, value, ::cuda_host::lane() - (delta), __COUNTER__)
#define __shfl_xor_sync(mask, value, other) \
    ::cuda_host::shuffle(mask, value, ::cuda_host::lane() ^ unsigned(other), __COUNTER__)
static inline int __float_as_int(float x) { return cuda_host::same_bits<int>(x); }
static inline unsigned __float_as_uint(float x) { return cuda_host::same_bits<unsigned>(x); }
static inline float __int_as_float(int x) { return cuda_host::same_bits<float>(x); }
static inline float __uint_as_float(unsigned x) { return cuda_host::same_bits<float>(x); }
static inline long long __double_as_longlong(double x)
{
    return cuda_host::same_bits<long long>(x);
}
static inline double __longlong_as_double(long long x) { return cuda_host::same_bits<double>(x); }
