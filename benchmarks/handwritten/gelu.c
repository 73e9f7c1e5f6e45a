/* gelu(x * w + b) + r. Backward recomputes u = x * w + b; its derivative is N(u) + u n(u). What
   gradients start from is the gradient of r. */
#include "common.h"

typedef struct {
    G x, w, b, r, tangent;
    F result, to_x, to_w, to_b;
    int64_t n, chunks;
} Call;

LOOP V value_of(V x, V w, V b, V r)
{
    V u = x * w + b;
    return u * normal_below(u) + r;
}

LOOP V derivative_of(V u)
{
    V density = exp_of_negative(u * u * -0.5f) * 0.398942280f;
    return normal_below(u) + u * density;
}

LOOP void forward_loop(const Call *c, int64_t i, int64_t end, int past_cache)
{
    for (; i + 8 <= end; i += 8)
        store(c->result + i, value_of(load(c->x + i), load(c->w + i), load(c->b + i), load(c->r + i)),
              past_cache);
    for (; i < end; i++)
        c->result[i] = value_of(all(c->x[i]), all(c->w[i]), all(c->b[i]), all(c->r[i]))[0];
}

static void forward_part(void *context, int64_t chunk)
{
    Call c = *(Call *)context;
    int64_t start = part(c.n, 16, chunk, c.chunks), end = part(c.n, 16, chunk + 1, c.chunks);
    if (c.n >= BIG) forward_loop(&c, start, end, 1);
    else forward_loop(&c, start, end, 0);
}

LOOP void backward_loop(const Call *c, int64_t i, int64_t end, int past_cache)
{
    for (; i + 8 <= end; i += 8) {
        V x = load(c->x + i), w = load(c->w + i);
        V by_u = load(c->tangent + i) * derivative_of(x * w + load(c->b + i));
        store(c->to_x + i, by_u * w, past_cache);
        store(c->to_w + i, by_u * x, past_cache);
        store(c->to_b + i, by_u, past_cache);
    }
    for (; i < end; i++) {
        float x = c->x[i], w = c->w[i];
        float by_u = c->tangent[i] * derivative_of(all(x * w + c->b[i]))[0];
        c->to_x[i] = by_u * w;
        c->to_w[i] = by_u * x;
        c->to_b[i] = by_u;
    }
}

static void backward_part(void *context, int64_t chunk)
{
    Call c = *(Call *)context;
    int64_t start = part(c.n, 16, chunk, c.chunks), end = part(c.n, 16, chunk + 1, c.chunks);
    if (c.n >= BIG) backward_loop(&c, start, end, 1);
    else backward_loop(&c, start, end, 0);
}

LOOP Call call_of(void **s, const int64_t *sizes)
{
    int64_t n = sizes[0], chunks = n < 1 << 12 ? 1 : n < 1 << 18 ? 2 : 16;
    return (Call){s[0], s[1], s[2], s[3], s[5], s[4], s[6], s[7], s[8], n, chunks};
}

EXPORT void forward(void **slots, const int64_t *sizes)
{
    Call c = call_of(slots, sizes);
    parallel(forward_part, &c, c.chunks);
}

EXPORT void backward(void **slots, const int64_t *sizes)
{
    Call c = call_of(slots, sizes);
    parallel(backward_part, &c, c.chunks);
}
