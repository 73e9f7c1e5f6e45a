/* The sum of each row of a matrix. */
#include "common.h"

#define LANES 64
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
        float partial[LANES] = {0};
        int64_t i = 0;
        for (; i + LANES <= n; i += LANES)
            for (int j = 0; j < LANES; j++) partial[j] += x[i + j];
        for (; i < n; i++) partial[0] += x[i];
        for (int half = LANES / 2; half; half /= 2)
            for (int j = 0; j < half; j++) partial[j] += partial[j + half];
        c->result[row] = partial[0];
    }
}

EXPORT void forward(void **slots, const int64_t *sizes)
{
    Call c = {slots[0], slots[1], sizes[0], sizes[1]};
    parallel(some_rows, &c, CHUNKS);
}
