/* What `host.cpp` and `host_checks.cpp` share: the threads of the block that runs, as fibers. */
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#include "host.h"

namespace cuda_host {

constexpr unsigned warp_size = 32;
constexpr unsigned most_threads = 1024;
constexpr unsigned all_lanes = 0xffffffffu;
constexpr size_t stack_bytes = 64 * 1024;

enum class Order : int32_t { forward, reversed, shuffled };
enum class Wait { ready, barrier, warp, done };

#if defined(__x86_64__)
using Context = void *;
#else
using Context = ucontext_t;
#endif

/* Memory that a kernel may touch. */
struct Region {
    char *address;
    uint64_t bytes;
    uint32_t unit; /* bytes of an element, which no access divides */
    uint32_t number; /* of the buffer, for messages */
    uint32_t in_place; /* whether a thread may load what another one of its block stores */
    uint32_t unused;
};

/* What a launch is told; as `hosting.py` has it. */
struct Launch {
    uint32_t grid[3], block[3];
    uint32_t shared; /* bytes of dynamic shared memory */
    Order order;
    uint32_t seed;
    uint32_t regions; /* how many there are; 0: nothing is known of memory */
    const Region *memory;
    char message[256];
};

/* One CUDA thread of the block that runs. */
struct Fiber {
    Context context;
    Position thread;
    unsigned number = 0; /* in its block */
    Wait wait = Wait::ready;
    unsigned site = 0; /* which call in the text it waits in */
    unsigned mask = 0;
    bool vote = false;
    uint64_t value = 0;
    bool syncs = false; /* what it waits in orders memory */
    uint32_t known[warp_size] = {}; /* until when it knows what each lane of its warp did */
};

struct Shadow;

/* The blocks of one launch. */
struct Engine {
    Launch &how;
    Position grid, size, block{};
    uint64_t block_number = 0;
    uint32_t epoch = 1; /* how many barriers the launch has passed */
    uint32_t tick = 1; /* how many times lanes of a warp have been told of each other */
    int votes = 0;
    const char *error = nullptr;
    std::vector<Fiber> fibers;
    std::vector<unsigned> order;
    std::vector<uint64_t> gathered; /* by each warp's lanes, in the last collective of each */
    std::unique_ptr<char[]> stacks;
    Context scheduler;
    void (*body)(void **);
    void **slots;
    unsigned random;
    Shadow *shadow = nullptr;

    Engine(Launch &how, void (*body)(void **), void **slots);
    void run();
    void leave(Wait wait, unsigned site);
    [[noreturn]] void fail(const char *text);

private:
    void run_block();
    void run_ready();
    void shuffle();
    bool all(Wait wait) const;
    const char *serve_barrier();
    const char *serve_warp(unsigned first, bool &moved);
    void tell(unsigned first, unsigned mask);
    bool is_complete(unsigned first, const Fiber &one) const;
    static void enter();
};

constexpr size_t most_shared = 227 * 1024; /* of dynamic memory */

extern thread_local Engine *engine;
extern thread_local Fiber *current;

/* Memory as `host_checks.cpp` sees it. */
Shadow *make_shadow(const Launch &how, void (*body)(void **), char *dynamic);
void free_shadow(Shadow *shadow);

} // namespace cuda_host
