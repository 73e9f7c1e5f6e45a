/* What each access of a kernel is checked for, where its text is compiled with
 * -fsanitize=thread,bounds: the calls that the compiler then puts before loads and stores end here
 * and not in a sanitizer's library. Spec: specs/cuda_host.md, CUDA-4 to CUDA-7.
 *
 * Each element of global memory and each byte of shared memory has a cell, which says who wrote it,
 * who read it, and who did so by an atomic, since when. Two accesses by different threads, one of
 * them a write, are a race unless a barrier of their block, or a __syncwarp of their warp, lies
 * between them; threads of different blocks have neither. */
#include "host_engine.h"

#include <cstdio>
#include <cstdlib>
#include <link.h>

namespace cuda_host {

enum Kind { reads, writes, atomic };
constexpr uint64_t many = ~uint64_t(0);

/* The accesses of one kind to a cell that no barrier has ordered. */
struct Mark {
    uint64_t block = 0; /* 1 + its number, or `many` */
    uint32_t epoch = 0;
    uint32_t tick = 0;
    uint32_t lanes = 0;
    uint16_t thread = 0; /* the last one */
    bool warps = false; /* of several warps */
};
struct Cell {
    Mark marks[3];
};

struct Span {
    char *start = nullptr, *end = nullptr;
    bool holds(const char *at, uint64_t bytes) const
    {
        return at >= start && at <= end && bytes <= uint64_t(end - at);
    }
};
struct Area : Span {
    Cell *cells = nullptr;
    uint32_t unit = 1, number = 0;
    bool in_place = false;
    void set(char *from, uint64_t bytes, uint32_t size)
    {
        start = from, end = from + bytes, unit = size;
        cells = static_cast<Cell *>(std::calloc(bytes / size + 1, sizeof(Cell)));
    }
};

struct Shadow {
    std::vector<Area> buffers;
    Area fixed, dynamic; /* shared memory: what a text declares, and what a launch asks for */
    Span image; /* the library: tables that a text holds */
    char *body;
};

/* Finds the library of the kernels, and its memory of this thread. */
static int find_library(struct dl_phdr_info *info, size_t, void *data)
{
    Shadow &shadow = *static_cast<Shadow *>(data);
    char *base = reinterpret_cast<char *>(info->dlpi_addr);
    Span image;
    uint64_t local = 0;
    for (int k = 0; k < info->dlpi_phnum; ++k) {
        const ElfW(Phdr) &part = info->dlpi_phdr[k];
        if (part.p_type == PT_TLS) local = part.p_memsz;
        if (part.p_type != PT_LOAD) continue;
        char *start = base + part.p_vaddr, *end = start + part.p_memsz;
        if (!image.start || start < image.start) image.start = start;
        if (end > image.end) image.end = end;
    }
    if (!image.holds(shadow.body, 1)) return 0;
    shadow.image = image;
    if (info->dlpi_tls_data) shadow.fixed.set(static_cast<char *>(info->dlpi_tls_data), local, 1);
    return 1;
}

Shadow *make_shadow(const Launch &how, void (*body)(void **), char *dynamic)
{
    if (!how.regions) return nullptr;
    Shadow *shadow = new Shadow;
    shadow->buffers.resize(how.regions);
    for (uint32_t k = 0; k < how.regions; ++k) {
        const Region &each = how.memory[k];
        shadow->buffers[k].set(each.address, each.bytes, each.unit);
        shadow->buffers[k].number = each.number;
        shadow->buffers[k].in_place = each.in_place;
    }
    shadow->body = reinterpret_cast<char *>(body);
    if (dynamic) shadow->dynamic.set(dynamic, how.shared, 1);
    dl_iterate_phdr(find_library, shadow);
    return shadow;
}

void free_shadow(Shadow *shadow)
{
    if (!shadow) return;
    for (Area &each : shadow->buffers) std::free(each.cells);
    std::free(shadow->fixed.cells);
    std::free(shadow->dynamic.cells);
    delete shadow;
}

/* --- errors */
static const char *const names[] = {"reads", "writes", "changes"};

static void where(char *text, size_t room, const Area *area, const char *at, bool shared)
{
    if (!area)
        std::snprintf(text, room, "address %p", static_cast<const void *>(at));
    else if (shared)
        std::snprintf(text, room, "byte %lld of shared memory", (long long)(at - area->start));
    else
        std::snprintf(text, room, "byte %lld of buffer %u, which has %lld",
                      (long long)(at - area->start), area->number,
                      (long long)(area->end - area->start));
}

[[noreturn]] static void report(
    const char *what, Kind kind, uint64_t bytes, const Area *area, const char *at, bool shared)
{
    char place[96];
    where(place, sizeof place, area, at, shared);
    std::snprintf(engine->how.message, sizeof engine->how.message,
                  "%s: thread %u of block %llu %s %llu bytes at %s", what, current->number,
                  (unsigned long long)engine->block_number, names[kind],
                  (unsigned long long)bytes, place);
    engine->fail(engine->how.message);
}

/* --- races */
static bool is_ordered(const Mark &mark)
{
    const uint64_t block = engine->block_number + 1;
    if (!mark.block) return true;
    if (mark.block != block) return false;
    if (mark.epoch != engine->epoch) return true;
    const unsigned own = current->number % warp_size;
    const bool one_warp = !mark.warps && mark.thread / warp_size == current->number / warp_size;
    if (!one_warp) return false;
    for (unsigned k = 0; k < warp_size; ++k)
        if (k != own && mark.lanes >> k & 1 && current->known[k] <= mark.tick) return false;
    return true;
}

static void add(Mark &mark)
{
    const uint64_t block = engine->block_number + 1;
    const uint32_t lane = 1u << current->number % warp_size;
    if (mark.block == many || (mark.block && mark.block != block)) {
        mark.block = many;
        return;
    }
    if (!mark.block || mark.epoch != engine->epoch) {
        mark = {block, engine->epoch, engine->tick, lane, uint16_t(current->number), false};
        return;
    }
    mark.warps |= mark.thread / warp_size != current->number / warp_size;
    mark.thread = uint16_t(current->number);
    mark.lanes |= lane;
    mark.tick = engine->tick;
}

/* The kinds that an access of a kind must be ordered with. */
static bool conflicts(Kind one, Kind other)
{
    if (one == reads && other == reads) return false;
    return !(one == atomic && other == atomic);
}

static void check_area(
    Area &area, Kind kind, const char *at, uint64_t bytes, bool shared)
{
    const uint64_t first = uint64_t(at - area.start) / area.unit;
    const uint64_t last = (uint64_t(at - area.start) + bytes - 1) / area.unit;
    const uint64_t block = engine->block_number + 1;
    for (uint64_t k = first; k <= last; ++k) {
        Cell &cell = area.cells[k];
        /* Another block has other shared memory. */
        for (Mark &mark : cell.marks)
            if (shared && mark.block != block) mark = Mark();
        if (shared && kind != writes && !cell.marks[writes].block && !cell.marks[atomic].block)
            report("unwritten", kind, bytes, &area, at, true);
        for (Kind other : {reads, writes, atomic}) {
            const Mark &mark = cell.marks[other];
            if (!conflicts(kind, other) || is_ordered(mark)) continue;
            const bool blocks = mark.block != block;
            if (!blocks && area.in_place && (kind == reads || other == reads)) continue;
            report(blocks ? "race between blocks" : "race in a block", kind, bytes, &area, at,
                   shared);
        }
        add(cell.marks[kind]);
    }
}

/* --- one access */
static bool is_on_own_stack(const char *at, uint64_t bytes)
{
    char *start = engine->stacks.get() + current->number * stack_bytes;
    return Span{start, start + stack_bytes}.holds(at, bytes);
}

/* The buffer that an address lies in or beside, for a message. */
static const Area *nearest(const std::vector<Area> &areas, const char *at)
{
    for (const Area &each : areas)
        if (at >= each.start - 4096 && at <= each.end + 4096) return &each;
    return nullptr;
}

static void access(const void *address, uint64_t bytes, Kind kind, bool aligned)
{
    if (!engine || !engine->shadow || !bytes) return;
    const char *at = static_cast<const char *>(address);
    Shadow &shadow = *engine->shadow;
    const bool misplaced = aligned && reinterpret_cast<uintptr_t>(at) % bytes;
    for (Area &each : shadow.buffers) {
        if (!each.holds(at, bytes)) continue;
        if (misplaced) report("misaligned", kind, bytes, &each, at, false);
        return check_area(each, kind, at, bytes, false);
    }
    for (Area *each : {&shadow.dynamic, &shadow.fixed}) {
        if (!each->holds(at, bytes)) continue;
        if (misplaced) report("misaligned", kind, bytes, each, at, true);
        /* What a launch did not ask for lies in the same library's memory. */
        const char *room = shadow.dynamic.start;
        if (room && each == &shadow.fixed && at + bytes > room && at < room + most_shared) break;
        return check_area(*each, kind, at, bytes, true);
    }
    if (is_on_own_stack(at, bytes)) return;
    if (kind == reads && shadow.image.holds(at, bytes)) return;
    report("out of bounds", kind, bytes, nearest(shadow.buffers, at), at, false);
}

void touch_atomically(const void *address, unsigned bytes)
{
    access(address, bytes, atomic, true);
}

} // namespace cuda_host

/* --- what the compiler calls */
using namespace cuda_host;

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
#define CUDA_HOST_SIZES(bytes) \
    void __tsan_read##bytes(void *at) { access(at, bytes, reads, true); } \
    void __tsan_write##bytes(void *at) { access(at, bytes, writes, true); } \
    void __tsan_unaligned_read##bytes(void *at) { access(at, bytes, reads, false); } \
    void __tsan_unaligned_write##bytes(void *at) { access(at, bytes, writes, false); } \
    void __tsan_volatile_read##bytes(void *at) { access(at, bytes, reads, true); } \
    void __tsan_volatile_write##bytes(void *at) { access(at, bytes, writes, true); }
CUDA_HOST_SIZES(1)
CUDA_HOST_SIZES(2)
CUDA_HOST_SIZES(4)
CUDA_HOST_SIZES(8)
CUDA_HOST_SIZES(16)
void __tsan_read_range(void *at, size_t bytes) { access(at, bytes, reads, false); }
void __tsan_write_range(void *at, size_t bytes) { access(at, bytes, writes, false); }

/* An index beyond an array of known size, in shared or local memory. */
void __ubsan_handle_out_of_bounds(void *data, void *index)
{
    if (!engine) return;
    struct Place {
        const char *file;
        uint32_t line, column;
    };
    const Place &place = *static_cast<Place *>(data);
    std::snprintf(engine->how.message, sizeof engine->how.message,
                  "out of bounds: thread %u of block %llu has index %lld of an array, line %u",
                  current->number, (unsigned long long)engine->block_number,
                  (long long)reinterpret_cast<intptr_t>(index), place.line);
    engine->fail(engine->how.message);
}
void __ubsan_handle_out_of_bounds_abort(void *data, void *index)
{
    __ubsan_handle_out_of_bounds(data, index);
}
}
