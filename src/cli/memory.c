/* memory.c: what memory this machine, or the device that computes, has left, and the context and engine that fit. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/common.h"
#include "devices/device.h"

/* ---- what is free ---- */

/* KVANT_MEMORY=4G: a user's limit (and the tests' way to a small machine). */
static int64_t memory_limit(void)
{
    const char *s = getenv("KVANT_MEMORY");
    int64_t v;

    return s && *s && opt_parse_size(s, &v) && v > 0 ? v : -1;
}

int memory_limit_check(kvant_diag *diag)
{
    const char *s = getenv("KVANT_MEMORY");

    if (!s || !*s || memory_limit() > 0)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EINVAL, "KVANT_MEMORY: found \"%.40s\", wanted a size such as 6G", s);
}

int64_t memory_available(void)
{
    const int64_t have = mem_available(), limit = memory_limit();

    return limit > 0 && (have < 0 || limit < have) ? limit : have;
}

/* Bytes that a driver's library, its scratch blocks and other programs may still want of a GPU. */
static const int64_t DEVICE_SPARE = 1 << 30;

static void ask(void *ctx, const char *name, kvant_device *d, const char *why)
{
    int64_t *bytes = ctx;

    (void)name, (void)why;
    *bytes = d && d->vt->memory ? d->vt->memory(d) : -1;
    if (*bytes < 0)
        return;
    *bytes -= *bytes / 4 < DEVICE_SPARE ? *bytes / 4 : DEVICE_SPARE;
    if (d->vt->is_software && d->vt->is_software(d) && memory_available() < *bytes)
        *bytes = memory_available();
}

int64_t device_memory(const char *device)
{
    const kvant_device_vt *vt;
    int index = 0;
    int64_t bytes = -1;

    if (is_cpu(device))
        return memory_available();
    if (kvant_device_find(device, &vt, &index, NULL) < 0)
        return -1;                 /* the engine says why */
    one_device(vt, index, device, ask, &bytes);
    return bytes >= 0 && memory_limit() > 0 && memory_limit() < bytes ? memory_limit() : bytes;
}

/* ---- what fits ---- */

int largest_context(const kvant_model *m, const kvant_engine_params *p, int max, int whole, int64_t memory)
{
    int lo = 0, hi = (max + 63) / 64;

    while (lo < hi) {
        kvant_engine_params q = *p;
        kvant_plan plan;
        int mid = lo + (hi - lo + 1) / 2;
        q.n_ctx = mid * 64 < max ? mid * 64 : max;
        q.pool_tokens = (int64_t)whole * mid * 64;
        if (kvant_plan_make(m, &q, &plan, NULL) == KVANT_OK && plan.total <= memory)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo * 64 < max ? lo * 64 : max;
}

/* Whose memory it is, as an end of "N MiB are". */
static const char *place(const kvant_engine_params *p, char *buf, size_t cap)
{
    if (is_cpu(p->device))
        return "available";
    snprintf(buf, cap, "free on device %.40s (--device cpu: this machine's memory)", p->device);
    return buf;
}

int choose_context(const kvant_model *m, kvant_engine_params *p, int max, int whole, int64_t memory,
                   kvant_diag *diag)
{
    const int train = kvant_model_get_info(m)->n_ctx_train, most = max < train ? max : train;
    kvant_engine_params least = *p;
    kvant_plan plan;
    char buf[128];

    least.n_ctx = train < KVANT_PAGE ? train : KVANT_PAGE;
    KVANT_TRY(kvant_plan_make(m, &least, &plan, diag)); /* what is wrong for other reasons than memory */
    const int fits = memory < 0 ? most : largest_context(m, p, most, whole, memory - memory / 16);
    if (fits < 64 && fits < most)
        return kvant_fail(diag, KVANT_ENOSPC,
                          "model: does not fit in the %lld MiB that are %s, with any context",
                          (long long)(memory >> 20), place(p, buf, sizeof buf));
    if (fits < train)
        log_msg(LOG_INFO, "context: %d tokens, what fits in memory (training context %d)", fits, train);
    p->n_ctx = fits;
    return KVANT_OK;
}

int fit_engine(const kvant_model *m, kvant_engine_params *p, int64_t memory, int64_t *bytes, kvant_diag *diag)
{
    kvant_plan plan;
    char buf[128];

    if (p->n_ctx == 0)
        KVANT_TRY(choose_context(m, p, INT_MAX, p->max_seqs, memory, diag));
    else if (p->n_ctx > kvant_model_get_info(m)->n_ctx_train)
        log_msg(LOG_WARN, "context: %d tokens is more than the model was trained with (%d)", p->n_ctx,
                kvant_model_get_info(m)->n_ctx_train);
    KVANT_TRY(kvant_plan_make(m, p, &plan, diag));
    if (memory >= 0 && plan.total > memory)
        return kvant_fail(diag, KVANT_ENOSPC,
                          "context of %d tokens (%s/%s): needs %lld MiB, %lld MiB are %s; "
                          "kvant plan shows what fits",
                          p->n_ctx, p->type_k, p->type_v, (long long)(plan.total >> 20), (long long)(memory >> 20),
                          place(p, buf, sizeof buf));
    *bytes = plan.total;
    return KVANT_OK;
}

int open_engine(kvant_model *m, kvant_engine_params *p, kvant_engine **e, kvant_diag *diag)
{
    int64_t bytes;

    KVANT_TRY(fit_engine(m, p, device_memory(p->device), &bytes, diag));
    return kvant_engine_create(m, p, e, diag);
}
