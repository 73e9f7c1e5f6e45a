/* The mean over rows of log(sum(exp(x))) - x[label]. Forward leaves that logarithm of each row.
   Backward: (softmax(x) - 1 at the label) * g / rows. */
#include "common.h"

#define ROWS 16
#define LANES 32

typedef struct {
    G x, tangent;
    const int64_t *labels;
    F result, to_x, left;
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
        float largest = largest_of(x, n), partial[LANES] = {0};
        int64_t i = 0;
        for (; i + LANES <= n; i += LANES)
            for (int j = 0; j < LANES; j++) partial[j] += exp_of(x[i + j] - largest);
        for (; i < n; i++) partial[0] += exp_of(x[i] - largest);
        c->left[row] = largest + log_of(folded_sum(partial));
    }
}

static void backward_part(void *context, int64_t chunk)
{
    Call *c = context;
    int64_t n = c->columns, end = (chunk + 1) * ROWS < c->rows ? (chunk + 1) * ROWS : c->rows;
    float factor = c->tangent[0] / (float)c->rows;
    for (int64_t row = chunk * ROWS; row < end; row++) {
        G x = c->x + row * n;
        F to = c->to_x + row * n;
        float whole = c->left[row];
        for (int64_t i = 0; i < n; i++) to[i] = exp_of(x[i] - whole) * factor;
        to[c->labels[row]] -= factor;
    }
}

LOOP Call call_of(void **s, const int64_t *sizes)
{
    return (Call){s[0], s[3], s[1], s[2], s[4], s[5], sizes[0], sizes[1]};
}

EXPORT void forward(void **slots, const int64_t *sizes)
{
    Call c = call_of(slots, sizes);
    parallel(forward_part, &c, (c.rows + ROWS - 1) / ROWS);
    float partial[LANES] = {0};
    for (int64_t row = 0; row < c.rows; row++)
        partial[row % LANES] += c.left[row] - c.x[row * c.columns + c.labels[row]];
    c.result[0] = folded_sum(partial) / (float)c.rows;
}

EXPORT void backward(void **slots, const int64_t *sizes)
{
    Call c = call_of(slots, sizes);
    parallel(backward_part, &c, (c.rows + ROWS - 1) / ROWS);
}
