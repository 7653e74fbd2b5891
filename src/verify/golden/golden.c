/* golden.c: the folder and file level of the golden runner.  Rows are in golden_rows.c, fused cases in
 * golden_fused.c. */
#include "verify/golden/golden_run.h"

#include <dirent.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/file/file.h"
#include "kvant/qjl.h"

enum { MAX_FILE_BYTES = 256 << 20 };

static void count_add(golden_count *a, const golden_count *b)
{
    a->passed += b->passed;
    a->failed += b->failed;
    a->skipped += b->skipped;
    a->informative += b->informative;
    a->ties += b->ties;
}

void golden_check(golden_run *r, int ok, const char *fmt, ...)
{
    if (ok) {
        r->file->count.passed++;
        return;
    }
    r->file->count.failed++;
    if (r->report->n_failures == GOLDEN_MAX_FAILURES)
        return;
    char *text = r->report->failures[r->report->n_failures++];
    int n = snprintf(text, GOLDEN_TEXT, "%s: ", r->file->name);
    va_list args;
    va_start(args, fmt);
    vsnprintf(text + n, (size_t)(GOLDEN_TEXT - n), fmt, args);
    va_end(args);
}

void *golden_bytes(golden_run *r, gjson v, size_t *n)
{
    *n = 0;
    size_t bytes = gjson_hex_bytes(v);
    void *p = bytes == SIZE_MAX ? NULL : arena_alloc(&r->memory, bytes + 1);
    if (p && gjson_hex(v, p, bytes))
        *n = bytes;
    return p;
}

float *golden_floats(golden_run *r, gjson v, size_t *n)
{
    float *p = golden_bytes(r, v, n);
    *n /= sizeof *p;
    return p;
}

int golden_compare(const float *a, const float *b, size_t n, double tol)
{
    for (size_t i = 0; i < n; i++) {
        if (isfinite(b[i]) ? !(fabs((double)a[i] - b[i]) <= tol) : isfinite(a[i]))
            return (int)i;
    }
    return -1;
}

double golden_norm(const float *x, size_t n)
{
    double s = 0.0;
    for (size_t i = 0; i < n; i++)
        s += (double)x[i] * x[i];
    return sqrt(s);
}

/* The projection a file names: "... Box-Muller ..." with projection_seed, or "... marsaglia ... seed 0x...". */
static int projection_of(gjson root, float *out)
{
    char text[128] = "", number[64] = "";
    gjson_text(gjson_get(root, "projection"), text, sizeof text);
    gjson_text(gjson_get(root, "projection_seed"), number, sizeof number);
    const char *seed = number[0] ? number : strstr(text, "0x");
    if (!seed)
        return 0;
    if (strstr(text, "Box-Muller"))
        kvant_qjl_projection_build(strtoull(seed, NULL, 0), out);
    else if (strstr(text, "arsaglia"))
        golden_projection_marsaglia(strtoull(seed, NULL, 0), out);
    else
        return 0;
    return 1;
}

/* Titles that do not begin with the name of a kvant format, and what they hold.  "": not a kvant format. */
static const struct title {
    const char *starts, *has, *format;
} titles[] = {
    { "fused ", "tbq3_0", "tbq3_0" },
    { "fused ", "q4_polar", "q4_polar" },
    { "buun turbo4_0 (66 bytes", "", "turbo4_66" },
    { "TheTom ", "", "" },
};

static const kvant_format *format_of(const char *title)
{
    char word[24] = "";
    for (size_t i = 0; i < sizeof titles / sizeof titles[0]; i++)
        if (strncmp(title, titles[i].starts, strlen(titles[i].starts)) == 0 && strstr(title, titles[i].has))
            return kvant_format_find(titles[i].format);
    size_t n = strcspn(title, " ");
    memcpy(word, title, n < sizeof word ? n : sizeof word - 1);
    return kvant_format_find(word);
}

static void run_title(golden_run *r, gjson root)
{
    char title[128] = "";
    gjson_text(gjson_get(root, "format"), title, sizeof title);
    const kvant_format *f = format_of(title);
    if (strncmp(title, "rotation128", 11) == 0) {
        snprintf(r->file->format, sizeof r->file->format, "rotation128");
        golden_rotation(r, root);
    } else if (!f) {
        r->file->count.skipped++;
    } else if (strncmp(title, "fused ", 6) == 0) {
        snprintf(r->file->format, sizeof r->file->format, "fused %s", f->name);
        golden_fused(r, root, f);
    } else {
        snprintf(r->file->format, sizeof r->file->format, "%s", f->name);
        (f->flags & KVANT_FORMAT_PAGE ? golden_pages : golden_rows)(r, root, f);
    }
}

static int run_file(golden_run *r, const char *path, kvant_diag *diag)
{
    char *text;
    size_t n;
    gjson root;
    KVANT_TRY(file_read(path, MAX_FILE_BYTES, &text, &n, diag));
    int rc = gjson_parse(text, n, &root, diag);
    if (rc == KVANT_EFORMAT && diag) {
        kvant_diag inner = *diag;
        kvant_fail(diag, rc, "%.120s: %.120s", path, inner.text);
    }
    /* A hex field takes half of its text, results as much again; 2 MiB for the projection and the scratch. */
    if (rc == KVANT_OK)
        rc = arena_init(&r->memory, 2 * n + (2u << 20), diag);
    if (rc == KVANT_OK) {
        float *pi = arena_alloc(&r->memory, KVANT_QJL_FILE_BYTES);
        r->projection = pi && projection_of(root, pi) ? pi : NULL;
        if (!golden_fixture(r, root) && r->host)
            run_title(r, root);
        r->file->count.skipped += !r->host && !r->file->format[0] && !r->file->count.failed;
        arena_free(&r->memory);
    }
    kvant_free(text);
    return rc;
}

/* The first name in the folder that sorts after `after` and ends in .json: order without a list. */
static int next_name(const char *dir, const char *after, char *name, size_t cap, kvant_diag *diag)
{
    DIR *d = opendir(dir);
    if (!d)
        return kvant_fail(diag, KVANT_ENOENT, "golden folder %s cannot be opened", dir);
    int found = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        size_t n = strlen(e->d_name);
        if (n < 6 || n >= cap || strcmp(e->d_name + n - 5, ".json") != 0 || strcmp(e->d_name, after) <= 0)
            continue;
        if (!found || strcmp(e->d_name, name) < 0)
            memcpy(name, e->d_name, n + 1);
        found = 1;
    }
    closedir(d);
    return found;
}

int golden_run_dir(const char *dir, kvant_device *dev, golden_report *out, kvant_diag *diag)
{
    char name[80] = "", after[80] = "", path[4096];
    memset(out, 0, sizeof *out);
    for (;;) {
        int found = next_name(dir, after, name, sizeof name, diag);
        KVANT_TRY(found);
        if (!found)
            break;
        if (out->n_files == GOLDEN_MAX_FILES)
            return kvant_fail(diag, KVANT_ENOSPC, "golden folder %s: more than %d files", dir, GOLDEN_MAX_FILES);
        golden_run r = { .report = out, .file = &out->files[out->n_files++], .dev = dev,
                         .host = !dev || strcmp(dev->vt->name, "cpu") == 0 };
        memcpy(r.file->name, name, sizeof name);
        memcpy(after, name, sizeof name);
        if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, name) >= sizeof path)
            return kvant_fail(diag, KVANT_EINVAL, "golden folder name is %zu bytes, want at most 4000", strlen(dir));
        KVANT_TRY(run_file(&r, path, diag));
        count_add(&out->total, &r.file->count);
    }
    if (!out->n_files)
        return kvant_fail(diag, KVANT_ENOENT, "golden folder %s: no *.json file", dir);
    return KVANT_OK;
}
