/* What the hand-written kernels share: two threads, exp and the normal distribution as polynomials,
   stores past the cache.

   Every file exports forward(slots, sizes) and, where it has gradients, backward(slots, sizes).
   Slots: the inputs, the result, what a gradient starts from, a gradient for each input that has
   one, and room that forward leaves for backward. Sizes: of the first input. */
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#define LOOP static inline __attribute__((always_inline))
typedef float *restrict F;
typedef const float *restrict G;

/* ------------------------------------------------------------------------------------ threads */
/* The caller and one worker. Chunks are claimed from a counter, so that a thread which the system
   has put aside holds up one chunk only. The worker looks for work for some 20 us, then sleeps. */
typedef void (*Task)(void *context, int64_t chunk);

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    _Atomic int64_t next, done, round;
    _Atomic int asleep;
    int64_t chunks;
    Task task;
    void *context;
    int started;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

#define LOOKS 4000
/* What is claimed next carries its round above this bit: a claim made late claims nothing. */
#define ROUND_BIT 32

static void work(int64_t round)
{
    for (;;) {
        int64_t claimed = atomic_load(&pool.next);
        if (claimed >> ROUND_BIT != round) return;
        int64_t chunk = claimed & ((1ll << ROUND_BIT) - 1);
        if (chunk >= pool.chunks) return;
        Task task = pool.task;
        void *context = pool.context;
        if (!atomic_compare_exchange_weak(&pool.next, &claimed, claimed + 1)) continue;
        task(context, chunk);
        _mm_sfence();  /* what was stored past the cache is there before it counts as done */
        atomic_fetch_add(&pool.done, 1);
    }
}

static void *worker(void *unused)
{
    int64_t seen = 0;
    for (;;) {
        for (int looks = 0; looks < LOOKS && atomic_load(&pool.round) == seen; looks++) _mm_pause();
        if (atomic_load(&pool.round) == seen) {
            pthread_mutex_lock(&pool.lock);
            atomic_store(&pool.asleep, 1);
            while (atomic_load(&pool.round) == seen) pthread_cond_wait(&pool.wake, &pool.lock);
            atomic_store(&pool.asleep, 0);
            pthread_mutex_unlock(&pool.lock);
        }
        seen = atomic_load(&pool.round);
        work(seen);
    }
    return unused;
}

/* Calls task(context, 0 .. chunks - 1) on both threads; returns when all are done. */
static void parallel(Task task, void *context, int64_t chunks)
{
    if (chunks == 1) {
        task(context, 0);
        return;
    }
    if (!pool.started) {
        pthread_t thread;
        pool.started = 1;
        pthread_create(&thread, 0, worker, 0);
        pthread_detach(thread);
    }
    int64_t round = atomic_load(&pool.round) + 1;
    /* Closed first: a claim that is under way in the last round fails. */
    atomic_store(&pool.next, (round << ROUND_BIT) | ((1ll << ROUND_BIT) - 1));
    pool.task = task;
    pool.context = context;
    pool.chunks = chunks;
    atomic_store(&pool.done, 0);
    atomic_store(&pool.next, round << ROUND_BIT);
    atomic_store(&pool.round, round);
    if (atomic_load(&pool.asleep)) {
        pthread_mutex_lock(&pool.lock);
        pthread_cond_signal(&pool.wake);
        pthread_mutex_unlock(&pool.lock);
    }
    work(round);
    for (int looks = 0; atomic_load(&pool.done) != chunks; looks++)
        if (looks < LOOKS) _mm_pause();
        else sched_yield();
}

/* Where chunk c of `chunks` equal parts of n begins, in whole blocks. */
LOOP int64_t part(int64_t n, int64_t block, int64_t c, int64_t chunks)
{
    int64_t blocks = (n + block - 1) / block;
    int64_t start = blocks * c / chunks * block;
    return start < n ? start : n;
}

/* ---------------------------------------------------------------------------------- functions */
/* On eight numbers at once. Of a NaN, min and max give their second operand: clamps let NaN through. */
typedef __m256 V;

LOOP V all(float value)
{
    return _mm256_set1_ps(value);
}

LOOP V clamped(V x, float least, float most)
{
    return _mm256_max_ps(all(least), _mm256_min_ps(all(most), x));
}

/* 2^k. */
LOOP V power_of_two(__m256i k)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(k, _mm256_set1_epi32(127)), 23));
}

/* e^r / 2^-k for x = k log(2) + r, |r| <= log(2) / 2; k by adding and taking away 1.5 * 2^23. */
LOOP V exp_parts(V x, __m256i *k)
{
    V shifted = x * 1.44269504089f + 12582912.0f;
    *k = _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_set1_epi32(0x4b400000));
    V whole = shifted - 12582912.0f;
    V r = x - whole * 0.693359375f;
    r = r + whole * 2.12194440e-4f;
    V p = all(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return p * (r * r) + (r + 1.0f);
}

/* exp, by two factors, so that results below the normal numbers are right. */
LOOP V exp_of(V x)
{
    __m256i k;
    V p = exp_parts(clamped(x, -104.0f, 89.0f), &k);
    __m256i half = _mm256_srai_epi32(k, 1);
    return p * power_of_two(half) * power_of_two(_mm256_sub_epi32(k, half));
}

/* The same where x <= 0 and what is below 2^-126 may become 2^-126: one factor. */
LOOP V exp_of_negative(V x)
{
    __m256i k;
    V p = exp_parts(_mm256_max_ps(all(-87.0f), x), &k);
    return p * power_of_two(k);
}

LOOP float one(V (*of)(V), float x)
{
    return of(all(x))[0];
}

LOOP float as_float(int32_t bits)
{
    union { int32_t i; float f; } u = {.i = bits};
    return u.f;
}

LOOP int32_t as_int(float value)
{
    union { float f; int32_t i; } u = {.f = value};
    return u.i;
}

/* log of a positive normal number: x = 2^k m with m in [sqrt(1/2), sqrt(2)). */
LOOP float log_of(float x)
{
    int32_t bits = as_int(x) - 0x3f3504f3;
    float k = (float)(bits >> 23);
    float m = as_float((bits & 0x7fffff) + 0x3f3504f3) - 1.0f;
    float p = 7.0376836292e-2f;
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    float square = m * m;
    return m + (p * square * m - 0.5f * square + k * -2.12194440e-4f) + k * 0.693359375f;
}

/* The normal distribution, (1 + erf(u / sqrt(2))) / 2: 1/2 + u P(u^2), where P is fitted in
   t = 2 u^2 / 27 - 1 on |u| <= sqrt(27) by least squares at Chebyshev points. Error at most 1.2e-7. */
LOOP V normal_below(V x)
{
    V u = clamped(x, -5.19615242f, 5.19615242f);
    V t = u * u * 0.0740740741f - 1.0f;
    V p = all(1.996892825e-04f);
    p = p * t - 5.555411917e-04f;
    p = p * t + 5.961229326e-04f;
    p = p * t - 9.737299406e-04f;
    p = p * t + 2.645092318e-03f;
    p = p * t - 5.038781092e-03f;
    p = p * t + 7.978961803e-03f;
    p = p * t - 1.232049428e-02f;
    p = p * t + 1.810203679e-02f;
    p = p * t - 2.474108525e-02f;
    p = p * t + 3.195611015e-02f;
    p = p * t - 3.993731365e-02f;
    p = p * t + 5.005530268e-02f;
    p = p * t - 6.779164076e-02f;
    p = p * t + 1.360502988e-01f;
    return 0.5f + u * p;
}

/* -------------------------------------------------------------------------------------- memory */
/* A store past the cache spares reading what is overwritten: for results larger than the cache. */
#define BIG (1 << 22)  /* elements: results from here on are stored past the cache */

LOOP void stream(F to, V value)
{
    _mm256_stream_ps(to, value);
}

LOOP V load(G from)
{
    return _mm256_loadu_ps(from);
}

LOOP void store(F to, V value, int past_cache)
{
    if (past_cache) _mm256_stream_ps(to, value);
    else _mm256_storeu_ps(to, value);
}

/* The sum of the lanes of four. */
LOOP float folded_sum(const V *partial)
{
    V sum = (partial[0] + partial[2]) + (partial[1] + partial[3]);
    for (int half = 4; half; half /= 2)
        for (int j = 0; j < half; j++) sum[j] += sum[j + half];
    return sum[0];
}

/* The largest of n numbers; lanes start from the first, so that n may be anything above 0. */
LOOP float largest_of(G x, int64_t n)
{
    V most[4] = {all(x[0]), all(x[0]), all(x[0]), all(x[0])};
    int64_t i = 0;
    for (; i + 32 <= n; i += 32)
        for (int j = 0; j < 4; j++) most[j] = _mm256_max_ps(load(x + i + 8 * j), most[j]);
    V both = _mm256_max_ps(_mm256_max_ps(most[0], most[1]), _mm256_max_ps(most[2], most[3]));
    float largest = both[0];
    for (int j = 1; j < 8; j++) largest = largest > both[j] ? largest : both[j];
    for (; i < n; i++) largest = largest > x[i] ? largest : x[i];
    return largest;
}
