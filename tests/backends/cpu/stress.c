/* Callers, sizes, nesting, naps and numbers of threads drawn at random: read behind the runtime. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST = 64, CALLERS = 8 };

typedef struct job {
    int *plain;
    _Atomic int *counts;
    int nested;
} job;

static int rounds;

static void mark(void *context, int64_t chunk) {
    job *j = context;
    j->plain[chunk]++;
    atomic_fetch_add(&j->counts[chunk], 1);
    if (!j->nested) return;
    int plain[4] = {0};
    _Atomic int counts[4] = {0};
    job inner = {plain, counts, 0};
    parallel(mark, &inner, 4);
    for (int i = 0; i < 4; i++)
        if (plain[i] != 1 || counts[i] != 1) abort();
}

static void *call(void *seed_of) {
    unsigned seed = (unsigned)(intptr_t)seed_of;
    for (int round = 0; round < rounds; round++) {
        int chunks = rand_r(&seed) % MOST, plain[MOST] = {0};
        _Atomic int counts[MOST] = {0};
        job j = {plain, counts, rand_r(&seed) % 4 == 0};
        parallel(mark, &j, chunks);
        for (int i = 0; i < MOST; i++)
            if (plain[i] != (i < chunks) || counts[i] != (i < chunks)) abort();
        arena scratch = take_arena(1 + rand_r(&seed) % 100000);
        memset(scratch.address, round, 100);
        give_arena(scratch);
        if (rand_r(&seed) % 256 == 0) usleep(rand_r(&seed) % 300);
        if (rand_r(&seed) % 512 == 0) al_set_threads(1 + rand_r(&seed) % 5);
    }
    return NULL;
}

int main(int count, char **arguments) {
    al_blas none = {0};
    pthread_t callers[CALLERS];
    rounds = count > 1 ? atoi(arguments[1]) : 1000;
    al_setup(&none);
    al_set_threads(3);
    al_limit_arenas(1 << 20);
    call((void *)(intptr_t)99); /* alone, so that the pool is mostly had */
    for (int i = 0; i < CALLERS; i++) pthread_create(&callers[i], NULL, call, (void *)(intptr_t)i);
    for (int i = 0; i < CALLERS; i++) pthread_join(callers[i], NULL);
    puts("right");
    return 0;
}
