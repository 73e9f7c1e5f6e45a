/* Matrix products: NumPy's own BLAS, called by pointer from the pool's threads, one thread a call.
   Spec: specs/cpu_runtime.md. Read with runtime.c in front. */

enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112, EDGE = 16 };

/* Multiplications below which a product is not divided: dividing costs more. */
static const double SMALL_PRODUCT = 1 << 18;

/* Multiplications of a thread from which on it gets two parts, so that another one, which has been
   held up, leaves it something to do. Every part packs its operands: of smaller ones one is faster. */
static const double LARGE_SHARE = 1 << 27;

typedef void (*sgemm32)(int, int, int, int32_t, int32_t, int32_t, float, const float *, int32_t,
                        const float *, int32_t, float, float *, int32_t);
typedef void (*sgemm64)(int, int, int, int64_t, int64_t, int64_t, float, const float *, int64_t,
                        const float *, int64_t, float, float *, int64_t);
typedef void (*dgemm32)(int, int, int, int32_t, int32_t, int32_t, double, const double *, int32_t,
                        const double *, int32_t, double, double *, int32_t);
typedef void (*dgemm64)(int, int, int, int64_t, int64_t, int64_t, double, const double *, int64_t,
                        const double *, int64_t, double, double *, int64_t);

typedef struct al_blas {
    void *sgemm, *dgemm; /* cblas functions; NULL: the loops below */
    int (*get_threads)(void);
    void (*set_threads)(int); /* NULL: it cannot be told; products are then left to it whole */
    int32_t wide; /* whether its integers have 64 bits */
} al_blas;

static struct {
    al_blas library;
    pthread_mutex_t lock;
    int users;   /* calls that want the BLAS to have one thread */
    int threads; /* what it had before the first of them */
} blas = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The number of threads is the whole process's: it is taken only while products run, and given
   back unless somebody else has changed it meanwhile. */
static void enter_blas(void) {
    if (!blas.library.set_threads) return;
    pthread_mutex_lock(&blas.lock);
    if (!blas.users++) {
        blas.threads = blas.library.get_threads();
        if (blas.threads > 1) blas.library.set_threads(1);
    }
    pthread_mutex_unlock(&blas.lock);
}

static void restore_blas(void) {
    if (blas.threads > 1 && blas.library.get_threads() == 1)
        blas.library.set_threads(blas.threads);
}

static void leave_blas(void) {
    if (!blas.library.set_threads) return;
    pthread_mutex_lock(&blas.lock);
    if (!--blas.users) restore_blas();
    pthread_mutex_unlock(&blas.lock);
}

/* In a forked child: nobody else is in a product. */
static void forget_products(void) {
    pthread_mutex_init(&blas.lock, NULL);
    if (blas.users) restore_blas();
    blas.users = 0;
}

typedef struct operands {
    const al_product *shape;
    double alpha, beta; /* float's values are double's */
    const char *a, *b;
    char *c;
    int64_t size; /* bytes of an element */
} operands;

#if defined(__GNUC__) && !defined(__clang__)
#define VECTORIZED __attribute__((optimize("O3")))
#else
#define VECTORIZED
#endif

/* Where there is no BLAS: the same products, by loops that compilers vectorize. */
#define DEFINE_LOOPS(NAME, REAL)                                                                   \
    VECTORIZED static void NAME(const al_product *p, REAL alpha, const REAL *a, const REAL *b,     \
                                REAL beta, REAL *restrict c) {                                     \
        int64_t row_a = p->transpose_a ? 1 : p->lda, step_a = p->transpose_a ? p->lda : 1;         \
        int64_t row_b = p->transpose_b ? 1 : p->ldb, step_b = p->transpose_b ? p->ldb : 1;         \
        for (int64_t i = 0; i < p->m; i++, c += p->ldc, a += row_a) {                              \
            for (int64_t j = 0; j < p->n; j++) c[j] = beta == 0 ? 0 : beta * c[j];                 \
            for (int64_t q = 0; q < p->k; q++) {                                                   \
                REAL factor = alpha * a[q * step_a];                                               \
                const REAL *row = b + q * row_b;                                                   \
                for (int64_t j = 0; j < p->n; j++) c[j] += factor * row[j * step_b];               \
            }                                                                                      \
        }                                                                                          \
    }
DEFINE_LOOPS(float_loops, float)
DEFINE_LOOPS(double_loops, double)

static void by_loops(const operands *o) {
    if (o->size == sizeof(float))
        float_loops(o->shape, (float)o->alpha, (const float *)o->a, (const float *)o->b,
                    (float)o->beta, (float *)o->c);
    else
        double_loops(o->shape, o->alpha, (const double *)o->a, (const double *)o->b, o->beta,
                     (double *)o->c);
}

/* The leading dimension that a BLAS takes for a stored matrix, or 0 where it takes none: rows that
   overlap, or numbers too large for its integers. Of a single row any will do. */
static int64_t leading(int64_t rows, int64_t columns, int64_t given) {
    int64_t dimension = rows == 1 ? columns : given;
    int64_t most = blas.library.wide ? INT64_MAX : INT32_MAX;
    return dimension < columns || rows > most || dimension > most ? 0 : dimension;
}

#define CALL(FUNCTION, REAL)                                                                       \
    ((FUNCTION)gemm)(ROW_MAJOR, p->transpose_a ? TRANSPOSED : PLAIN,                               \
                     p->transpose_b ? TRANSPOSED : PLAIN, p->m, p->n, p->k, (REAL)o->alpha,        \
                     (const REAL *)o->a, lda, (const REAL *)o->b, ldb, (REAL)o->beta,              \
                     (REAL *)o->c, ldc)

/* One product, whatever the batch axes say, on the thread that calls. */
static void multiply(const operands *o) {
    const al_product *p = o->shape;
    int is_float = o->size == sizeof(float);
    void *gemm = is_float ? blas.library.sgemm : blas.library.dgemm;
    if (!p->m || !p->n) return;
    int64_t lda = p->transpose_a ? leading(p->k, p->m, p->lda) : leading(p->m, p->k, p->lda);
    int64_t ldb = p->transpose_b ? leading(p->n, p->k, p->ldb) : leading(p->k, p->n, p->ldb);
    int64_t ldc = leading(p->m, p->n, p->ldc);
    if (!gemm || !lda || !ldb || !ldc) by_loops(o);
    else if (blas.library.wide && is_float) CALL(sgemm64, float);
    else if (blas.library.wide) CALL(dgemm64, double);
    else if (is_float) CALL(sgemm32, float);
    else CALL(dgemm32, double);
}

typedef struct division {
    const operands *all;
    int64_t rows, columns; /* into how many parts each product's C is cut */
    int64_t batches, groups; /* and into how many runs of products the batch is */
} division;

/* The first row or column of part `part` of `parts`: a multiple of EDGE. */
static int64_t cut(int64_t extent, int64_t part, int64_t parts) {
    if (part == parts) return extent;
    return (int64_t)((double)extent * part / parts) / EDGE * EDGE;
}

static void move_to_batch(operands *o, int64_t batch) {
    const al_product *p = o->shape;
    for (int axis = AL_BATCH_AXES - 1; axis >= 0; axis--) {
        int64_t index = batch % p->extents[axis] * o->size;
        batch /= p->extents[axis];
        o->a += index * p->strides_a[axis];
        o->b += index * p->strides_b[axis];
        o->c += index * p->strides_c[axis];
    }
}

static void multiply_part(const division *d, int64_t batch, int64_t row, int64_t column) {
    al_product part = *d->all->shape;
    operands o = *d->all;
    int64_t top = cut(part.m, row, d->rows), left = cut(part.n, column, d->columns);
    move_to_batch(&o, batch);
    o.a += top * (part.transpose_a ? 1 : part.lda) * o.size;
    o.b += left * (part.transpose_b ? part.ldb : 1) * o.size;
    o.c += (top * part.ldc + left) * o.size;
    part.m = cut(part.m, row + 1, d->rows) - top;
    part.n = cut(part.n, column + 1, d->columns) - left;
    o.shape = &part;
    multiply(&o);
}

static void multiply_chunk(void *context, int64_t chunk) {
    const division *d = context;
    int64_t parts = d->rows * d->columns, group = chunk / parts, part = chunk % parts;
    int64_t last = d->batches * (group + 1) / d->groups;
    for (int64_t batch = d->batches * group / d->groups; batch < last; batch++)
        multiply_part(d, batch, part / d->columns, part % d->columns);
}

/* Cuts the batch, or each C into parts that are as square as can be: every part packs all of A's
   rows and B's columns that it needs. Depends on shapes and on the number of threads only. */
static void divide(division *d, int64_t threads) {
    const al_product *p = d->all->shape;
    double products = (double)d->batches * p->m * p->n * p->k, best = 0;
    int is_small = products < threads * LARGE_SHARE && d->batches < 2 * threads;
    int64_t chunks = is_small ? threads : 2 * threads;
    int64_t parts = (chunks + d->batches - 1) / d->batches;
    int own_threads = blas.library.sgemm && !blas.library.set_threads;
    if (threads < 2 || products < SMALL_PRODUCT || own_threads) return;
    d->groups = d->batches < chunks ? d->batches : chunks;
    for (int64_t rows = 1; rows <= parts; rows++) {
        double edges = (double)p->m / rows + (double)p->n * rows / parts;
        if (parts % rows || (rows > 1 && edges >= best)) continue;
        d->rows = rows, d->columns = parts / rows, best = edges;
    }
}

static void multiply_all(const al_product *shape, int64_t size, double alpha, const void *a,
                         const void *b, double beta, void *c) {
    operands o = {shape, alpha, beta, a, b, c, size};
    division d = {.all = &o, .rows = 1, .columns = 1, .batches = 1, .groups = 1};
    for (int axis = 0; axis < AL_BATCH_AXES; axis++) d.batches *= shape->extents[axis];
    if (!d.batches || !shape->m || !shape->n) return;
    divide(&d, inside ? 1 : atomic_load_explicit(&pool.threads, memory_order_relaxed));
    enter_blas();
    parallel(multiply_chunk, &d, d.rows * d.columns * d.groups);
    leave_blas();
}
