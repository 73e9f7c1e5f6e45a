/* softmax of rows. Backward: y * (g - sum(g * y)), of the result that forward left. */
#include "common.h"

#define ROWS 16
#define LANES 32

typedef struct {
    G x, tangent;
    F result, to_x;
    int64_t rows, columns;
} Call;

LOOP float folded_sum(float *partial)
{
    for (int half = LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++) partial[j] += partial[j + half];
    return partial[0];
}

LOOP float largest_of(G x, int64_t n)
{
    float partial[LANES], largest = -__builtin_inff();
    for (int j = 0; j < LANES; j++) partial[j] = -__builtin_inff();
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) partial[j] = partial[j] > x[i + j] ? partial[j] : x[i + j];
    for (; i < n; i++) largest = largest > x[i] ? largest : x[i];
    for (int j = 0; j < LANES; j++) largest = largest > partial[j] ? largest : partial[j];
    return largest;
}

static void forward_part(void *context, int64_t chunk)
{
    Call *c = context;
    int64_t n = c->columns, end = (chunk + 1) * ROWS < c->rows ? (chunk + 1) * ROWS : c->rows;
    for (int64_t row = chunk * ROWS; row < end; row++) {
        G x = c->x + row * n;
        F to = c->result + row * n;
        float largest = largest_of(x, n), partial[LANES] = {0};
        int64_t i = 0;
        for (; i + LANES <= n; i += LANES)
            for (int j = 0; j < LANES; j++) {
                float e = exp_of(x[i + j] - largest);
                to[i + j] = e;
                partial[j] += e;
            }
        for (; i < n; i++) {
            to[i] = exp_of(x[i] - largest);
            partial[0] += to[i];
        }
        float factor = 1.0f / folded_sum(partial);
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
        float partial[LANES] = {0};
        int64_t i = 0;
        for (; i + LANES <= n; i += LANES)
            for (int j = 0; j < LANES; j++) partial[j] += y[i + j] * g[i + j];
        for (; i < n; i++) partial[0] += y[i] * g[i];
        float dot = folded_sum(partial);
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
