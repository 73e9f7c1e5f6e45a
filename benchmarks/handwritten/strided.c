/* x[:, ::2] * y.T + z in tiles of 16 x 16, so that what is read across is used at once.

   Backward: the gradient of x is g * y.T in the even columns and 0 in the odd ones; of y, the
   transposed g * x[:, ::2]; of z, the sum of g over rows, in one partial sum a chunk. Sizes are
   those of x: rows, and twice the columns of the result; both multiples of 16. */
#include "common.h"
#include <stdlib.h>
#include <string.h>

#define TILE 16
#define CHUNKS 16

typedef struct {
    G x, y, z, tangent;
    F result, to_x, to_y, to_z;
    float *partials;
    int64_t rows, columns;
} Call;

/* to[j][i] = from[i][j], of 8 x 8. */
LOOP void transposed(const float *from, int64_t from_row, float *to, int64_t to_row)
{
    __m256 r[8], s[8];
    for (int i = 0; i < 8; i++) r[i] = _mm256_loadu_ps(from + i * from_row);
    for (int i = 0; i < 8; i += 2) {
        s[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        s[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(s[i], s[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(s[i], s[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(to + i * to_row, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(to + (i + 4) * to_row, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}

LOOP void tile_transposed(const float *from, int64_t from_row, float *to, int64_t to_row)
{
    for (int i = 0; i < TILE; i += 8)
        for (int j = 0; j < TILE; j += 8)
            transposed(from + i * from_row + j, from_row, to + j * to_row + i, to_row);
}

static void forward_part(void *context, int64_t chunk)
{
    Call *c = context;
    int64_t n = c->columns, end = part(c->rows, TILE, chunk + 1, CHUNKS);
    float y[TILE * TILE], line[TILE];
    for (int64_t row = part(c->rows, TILE, chunk, CHUNKS); row < end; row += TILE)
        for (int64_t column = 0; column < n; column += TILE) {
            tile_transposed(c->y + column * c->rows + row, c->rows, y, TILE);
            for (int i = 0; i < TILE; i++) {
                G x = c->x + (row + i) * 2 * n + 2 * column;
                F to = c->result + (row + i) * n + column;
                for (int j = 0; j < TILE; j++)
                    line[j] = x[2 * j] * y[i * TILE + j] + c->z[column + j];
                stream(to, _mm256_loadu_ps(line));
                stream(to + 8, _mm256_loadu_ps(line + 8));
            }
        }
}

static void backward_part(void *context, int64_t chunk)
{
    Call *c = context;
    int64_t n = c->columns, end = part(c->rows, TILE, chunk + 1, CHUNKS);
    float y[TILE * TILE], by_y[TILE * TILE], across[TILE * TILE], line[2 * TILE];
    F by_z = c->partials + chunk * n;
    memset(by_z, 0, sizeof(float) * (size_t)n);
    for (int64_t row = part(c->rows, TILE, chunk, CHUNKS); row < end; row += TILE)
        for (int64_t column = 0; column < n; column += TILE) {
            tile_transposed(c->y + column * c->rows + row, c->rows, y, TILE);
            for (int i = 0; i < TILE; i++) {
                G x = c->x + (row + i) * 2 * n + 2 * column;
                G g = c->tangent + (row + i) * n + column;
                F to = c->to_x + (row + i) * 2 * n + 2 * column;
                for (int j = 0; j < TILE; j++) {
                    line[2 * j] = g[j] * y[i * TILE + j];
                    line[2 * j + 1] = 0.0f;
                    by_y[i * TILE + j] = g[j] * x[2 * j];
                    by_z[column + j] += g[j];
                }
                for (int j = 0; j < 2 * TILE; j += 8) stream(to + j, _mm256_loadu_ps(line + j));
            }
            tile_transposed(by_y, TILE, across, TILE);
            for (int j = 0; j < TILE; j++) {
                F to = c->to_y + (column + j) * c->rows + row;
                stream(to, _mm256_loadu_ps(across + j * TILE));
                stream(to + 8, _mm256_loadu_ps(across + j * TILE + 8));
            }
        }
}

LOOP Call call_of(void **s, const int64_t *sizes)
{
    return (Call){s[0], s[1], s[2], s[4], s[3], s[5], s[6], s[7], 0, sizes[0], sizes[1] / 2};
}

EXPORT void forward(void **slots, const int64_t *sizes)
{
    Call c = call_of(slots, sizes);
    parallel(forward_part, &c, CHUNKS);
}

EXPORT void backward(void **slots, const int64_t *sizes)
{
    Call c = call_of(slots, sizes);
    c.partials = malloc(sizeof(float) * CHUNKS * (size_t)c.columns);
    parallel(backward_part, &c, CHUNKS);
    memset(c.to_z, 0, sizeof(float) * (size_t)c.columns);
    for (int64_t chunk = 0; chunk < CHUNKS; chunk++)
        for (int64_t i = 0; i < c.columns; i++) c.to_z[i] += c.partials[chunk * c.columns + i];
    free(c.partials);
}
