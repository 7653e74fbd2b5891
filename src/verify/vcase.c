/* vcase.c: the buffers of a case, its run on the device and through the reference.  Comparison is vcase_compare.c,
 * values are made by vbank.c. */
#include "verify/vcase.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "base/mem.h"
#include "ops/operands.h"
#include "verify/vcase_compare.h"

int verify_listed(const char *list, const char *name)
{
    const size_t len = strlen(name);

    if (!list || !*list)
        return 1;
    for (const char *p = list; p; p = strchr(p, ',')) {
        p += *p == ',';
        if (strncmp(p, name, len) == 0 && (p[len] == ',' || p[len] == 0))
            return 1;
    }
    return 0;
}

/* ---- building ---- */

/* The name of a cache format or weight type, or a pair. */
static int is_type(const char *subject)
{
    return strchr(subject, ':') || kvant_format_find(subject) || kvant_wtype_find(subject);
}

/* Each of several jobs numbers all cases alike, and takes the next free number when it is through with its own. */
static int is_mine(vcase *c)
{
    if (!c->next)
        return 1;
    if (c->taken < c->seen)
        c->taken = atomic_fetch_add(c->next, 1);
    return c->seen++ == c->taken;
}

int vcase_begin(vcase *c, int op, const char *shape, const char *subject)
{
    const kvant_op_info *info = kvant_op_get(op);

    if (c->rc != KVANT_OK || !verify_listed(c->o->ops, info->name))
        return 0;
    if (c->o->formats && *c->o->formats && !is_type(subject))
        return 0;                               /* formats were named: nothing that has none */
    if (!report_entry(c->report, op, c->unaligned ? "unaligned" : shape, subject, &c->entry))
        c->rc = kvant_fail(c->diag, KVANT_ENOMEM, "verify: out of memory for the report");
    if (c->rc != KVANT_OK || !is_mine(c))
        return 0;
    memset(c->image, 0xFF, VCASE_GUARD);
    c->used = VCASE_GUARD;
    c->n_bufs = 0;
    c->op = op;
    c->ask = 0;
    c->alike = 1;
    c->what[0] = 0;
    c->swap_from = c->swap_to = NULL;
    return 1;
}

void vcase_about(vcase *c, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(c->what, sizeof c->what, format, args);
    va_end(args);
}

void vcase_ask(vcase *c)
{
    c->ask = 1;
}

void *vcase_take(vcase *c, size_t bytes)
{
    const size_t start = ((c->used + 255) & ~(size_t)255) + (c->unaligned ? 4 : 0);

    assert(c->n_bufs < VCASE_BUFFERS && start + bytes + VCASE_GUARD <= VCASE_IMAGE);
    c->bufs[c->n_bufs++] = (vcase_buf){ .at = c->image + start, .bytes = bytes };
    memset(c->image + c->used, 0xFF, start + bytes + VCASE_GUARD - c->used);
    c->used = start + bytes + VCASE_GUARD;
    return c->image + start;
}

float *vcase_normal(vcase *c, size_t n, uint64_t seed)
{
    float *x = vcase_take(c, n * sizeof *x);

    vcase_fill(x, n, seed);
    return x;
}

int32_t *vcase_ints(vcase *c, const int32_t *from, int n)
{
    int32_t *p = vcase_take(c, (size_t)n * sizeof *p);

    memcpy(p, from, (size_t)n * sizeof *p);
    return p;
}

static vcase_buf *buf_at(vcase *c, const void *p)
{
    for (int i = 0; i < c->n_bufs; i++)
        if (c->bufs[i].at == p)
            return &c->bufs[i];
    assert(0);
    return &c->bufs[0];
}

float *vcase_out(vcase *c, size_t n)
{
    float *x = vcase_take(c, n * sizeof *x);

    vcase_result(c, x);
    return x;
}

void vcase_result(vcase *c, const void *p)
{
    buf_at(c, p)->kind = VCASE_NMSE;
}

void vcase_result_bf16(vcase *c, const void *p)
{
    buf_at(c, p)->kind = VCASE_BF16;
}

void vcase_bounds(vcase *c, const void *p, const double *bound)
{
    vcase_buf *b = buf_at(c, p);

    b->kind = VCASE_BOUND;
    b->bound = bound;
}

void vcase_encoded(vcase *c, const void *p, const vcase_rows *rows)
{
    vcase_buf *b = buf_at(c, p);

    b->kind = VCASE_ROWS;
    b->rows = rows;
}

/* ---- running ---- */

/* The arguments with addresses of the device: see vcase.h. */
static void translate(vcase *c, const void *args)
{
    const size_t bytes = kvant_op_get(c->op)->args_bytes;
    const op_operands o = op_operands_of(c->op, args);

    assert(bytes <= sizeof c->args);
    memcpy(c->args, args, bytes);
    for (int i = 0; i < o.n; i++) {
        const void *at = o.list[i].at;

        if ((uintptr_t)at >= (uintptr_t)c->image && (uintptr_t)at < (uintptr_t)c->image + VCASE_IMAGE)
            at = c->device + ((uintptr_t)at - (uintptr_t)c->image);
        else if (c->swap_from && at == c->swap_from)
            at = c->swap_to;
        memcpy(c->args + o.list[i].offset, &at, sizeof at);
    }
}

static int reference(int id, const void *args, kvant_diag *diag)
{
    const kvant_cpu_kernel *k = kvant_op_reference(id);
    const size_t shared = k->shared_bytes ? k->shared_bytes(args) : 0;
    const size_t local = k->local_bytes ? k->local_bytes(args) : 0;
    kvant_work work = { kvant_alloc(shared + 1), kvant_alloc(local + 1) };
    const int ok = work.shared && work.local;

    if (ok) {
        memset(work.shared, 0xFF, shared);
        memset(work.local, 0xFF, local);
        for (int stage = 0; stage < k->stages; stage++)
            k->fn[stage](args, 0, 1, &work);
    }
    kvant_free(work.shared);
    kvant_free(work.local);
    return ok ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "verify: out of memory for a reference");
}

/* One submit from the initial state; the image afterwards into `out`. */
static int submit(vcase *c, uint64_t key, unsigned char *out)
{
    const kvant_device_vt *vt = c->dev->vt;
    const kvant_op op = { c->op, c->args };

    KVANT_TRY(vt->copy_in(c->dev, c->device, c->image, c->used, c->diag));
    KVANT_TRY(vt->submit(c->dev, &op, 1, key, c->diag));
    KVANT_TRY(vt->sync(c->dev, c->diag));
    return vt->copy_out(c->dev, out, c->device, c->used, c->diag);
}

/* Passes under a key: the first one, the recording, a replay.  If there is no recording and no second thread, one
 * says as much.  A software driver takes its time, and does not repeat what it repeated with aligned buffers. */
static int keyed_passes(const vcase *c)
{
    const kvant_device_vt *vt = c->dev->vt;

    if (c->unaligned && vt->is_software && vt->is_software(c->dev))
        return 0;
    return vt->on_caller ? 1 : 3;
}

/* Once plain, then under a key: all give the same bits. */
static int execute(vcase *c, int *same)
{
    const int keyed = keyed_passes(c);

    *same = 1;
    KVANT_TRY(submit(c, 0, c->got));
    c->key++;
    for (int i = 0; i < keyed; i++) {
        KVANT_TRY(submit(c, c->key, c->again));
        *same &= memcmp(c->got, c->again, c->used) == 0;
    }
    return KVANT_OK;
}

static void fail(vcase *c, const char *text)
{
    const verify_entry *e = &c->report->entries[c->entry];
    const char *op = kvant_op_get(c->op)->name, *device = c->dev->vt->name;
    char line[VERIFY_TEXT], rerun[64] = "";

    if (e->subject[0])
        snprintf(rerun, sizeof rerun, " --%s %s", strchr(e->subject, ':') ? "pairs" : "formats", e->subject);
    snprintf(line, sizeof line, "%s %s %s %s: %s; rerun: kvant verify --device %s --ops %s%s", op, e->shape, e->subject,
             c->what, text, device, op, rerun);
    report_failure(c->report, line);
}

static void settle(vcase *c, int ok)
{
    verify_entry *e = &c->report->entries[c->entry];

    e->cases++;
    e->failed += !ok;
    e->state = e->failed ? VERIFY_FAILED : VERIFY_VERIFIED;
    c->report->passed += ok;
    c->report->failed += !ok;
}

void vcase_refused(vcase *c, int rc, const char *why)
{
    verify_entry *e = &c->report->entries[c->entry];

    if (rc != KVANT_EUNSUPPORTED) {
        fail(c, why);
        settle(c, 0);
        return;
    }
    if (e->cases == 0)
        e->state = VERIFY_UNSUPPORTED;
    snprintf(e->reason, sizeof e->reason, "%.120s", why);
}

static void compare(vcase *c, double limit, int same)
{
    verify_entry *e = &c->report->entries[c->entry];
    vcase_verdict v = { .text = "" };

    vcase_compare(c, limit, &v);
    e->boundary += v.boundary;
    e->limit = v.limit > e->limit ? v.limit : e->limit;
    e->worst = !(v.worst <= e->worst) ? v.worst : e->worst;
    if (v.text[0] == 0 && !same)
        snprintf(v.text, sizeof v.text, "a repeated submit gives other bits");
    if (v.text[0])
        fail(c, v.text);
    settle(c, v.text[0] == 0);
}

void vcase_run(vcase *c, const void *args, double limit)
{
    kvant_diag why = { "" };
    int same = 0;
    int rc = kvant_op_check(c->op, args, &why);

    if (rc != KVANT_OK) {
        fail(c, why.text);          /* the case itself is wrong */
        settle(c, 0);
        return;
    }
    translate(c, args);
    const kvant_op op = { c->op, c->args };
    rc = c->dev->vt->supports(c->dev, &op, &why);
    if (rc != KVANT_OK) {
        vcase_refused(c, rc, why.text);
        return;
    }
    verify_entry *e = &c->report->entries[c->entry];
    if (e->state == VERIFY_UNSUPPORTED)
        e->state = VERIFY_SUPPORTED;
    if (c->ask)
        return;
    rc = execute(c, &same);
    if (rc == KVANT_OK)
        rc = reference(c->op, args, c->diag);
    if (rc != KVANT_OK) {
        fail(c, c->diag->text);
        settle(c, 0);
        c->rc = rc;
        return;
    }
    compare(c, limit, same);
}
