/* base/cpu.h: what this CPU may run.  One mask; kernels are chosen from it at run time, never by -march=native.
 *
 * kvant_cpu_features() is read once per process from the CPU and the operating system; tests lower it with
 * cpu_set_mask (so that every rung of the ladder is exercised) and users with KVANT_CPU=avx2. */
#ifndef KVANT_BASE_CPU_H
#define KVANT_BASE_CPU_H

#include <stdint.h>

/* libkvant calls it in libkvant-formats; no public API. */
#if defined(__GNUC__)
#define CPU_SHARED __attribute__((visibility("default")))
#else
#define CPU_SHARED
#endif

enum {
    CPU_AVX2 = 1 << 0,        /* AVX2 + FMA + F16C */
    CPU_AVX512 = 1 << 1,      /* F + BW + DQ + VL */
    CPU_AVX512_VNNI = 1 << 2,
    CPU_AVX512_BF16 = 1 << 3,
    CPU_AVX512_VBMI = 1 << 4,
    CPU_AVX512_VPOPCNT = 1 << 5, /* VPOPCNTDQ + BITALG */
    CPU_AVX_VNNI = 1 << 6,
    CPU_NEON = 1 << 7,
    CPU_DOTPROD = 1 << 8,
    CPU_I8MM = 1 << 9,
    CPU_GFNI = 1 << 10,
    /* what files named *_avx512vnni.c need (cmake/isa.cmake compiles them for all of it) */
    CPU_X86_VNNI = CPU_AVX512 | CPU_AVX512_VNNI | CPU_AVX512_BF16 | CPU_AVX512_VBMI | CPU_AVX512_VPOPCNT | CPU_GFNI,
    CPU_ARM_I8MM = CPU_NEON | CPU_DOTPROD | CPU_I8MM,            /* likewise *_i8mm.c */
};

/* detected & mask */
uint32_t kvant_cpu_features(void) CPU_SHARED;
uint32_t cpu_detected(void);           /* detected, mask ignored */
void cpu_set_mask(uint32_t mask);      /* tests: features & mask from now on */
/* A rung by name, as in KVANT_CPU: "ref" "avx2" "avx512" "avx512vnni" "neon" "dotprod" "i8mm" "all"; 0 if unknown (mask
 * untouched). */
int cpu_cap_find(const char *name, uint32_t *mask);
/* The i-th rung and its mask, in the order of the ladder; NULL past the last. */
const char *cpu_cap_at(int i, uint32_t *mask);
/* "avx2 avx512 ..." of a feature set, into buf. */
void kvant_cpu_text(uint32_t features, char *buf, int cap) CPU_SHARED;
/* Model name from /proc/cpuinfo, or "unknown". */
void cpu_model_name(char *buf, int cap);
int cpu_count(void);                   /* CPUs this process may use (affinity and cgroup quota) */

#endif
