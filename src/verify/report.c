/* report.c: the capability report: its entries and its JSON. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/mem.h"
#include "kvant/kvant.h"
#include "verify/vcase.h"

verify_entry *report_entry(verify_report *r, int op, const char *shape, const char *subject, int *index)
{
    for (int i = r->n - 1; i >= 0; i--)
        if (r->entries[i].op == op && strcmp(r->entries[i].shape, shape) == 0 &&
            strcmp(r->entries[i].subject, subject) == 0) {
            *index = i;
            return &r->entries[i];
        }
    if (r->n == r->cap) {
        const int cap = r->cap ? 2 * r->cap : 256;
        verify_entry *more = kvant_realloc(r->entries, (size_t)r->cap * sizeof *more, (size_t)cap * sizeof *more);
        if (!more)
            return NULL;
        r->entries = more;
        r->cap = cap;
    }
    verify_entry *e = &r->entries[r->n];
    memset(e, 0, sizeof *e);
    e->op = op;
    snprintf(e->shape, sizeof e->shape, "%s", shape);
    snprintf(e->subject, sizeof e->subject, "%s", subject);
    *index = r->n++;
    return e;
}

void report_failure(verify_report *r, const char *text)
{
    if (r->n_failures < VERIFY_MAX_FAILURES)
        snprintf(r->failures[r->n_failures++], VERIFY_TEXT, "%s", text);
}

void verify_report_free(verify_report *r)
{
    kvant_free(r->entries);
    r->entries = NULL;
    r->n = r->cap = 0;
}

static void add_entry(verify_entry *sum, const verify_entry *e)
{
    static const int rank[] = { [VERIFY_UNSUPPORTED] = 0, [VERIFY_SUPPORTED] = 1, [VERIFY_VERIFIED] = 2,
                                [VERIFY_FAILED] = 3 };

    if (rank[e->state] > rank[sum->state])
        sum->state = e->state;
    sum->cases += e->cases;
    sum->failed += e->failed;
    sum->boundary += e->boundary;
    sum->worst = !(e->worst <= sum->worst) ? e->worst : sum->worst;
    sum->limit = e->limit > sum->limit ? e->limit : sum->limit;
}

static int add_index(verify_report *sum, const verify_entry *e)
{
    int index;
    verify_entry *to = report_entry(sum, e->op, e->shape, e->subject, &index);

    if (!to)
        return 0;
    add_entry(to, e);
    if (e->reason[0])
        memcpy(to->reason, e->reason, sizeof to->reason);
    return 1;
}

int report_add(verify_report *sum, const verify_report *part)
{
    int ok = 1;

    for (int i = 0; i < part->n; i++)
        ok &= add_index(sum, &part->entries[i]);
    for (int i = 0; i < part->n_failures; i++)
        report_failure(sum, part->failures[i]);
    sum->passed += part->passed;
    sum->failed += part->failed;
    return ok;
}

int verify_summary(const verify_report *r, verify_entry **out)
{
    verify_entry *sum = kvant_calloc((size_t)r->n + 1, sizeof *sum);
    int n = 0;

    *out = sum;
    for (int i = 0; sum && i < r->n; i++) {
        const verify_entry *e = &r->entries[i];
        int k = 0, subjects;
        while (k < n && (sum[k].op != e->op || strcmp(sum[k].shape, e->shape) != 0))
            k++;
        subjects = k < n ? atoi(sum[k].subject) : 0;
        if (k == n) {
            sum[n++] = *e;
            sum[k].reason[0] = 0;
        } else {
            add_entry(&sum[k], e);
        }
        snprintf(sum[k].subject, sizeof sum[k].subject, "%d", subjects + 1);
    }
    return n;
}

const char *verify_state_name(int state)
{
    static const char *const names[] = { "unsupported", "supported", "verified", "failed" };

    return names[state];
}

static void entry_json(const verify_entry *e, jsonw *w)
{
    jsonw_object(w);
    jsonw_kstr(w, "op", kvant_op_get(e->op)->name);
    jsonw_kstr(w, "shape", e->shape);
    if (e->subject[0])
        jsonw_kstr(w, "subject", e->subject);
    jsonw_kstr(w, "state", verify_state_name(e->state));
    if (e->cases) {
        jsonw_kint(w, "cases", e->cases);
        jsonw_kint(w, "failed", e->failed);
        jsonw_knum(w, "worst", e->worst);
        jsonw_knum(w, "limit", e->limit);
    }
    if (e->boundary)
        jsonw_kint(w, "boundary", e->boundary);
    if (e->reason[0])
        jsonw_kstr(w, "reason", e->reason);
    jsonw_end(w);
}

/* The day in UTC: a report is evidence of what was true then. */
static void day_json(jsonw *w)
{
    const time_t now = time(NULL);
    struct tm utc;
    char text[16];

    if (gmtime_r(&now, &utc) && strftime(text, sizeof text, "%Y-%m-%d", &utc) > 0)
        jsonw_kstr(w, "date", text);
}

void verify_head_json(const char *device, jsonw *w)
{
    jsonw_kstr(w, "device", device);
    jsonw_kstr(w, "library", kvant_version_text());
    day_json(w);
}

void verify_report_json(const verify_report *r, jsonw *w)
{
    verify_head_json(r->device, w);
    jsonw_key(w, "ops");
    jsonw_array(w);
    for (int i = 0; i < r->n; i++)
        entry_json(&r->entries[i], w);
    jsonw_end(w);
    jsonw_key(w, "failures");
    jsonw_array(w);
    for (int i = 0; i < r->n_failures; i++)
        jsonw_str(w, r->failures[i]);
    jsonw_end(w);
}
