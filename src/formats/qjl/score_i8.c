/* score_i8.c: the int8 form of a query of qjl1_256, and the ladder of its scores.  Source: docs/formats/qjl1_256.md. */
#include "formats/qjl/score_i8.h"

#include <math.h>
#include "base/cpu.h"

void kvant_qjl_query_i8(const float *sk, int8_t *q, float *scale)
{
    float top = 0.0f;
    for (int j = 0; j < KVANT_QJL_SKETCH; j++)
        if (fabsf(sk[j]) > top)
            top = fabsf(sk[j]);
    float d = top > 0.0f ? top / 127.0f : 1.0f, id = 1.0f / d;
    for (int j = 0; j < KVANT_QJL_SKETCH; j++) {
        float v = rintf(sk[j] * id); /* ties to even: the default rounding mode */
        q[j] = (int8_t)(v != v ? 0.0f : v > 127.0f ? 127.0f : v < -127.0f ? -127.0f : v);
    }
    *scale = d;
}

void kvant_qjl_score_i8_ref(const int8_t *q, float scale, const uint8_t *rows, size_t stride, int n, float *s)
{
    for (int i = 0; i < n; i++, rows += stride) {
        int sum = 0;
        for (int j = 0; j < KVANT_QJL_SKETCH; j++)
            sum += rows[j / 8] >> (j % 8) & 1 ? q[j] : -q[j];
        s[i] = kvant_qjl_score_i8_result(rows, scale, sum);
    }
}

static const struct rung {
    const char *isa;
    uint32_t mask;
    kvant_qjl_score_i8_fn *score;
} rungs[] = {
    { "ref", 0, kvant_qjl_score_i8_ref },
#if defined(__x86_64__)
    { "avx2", CPU_AVX2, kvant_qjl_score_i8_avx2 },
    { "avx512vnni", CPU_AVX2 | CPU_X86_VNNI, kvant_qjl_score_i8_avx512vnni },
#elif defined(__aarch64__)
    { "neon", CPU_NEON, kvant_qjl_score_i8_neon },
#endif
};

kvant_qjl_score_i8_fn *kvant_qjl_score_i8_rung(int i, const char **isa, int *usable)
{
    if (i < 0 || i >= (int)(sizeof rungs / sizeof rungs[0]))
        return NULL;
    *isa = rungs[i].isa;
    *usable = (kvant_cpu_features() & rungs[i].mask) == rungs[i].mask;
    return rungs[i].score;
}

void kvant_qjl_score_i8(const int8_t *q, float scale, const uint8_t *rows, size_t stride, int n, float *s)
{
    kvant_qjl_score_i8_fn *best = kvant_qjl_score_i8_ref, *next;
    const char *isa;
    int usable;

    for (int i = 0; (next = kvant_qjl_score_i8_rung(i, &isa, &usable)) != NULL; i++)
        best = usable ? next : best;
    best(q, scale, rows, stride, n, s);
}
