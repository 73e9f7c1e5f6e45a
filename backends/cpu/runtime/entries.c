/* What the runtime library exports. Spec: specs/cpu_runtime.md. Read behind products.c and
   arenas.c, before launch.c. */

static void sgemm(int32_t transpose_a, int32_t transpose_b, int64_t m, int64_t n, int64_t k,
                  float alpha, const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
                  float *c, int64_t ldc) {
    al_product p = {transpose_a, transpose_b, m, n, k, lda, ldb, ldc, {1, 1, 1, 1}, {0}, {0}, {0}};
    multiply_all(&p, sizeof *a, alpha, a, b, beta, c);
}

static void dgemm(int32_t transpose_a, int32_t transpose_b, int64_t m, int64_t n, int64_t k,
                  double alpha, const double *a, int64_t lda, const double *b, int64_t ldb,
                  double beta, double *c, int64_t ldc) {
    al_product p = {transpose_a, transpose_b, m, n, k, lda, ldb, ldc, {1, 1, 1, 1}, {0}, {0}, {0}};
    multiply_all(&p, sizeof *a, alpha, a, b, beta, c);
}

static void sgemm_batched(const al_product *product, float alpha, const float *a, const float *b,
                          float beta, float *c) {
    multiply_all(product, sizeof *a, alpha, a, b, beta, c);
}

static void dgemm_batched(const al_product *product, double alpha, const double *a, const double *b,
                          double beta, double *c) {
    multiply_all(product, sizeof *a, alpha, a, b, beta, c);
}

static void forget(void) {
    forget_threads();
    forget_products();
    forget_arenas();
}

#ifdef __linux__
/* By which pthread_atfork knows a library; compilers' start files bring another one. */
__attribute__((weak, visibility("hidden"))) void *__dso_handle = &__dso_handle;
#endif

/* One for each number of threads, so that a run that has begun keeps its number. */
static al_runtime runtimes[MOST_THREADS + 1];

/* Once, before all else. Returns 0, or an error number. */
int al_setup(const al_blas *library) {
    blas.library = *library;
    for (int32_t threads = 1; threads <= MOST_THREADS; threads++)
        runtimes[threads] =
            (al_runtime){parallel, threads, sgemm, dgemm, sgemm_batched, dgemm_batched};
    return start_anew() ? pthread_atfork(NULL, NULL, forget) : -1;
}

/* Takes effect when the next job begins. `threads` is from 1 to MOST_THREADS. */
void al_set_threads(int32_t threads) {
    atomic_store(&pool.refused, 0);
    atomic_store(&pool.threads, threads);
}

const al_runtime *al_runtime_now(void) {
    return &runtimes[atomic_load(&pool.threads)];
}

/* How many threads the pool has started and not ended. */
int al_workers(void) {
    return atomic_load(&pool.workers);
}
