"""Runtimes for tests, and compiled functions that use one."""

import ctypes
import os
from functools import cache

from aotlite.backends.cpu.runtime.runtime_library import declarations, runtime_text, set_up
from aotlite.backends.native.cache.disk_cache import DiskCache, read
from aotlite.backends.native.compiler.toolchain import compile_c
from aotlite.backends.native.libraries.library_loading import load, load_c

TASKS = """
typedef struct counts { al_int32 *hits; const al_runtime *runtime; al_int64 nested; } counts;
static void hit(void *context, al_int64 chunk)
{
    __atomic_fetch_add(((counts *)context)->hits + chunk, 1, __ATOMIC_RELAXED);
}
static void hit_nested(void *context, al_int64 chunk)
{
    counts inner = *(counts *)context;
    inner.hits += chunk * inner.nested;
    inner.runtime->parallel(hit, &inner, inner.nested);
}
/* Adds one to each of `chunks` counters; or, from inside of chunks, to each of chunks * nested. */
void count(const al_runtime *runtime, al_int32 *hits, al_int64 chunks, al_int64 nested)
{
    counts c = {hits, runtime, nested};
    runtime->parallel(nested ? hit_nested : hit, &c, chunks);
}

typedef struct meeting { al_int32 present; al_int64 others, patience; float tiny, *sums; } meeting;
/* Waits for chunks on other threads, but not for ever; then says who was there. */
static void meet(void *context, al_int64 chunk)
{
    meeting *m = context;
    __atomic_fetch_add(&m->present, 1, __ATOMIC_SEQ_CST);
    for (al_int64 i = 0; i < m->patience; i++)
        if (__atomic_load_n(&m->present, __ATOMIC_SEQ_CST) > m->others) break;
    volatile float tiny = m->tiny;
    m->sums[chunk] = tiny / 2;
}
/* How many of `chunks` chunks met; each also halves a number, so that its result tells of the
   denormal mode of the thread that it ran on. */
al_int32 gather(const al_runtime *runtime, al_int64 chunks, float tiny, float *halves)
{
    meeting m = {0, chunks - 1, 2000000000, tiny, halves};
    runtime->parallel(meet, &m, chunks);
    return m.present;
}
al_int32 threads_of(const al_runtime *runtime) { return runtime->threads; }
unsigned flush_denormals(int on)
{
#ifdef __x86_64__
    unsigned mode = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(on ? mode | 0x8040 : mode & ~0x8040u);
    return 1;
#else
    return on & 0;
#endif
}
"""


@cache
def tasks():
    """Functions that give a runtime's pool work."""
    library = load_c(declarations() + TASKS, "tasks")
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    library.count.argtypes = [pointer, pointer, size, size]
    library.count.restype = None
    library.gather.argtypes = [pointer, size, ctypes.c_float, pointer]
    library.threads_of.argtypes = [pointer]
    return library


def own_runtime(folder, threads=2, text=None, name="runtime"):
    """A runtime with a pool of its own: a library is loaded once a file."""
    data = read(compile_c(text or runtime_text(), name))
    runtime = set_up(load(DiskCache(str(folder)).keep(os.urandom(8).hex(), name, ".so", data)))
    runtime.library.al_set_threads(threads)
    return runtime
