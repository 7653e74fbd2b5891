/* cpu.c: CPU features.  Owns the process-wide feature mask; nothing else.
 *
 * A feature counts only when the CPU has it AND the operating system saves its registers (XCR0): a kernel booted
 * without AVX-512 state would otherwise kill us at the first zmm instruction. */
#include "base/cpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

static const struct feature_name {
    uint32_t bit;
    const char *name;
} feature_names[] = {
    { CPU_AVX2, "avx2" },
    { CPU_AVX512, "avx512" },
    { CPU_AVX512_VNNI, "avx512vnni" },
    { CPU_AVX512_BF16, "avx512bf16" },
    { CPU_AVX512_VBMI, "avx512vbmi" },
    { CPU_AVX512_VPOPCNT, "avx512vpopcnt" },
    { CPU_AVX_VNNI, "avxvnni" },
    { CPU_NEON, "neon" },
    { CPU_DOTPROD, "dotprod" },
    { CPU_I8MM, "i8mm" },
    { CPU_GFNI, "gfni" },
};
enum { FEATURE_COUNT = sizeof feature_names / sizeof feature_names[0] };

/* Rungs of the ladder that KVANT_CPU and --cpu name: everything up to and including that rung. */
static const struct feature_cap {
    const char *name;
    uint32_t mask;
} feature_caps[] = {
    { "ref", 0 },
    { "avx2", CPU_AVX2 },
    { "avx512", CPU_AVX2 | CPU_AVX512 },
    { "avx512vnni", CPU_AVX2 | CPU_X86_VNNI },
    { "neon", CPU_NEON },
    { "dotprod", CPU_NEON | CPU_DOTPROD },
    { "i8mm", CPU_ARM_I8MM },
    { "all", UINT32_MAX },
};
enum { CAP_COUNT = sizeof feature_caps / sizeof feature_caps[0] };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint32_t detected, env_mask = UINT32_MAX;
static _Atomic uint32_t test_mask = UINT32_MAX;

#if defined(__x86_64__)
__attribute__((target("xsave"))) static uint64_t xcr0(void)
{
    return _xgetbv(0);
}

static int has(unsigned reg, int bit)
{
    return (int)(reg >> bit & 1u);
}

static uint32_t detect_avx512(unsigned b, unsigned c)
{
    uint32_t f = 0;

    if (has(b, 16) && has(b, 30) && has(b, 17) && has(b, 31))    /* F BW DQ VL */
        f |= CPU_AVX512;
    if (!f)
        return 0;
    if (has(c, 11))
        f |= CPU_AVX512_VNNI;
    if (has(c, 1))
        f |= CPU_AVX512_VBMI;
    if (has(c, 14) && has(c, 12))                                /* VPOPCNTDQ, BITALG */
        f |= CPU_AVX512_VPOPCNT;
    if (has(c, 8))
        f |= CPU_GFNI;
    return f;
}

static uint32_t detect(void)
{
    unsigned a, b, d, b7, c7, a71 = 0, c1;
    uint32_t f = 0;
    uint64_t state;

    if (!__get_cpuid(1, &a, &b, &c1, &d) || !has(c1, 27))        /* OSXSAVE */
        return 0;
    state = xcr0();
    if ((state & 6) != 6 || !__get_cpuid_count(7, 0, &a, &b7, &c7, &d))
        return 0;
    if (a >= 1) {
        unsigned bx, cx, dx;
        __get_cpuid_count(7, 1, &a71, &bx, &cx, &dx);
    }
    if (has(c1, 12) && has(c1, 28) && has(c1, 29) && has(b7, 5)) /* FMA AVX F16C AVX2 */
        f |= CPU_AVX2;
    if (f && has(a71, 4))
        f |= CPU_AVX_VNNI;
    if (f && (state & 0xe0) == 0xe0) {
        f |= detect_avx512(b7, c7);
        if ((f & CPU_AVX512) && has(a71, 5))
            f |= CPU_AVX512_BF16;
    }
    return f;
}
#elif defined(__aarch64__)
static uint32_t detect(void)
{
    uint32_t f = CPU_NEON;
#if defined(__linux__)
    unsigned long cap = getauxval(AT_HWCAP), cap2 = getauxval(AT_HWCAP2);
    if (cap >> 20 & 1)                                           /* HWCAP_ASIMDDP */
        f |= CPU_DOTPROD;
    if (cap2 >> 13 & 1)                                          /* HWCAP2_I8MM */
        f |= CPU_I8MM;
#endif
    return f;
}
#else
static uint32_t detect(void)
{
    return 0;
}
#endif

static void init(void)
{
    const char *cap = getenv("KVANT_CPU");
    uint32_t mask;

    detected = detect();
    if (cap && cpu_cap_find(cap, &mask))
        env_mask = mask;
}

int cpu_cap_find(const char *name, uint32_t *mask)
{
    for (int i = 0; i < CAP_COUNT; i++)
        if (strcmp(feature_caps[i].name, name) == 0) {
            *mask = feature_caps[i].mask;
            return 1;
        }
    return 0;
}

const char *cpu_cap_at(int i, uint32_t *mask)
{
    if (i < 0 || i >= CAP_COUNT)
        return NULL;
    *mask = feature_caps[i].mask;
    return feature_caps[i].name;
}

uint32_t cpu_detected(void)
{
    pthread_once(&once, init);
    return detected;
}

uint32_t kvant_cpu_features(void)
{
    return cpu_detected() & env_mask & atomic_load_explicit(&test_mask, memory_order_relaxed);
}

void cpu_set_mask(uint32_t mask)
{
    atomic_store_explicit(&test_mask, mask, memory_order_relaxed);
}

void kvant_cpu_text(uint32_t features, char *buf, int cap)
{
    size_t used = 0;

    if (cap < 1)
        return;
    buf[0] = 0;
    for (int i = 0; i < FEATURE_COUNT; i++) {
        if (!(features & feature_names[i].bit) || used >= (size_t)cap)
            continue;
        int n = snprintf(buf + used, (size_t)cap - used, "%s%s", used ? " " : "", feature_names[i].name);
        used += n > 0 ? (size_t)n : 0;
    }
    if (!features)
        snprintf(buf, (size_t)cap, "none");
}
