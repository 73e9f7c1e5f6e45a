/* CUDA's execution model on one CPU thread: what `host.h` declares. Spec: specs/cuda_host.md.
 *
 * Each CUDA thread of a block is a fiber, which runs until it waits: at a barrier, in a collective
 * of its warp, or at its end. Then the next one runs, in an order that a test chooses. Blocks run
 * one after the other. What would hang or be undefined on a GPU is an error text (CUDA-1, CUDA-2). */
#include "host_engine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>
#include <utility>

namespace cuda_host {

thread_local Engine *engine;
thread_local Fiber *current;

/* --- where a fiber, or the scheduler, goes on */
#if defined(__x86_64__)
extern "C" void cuda_host_switch(Context *from, Context to) __attribute__((visibility("hidden")));
/* Saves what a called function must keep, on the stack that it leaves. */
asm(R"(
.text
.p2align 4
.hidden cuda_host_switch
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
static void change(Context &from, Context &to) { cuda_host_switch(&from, to); }
static void prepare(Context &context, char *stack, void (*entry)())
{
    void **top = reinterpret_cast<void **>(
        reinterpret_cast<uintptr_t>(stack + stack_bytes) & ~uintptr_t(63));
    *--top = nullptr; /* what `entry` would return to */
    *--top = reinterpret_cast<void *>(entry);
    for (int kept = 0; kept < 6; ++kept) *--top = nullptr;
    context = top;
}
#else
static void change(Context &from, Context &to) { swapcontext(&from, &to); }
static void prepare(Context &context, char *stack, void (*entry)())
{
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = stack_bytes;
    context.uc_link = nullptr;
    makecontext(&context, entry, 0);
}
#endif

/* --- one launch */
static unsigned count(const uint32_t *extents) { return extents[0] * extents[1] * extents[2]; }

static Position position(uint64_t number, const Position &extents)
{
    const uint64_t plane = uint64_t(extents.x) * extents.y;
    return {unsigned(number % extents.x), unsigned(number / extents.x % extents.y),
            unsigned(number / plane)};
}

Engine::Engine(Launch &how, void (*body)(void **), void **slots)
    : how(how), grid{how.grid[0], how.grid[1], how.grid[2]},
      size{how.block[0], how.block[1], how.block[2]}, fibers(count(how.block)),
      gathered((fibers.size() + warp_size - 1) / warp_size * warp_size),
      stacks(new char[fibers.size() * stack_bytes]), body(body), slots(slots), random(how.seed)
{
    const unsigned threads = unsigned(fibers.size());
    for (unsigned k = 0; k < threads; ++k) {
        fibers[k].number = k;
        fibers[k].thread = position(k, size);
        order.push_back(how.order == Order::reversed ? threads - 1 - k : k);
    }
}

void Engine::enter()
{
    engine->body(engine->slots);
    engine->leave(Wait::done, 0);
    __builtin_trap();
}

/* Called by a fiber: the others go on until what it waits for has come. */
void Engine::leave(Wait wait, unsigned site)
{
    Fiber *self = current;
    self->wait = wait;
    self->site = site;
    change(self->context, scheduler);
    current = self;
}

/* Called by a fiber: the launch is over. */
void Engine::fail(const char *text)
{
    error = text;
    change(current->context, scheduler);
    __builtin_trap();
}

/* Runs all blocks; `error` says what is wrong with the kernel. */
void Engine::run()
{
    const uint64_t blocks = uint64_t(grid.x) * grid.y * grid.z;
    for (uint64_t k = 0; k < blocks && !error; ++k) {
        block_number = how.order == Order::reversed ? blocks - 1 - k : k;
        block = position(block_number, grid);
        run_block();
    }
}

void Engine::run_block()
{
    ++epoch;
    for (unsigned k = 0; k < fibers.size(); ++k) {
        fibers[k].wait = Wait::ready;
        std::memset(fibers[k].known, 0, sizeof fibers[k].known);
        prepare(fibers[k].context, stacks.get() + k * stack_bytes, enter);
    }
    while (!error) {
        run_ready();
        bool moved = false;
        for (unsigned first = 0; first < fibers.size() && !error; first += warp_size)
            error = serve_warp(first, moved);
        if (error || moved) continue;
        if (all(Wait::done)) return;
        error = serve_barrier();
    }
}

void Engine::shuffle()
{
    for (unsigned k = unsigned(order.size()) - 1; k > 0; --k) {
        random = random * 1664525u + 1013904223u;
        std::swap(order[k], order[(random >> 8) % (k + 1)]);
    }
}

void Engine::run_ready()
{
    if (how.order == Order::shuffled) shuffle();
    for (unsigned k : order) {
        if (fibers[k].wait != Wait::ready) continue;
        current = &fibers[k];
        change(scheduler, fibers[k].context);
        if (error) return;
    }
}

bool Engine::all(Wait wait) const
{
    for (const Fiber &each : fibers)
        if (each.wait != wait) return false;
    return true;
}

/* Lets the block go on if all of its threads wait at one barrier. */
const char *Engine::serve_barrier()
{
    bool warps = false;
    for (const Fiber &each : fibers) warps |= each.wait == Wait::warp;
    if (warps) return "warp: a lane that a mask names does not come";
    if (!all(Wait::barrier)) return "barrier: some threads of the block do not reach it";
    for (const Fiber &each : fibers)
        if (each.site != fibers[0].site)
            return "barrier: threads of the block wait at different ones";
    votes = 0;
    for (Fiber &each : fibers) {
        votes += each.vote;
        each.wait = Wait::ready;
    }
    ++epoch;
    return nullptr;
}

/* Completes the collectives of a warp to which all lanes have come. */
const char *Engine::serve_warp(unsigned first, bool &moved)
{
    const unsigned there = std::min<unsigned>(warp_size, unsigned(fibers.size()) - first);
    for (unsigned lane = 0; lane < there; ++lane) {
        const Fiber &one = fibers[first + lane];
        if (one.wait != Wait::warp) continue;
        if (!(one.mask >> lane & 1)) return "warp: a lane comes that its own mask does not name";
        if (31u - unsigned(__builtin_clz(one.mask)) >= there)
            return "warp: a mask names a lane that is not there";
        if (!is_complete(first, one)) continue;
        if (one.syncs) tell(first, one.mask);
        const unsigned mask = one.mask;
        for (unsigned k = 0; k < there; ++k) {
            if (!(mask >> k & 1)) continue;
            gathered[first + k] = fibers[first + k].value;
            fibers[first + k].wait = Wait::ready;
        }
        moved = true;
    }
    return nullptr;
}

/* Each lane of the mask then knows what the others did, and what they knew. */
void Engine::tell(unsigned first, unsigned mask)
{
    uint32_t known[warp_size] = {};
    ++tick;
    for (unsigned k = 0; k < warp_size; ++k) {
        if (!(mask >> k & 1)) continue;
        for (unsigned j = 0; j < warp_size; ++j)
            known[j] = std::max(known[j], fibers[first + k].known[j]);
    }
    for (unsigned k = 0; k < warp_size; ++k)
        if (mask >> k & 1) known[k] = tick;
    for (unsigned k = 0; k < warp_size; ++k)
        if (mask >> k & 1) std::memcpy(fibers[first + k].known, known, sizeof known);
}

/* Whether all lanes of the mask wait in the same collective; some may be in others first. */
bool Engine::is_complete(unsigned first, const Fiber &one) const
{
    for (unsigned lane = 0; lane < warp_size; ++lane) {
        if (!(one.mask >> lane & 1)) continue;
        const Fiber &each = fibers[first + lane];
        if (each.wait != Wait::warp || each.mask != one.mask || each.site != one.site)
            return false;
    }
    return true;
}

/* --- what kernels call */
Position thread_index() { return current->thread; }
Position block_index() { return engine->block; }
Position block_size() { return engine->size; }
Position grid_size() { return engine->grid; }
unsigned lane() { return current->number % warp_size; }
void trap() { engine->fail("trap: the kernel gives up"); }

int barrier(unsigned site, bool vote)
{
    current->vote = vote;
    engine->leave(Wait::barrier, site);
    return engine->votes;
}

const unsigned long long *collect(unsigned site, unsigned mask, unsigned long long value)
{
    Fiber *self = current;
    self->mask = mask;
    self->value = value;
    engine->leave(Wait::warp, site);
    static_assert(sizeof(unsigned long long) == sizeof(uint64_t), "64 bits");
    const uint64_t *values = &engine->gathered[self->number / warp_size * warp_size];
    return reinterpret_cast<const unsigned long long *>(values);
}

unsigned ballot(unsigned site, unsigned mask, bool vote)
{
    const unsigned long long *values = collect(site, mask, vote);
    unsigned votes = 0;
    for (unsigned k = 0; k < warp_size; ++k)
        if (mask >> k & 1 && values[k]) votes |= 1u << k;
    return votes;
}

/* The lane that a value comes from; beyond the segment it is the own one. */
static unsigned source(Way way, unsigned by, unsigned width)
{
    const unsigned own = lane(), first = own & ~(width - 1), last = first + width - 1;
    switch (way) {
    case from: return first | (by & (width - 1));
    case up: return own < first + by ? own : own - by;
    case down: return by > last - own ? own : own + by;
    default: return (own ^ by) > last ? own : own ^ by;
    }
}

unsigned long long shuffled(
    Way way, unsigned site, unsigned mask, unsigned long long bits, unsigned by, unsigned width)
{
    if (!width || width > warp_size || width & (width - 1))
        engine->fail("warp: the width of a shuffle is no power of two up to 32");
    const unsigned lane = source(way, by, width);
    const unsigned long long *values = collect(site, mask, bits);
    if (!(mask >> lane & 1))
        engine->fail("warp: a value is taken from a lane that the mask does not name");
    return values[lane];
}

void sync_warp(unsigned site, unsigned mask)
{
    current->syncs = true;
    collect(site, mask);
    current->syncs = false;
}

unsigned active_mask()
{
    const size_t there = engine->fibers.size() - (current->number & ~(warp_size - 1));
    return there >= warp_size ? all_lanes : (1u << there) - 1;
}

} // namespace cuda_host

using namespace cuda_host;

/* Runs a kernel, which `body` calls, for all threads of all blocks; nullptr or an error text. */
CUDA_HOST_EXPORT const char *cuda_host_launch(Launch *how, void (*body)(void **), void **slots)
{
    const uint64_t threads = uint64_t(how->block[0]) * how->block[1] * how->block[2];
    if (threads < 1 || threads > most_threads) return "launch: a block has 1 to 1024 threads";
    if (!(uint64_t(how->grid[0]) * how->grid[1] * how->grid[2]))
        return "launch: a grid has at least one block";
    if (how->shared > most_shared) return "launch: a block has at most 227 KiB of shared memory";
    const char *error = nullptr;
    std::thread([&] {
        Engine own(*how, body, slots);
        engine = &own;
        own.shadow = make_shadow(*how, body, dynamic_memory ? dynamic_memory() : nullptr);
        own.run();
        free_shadow(own.shadow);
        error = own.error;
    }).join();
    return error;
}

/* --- 16 bits */
unsigned short cvt_f16_f64(double x)
{
    const uint64_t b = same_bits<uint64_t>(x) & 0x7fffffffffffffffull;
    const unsigned short sign = (unsigned short)(same_bits<uint64_t>(x) >> 48 & 0x8000u);
    const double size = same_bits<double>(b);
    if (size != size) return sign | 0x7e00u;
    if (size >= 65520.0) return sign | 0x7c00u;
    if (size < 0x1p-14) return sign | (unsigned short)::rint(size * 0x1p24);
    const uint64_t exponent = 1008ull << 10;
    return sign | (unsigned short)(((b + 0x1ffffffffffull + ((b >> 42) & 1u)) >> 42) - exponent);
}
unsigned short cvt_f16_f32(float x) { return cvt_f16_f64(x); }

float cvt_f32_f16(unsigned short bits)
{
    const uint32_t sign = uint32_t(bits & 0x8000u) << 16;
    if ((bits & 0x7c00u) == 0x7c00u)
        return same_bits<float>(sign | 0x7f800000u | uint32_t(bits & 0x3ffu) << 13);
    /* The exponent moves by a product, which is exact, so that denormals come out right. */
    const float size = same_bits<float>(uint32_t(bits & 0x7fffu) << 13) * 0x1p112f;
    return same_bits<float>(sign | same_bits<uint32_t>(size));
}

unsigned short cvt_bf16_f32(float x)
{
    const uint32_t b = same_bits<uint32_t>(x);
    if (x != x) return 0x7fffu;
    return (unsigned short)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}
float cvt_f32_bf16(unsigned short bits) { return same_bits<float>(uint32_t(bits) << 16); }
