/* Scratch memory of runs, kept warm: fresh pages cost more than most kernels.
   Spec: specs/cpu_runtime.md. Read behind runtime.c. */
#include <sys/mman.h>

enum { MOST_IDLE = 32, HUGE_PAGE = 2 << 20 };

typedef struct arena {
    void *address;
    int64_t bytes;
} arena;

/* Arenas that no run uses, the one used last at the end; shared by all graphs. */
static struct {
    pthread_mutex_t lock;
    arena idle[MOST_IDLE];
    int count;
    int64_t bytes, limit; /* of all that are idle */
} arenas = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *map_pages(int64_t bytes) {
    void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) return NULL;
#ifdef MADV_HUGEPAGE
    if (bytes >= HUGE_PAGE) madvise(address, bytes, MADV_HUGEPAGE);
#endif
    return address;
}

static arena remove_idle(int index) {
    arena found = arenas.idle[index];
    arenas.count--;
    arenas.bytes -= found.bytes;
    memmove(arenas.idle + index, arenas.idle + index + 1,
            (arenas.count - index) * sizeof(arena));
    return found;
}

/* The smallest idle arena that is large enough, and not much too large; of equals the last used. */
static int find_idle(int64_t bytes) {
    int best = -1;
    for (int i = arenas.count - 1; i >= 0; i--) {
        int64_t size = arenas.idle[i].bytes;
        if (size < bytes || size / 4 > bytes + HUGE_PAGE) continue;
        if (best < 0 || size < arenas.idle[best].bytes) best = i;
    }
    return best;
}

/* Unmaps what has been idle longest until so many bytes and places are free. Takes the lock. */
static void trim_arenas(int64_t bytes, int places) {
    while (arenas.count && (arenas.bytes + bytes > arenas.limit || arenas.count + places > MOST_IDLE)) {
        arena oldest = remove_idle(0);
        munmap(oldest.address, oldest.bytes);
    }
}

/* An arena of at least so many bytes, at the start of a page; its address is NULL where there is no
   memory, or none is wanted. */
static arena take_arena(int64_t bytes) {
    arena taken = {NULL, 0};
    if (!bytes) return taken;
    pthread_mutex_lock(&arenas.lock);
    int index = find_idle(bytes);
    if (index >= 0) taken = remove_idle(index);
    pthread_mutex_unlock(&arenas.lock);
    if (taken.address) return taken;
    int64_t unit = bytes < HUGE_PAGE ? 4096 : HUGE_PAGE, rounded = (bytes + unit - 1) / unit * unit;
    taken.address = map_pages(rounded);
    if (!taken.address) { /* what is idle here may be what is missing */
        pthread_mutex_lock(&arenas.lock);
        trim_arenas(arenas.limit, 0);
        pthread_mutex_unlock(&arenas.lock);
        taken.address = map_pages(rounded);
    }
    taken.bytes = rounded;
    return taken;
}

static void give_arena(arena given) {
    if (!given.address) return;
    pthread_mutex_lock(&arenas.lock);
    int kept = given.bytes <= arenas.limit;
    if (kept) {
        trim_arenas(given.bytes, 1);
        arenas.idle[arenas.count++] = given;
        arenas.bytes += given.bytes;
    }
    pthread_mutex_unlock(&arenas.lock);
    if (!kept) munmap(given.address, given.bytes);
}

/* Keeps at most so many idle bytes from now on. */
void al_limit_arenas(int64_t bytes) {
    pthread_mutex_lock(&arenas.lock);
    arenas.limit = bytes;
    trim_arenas(0, 0);
    pthread_mutex_unlock(&arenas.lock);
}

int64_t al_idle_bytes(void) {
    pthread_mutex_lock(&arenas.lock);
    int64_t bytes = arenas.bytes;
    pthread_mutex_unlock(&arenas.lock);
    return bytes;
}

/* In a forked child: another thread may have been changing the list; what it held is let be. */
static void forget_arenas(void) {
    pthread_mutex_init(&arenas.lock, NULL);
    arenas.count = 0;
    arenas.bytes = 0;
}
