/* profile.c: see profile.h.  A line is a launch: the names of the ops that it did, and its weights' shapes. */
#include "engine/place/profile.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/trace.h"
#include "ops/operands.h"

static void append(char *name, const char *text)
{
    const size_t n = strlen(name);
    snprintf(name + n, PROFILE_NAME - n, "%s", text);
}

/* "matmul 4096 x 6144 Q4_K"; experts: "matmul_id 128 x 2048 x 768 Q4_K". */
static void append_op(char *name, const kvant_op *op, double *bytes)
{
    const kvant_weight *w = op_weight_of(op->id, op->args);
    char shape[96];

    append(name, kvant_op_get(op->id)->name);
    if (!w)
        return;
    if (w->n_expert > 1)
        snprintf(shape, sizeof shape, " %d x %lld x %lld %s", w->n_expert, (long long)w->n_in, (long long)w->n_out,
                 w->type->name);
    else
        snprintf(shape, sizeof shape, " %lld x %lld %s", (long long)w->n_in, (long long)w->n_out, w->type->name);
    append(name, shape);
    if (w->n_expert <= 1 && op_weight_use(op->id) == KVANT_WEIGHT_MATMUL)
        *bytes += (double)(w->n_in / w->type->block * w->type->bytes) * (double)w->n_out;
}

/* The line of that name, or the last one once there is no room: "others". */
static profile_line *find_line(engine_profile *p, const char *name)
{
    for (int i = 0; i < p->n_lines; i++)
        if (strcmp(p->lines[i].name, name) == 0)
            return &p->lines[i];
    profile_line *to = &p->lines[p->n_lines < PROFILE_LINES ? p->n_lines++ : PROFILE_LINES - 1];
    snprintf(to->name, sizeof to->name, "%s", p->n_lines < PROFILE_LINES ? name : "others");
    return to;
}

/* Notes the launch that did n ops. */
static void note(kvant_engine *e, const kvant_device *dev, const kvant_op *ops, int n, double us)
{
    char name[PROFILE_NAME] = "";
    double bytes = 0;

    if (e->split.n > 1) {
        append(name, dev->vt->name);
        append(name, ": ");
    }
    for (int i = 0; i < n; i++) {
        if (i)
            append(name, " + ");
        append_op(name, &ops[i], &bytes);
    }
    profile_line *line = find_line(e->watch.profile, name);
    line->us += us;
    line->bytes += bytes;
    line->launches++;
}

static int submit_measured(kvant_engine *e, kvant_device *dev, const kvant_op *ops, int n, kvant_diag *diag)
{
    double *us = e->watch.profile->us;
    int64_t at = clock_ns();

    KVANT_TRY(dev->vt->profile(dev, ops, n, us, diag));
    for (int i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && us[end] < 0; end++)
            ;
        note(e, dev, ops + i, end - i, us[i]);
        if (trace_on())
            trace_span(kvant_op_get(ops[i].id)->name, 1, at, at + (int64_t)(us[i] * 1e3));
        at += (int64_t)(us[i] * 1e3);
    }
    return KVANT_OK;
}

int engine_submit_to(kvant_engine *e, kvant_device *dev, const kvant_op *ops, int n, uint64_t key, kvant_diag *diag)
{
    return e->watch.profile ? submit_measured(e, dev, ops, n, diag) : dev->vt->submit(dev, ops, n, key, diag);
}

int engine_profile_begin(kvant_engine *e, kvant_diag *diag)
{
    for (int i = 0; i < e->split.n; i++)
        if (!e->place[i].dev->vt->profile)
            return kvant_fail(diag, KVANT_EUNSUPPORTED, "device %s has no clock for single ops, wanted cpu, cuda or vulkan",
                              e->place[i].dev->vt->name);
    engine_profile_end(e);
    engine_profile *p = kvant_calloc(1, sizeof *p);
    if (p)
        p->us = kvant_calloc((size_t)e->max_ops, sizeof *p->us);
    if (!p || !p->us) {
        kvant_free(p);
        return kvant_fail(diag, KVANT_ENOMEM, "profile: no memory for %d ops", e->max_ops);
    }
    e->watch.profile = p;
    return KVANT_OK;
}

const engine_profile *engine_profile_of(const kvant_engine *e)
{
    return e->watch.profile;
}

void engine_profile_end(kvant_engine *e)
{
    if (!e || !e->watch.profile)
        return;
    kvant_free(e->watch.profile->us);
    kvant_free(e->watch.profile);
    e->watch.profile = NULL;
}
