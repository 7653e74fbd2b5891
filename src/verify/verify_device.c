/* verify_device.c: walks the generators that the cards name over one device. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "verify/cases.h"

typedef void (*generator)(vcase *c);

static const struct {
    int op;
    generator fn;
} table[] = {
#define VERIFY_CASES(op, fn) { KVANT_OP_##op, fn },
#include "ops/cases.def"
#undef VERIFY_CASES
};
enum { GENERATORS = sizeof table / sizeof *table };

/* ---- lists of names ---- */

static int known_op(const char *name)
{
    for (int id = 0; id < KVANT_OP_COUNT; id++)
        if (strcmp(kvant_op_get(id)->name, name) == 0)
            return 1;
    return 0;
}

static int known_type(const char *name)
{
    const kvant_wtype *t = kvant_wtype_find(name);

    return kvant_format_find(name) || (t && strcmp(t->name, name) == 0);
}

static int known_pair(const char *name)
{
    char k[64];
    const char *colon = strchr(name, ':');

    if (strcmp(name, "all") == 0 || strcmp(name, "ci") == 0)
        return 1;
    if (!colon)
        return 0;
    snprintf(k, sizeof k, "%.*s", (int)(colon - name), name);
    return kvant_format_find(k) && kvant_format_find(colon + 1);
}

/* hint: what is known, or "". */
static int check_list(const char *list, int (*known)(const char *), const char *option, const char *hint,
                      kvant_diag *diag)
{
    for (const char *p = list; p && *p;) {
        const size_t n = strcspn(p, ",");
        char name[64];

        snprintf(name, sizeof name, "%.*s", (int)n, p);
        if (!known(name))
            return kvant_fail(diag, KVANT_EINVAL, "verify: --%s: unknown name \"%s\"%s", option, name, hint);
        p += n + (p[n] == ',');
    }
    return KVANT_OK;
}

/* "; known: " and names, separated by spaces; a diag holds them all.  name_at: NULL past the last. */
static void list_names(char *buf, size_t cap, const char *first, const char *(*name_at)(int))
{
    size_t n = (size_t)snprintf(buf, cap, "; known:%s", first);
    const char *name;

    for (int i = 0; n < cap && (name = name_at(i)) != NULL; i++)
        n += (size_t)snprintf(buf + n, cap - n, " %s", name);
}

static const char *op_name(int i)
{
    return i < KVANT_OP_COUNT ? kvant_op_get(i)->name : NULL;
}

static const char *format_name(int i)
{
    return i < kvant_format_count() ? kvant_format_at(i)->name : NULL;
}

/* Cache formats, then the weight types that are not among them. */
static const char *type_name(int i)
{
    if (i < kvant_format_count())
        return kvant_format_at(i)->name;
    for (int j = 0, seen = kvant_format_count(); j < kvant_wtype_count(); j++)
        if (!kvant_format_find(kvant_wtype_at(j)->name) && seen++ == i)
            return kvant_wtype_at(j)->name;
    return NULL;
}

/* The ops' names do not fit into a diag: a message of their own goes before it. */
static int check_ops(const char *list, kvant_diag *diag)
{
    char names[768];
    const int code = check_list(list, known_op, "ops", "", diag);

    list_names(names, sizeof names, "", op_name);
    if (code != KVANT_OK)
        log_msg(LOG_ERROR, "verify: --ops%s", names);
    return code;
}

int verify_options_check(const verify_options *o, kvant_diag *diag)
{
    char names[sizeof((kvant_diag *)0)->text];

    KVANT_TRY(check_ops(o->ops, diag));
    list_names(names, sizeof names, "", type_name);
    KVANT_TRY(check_list(o->formats, known_type, "formats", names, diag));
    list_names(names, sizeof names, " all, ci, and K:V of", format_name);
    return check_list(o->pairs, known_pair, "pairs", names, diag);
}

/* ---- the walk ---- */

/* Each generator once, although it may stand on several lines. */
static void walk(vcase *c)
{
    for (int i = 0; i < GENERATORS; i++) {
        int seen = 0;

        for (int j = 0; j < i; j++)
            seen |= table[j].fn == table[i].fn;
        if (!seen && c->rc == KVANT_OK)
            table[i].fn(c);
    }
}

/* Nothing may be claimed for an op that has no cases. */
static void uncovered(const verify_options *o, verify_report *report)
{
    for (int id = 0; id < KVANT_OP_COUNT; id++) {
        int found = 0, index;

        for (int i = 0; i < GENERATORS; i++)
            found |= table[i].op == id;
        if (found || !verify_listed(o->ops, kvant_op_get(id)->name))
            continue;
        verify_entry *e = report_entry(report, id, "none", "", &index);
        char text[VERIFY_TEXT];
        snprintf(text, sizeof text, "%s: its card names no generator", kvant_op_get(id)->name);
        report_failure(report, text);
        report->failed++;
        if (e)
            e->state = VERIFY_FAILED;
    }
}

static int open_case(vcase *c)
{
    void *device = NULL;

    c->image = kvant_alloc(VCASE_IMAGE); /* touched where it is used */
    c->got = kvant_alloc(VCASE_IMAGE);
    c->again = kvant_alloc(VCASE_IMAGE);
    if (!c->image || !c->got || !c->again)
        return kvant_fail(c->diag, KVANT_ENOMEM, "verify: out of memory for 3 x %d MiB", VCASE_IMAGE >> 20);
    KVANT_TRY(c->dev->vt->alloc(c->dev, VCASE_IMAGE, &device, c->diag));
    c->device = device;
    return KVANT_OK;
}

static void close_case(vcase *c)
{
    kvant_free(c->image);
    kvant_free(c->got);
    kvant_free(c->again);
    vscene_end(c);
    if (c->device)
        c->dev->vt->free(c->dev, c->device);
}

/* Unaligned buffers come last: a device that does not refuse what it cannot read may be lost by them. */
static int walk_device(kvant_device *dev, const verify_options *o, verify_report *report, atomic_int *next,
                       kvant_diag *diag)
{
    kvant_diag local = { "" };
    vcase c = {
        .dev = dev, .o = o, .report = report, .diag = diag ? diag : &local, .quick = o->quick, .next = next, .taken = -1
    };

    c.rc = open_case(&c);
    walk(&c);
    c.unaligned = 1;
    walk(&c);
    close_case(&c);
    return c.rc;
}

int verify_device(kvant_device *dev, const verify_options *o, verify_report *report, kvant_diag *diag)
{
    return verify_jobs(dev, NULL, 1, o, report, diag);
}

/* ---- jobs ---- */

typedef struct verify_job {
    pthread_t thread;
    const char *name;
    const verify_options *o;
    atomic_int *next;
    verify_report report;
    kvant_diag diag;
    int code, runs;
} verify_job;

static void *run_job(void *arg)
{
    verify_job *j = arg;
    kvant_device *dev;

    j->code = device_open(j->name, NULL, &dev, &j->diag);
    if (j->code != KVANT_OK)
        return NULL;
    j->code = walk_device(dev, j->o, &j->report, j->next, &j->diag);
    dev->vt->close(dev);
    return NULL;
}

/* Waits for a job and adds what it found; code: so far. */
static int join(verify_job *j, verify_report *report, int code, kvant_diag *diag)
{
    if (j->runs)
        pthread_join(j->thread, NULL);
    if (!report_add(report, &j->report) && code == KVANT_OK)
        code = kvant_fail(diag, KVANT_ENOMEM, "verify: out of memory for the report");
    if (code == KVANT_OK && j->code != KVANT_OK)
        code = kvant_fail(diag, j->code, "%s", j->diag.text);
    verify_report_free(&j->report);
    return code;
}

int verify_jobs(kvant_device *dev, const char *name, int jobs, const verify_options *o, verify_report *report,
                kvant_diag *diag)
{
    atomic_int next = 0;

    KVANT_TRY(verify_options_check(o, diag));
    dev->vt->describe(dev, report->device, sizeof report->device);
    verify_job *list = kvant_calloc((size_t)jobs, sizeof *list);
    if (!list)
        return kvant_fail(diag, KVANT_ENOMEM, "verify: out of memory for %d jobs", jobs);
    for (int i = 1; i < jobs; i++) { /* a job that does not start leaves its cases to the others */
        list[i].name = name;
        list[i].o = o;
        list[i].next = &next;
        list[i].runs = pthread_create(&list[i].thread, NULL, run_job, &list[i]) == 0;
    }
    int code = walk_device(dev, o, report, jobs > 1 ? &next : NULL, diag);
    for (int i = 1; i < jobs; i++)
        code = join(&list[i], report, code, diag);
    kvant_free(list);
    if (code == KVANT_OK)
        uncovered(o, report);
    return code;
}
