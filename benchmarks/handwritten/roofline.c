/* What the machine can do at most: triad(a, b, c) = a[i] = b[i] + 3 c[i] on two threads, by plain
   stores or past the cache; a read of everything; and multiply-adds that touch no memory. */
#include "common.h"

#define CHUNKS 16

typedef struct {
    F a;
    G b, c;
    int64_t n;
    int big;
} Call;

static void triad_part(void *context, int64_t chunk)
{
    Call *c = context;
    int64_t i = part(c->n, 32, chunk, CHUNKS), end = part(c->n, 32, chunk + 1, CHUNKS);
    if (!c->big) {
        F a = c->a;
        for (; i < end; i++) a[i] = c->b[i] + 3.0f * c->c[i];
        return;
    }
    for (; i + 8 <= end; i += 8)
        stream(c->a + i, _mm256_loadu_ps(c->b + i) + 3.0f * _mm256_loadu_ps(c->c + i));
}

/* slots: a, b, c; sizes: elements of each (a multiple of 8), whether to store past the cache. */
EXPORT void triad(void **slots, const int64_t *sizes)
{
    Call c = {slots[0], slots[1], slots[2], sizes[0], sizes[1] != 0};
    parallel(triad_part, &c, CHUNKS);
}

static void read_part(void *context, int64_t chunk)
{
    Call *c = context;
    int64_t i = part(c->n, 64, chunk, CHUNKS), end = part(c->n, 64, chunk + 1, CHUNKS);
    float partial[64] = {0};
    for (; i + 64 <= end; i += 64)
        for (int j = 0; j < 64; j++) partial[j] += c->b[i + j];
    for (int j = 1; j < 64; j++) partial[0] += partial[j];
    c->a[chunk] = partial[0];
}

/* slots: 16 results, the array; sizes: its elements. */
EXPORT void reading(void **slots, const int64_t *sizes)
{
    Call c = {slots[0], slots[1], 0, sizes[0], 0};
    parallel(read_part, &c, CHUNKS);
}

#define CHAINS 96

static void chain_part(void *context, int64_t chunk)
{
    Call *c = context;
    float sum[CHAINS];
    for (int j = 0; j < CHAINS; j++) sum[j] = c->b[j];
    float factor = c->b[CHAINS], more = c->b[CHAINS + 1];
    for (int64_t i = 0; i < c->n; i++)
        for (int j = 0; j < CHAINS; j++) sum[j] = sum[j] * factor + more;
    for (int j = 1; j < CHAINS; j++) sum[0] += sum[j];
    c->a[chunk] = sum[0];
}

/* slots: 16 results, 98 numbers; sizes: turns, of 96 multiply-adds in each of 16 chunks. */
EXPORT void multiply_adds(void **slots, const int64_t *sizes)
{
    Call c = {slots[0], slots[1], 0, sizes[0], 0};
    parallel(chain_part, &c, CHUNKS);
}
