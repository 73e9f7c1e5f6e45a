/* softmax of rows. Backward: y * (g - sum(g * y)), of the result that forward left. */
#include "common.h"

#define ROWS 16

typedef struct {
    G x, tangent;
    F result, to_x;
    int64_t rows, columns;
} Call;

static void forward_part(void *context, int64_t chunk)
{
    Call *c = context;
    int64_t n = c->columns, end = (chunk + 1) * ROWS < c->rows ? (chunk + 1) * ROWS : c->rows;
    for (int64_t row = chunk * ROWS; row < end; row++) {
        G x = c->x + row * n;
        F to = c->result + row * n;
        float largest = largest_of(x, n), rest = 0.0f;
        V partial[4] = {0};
        int64_t i = 0;
        for (; i + 32 <= n; i += 32)
            for (int j = 0; j < 4; j++) {
                V e = exp_of(load(x + i + 8 * j) - largest);
                store(to + i + 8 * j, e, 0);
                partial[j] += e;
            }
        for (; i < n; i++) rest += to[i] = one(exp_of, x[i] - largest);
        float factor = 1.0f / (folded_sum(partial) + rest);
        for (i = 0; i < n; i++) to[i] *= factor;
    }
}

static void backward_part(void *context, int64_t chunk)
{
    Call *c = context;
    int64_t n = c->columns, end = (chunk + 1) * ROWS < c->rows ? (chunk + 1) * ROWS : c->rows;
    for (int64_t row = chunk * ROWS; row < end; row++) {
        G y = c->result + row * n, g = c->tangent + row * n;
        F to = c->to_x + row * n;
        V partial[4] = {0};
        float rest = 0.0f;
        int64_t i = 0;
        for (; i + 32 <= n; i += 32)
            for (int j = 0; j < 4; j++) partial[j] += load(y + i + 8 * j) * load(g + i + 8 * j);
        for (; i < n; i++) rest += y[i] * g[i];
        float dot = folded_sum(partial) + rest;
        for (i = 0; i < n; i++) to[i] = y[i] * (g[i] - dot);
    }
}

LOOP Call call_of(void **s, const int64_t *sizes)
{
    return (Call){s[0], s[2], s[1], s[3], sizes[0], sizes[1]};
}

EXPORT void forward(void **slots, const int64_t *sizes)
{
    Call c = call_of(slots, sizes);
    parallel(forward_part, &c, (c.rows + ROWS - 1) / ROWS);
}

EXPORT void backward(void **slots, const int64_t *sizes)
{
    Call c = call_of(slots, sizes);
    parallel(backward_part, &c, (c.rows + ROWS - 1) / ROWS);
}
