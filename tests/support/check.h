/* tests/support/check.h: the few macros every check_* program uses.
 * A test is one program: CHECK counts, prints what failed with its place, and check_end prints "N passed, M failed".
 * Floats: check_close wants !(err <= tol) to fail, so a NaN fails. */
#ifndef KVANT_TESTS_CHECK_H
#define KVANT_TESTS_CHECK_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kvant/error.h"

/* Whether an instrumented build runs: five to ten times as slow, so loops there take some of their cases. */
#if defined(KVANT_SANITIZE_ADDRESS) || defined(KVANT_SANITIZE_THREAD)
enum { check_sanitized = 1 };
#else
enum { check_sanitized = 0 };
#endif

extern _Atomic int check_passed, check_failed; /* a callback of another thread checks too */

#define CHECK(cond, ...)                                                     \
    do {                                                                     \
        if (cond) {                                                          \
            check_passed++;                                                  \
        } else {                                                             \
            check_failed++;                                                  \
            if (check_failed <= 40) {                                        \
                printf("FAIL %s:%d: %s: ", __FILE__, __LINE__, #cond);       \
                printf(__VA_ARGS__);                                         \
                printf("\n");                                                \
            }                                                                \
        }                                                                    \
    } while (0)

/* |a - b| <= tol, NaN fails. */
#define CHECK_CLOSE(a, b, tol, ...)                                                              \
    do {                                                                                         \
        double ca_ = (a), cb_ = (b), ct_ = (tol);                                                \
        CHECK(fabs(ca_ - cb_) <= ct_, __VA_ARGS__);                                              \
        if (!(fabs(ca_ - cb_) <= ct_) && check_failed <= 40)                                     \
            printf("     %.9g, wanted %.9g within %.3g\n", ca_, cb_, ct_);                       \
    } while (0)

/* Prints the summary; the value to return from main. */
int check_end(const char *program);
/* sum (a-b)^2 / sum b^2 with b the reference; NaN if anything is. */
double check_nmse(const float *a, const float *b, size_t n);
/* n floats, uniform in [lo, hi), from a seed. */
void check_fill(float *x, size_t n, float lo, float hi, unsigned long long seed);
void check_fill_normal(float *x, size_t n, unsigned long long seed);
/* A block of exactly n bytes at an odd address offset, surrounded by 0xFF guards (heap block is exact under ASan).
 * check_guard_ok tells whether the guards are intact. */
void *check_guarded(size_t n, size_t misalign);
int check_guard_ok(void *p);
void check_guard_free(void *p);
/* Path of a large optional file under ../shared/models (or $KVANT_MODELS), or NULL; prints the skip line. */
const char *check_model_path(const char *name, char *buf, size_t cap);

#endif
