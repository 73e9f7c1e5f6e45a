/* The thread pool: one per process, shared by all compiled graphs.
   Spec: specs/cpu_runtime.md. Read with runtime.h in front and products.c behind. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O1") /* compiled in half of the time, and as fast: see products.c for loops */
#endif
#define _GNU_SOURCE /* where threads may run is not in POSIX */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

enum { MOST_THREADS = 256, MOST_CHUNKS = INT32_MAX, STACK_BYTES = 4 << 20 };

/* Nanoseconds that a thread watches for work before it sleeps; see the spec for what was measured. */
static const int64_t SHORTEST_WATCH = 1000, LONGEST_WATCH = 50000;

/* `state` is generation << 32 | chunks that nobody has claimed. A thread reads what the job is,
   then claims a chunk by compare-and-swap: when that succeeds the generation has not changed in
   between, and a job with an unclaimed chunk is not over, so what was read belongs to the chunk. */
static struct {
    _Alignas(64) _Atomic uint64_t state;
    _Atomic(al_task) task;
    _Atomic(void *) context;
    _Atomic int64_t first; /* number of the job's first chunk */
    _Atomic uint32_t count; /* chunks of the job */
    _Atomic uint64_t float_mode; /* the caller's, for all chunks alike */
    _Alignas(64) _Atomic int64_t pending; /* chunks that are not finished */
    _Alignas(64) _Atomic int busy; /* whether somebody has the pool */
    _Atomic int sleepers; /* workers that sleep, or are about to */
    _Atomic int caller_sleeps;
    _Atomic int workers; /* threads that the pool has; changed by who has the pool */
    _Atomic int threads; /* what was asked for, the caller included */
    _Atomic int refused; /* the system does not start more workers than `workers` */
    pthread_mutex_t lock;
    pthread_cond_t work, joined;
    pthread_t started[MOST_THREADS];
} pool = {.threads = 1};

static _Thread_local int inside; /* whether this thread runs a chunk */

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t nanoseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Rounding and denormal mode: chunks must not depend on which thread runs them. */
static uint64_t float_mode(void) {
#if defined(__x86_64__)
    return __builtin_ia32_stmxcsr() & ~0x3fu; /* without the exceptions that were met */
#elif defined(__aarch64__)
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
#else
    return 0;
#endif
}

static void set_float_mode(uint64_t mode) {
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr((unsigned)mode);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(mode));
#else
    (void)mode;
#endif
}

#ifdef __linux__
/* Some schedulers put a new or woken thread behind the one that wakes it, and leave it there for
   milliseconds while other processors idle. So a worker that starts, or last ran, where the caller
   runs is kept from there. */
static _Atomic int places[MOST_THREADS]; /* where each worker was seen last */

static void note_place(int number) {
    atomic_store_explicit(&places[number], sched_getcpu(), memory_order_relaxed);
}

static void part_worker(int number, int here) {
    cpu_set_t elsewhere;
    if (here < 0 || here >= CPU_SETSIZE) return;
    if (pthread_getaffinity_np(pthread_self(), sizeof elsewhere, &elsewhere)) return;
    CPU_CLR(here, &elsewhere);
    if (!CPU_COUNT(&elsewhere)) return;
    pthread_setaffinity_np(pool.started[number], sizeof elsewhere, &elsewhere);
    atomic_store_explicit(&places[number], -1, memory_order_relaxed);
}

static void part_new_worker(int number) { part_worker(number, sched_getcpu()); }

static void part_from_caller(void) {
    int here = sched_getcpu(), workers = atomic_load(&pool.workers);
    for (int i = 0; i < workers; i++)
        if (atomic_load_explicit(&places[i], memory_order_relaxed) == here) part_worker(i, here);
}
#else
static void note_place(int number) { (void)number; }
static void part_new_worker(int number) { (void)number; }
static void part_from_caller(void) {}
#endif

static uint32_t generation(void) {
    return (uint32_t)(atomic_load(&pool.state) >> 32);
}

/* Runs chunks until none is unclaimed, then reports them finished all at once. */
static void run_chunks(void) {
    int64_t finished = 0;
    uint64_t state = atomic_load(&pool.state);
    while ((uint32_t)state) {
        al_task task = atomic_load_explicit(&pool.task, memory_order_relaxed);
        void *context = atomic_load_explicit(&pool.context, memory_order_relaxed);
        int64_t first = atomic_load_explicit(&pool.first, memory_order_relaxed);
        uint32_t count = atomic_load_explicit(&pool.count, memory_order_relaxed);
        uint64_t mode = atomic_load_explicit(&pool.float_mode, memory_order_relaxed);
        if (!atomic_compare_exchange_weak(&pool.state, &state, state - 1)) continue;
        if (!finished && float_mode() != mode) set_float_mode(mode);
        task(context, first + (count - (uint32_t)state));
        finished++;
        state = atomic_load(&pool.state);
    }
    if (!finished || atomic_fetch_sub(&pool.pending, finished) != finished) return;
    if (!atomic_load(&pool.caller_sleeps)) return;
    pthread_mutex_lock(&pool.lock);
    pthread_mutex_unlock(&pool.lock);
    pthread_cond_signal(&pool.joined);
}

static void sleep_until_work(uint32_t seen) {
    pthread_mutex_lock(&pool.lock);
    atomic_fetch_add(&pool.sleepers, 1);
    while (generation() == seen) pthread_cond_wait(&pool.work, &pool.lock);
    atomic_fetch_sub(&pool.sleepers, 1);
    pthread_mutex_unlock(&pool.lock);
}

/* Watches, then sleeps, until the generation is another. How long it watches follows from whether
   watching has been of use: where jobs come rarely, almost no time is taken from other processes. */
static void await_work(uint32_t seen, int64_t *watch) {
    int64_t start = nanoseconds();
    while (generation() == seen && nanoseconds() - start < *watch)
        for (int i = 0; i < 8; i++) relax();
    if (generation() == seen) sleep_until_work(seen);
    int useful = nanoseconds() - start < LONGEST_WATCH;
    *watch = useful ? *watch * 2 : *watch / 2;
    if (*watch > LONGEST_WATCH) *watch = LONGEST_WATCH;
    if (*watch < SHORTEST_WATCH) *watch = SHORTEST_WATCH;
}

static void *work(void *number) {
    int64_t watch = LONGEST_WATCH;
    uint32_t seen = generation();
    inside = 1;
    while ((intptr_t)number < atomic_load(&pool.workers)) {
        note_place((int)(intptr_t)number);
        run_chunks();
        await_work(seen, &watch);
        seen = generation();
    }
    return NULL;
}

/* Begins a generation of so many chunks; wakes as many workers as can be of use. */
static void publish(uint32_t chunks, int useful) {
    uint64_t next = (uint64_t)(generation() + 1) << 32;
    atomic_store(&pool.state, next | chunks);
    part_from_caller();
    int sleepers = atomic_load(&pool.sleepers);
    if (!sleepers || !useful) return;
    pthread_mutex_lock(&pool.lock);
    pthread_mutex_unlock(&pool.lock); /* who counted himself sleeps now, or has seen the state */
    if (useful >= sleepers) {
        pthread_cond_broadcast(&pool.work);
        return;
    }
    while (useful--) pthread_cond_signal(&pool.work);
}

static void join_chunks(void) {
    int64_t start = nanoseconds();
    while (atomic_load(&pool.pending) && nanoseconds() - start < LONGEST_WATCH)
        for (int i = 0; i < 8; i++) relax();
    if (!atomic_load(&pool.pending)) return;
    pthread_mutex_lock(&pool.lock);
    atomic_store(&pool.caller_sleeps, 1);
    while (atomic_load(&pool.pending)) pthread_cond_wait(&pool.joined, &pool.lock);
    atomic_store(&pool.caller_sleeps, 0);
    pthread_mutex_unlock(&pool.lock);
}

static int start_worker(int number) {
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all); /* signals are for threads that know Python */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int refused = pthread_create(&pool.started[number], &attributes, work, (void *)(intptr_t)number);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (!refused) part_new_worker(number);
    return !refused;
}

/* Gives the pool as many workers as were asked for. The caller has the pool. */
static void resize_pool(int wanted) {
    int workers = atomic_load(&pool.workers);
    for (; workers < wanted; workers++) {
        atomic_store(&pool.workers, workers + 1);
        if (start_worker(workers)) continue;
        atomic_store(&pool.workers, workers); /* fewer threads do the same chunks */
        atomic_store(&pool.refused, 1);
        return;
    }
    if (workers == wanted) return;
    atomic_store(&pool.workers, wanted);
    publish(0, workers);
    for (; workers > wanted; workers--) pthread_join(pool.started[workers - 1], NULL);
}

static void run_job(al_task task, void *context, int64_t first, uint32_t chunks) {
    atomic_store_explicit(&pool.task, task, memory_order_relaxed);
    atomic_store_explicit(&pool.context, context, memory_order_relaxed);
    atomic_store_explicit(&pool.first, first, memory_order_relaxed);
    atomic_store_explicit(&pool.count, chunks, memory_order_relaxed);
    atomic_store_explicit(&pool.float_mode, float_mode(), memory_order_relaxed);
    atomic_store(&pool.pending, chunks);
    int workers = atomic_load(&pool.workers);
    publish(chunks, chunks - 1 < (uint32_t)workers ? (int)chunks - 1 : workers);
    run_chunks();
    join_chunks();
}

/* Whether the pool is now the caller's. It is not where a thread runs a chunk of its own job, nor
   where another thread has it: both run their chunks themselves. */
static int enter_pool(int64_t chunks) {
    int threads = atomic_load_explicit(&pool.threads, memory_order_relaxed);
    if (inside || chunks < 2 || threads < 2) return 0;
    if (atomic_exchange(&pool.busy, 1)) return 0;
    int workers = atomic_load(&pool.workers);
    if (workers > threads - 1 || (workers < threads - 1 && !atomic_load(&pool.refused)))
        resize_pool(threads - 1);
    return 1;
}

static void parallel(al_task task, void *context, int64_t chunks) {
    int entered = enter_pool(chunks), was_inside = inside;
    inside = 1;
    for (int64_t first = 0; entered && first < chunks; first += MOST_CHUNKS) {
        int64_t left = chunks - first;
        run_job(task, context, first, (uint32_t)(left < MOST_CHUNKS ? left : MOST_CHUNKS));
    }
    for (int64_t chunk = 0; !entered && chunk < chunks; chunk++) task(context, chunk);
    inside = was_inside;
    if (entered) atomic_store(&pool.busy, 0);
}

static int start_anew(void) {
    return !pthread_mutex_init(&pool.lock, NULL) && !pthread_cond_init(&pool.work, NULL) &&
           !pthread_cond_init(&pool.joined, NULL);
}

/* In a forked child: no thread but the caller exists, and what the others held is free. */
static void forget_threads(void) {
    int threads = atomic_load(&pool.threads);
    memset(&pool, 0, sizeof pool);
    atomic_store(&pool.threads, threads);
    start_anew();
    inside = 0;
}
