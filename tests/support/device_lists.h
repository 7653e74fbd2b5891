/* device_lists.h: for tests that compare a list of ops with the ops one by one: a device's memory, matrices, values. */
#ifndef KVANT_TESTS_DEVICE_LISTS_H
#define KVANT_TESTS_DEVICE_LISTS_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "devices/device.h"
#include "support/check.h"

static kvant_diag diag;
static kvant_device *dev; /* each test opens it */

static inline float *room(size_t n)
{
    void *p = NULL;
    CHECK(dev->vt->alloc(dev, n * sizeof(float), &p, &diag) == KVANT_OK, "%s", diag.text);
    return p;
}

static uint32_t state = 1;

static inline float uniform(void)
{
    state = state * 1664525u + 1013904223u;
    return (float)(int32_t)state * 0x1p-31f;
}

static inline void fill(float *to, size_t n)
{
    float *host = malloc(n * sizeof(float));
    for (size_t i = 0; i < n; i++)
        host[i] = uniform();
    CHECK(dev->vt->copy_in(dev, to, host, n * sizeof(float), &diag) == KVANT_OK, "%s", diag.text);
    CHECK(dev->vt->sync(dev, &diag) == KVANT_OK, "%s", diag.text);
    free(host);
}

/* 16-bit values between -1/16 and 1/16, of bf16 or f16; other types get the bits of bf16 values. */
static inline kvant_weight matrix(const char *type, int n_in, int n_out)
{
    kvant_weight w = { .type = kvant_wtype_find(type), .n_in = n_in, .n_out = n_out, .n_expert = 1, .name = type };
    const size_t n = (size_t)n_in * (size_t)n_out;
    uint16_t *host = malloc(2 * n * sizeof *host); /* as many bytes as f32 has */
    for (size_t i = 0; i < 2 * n; i++) {
        state = state * 1664525u + 1013904223u;
        host[i] = (uint16_t)((strcmp(type, "F16") == 0 ? 0x2800u : 0x3d00u) | (state >> 24 & 0x7fu) |
                             (state >> 8 & 0x8000u));
    }
    w.data = host;
    CHECK(dev->vt->weight_load(dev, &w, KVANT_COMPUTE_AUTO, &diag) == KVANT_OK, "%s", diag.text);
    free(host);
    return w;
}

static inline void expect_equal(const float *a, const float *b, size_t n, const char *what)
{
    float *x = malloc(2 * n * sizeof(float)), *y = x + n;
    size_t differ = 0;
    CHECK(dev->vt->copy_out(dev, x, a, n * sizeof(float), &diag) == KVANT_OK, "%s", diag.text);
    CHECK(dev->vt->copy_out(dev, y, b, n * sizeof(float), &diag) == KVANT_OK, "%s", diag.text);
    for (size_t i = 0; i < n; i++)
        differ += memcmp(&x[i], &y[i], sizeof x[i]) != 0;
    CHECK(differ == 0, "%s: %zu of %zu values differ", what, differ, n);
    free(x);
}

/* Values that were rounded to 16 bits on another way: not the same bits. */
static inline void expect_near(const float *a, const float *b, size_t n, double most, const char *what)
{
    float *x = malloc(2 * n * sizeof(float)), *y = x + n;
    CHECK(dev->vt->copy_out(dev, x, a, n * sizeof(float), &diag) == KVANT_OK, "%s", diag.text);
    CHECK(dev->vt->copy_out(dev, y, b, n * sizeof(float), &diag) == KVANT_OK, "%s", diag.text);
    float size = 0;
    for (size_t i = 0; i < n; i++)
        size += fabsf(x[i]);
    const double error = check_nmse(y, x, n);
    CHECK(size > 0 && error <= most, "%s: NMSE %.3g, wanted at most %.3g", what, error, most);
    free(x);
}

/* A list at once, or its ops one by one. */
static inline void submit_list(const kvant_op *ops, int n, int at_once)
{
    for (int at = 0; at < n; at += at_once ? n : 1)
        CHECK(dev->vt->submit(dev, ops + at, at_once ? n : 1, 0, &diag) == KVANT_OK, "%s", diag.text);
}

#endif
