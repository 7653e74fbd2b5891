/* bench_print.c: the reports of `kvant bench`.  Owns llama-bench's field list: names, order and number text are what
 * scrapers depend on; fields without a meaning here keep llama-bench's value for "not used". */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/cpu.h"
#include "base/jsonw.h"
#include "base/mem.h"
#include "cli/bench.h"
#include "cli/common.h"
#include "cli/term.h"
#include "kvant/kvant.h"

bench_stats bench_stats_of(const bench_result *r)
{
    bench_stats s = { 0, 0, 0, 0 };
    double n = r->n_samples, tokens = (double)r->n_parallel * (r->n_prompt + r->n_gen);

    for (int i = 0; i < r->n_samples; i++) {
        s.avg_ns += (double)r->samples_ns[i] / n;
        s.avg_ts += tokens * 1e9 / (double)r->samples_ns[i] / n;
    }
    for (int i = 0; i < r->n_samples && n > 1; i++) {
        double a = (double)r->samples_ns[i] - s.avg_ns, b = tokens * 1e9 / (double)r->samples_ns[i] - s.avg_ts;
        s.stddev_ns += a * a / (n - 1);
        s.stddev_ts += b * b / (n - 1);
    }
    s.stddev_ns = sqrt(s.stddev_ns);
    s.stddev_ts = sqrt(s.stddev_ts);
    return s;
}

/* ---- fields: csv, json, sql ---- */

enum field_kind { F_STR, F_INT, F_NUM, F_BOOL };
enum { N_FIELDS = 48, FIELD_CAP = 256 };

typedef struct field {
    const char *name;
    enum field_kind kind;
    char text[FIELD_CAP];
} field;
typedef struct field_list {
    field f[N_FIELDS];
    int n;
} field_list;

static void add(field_list *l, const char *name, enum field_kind kind, const char *text)
{
    field *f = &l->f[l->n++];

    f->name = name;
    f->kind = kind;
    snprintf(f->text, sizeof f->text, "%s", text);
}

static void add_int(field_list *l, const char *name, int64_t v)
{
    char text[32];

    snprintf(text, sizeof text, "%" PRId64, v);
    add(l, name, F_INT, text);
}

static void add_num(field_list *l, const char *name, double v)
{
    char text[48];

    snprintf(text, sizeof text, "%.6f", v);
    add(l, name, F_NUM, text);
}

static void build_commit(char *buf, size_t cap)
{
    const char *v = kvant_version(), *open = strchr(v, '(');

    snprintf(buf, cap, "%.*s", open ? (int)strcspn(open + 1, ")") : (int)strlen(v), open ? open + 1 : v);
}

static void add_machine(field_list *l, const bench_result *r)
{
    char commit[64], cpu[128];

    build_commit(commit, sizeof commit);
    cpu_model_name(cpu, sizeof cpu);
    add(l, "build_commit", F_STR, commit);
    add_int(l, "build_number", KVANT_VERSION_MAJOR * 10000 + KVANT_VERSION_MINOR * 100 + KVANT_VERSION_PATCH);
    add(l, "cpu_info", F_STR, cpu);
    add(l, "gpu_info", F_STR, "");
    add(l, "backends", F_STR, r->backend);
    add(l, "model_filename", F_STR, r->model_path);
    add(l, "model_type", F_STR, r->info->desc);
    add_int(l, "model_size", r->info->weight_bytes);
    add_int(l, "model_n_params", r->info->n_params);
}

static void add_settings(field_list *l, const bench_result *r)
{
    add_int(l, "n_batch", r->n_batch);
    add_int(l, "n_ubatch", r->params->n_ubatch);
    add_int(l, "n_threads", r->params->threads);
    add(l, "cpu_mask", F_STR, "0x0");
    add(l, "cpu_strict", F_BOOL, "0");
    add_int(l, "poll", 50);
    add(l, "type_k", F_STR, r->params->type_k);
    add(l, "type_v", F_STR, r->params->type_v);
    add_int(l, "n_gpu_layers", 0);
    add_int(l, "n_cpu_moe", 0);
    add(l, "split_mode", F_STR, "none");
    add_int(l, "main_gpu", 0);
    add(l, "no_kv_offload", F_BOOL, "0");
    add(l, "flash_attn", F_BOOL, "1");
    add(l, "devices", F_STR, r->params->device ? r->params->device : "auto");
    add(l, "tensor_split", F_STR, "0.00");
    add(l, "tensor_buft_overrides", F_STR, "none");
    add(l, "use_mmap", F_BOOL, "1");
    add(l, "use_direct_io", F_BOOL, "0");
    add(l, "embeddings", F_BOOL, "0");
    add_int(l, "no_op_offload", 0);
    add(l, "no_host", F_BOOL, "0");
    add(l, "repack", F_BOOL, "1");
    add_int(l, "fit_target", 0);
    add_int(l, "fit_min_ctx", 0);
}

static void fields_of(field_list *l, const bench_result *r)
{
    bench_stats s = bench_stats_of(r);

    l->n = 0;
    add_machine(l, r);
    add_settings(l, r);
    add_int(l, "n_prompt", r->n_prompt);
    add_int(l, "n_gen", r->n_gen);
    add_int(l, "n_depth", r->n_depth);
    add(l, "test_time", F_STR, r->test_time);
    add_int(l, "avg_ns", (int64_t)llround(s.avg_ns));
    add_int(l, "stddev_ns", (int64_t)llround(s.stddev_ns));
    add_num(l, "avg_ts", s.avg_ts);
    add_num(l, "stddev_ts", s.stddev_ts);
}

/* RFC 4180 quotes for csv, doubled single quotes for sql. */
static void put_quoted(FILE *f, const char *s, char quote)
{
    fputc(quote, f);
    for (; *s; s++) {
        if (*s == quote)
            fputc(quote, f);
        fputc(*s, f);
    }
    fputc(quote, f);
}

static void csv_names(bench_printer *p, const field_list *l)
{
    for (int i = 0; i < l->n; i++)
        fprintf(p->f, "%s%s", i ? "," : "", l->f[i].name);
    fputc('\n', p->f);
}

static void print_csv(bench_printer *p, const field_list *l)
{
    if (p->n == 0)
        csv_names(p, l);
    for (int i = 0; i < l->n; i++) {
        if (i)
            fputc(',', p->f);
        put_quoted(p->f, l->f[i].text, '"');
    }
    fputc('\n', p->f);
}

static void print_sql(bench_printer *p, const field_list *l)
{
    static const char *const types[] = { "TEXT", "INTEGER", "REAL", "INTEGER" };

    if (p->n == 0) {
        fputs("CREATE TABLE IF NOT EXISTS llama_bench (\n", p->f);
        for (int i = 0; i < l->n; i++)
            fprintf(p->f, "  %s %s%s\n", l->f[i].name, types[l->f[i].kind], i + 1 < l->n ? "," : "");
        fputs(");\n\n", p->f);
    }
    fputs("INSERT INTO llama_bench (", p->f);
    for (int i = 0; i < l->n; i++)
        fprintf(p->f, "%s%s", i ? ", " : "", l->f[i].name);
    fputs(") VALUES (", p->f);
    for (int i = 0; i < l->n; i++) {
        if (i)
            fputs(", ", p->f);
        put_quoted(p->f, l->f[i].text, '\'');
    }
    fputs(");\n", p->f);
}

/* ---- json ---- */

static void json_fields(jsonw *w, const field_list *l)
{
    for (int i = 0; i < l->n; i++) {
        jsonw_key(w, l->f[i].name);
        if (l->f[i].kind == F_STR)
            jsonw_str(w, l->f[i].text);
        else if (l->f[i].kind == F_BOOL)
            jsonw_bool(w, l->f[i].text[0] == '1');
        else
            jsonw_raw(w, l->f[i].text);
    }
}

/* After llama-bench's fields: what only kvant has. */
static void json_own(jsonw *w, const bench_result *r)
{
    const kvant_engine_params *p = r->params;

    jsonw_kint(w, "kv_tail", p->kv_tail);
    jsonw_kstr(w, "kv_encoder", encoder_name(p->encoder));
    jsonw_kstr(w, "cache_type_layers", p->type_layers);
    jsonw_kstr(w, "state_type", p->state_type);
    jsonw_kstr(w, "compute", p->compute == KVANT_COMPUTE_F32 ? "f32" : "auto");
    jsonw_kint(w, "cache_bytes", r->cache_bytes);
    jsonw_kint(w, "n_parallel", r->n_parallel);
}

static int print_json(bench_printer *p, const field_list *l, const bench_result *r, int lines, kvant_diag *diag)
{
    jsonw w;

    jsonw_init(&w);
    jsonw_object(&w);
    json_fields(&w, l);
    json_own(&w, r);
    jsonw_key(&w, "samples_ns");
    jsonw_array(&w);
    for (int i = 0; i < r->n_samples; i++)
        jsonw_int(&w, r->samples_ns[i]);
    jsonw_end(&w);
    jsonw_key(&w, "samples_ts");
    jsonw_array(&w);
    for (int i = 0; i < r->n_samples; i++)
        jsonw_num(&w, (double)r->n_parallel * (r->n_prompt + r->n_gen) * 1e9 / (double)r->samples_ns[i]);
    jsonw_end(&w);
    jsonw_end(&w);
    int bad = jsonw_error(&w);
    if (!bad && !lines)
        fprintf(p->f, "%s\n  %s", p->n ? "," : "", w.buf);
    else if (!bad)
        fprintf(p->f, "%s\n", w.buf);
    jsonw_free(&w);
    return bad ? kvant_fail(diag, KVANT_ENOMEM, "report: out of memory") : KVANT_OK;
}

/* ---- markdown ---- */

enum { MAX_COLUMNS = 16 };
typedef struct column {
    const char *title;
    int width;
    char text[96];
} column; /* width < 0: right-aligned */

static void test_name(const bench_result *r, char *buf, size_t cap)
{
    char depth[48] = "", many[16] = "";

    if (r->n_parallel > 1)
        snprintf(many, sizeof many, " x%d", r->n_parallel);
    if (r->n_depth)
        snprintf(depth, sizeof depth, "%s @ d%d", many, r->n_depth);
    else
        snprintf(depth, sizeof depth, "%s", many);
    if (r->n_prompt && r->n_gen)
        snprintf(buf, cap, "pp%d+tg%d%s", r->n_prompt, r->n_gen, depth);
    else
        snprintf(buf, cap, "%s%d%s", r->n_prompt ? "pp" : "tg", r->n_prompt ? r->n_prompt : r->n_gen, depth);
}

static column *md_add(column *c, int *n, const char *title, int width)
{
    c[*n] = (column){ title, width, "" };
    return &c[(*n)++];
}

static void md_number(column *c, int *n, const char *title, int64_t v)
{
    snprintf(md_add(c, n, title, -(int)(strlen(title) > 7 ? strlen(title) : 7))->text, 96, "%" PRId64, v);
}

static int md_columns(const bench_printer *p, const bench_result *r, column *c)
{
    bench_stats s = bench_stats_of(r);
    int n = 0;

    snprintf(md_add(c, &n, "model", 30)->text, 96, "%s", r->info->desc);
    human_bytes(r->info->weight_bytes, md_add(c, &n, "size", -10)->text, 96);
    human_count(r->info->n_params, md_add(c, &n, "params", -10)->text, 96);
    snprintf(md_add(c, &n, "backend", 10)->text, 96, "%s", r->backend);
    if (p->show_threads)
        md_number(c, &n, "threads", r->params->threads);
    if (p->show_batch)
        md_number(c, &n, "n_batch", r->n_batch);
    if (p->show_ubatch)
        md_number(c, &n, "n_ubatch", r->params->n_ubatch);
    if (p->show_types) {
        snprintf(md_add(c, &n, "type_k", -10)->text, 96, "%s", r->params->type_k);
        snprintf(md_add(c, &n, "type_v", -10)->text, 96, "%s", r->params->type_v);
    }
    if (p->show_tail)
        md_number(c, &n, "kv_tail", r->params->kv_tail);
    test_name(r, md_add(c, &n, "test", -20)->text, 96);
    snprintf(md_add(c, &n, "t/s", -20)->text, 96, "%.2f \xC2\xB1 %.2f", s.avg_ts, s.stddev_ts);
    return n;
}

/* Pads by characters, not bytes: the plus-minus sign has two. */
static void md_cell(FILE *f, const char *text, int width)
{
    int chars = 0, want = abs(width);

    for (const char *q = text; *q; q++)
        chars += (*q & 0xC0) != 0x80;
    if (width < 0)
        fprintf(f, "%*s", want > chars ? want - chars : 0, "");
    fputs(text, f);
    if (width > 0)
        fprintf(f, "%*s", want > chars ? want - chars : 0, "");
}

static void print_md(bench_printer *p, const bench_result *r)
{
    column c[MAX_COLUMNS];
    int n = md_columns(p, r, c);

    for (int line = p->n ? 2 : 0; line < 3; line++) {
        fputc('|', p->f);
        for (int i = 0; i < n; i++) {
            fputc(' ', p->f);
            if (line == 1) {
                for (int j = 1; j < abs(c[i].width); j++)
                    fputc('-', p->f);
                fputs(c[i].width < 0 ? ":" : "-", p->f);
            } else {
                md_cell(p->f, line == 0 ? c[i].title : c[i].text, c[i].width);
            }
            fputs(" |", p->f);
        }
        fputc('\n', p->f);
    }
}

/* ---- the printer ---- */

void bench_begin(bench_printer *p)
{
    if (strcmp(p->kind, "json") == 0)
        fputc('[', p->f);
}

int bench_print(bench_printer *p, const bench_result *r, kvant_diag *diag)
{
    int code = KVANT_OK;
    field_list *l = kvant_calloc(1, sizeof *l);

    if (!l)
        return kvant_fail(diag, KVANT_ENOMEM, "report: out of memory");
    fields_of(l, r);
    if (strcmp(p->kind, "md") == 0)
        print_md(p, r);
    else if (strcmp(p->kind, "csv") == 0)
        print_csv(p, l);
    else if (strcmp(p->kind, "sql") == 0)
        print_sql(p, l);
    else if (strcmp(p->kind, "none") != 0)
        code = print_json(p, l, r, strcmp(p->kind, "jsonl") == 0, diag);
    kvant_free(l);
    p->n++;
    fflush(p->f);
    return code;
}

void bench_end(bench_printer *p)
{
    char commit[64];

    build_commit(commit, sizeof commit);
    if (strcmp(p->kind, "json") == 0)
        fputs("\n]\n", p->f);
    if (strcmp(p->kind, "md") == 0 && p->n)
        fprintf(p->f, "\nbuild: %s; tokenisation and sampling are not in the time\n", commit);
}
