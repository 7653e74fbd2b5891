/* bench_device.c: see bench_device.h.  Owns the buffers, the clock and the reports; cases are in
 * bench_device_cases.c. */
#include "cli/bench/bench_device.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/text/jsonw.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cli/common.h"
#include "cli/term.h"
#include "cli/table.h"
#include "kvant/kvant.h"

enum { BLOCK = 1 << 20, REPS = 21, HOST_COPY = 1 << 26 }; /* floats of the random block; bytes of the host's copy */

const int room_counts[ROOM_COUNTS] = { 1, 128, 257 };

#define ROOM_CASE(name, fn, text) void fn(room *r);
#include "cli/bench/bench_device.def"
#undef ROOM_CASE

#define ROOM_CASE(name, fn, text) { #name, fn, text },
static const struct {
    const char *name;
    void (*run)(room *r);
    const char *text;
} cases[] = {
#include "cli/bench/bench_device.def"
};
#undef ROOM_CASE

static void *take(room *r, size_t bytes)
{
    void *p = NULL;

    if (r->rc == KVANT_OK && r->n_mem == ROOM_BUFFERS)
        r->rc = kvant_fail(r->diag, KVANT_EINTERNAL, "bench-kernels: more than %d buffers in %s", ROOM_BUFFERS,
                           r->name);
    if (r->rc == KVANT_OK)
        r->rc = r->dev->vt->alloc(r->dev, bytes, &p, r->diag);
    if (r->rc != KVANT_OK)
        return NULL;
    r->mem[r->n_mem++] = p;
    return p;
}

void *room_host(room *r, size_t bytes)
{
    void *p = r->rc == KVANT_OK ? kvant_alloc(bytes) : NULL;

    if (!p && r->rc == KVANT_OK)
        r->rc = kvant_fail(r->diag, KVANT_ENOMEM, "bench-kernels: out of memory");
    return p;
}

void room_drop(room *r, int mark)
{
    while (r->n_mem > mark)
        r->dev->vt->free(r->dev, r->mem[--r->n_mem]);
}

static void room_wait(room *r)
{
    if (r->rc == KVANT_OK)
        r->rc = r->dev->vt->sync(r->dev, r->diag);
}

void *room_copy(room *r, const void *from, size_t bytes)
{
    void *p = take(r, bytes);

    if (p && from)
        r->rc = r->dev->vt->copy_in(r->dev, p, from, bytes, r->diag);
    room_wait(r);
    return p;
}

float *room_normal(room *r, size_t n)
{
    static float *block; /* kept for the run of the program */
    float *p = take(r, n * sizeof *p);

    if (!block && (block = kvant_alloc(BLOCK * sizeof *block)) != NULL) {
        rng g = { 7 };
        for (int i = 0; i < BLOCK; i++)
            block[i] = rng_normal(&g);
    }
    if (!block)
        r->rc = kvant_fail(r->diag, KVANT_ENOMEM, "bench-kernels: out of memory");
    for (size_t at = 0; p && r->rc == KVANT_OK && at < n; at += BLOCK) {
        const size_t m = n - at < BLOCK ? n - at : BLOCK;
        r->rc = r->dev->vt->copy_in(r->dev, p + at, block, m * sizeof *p, r->diag);
    }
    return p;
}

void room_run(room *r, int id, const void *args)
{
    const kvant_op op = { id, args };

    if (r->rc == KVANT_OK)
        r->rc = kvant_op_check(id, args, r->diag);
    if (r->rc == KVANT_OK)
        r->rc = r->dev->vt->submit(r->dev, &op, 1, 0, r->diag);
    room_wait(r);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Runs by the host's clock, behind one that makes what the device keeps. */
static int time_on_host(room *r, const kvant_op *ops, int n, double *us)
{
    for (int i = -1; i < r->reps; i++) {
        const int64_t begin = clock_ns();
        KVANT_TRY(r->dev->vt->submit(r->dev, ops, n, 0, r->diag));
        KVANT_TRY(r->dev->vt->sync(r->dev, r->diag));
        us[i < 0 ? 0 : i] = (double)(clock_ns() - begin) / 1e3;
    }
    return KVANT_OK;
}

static int measure(room *r, const kvant_op *ops, int n, double *median, double *least)
{
    double us[REPS];

    KVANT_TRY(r->dev->vt->time ? r->dev->vt->time(r->dev, ops, n, r->reps, us, r->diag) : time_on_host(r, ops, n, us));
    qsort(us, (size_t)r->reps, sizeof us[0], by_value);
    *median = us[r->reps / 2];
    *least = us[0];
    return KVANT_OK;
}

void room_time(room *r, int id, const void *args, double bytes, double flops, const char *what, ...)
{
    const kvant_op op = { id, args };
    room_row *row = &r->rows[r->n_rows];
    va_list ap;

    if (r->rc == KVANT_OK && r->n_rows == ROOM_ROWS)
        r->rc = kvant_fail(r->diag, KVANT_EINTERNAL, "bench-kernels: more than %d rows", ROOM_ROWS);
    if (r->rc == KVANT_OK)
        r->rc = kvant_op_check(id, args, r->diag);
    if (r->rc == KVANT_OK && term_interrupted())
        r->rc = kvant_fail(r->diag, KVANT_ECANCELED, "stopped by Ctrl-C");
    if (r->rc != KVANT_OK)
        return;
    snprintf(row->name, sizeof row->name, "%s", r->name);
    va_start(ap, what);
    vsnprintf(row->what, sizeof row->what, what, ap);
    va_end(ap);
    row->bytes = bytes;
    row->flops = flops;
    if (r->dev->vt->supports(r->dev, &op, r->diag) != KVANT_OK) {
        fprintf(stderr, "%s %s: not on this device: %s\n", row->name, row->what, r->diag->text);
        return;
    }
    r->rc = measure(r, &op, 1, &row->us, &row->least_us);
    r->n_rows += r->rc == KVANT_OK;
}

kvant_seqs room_seqs(room *r, int n_seqs, int n, int pos0, int prompt)
{
    const int pages = (pos0 + n + KVANT_PAGE - 1) / KVANT_PAGE;
    const size_t ints = (size_t)n_seqs * (size_t)pages;
    int32_t *table = kvant_calloc(ints, sizeof *table), *each = kvant_calloc((size_t)n_seqs * 5 + 1, sizeof *each);
    int32_t *q0 = each, *p0 = q0 + n_seqs + 1, *asks = p0 + n_seqs, *in = asks + n_seqs, *out = in + n_seqs;
    kvant_seqs s = { .n_seqs = n_seqs, .n_tokens = n_seqs * n, .table_stride = pages };
    rng g = { 13 };

    if (!table || !each) {
        kvant_free(table);
        kvant_free(each);
        r->rc = kvant_fail(r->diag, KVANT_ENOMEM, "bench-kernels: out of memory");
        return s;
    }
    for (size_t i = 0; i < ints; i++)
        table[i] = (int32_t)i;
    for (size_t i = ints; i-- > 1;) {
        const size_t j = rng_below(&g, (uint32_t)i + 1);
        const int32_t t = table[i];
        table[i] = table[j];
        table[j] = t;
    }
    for (int i = 0; i < n_seqs; i++) {
        q0[i + 1] = (i + 1) * n;
        p0[i] = pos0;
        asks[i] = prompt;
        in[i] = out[i] = i;
    }
    const size_t m = (size_t)n_seqs * sizeof *each;
    s.table = room_copy(r, table, ints * sizeof *table);
    s.q0 = room_copy(r, q0, m + sizeof *each);
    s.pos0 = room_copy(r, p0, m);
    s.prompt = room_copy(r, asks, m);
    s.slot_in = room_copy(r, in, m);
    s.slot_out = room_copy(r, out, m);
    kvant_free(table);
    kvant_free(each);
    return s;
}

static void show(const room *r, int json)
{
    char device[160];
    jsonw w;

    r->dev->vt->describe(r->dev, device, sizeof device);
    if (!json) {
        printf("%s, kvant %s; copy %.3g TB/s (read + written); medians of %d, %s\n\n", device, kvant_version_text(),
               r->copy_tbs, r->reps,
               r->dev->vt->time ? "L2 cold, one graph each" : "by the host's clock, caches as the run before left them");
        static const char columns[] = "case||>us|>least|>TB/s|>of copy|>TFLOP/s";
        table_head(stdout, columns);
        for (int i = 0; i < r->n_rows; i++) {
            const room_row *x = &r->rows[i];
            const double tbs = x->bytes / x->us / 1e6;
            char flops[32] = "";
            if (x->flops > 0.0)
                snprintf(flops, sizeof flops, "%.3g", x->flops / x->us / 1e6);
            table_row(stdout, columns, "%s|%s|%.1f|%.1f|%.3g|%.0f %%|%s", x->name, x->what, x->us, x->least_us, tbs,
                      100.0 * tbs / r->copy_tbs, flops);
        }
        return;
    }
    jsonw_init(&w);
    jsonw_object(&w);
    jsonw_kstr(&w, "device", device);
    jsonw_kstr(&w, "version", kvant_version_text());
    jsonw_knum(&w, "copy_tbs", r->copy_tbs);
    jsonw_kint(&w, "repetitions", r->reps);
    jsonw_kstr(&w, "clock", r->dev->vt->time ? "device" : "host");
    jsonw_key(&w, "results");
    jsonw_array(&w);
    for (int i = 0; i < r->n_rows; i++) {
        const room_row *x = &r->rows[i];
        jsonw_object(&w);
        jsonw_kstr(&w, "case", x->name);
        jsonw_kstr(&w, "what", x->what);
        jsonw_knum(&w, "us", x->us);
        jsonw_knum(&w, "least_us", x->least_us);
        jsonw_knum(&w, "bytes", x->bytes);
        jsonw_knum(&w, "flops", x->flops);
        jsonw_end(&w);
    }
    jsonw_end(&w);
    jsonw_end(&w);
    put_json(&w, r->diag);
}

/* The case is in --cases, or there is no --cases. */
static int wanted(const opts *o, const char *name)
{
    char item[48];

    if (!opt_given(o, OPT_BK_CASES))
        return 1;
    for (int i = 0; opt_item(o, OPT_BK_CASES, i, item, sizeof item); i++)
        if (strcmp(item, name) == 0)
            return 1;
    return 0;
}

static int check_cases(const opts *o, kvant_diag *diag)
{
    char item[48], known[256] = "";
    int n = (int)(sizeof cases / sizeof cases[0]);

    for (int i = 0, at = 0; i < n && at < (int)sizeof known; i++)
        at += snprintf(known + at, sizeof known - (size_t)at, "%s%s", i ? " " : "", cases[i].name);
    for (int i = 0; opt_given(o, OPT_BK_CASES) && opt_item(o, OPT_BK_CASES, i, item, sizeof item); i++) {
        int found = 0;
        for (int j = 0; j < n; j++)
            found |= strcmp(item, cases[j].name) == 0;
        if (!found)
            return kvant_fail(diag, KVANT_EINVAL, "--cases: found \"%.40s\", wanted some of: %s", item, known);
    }
    return KVANT_OK;
}

/* The copy that every case stands beside: the device's own, or rows_copy where the host has the clock. */
static void measure_copy(room *r)
{
    const int own = r->dev->vt->time != NULL, d = 1 << 14, n = HOST_COPY / 4 / d;
    kvant_rows_copy_args a = { .n = n, .h = 1, .d = d, .ldx = d, .gx = d, .ldy = d, .gy = d };
    const kvant_op op = { KVANT_OP_ROWS_COPY, &a };
    double us = 0.0, least;

    if (!own) {
        a.x = room_normal(r, HOST_COPY / 4);
        a.y = room_copy(r, NULL, HOST_COPY);
    }
    if (r->rc == KVANT_OK)
        r->rc = measure(r, own ? NULL : &op, own ? 0 : 1, &us, &least);
    r->copy_tbs = us > 0.0 ? 2.0 * (own ? KVANT_TIME_COPY : HOST_COPY) / us / 1e6 : 0.0;
    room_drop(r, 0);
}

static void run_cases(room *r)
{
    measure_copy(r);
    for (size_t i = 0; r->rc == KVANT_OK && i < sizeof cases / sizeof cases[0]; i++) {
        if (!wanted(r->o, cases[i].name))
            continue;
        r->name = cases[i].name;
        cases[i].run(r);
        room_drop(r, 0);
    }
}

int bench_device(const opts *o, kvant_diag *diag)
{
    room *r = kvant_calloc(1, sizeof *r);
    int code = r ? check_cases(o, diag) : kvant_fail(diag, KVANT_ENOMEM, "bench-kernels: out of memory");

    if (code == KVANT_OK)
        code = device_open(opt_str(o, OPT_DEVICE), NULL, &r->dev, diag);
    if (code == KVANT_OK) {
        r->o = o;
        r->diag = diag;
        r->reps = (int)opt_int(o, OPT_BK_ROUNDS);
        r->reps = r->reps > REPS ? REPS : r->reps;
        term_catch_interrupt();
        run_cases(r);
        code = r->rc;
        if (r->n_rows > 0)
            show(r, opt_flag(o, OPT_JSON));
    }
    if (r && r->dev)
        r->dev->vt->close(r->dev);
    kvant_free(r);
    return code;
}
