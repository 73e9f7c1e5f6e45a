/* The four neighbors' sum minus four times x, on a torus. Backward is the same stencil of the
   tangent. */
#include "common.h"

#define CHUNKS 16

typedef struct {
    G x;
    F to;
    int64_t rows, columns;
} Call;

LOOP float at(G above, G here, G below, int64_t left, int64_t i, int64_t right)
{
    return above[i] + below[i] + here[left] + here[right] - 4.0f * here[i];
}

static void some_rows(void *context, int64_t chunk)
{
    Call *c = context;
    int64_t n = c->columns, end = part(c->rows, 1, chunk + 1, CHUNKS);
    int big = c->rows * n >= BIG && n % 8 == 0;
    float buffer[512 + 8];
    for (int64_t row = part(c->rows, 1, chunk, CHUNKS); row < end; row++) {
        G above = c->x + (row ? row - 1 : c->rows - 1) * n, here = c->x + row * n;
        G below = c->x + (row + 1 < c->rows ? row + 1 : 0) * n;
        F to = c->to + row * n;
        if (!big) {
            for (int64_t i = 1; i < n - 1; i++) to[i] = at(above, here, below, i - 1, i, i + 1);
            to[0] = at(above, here, below, n - 1, 0, n > 1);
            to[n - 1] = at(above, here, below, n > 1 ? n - 2 : 0, n - 1, 0);
            continue;
        }
        for (int64_t start = 0; start < n; start += 512) {
            int64_t size = n - start < 512 ? n - start : 512;
            for (int64_t i = start ? 0 : 1; i < (start + size < n ? size : size - 1); i++)
                buffer[i] = at(above, here, below, start + i - 1, start + i, start + i + 1);
            if (!start) buffer[0] = at(above, here, below, n - 1, 0, 1);
            if (start + size == n) buffer[size - 1] = at(above, here, below, n - 2, n - 1, 0);
            for (int64_t i = 0; i < size; i += 8) stream(to + start + i, _mm256_loadu_ps(buffer + i));
        }
    }
}

EXPORT void forward(void **slots, const int64_t *sizes)
{
    Call c = {slots[0], slots[1], sizes[0], sizes[1]};
    parallel(some_rows, &c, CHUNKS);
}

EXPORT void backward(void **slots, const int64_t *sizes)
{
    Call c = {slots[2], slots[3], sizes[0], sizes[1]};
    parallel(some_rows, &c, CHUNKS);
}
