/* gelu(x * w + b) + r. Backward recomputes u = x * w + b; its derivative is N(u) + u n(u). */
#include "common.h"

typedef struct {
    G x, w, b, r, tangent;
    F result, to_x, to_w, to_b, to_r;
    int64_t n, chunks;
} Call;

LOOP float value_at(Call *c, int64_t i)
{
    float u = c->x[i] * c->w[i] + c->b[i];
    return u * normal_below(u) + c->r[i];
}

static void forward_part(void *context, int64_t chunk)
{
    Call c = *(Call *)context;
    int64_t i = part(c.n, 16, chunk, c.chunks), end = part(c.n, 16, chunk + 1, c.chunks);
    if (c.n < BIG) {
        F to = c.result;
        for (; i < end; i++) to[i] = value_at(&c, i);
        return;
    }
    float block[256];
    for (; i + 256 <= end; i += 256) {
        for (int j = 0; j < 256; j++) block[j] = value_at(&c, i + j);
        for (int j = 0; j < 256; j += 8) stream(c.result + i + j, _mm256_loadu_ps(block + j));
    }
    for (; i < end; i++) c.result[i] = value_at(&c, i);
}

typedef struct {
    float x, w, b;
} Three;

LOOP Three gradients_at(Call *c, int64_t i)
{
    float x = c->x[i], w = c->w[i], u = x * w + c->b[i];
    float density = exp_of_negative(u * u * -0.5f) * 0.398942280f;
    float by_u = c->tangent[i] * (normal_below(u) + u * density);
    return (Three){by_u * w, by_u * x, by_u};
}

static void backward_part(void *context, int64_t chunk)
{
    Call c = *(Call *)context;
    int64_t i = part(c.n, 16, chunk, c.chunks), end = part(c.n, 16, chunk + 1, c.chunks);
    float a[256], b[256], d[256];
    int big = c.n >= BIG;
    for (; i + 256 <= end; i += 256) {
        for (int j = 0; j < 256; j++) {
            Three t = gradients_at(&c, i + j);
            a[j] = t.x, b[j] = t.w, d[j] = t.b;
        }
        for (int j = 0; j < 256; j += 8) {
            __m256 by_x = _mm256_loadu_ps(a + j), by_w = _mm256_loadu_ps(b + j);
            __m256 by_b = _mm256_loadu_ps(d + j), by_r = _mm256_loadu_ps(c.tangent + i + j);
            if (big) {
                stream(c.to_x + i + j, by_x);
                stream(c.to_w + i + j, by_w);
                stream(c.to_b + i + j, by_b);
                stream(c.to_r + i + j, by_r);
            } else {
                _mm256_storeu_ps(c.to_x + i + j, by_x);
                _mm256_storeu_ps(c.to_w + i + j, by_w);
                _mm256_storeu_ps(c.to_b + i + j, by_b);
                _mm256_storeu_ps(c.to_r + i + j, by_r);
            }
        }
    }
    for (; i < end; i++) {
        Three t = gradients_at(&c, i);
        c.to_x[i] = t.x, c.to_w[i] = t.w, c.to_b[i] = t.b, c.to_r[i] = c.tangent[i];
    }
}

LOOP Call call_of(void **s, const int64_t *sizes)
{
    int64_t n = sizes[0], chunks = n < 1 << 12 ? 1 : n < 1 << 18 ? 2 : 16;
    return (Call){s[0], s[1], s[2], s[3], s[5], s[4], s[6], s[7], s[8], s[9], n, chunks};
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
