/* Layer norm of rows with scale and shift. Forward leaves mean and 1 / deviation of each row.

   Backward: with h = (x - mean) * inverse and a = g * scale, the gradient of x is
   inverse * (a - mean(a) - h * mean(a * h)); those of scale and shift are sums over rows of g * h
   and g, in one partial sum a chunk. */
#include "common.h"
#include <stdlib.h>
#include <string.h>

#define LANES 32
#define CHUNKS 16

typedef struct {
    G x, scale, shift, tangent;
    F result, to_x, to_scale, to_shift, left;
    float *partials;
    int64_t rows, columns;
} Call;

LOOP float lanes_sum(float *partial)
{
    for (int half = LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++) partial[j] += partial[j + half];
    return partial[0];
}

static void forward_part(void *context, int64_t chunk)
{
    Call *c = context;
    int64_t n = c->columns, end = part(c->rows, 1, chunk + 1, CHUNKS);
    G scale = c->scale, shift = c->shift;
    for (int64_t row = part(c->rows, 1, chunk, CHUNKS); row < end; row++) {
        G x = c->x + row * n;
        F to = c->result + row * n;
        float sum[LANES] = {0}, square[LANES] = {0};
        int64_t i = 0;
        for (; i + LANES <= n; i += LANES)
            for (int j = 0; j < LANES; j++) sum[j] += x[i + j];
        for (; i < n; i++) sum[0] += x[i];
        float mean = lanes_sum(sum) / (float)n;
        for (i = 0; i + LANES <= n; i += LANES)
            for (int j = 0; j < LANES; j++) square[j] += (x[i + j] - mean) * (x[i + j] - mean);
        for (; i < n; i++) square[0] += (x[i] - mean) * (x[i] - mean);
        float inverse = 1.0f / __builtin_sqrtf(lanes_sum(square) / (float)n + 1e-5f);
        for (i = 0; i < n; i++) to[i] = (x[i] - mean) * inverse * scale[i] + shift[i];
        c->left[2 * row] = mean;
        c->left[2 * row + 1] = inverse;
    }
}

static void backward_part(void *context, int64_t chunk)
{
    Call *c = context;
    int64_t n = c->columns, end = part(c->rows, 1, chunk + 1, CHUNKS);
    F by_scale = c->partials + 2 * chunk * n, by_shift = by_scale + n;
    memset(by_scale, 0, sizeof(float) * 2 * (size_t)n);
    G scale = c->scale;
    for (int64_t row = part(c->rows, 1, chunk, CHUNKS); row < end; row++) {
        G x = c->x + row * n, g = c->tangent + row * n;
        F to = c->to_x + row * n;
        float mean = c->left[2 * row], inverse = c->left[2 * row + 1];
        V sum[4] = {0}, dot[4] = {0};
        float rest_sum = 0.0f, rest_dot = 0.0f;
        int64_t i = 0;
        for (; i + 32 <= n; i += 32)
            for (int j = 0; j < 4; j++) {
                V a = load(g + i + 8 * j) * load(scale + i + 8 * j);
                sum[j] += a;
                dot[j] += a * (load(x + i + 8 * j) - mean);
            }
        for (; i < n; i++) {
            rest_sum += g[i] * scale[i];
            rest_dot += g[i] * scale[i] * (x[i] - mean);
        }
        float of_a = (folded_sum(sum) + rest_sum) / (float)n;
        float of_ah = (folded_sum(dot) + rest_dot) * inverse / (float)n;
        for (i = 0; i + 8 <= n; i += 8) {
            V by = load(g + i), h = (load(x + i) - mean) * inverse;
            store(to + i, (by * load(scale + i) - of_a - h * of_ah) * inverse, 0);
            store(by_scale + i, load(by_scale + i) + by * h, 0);
            store(by_shift + i, load(by_shift + i) + by, 0);
        }
        for (; i < n; i++) {
            float h = (x[i] - mean) * inverse;
            to[i] = inverse * (g[i] * scale[i] - of_a - h * of_ah);
            by_scale[i] += g[i] * h;
            by_shift[i] += g[i];
        }
    }
}

LOOP Call call_of(void **s, const int64_t *sizes)
{
    return (Call){s[0], s[1], s[2], s[4], s[3], s[5], s[6], s[7], s[8], 0, sizes[0], sizes[1]};
}

EXPORT void forward(void **slots, const int64_t *sizes)
{
    Call c = call_of(slots, sizes);
    parallel(forward_part, &c, CHUNKS);
}

EXPORT void backward(void **slots, const int64_t *sizes)
{
    Call c = call_of(slots, sizes);
    c.partials = malloc(sizeof(float) * 2 * CHUNKS * (size_t)c.columns);
    parallel(backward_part, &c, CHUNKS);
    memset(c.to_scale, 0, sizeof(float) * (size_t)c.columns);
    memset(c.to_shift, 0, sizeof(float) * (size_t)c.columns);
    for (int64_t chunk = 0; chunk < CHUNKS; chunk++) {
        G scale = c.partials + 2 * chunk * c.columns, shift = scale + c.columns;
        for (int64_t i = 0; i < c.columns; i++) {
            c.to_scale[i] += scale[i];
            c.to_shift[i] += shift[i];
        }
    }
    free(c.partials);
}
