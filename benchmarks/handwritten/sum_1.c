/* The sum of each row of a matrix. */
#include "common.h"

#define CHUNKS 16

typedef struct {
    G x;
    F result;
    int64_t rows, columns;
} Call;

static void some_rows(void *context, int64_t chunk)
{
    Call *c = context;
    int64_t n = c->columns, end = part(c->rows, 1, chunk + 1, CHUNKS);
    for (int64_t row = part(c->rows, 1, chunk, CHUNKS); row < end; row++) {
        G x = c->x + row * n;
        V partial[8] = {0};
        float rest = 0.0f;
        int64_t i = 0;
        for (; i + 64 <= n; i += 64)
            for (int j = 0; j < 8; j++) partial[j] += load(x + i + 8 * j);
        for (; i < n; i++) rest += x[i];
        for (int j = 0; j < 4; j++) partial[j] += partial[j + 4];
        c->result[row] = folded_sum(partial) + rest;
    }
}

EXPORT void forward(void **slots, const int64_t *sizes)
{
    Call c = {slots[0], slots[1], sizes[0], sizes[1]};
    parallel(some_rows, &c, CHUNKS);
}
