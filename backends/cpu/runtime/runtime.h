/* What compiled graphs get from the runtime library: declarations, alike in both.
   Needs no other header. Spec: specs/cpu_runtime.md */
#ifndef AL_RUNTIME_H
#define AL_RUNTIME_H

typedef __INT32_TYPE__ al_int32;
typedef __INT64_TYPE__ al_int64;

typedef void (*al_task)(void *context, al_int64 chunk);

enum { AL_BATCH_AXES = 4 };

/* C[m, n] = alpha * A[m, k] B[k, n] + beta * C for every index of the batch axes. Row-major, leading
   dimensions and strides in elements; the transposes say that A is stored as [k, m], B as [n, k].
   Unused batch axes have extent 1. Parts of C that belong to two products must not overlap. */
typedef struct al_product {
    al_int32 transpose_a, transpose_b;
    al_int64 m, n, k, lda, ldb, ldc;
    al_int64 extents[AL_BATCH_AXES];
    al_int64 strides_a[AL_BATCH_AXES], strides_b[AL_BATCH_AXES], strides_c[AL_BATCH_AXES];
} al_product;

typedef struct al_runtime {
    /* Calls task(context, chunk) once for each of 0..chunks-1; returns when all are done. */
    void (*parallel)(al_task task, void *context, al_int64 chunks);
    /* By how many threads work is to be divided. The same during a whole run. */
    al_int32 threads;
    void (*sgemm)(al_int32 transpose_a, al_int32 transpose_b, al_int64 m, al_int64 n, al_int64 k,
                  float alpha, const float *a, al_int64 lda, const float *b, al_int64 ldb,
                  float beta, float *c, al_int64 ldc);
    void (*dgemm)(al_int32 transpose_a, al_int32 transpose_b, al_int64 m, al_int64 n, al_int64 k,
                  double alpha, const double *a, al_int64 lda, const double *b, al_int64 ldb,
                  double beta, double *c, al_int64 ldc);
    void (*sgemm_batched)(const al_product *product, float alpha, const float *a, const float *b,
                          float beta, float *c);
    void (*dgemm_batched)(const al_product *product, double alpha, const double *a,
                          const double *b, double beta, double *c);
} al_runtime;

#endif
