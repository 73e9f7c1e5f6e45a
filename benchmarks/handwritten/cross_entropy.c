/* The mean over rows of log(sum(exp(x))) - x[label]. Forward leaves that logarithm of each row.
   Backward: (softmax(x) - 1 at the label) * g / rows. */
#include "common.h"

#define ROWS 16

typedef struct {
    G x, tangent;
    const int64_t *labels;
    F result, to_x, left;
    int64_t rows, columns;
} Call;

static void forward_part(void *context, int64_t chunk)
{
    Call *c = context;
    int64_t n = c->columns, end = (chunk + 1) * ROWS < c->rows ? (chunk + 1) * ROWS : c->rows;
    for (int64_t row = chunk * ROWS; row < end; row++) {
        G x = c->x + row * n;
        float largest = largest_of(x, n), rest = 0.0f;
        V partial[4] = {0};
        int64_t i = 0;
        for (; i + 32 <= n; i += 32)
            for (int j = 0; j < 4; j++)
                partial[j] += exp_of_negative(load(x + i + 8 * j) - largest);
        for (; i < n; i++) rest += one(exp_of_negative, x[i] - largest);
        c->left[row] = largest + log_of(folded_sum(partial) + rest);
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
        int64_t i = 0;
        for (; i + 8 <= n; i += 8) store(to + i, exp_of(load(x + i) - whole) * factor, 0);
        for (; i < n; i++) to[i] = one(exp_of, x[i] - whole) * factor;
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
    double sum = 0.0;
    for (int64_t row = 0; row < c.rows; row++)
        sum += c.left[row] - c.x[row * c.columns + c.labels[row]];
    c.result[0] = (float)(sum / (double)c.rows);
}

EXPORT void backward(void **slots, const int64_t *sizes)
{
    Call c = call_of(slots, sizes);
    parallel(backward_part, &c, (c.rows + ROWS - 1) / ROWS);
}
