/* bench_print.c: the reports of `kvant bench`.  Owns llama-bench's field list: names, order and number text are what
 * scrapers depend on; fields without a meaning here keep llama-bench's value for "not used". */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "base/cpu.h"
#include "base/text/jsonw.h"
#include "cli/bench/bench.h"
#include "cli/common.h"
#include "cli/table.h"
#include "cli/term.h"
#include "engine/place/profile.h"
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

/* ---- json: llama-bench's fields ---- */

static int layers_without_experts(const bench_result *r)
{
    const int n = r->params->cpu_experts, all = r->info->n_layer;
    return n < 0 || r->info->n_expert == 0 ? 0 : n < all ? n : all;
}

static void build_commit(char *buf, size_t cap)
{
    const char *v = kvant_version_text(), *open = strchr(v, '(');

    snprintf(buf, cap, "%.*s", open ? (int)strcspn(open + 1, ")") : (int)strlen(v), open ? open + 1 : v);
}

static void put_machine(jsonw *w, const bench_result *r)
{
    char commit[64], cpu[128];

    build_commit(commit, sizeof commit);
    cpu_model_name(cpu, sizeof cpu);
    jsonw_kstr(w, "build_commit", commit);
    jsonw_kint(w, "build_number", KVANT_VERSION_MAJOR * 10000 + KVANT_VERSION_MINOR * 100 + KVANT_VERSION_PATCH);
    jsonw_kstr(w, "cpu_info", cpu);
    jsonw_kstr(w, "gpu_info", "");
    jsonw_kstr(w, "backends", r->backend);
    jsonw_kstr(w, "model_filename", r->model_path);
    jsonw_kstr(w, "model_type", r->info->desc);
    jsonw_kint(w, "model_size", r->info->weight_bytes);
    jsonw_kint(w, "model_n_params", r->info->n_params);
}

static void put_settings(jsonw *w, const bench_result *r)
{
    jsonw_kint(w, "n_batch", r->n_batch);
    jsonw_kint(w, "n_ubatch", r->params->n_ubatch);
    jsonw_kint(w, "n_threads", r->params->threads);
    jsonw_kstr(w, "cpu_mask", "0x0");
    jsonw_kbool(w, "cpu_strict", 0);
    jsonw_kint(w, "poll", 50);
    jsonw_kstr(w, "type_k", r->params->type_k);
    jsonw_kstr(w, "type_v", r->params->type_v);
    jsonw_kint(w, "n_gpu_layers", r->params->gpu_layers);
    jsonw_kint(w, "n_cpu_moe", layers_without_experts(r));
    jsonw_kstr(w, "split_mode", "none");
    jsonw_kint(w, "main_gpu", 0);
    jsonw_kbool(w, "no_kv_offload", 0);
    jsonw_kbool(w, "flash_attn", 1);
    jsonw_kstr(w, "devices", r->params->device ? r->params->device : "auto");
    jsonw_kstr(w, "tensor_split", "0.00");
    jsonw_kstr(w, "tensor_buft_overrides", "none");
    jsonw_kbool(w, "use_mmap", 1);
    jsonw_kbool(w, "use_direct_io", 0);
    jsonw_kbool(w, "embeddings", 0);
    jsonw_kint(w, "no_op_offload", 0);
    jsonw_kbool(w, "no_host", 0);
    jsonw_kbool(w, "repack", 1);
    jsonw_kint(w, "fit_target", 0);
    jsonw_kint(w, "fit_min_ctx", 0);
}

static void put_number(jsonw *w, const char *name, double v)
{
    char text[48];

    snprintf(text, sizeof text, "%.6f", v);
    jsonw_key(w, name);
    jsonw_raw(w, text);
}

static void put_fields(jsonw *w, const bench_result *r)
{
    bench_stats s = bench_stats_of(r);

    put_machine(w, r);
    put_settings(w, r);
    jsonw_kint(w, "n_prompt", r->n_prompt);
    jsonw_kint(w, "n_gen", r->n_gen);
    if (r->spec.k > 0) {
        jsonw_kint(w, "draft_n", r->spec.k);
        jsonw_kbool(w, "draft_mtp", r->spec.mtp);
        jsonw_knum(w, "draft_accept_stated", r->spec.accept);
    }
    jsonw_kint(w, "n_depth", r->n_depth);
    jsonw_kstr(w, "test_time", r->test_time);
    jsonw_kint(w, "avg_ns", (int64_t)llround(s.avg_ns));
    jsonw_kint(w, "stddev_ns", (int64_t)llround(s.stddev_ns));
    put_number(w, "avg_ts", s.avg_ts);
    put_number(w, "stddev_ts", s.stddev_ts);
}

/* After llama-bench's fields: what only kvant has. */
static void put_own(jsonw *w, const bench_result *r)
{
    const kvant_engine_params *p = r->params;

    jsonw_kint(w, "kv_tail", p->kv_tail);
    jsonw_kint(w, "kv_sink", p->kv_sink);
    jsonw_kstr(w, "kv_encoder", encoder_name(p->encoder));
    jsonw_kstr(w, "cache_type_layers", p->type_layers);
    jsonw_kstr(w, "state_type", p->state_type);
    jsonw_kstr(w, "compute", p->compute == KVANT_COMPUTE_F32 ? "f32" : "auto");
    jsonw_kint(w, "cache_bytes", r->cache_bytes);
    jsonw_kint(w, "n_parallel", r->n_parallel);
    if (r->reads.ns > 0) {
        jsonw_kint(w, "cpu_experts_bytes", r->reads.bytes);
        jsonw_kint(w, "cpu_experts_ns", r->reads.ns);
        put_number(w, "memory_read_gbs", r->reads.memory_gbs);
    }
}

static int print_json(bench_printer *p, const bench_result *r, int lines, kvant_diag *diag)
{
    jsonw w;

    jsonw_init(&w);
    jsonw_object(&w);
    put_fields(&w, r);
    put_own(&w, r);
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

/* Says that how many drafts were accepted was stated, not found. */
static void add_drafts(const bench_result *r, char *buf, size_t cap)
{
    const size_t n = strlen(buf);

    if (r->spec.k > 0 && r->n_gen)
        snprintf(buf + n, cap - n, ", %d drafts%s, %.2f accepted (stated)", r->spec.k, r->spec.mtp ? " of mtp" : "",
                 r->spec.accept);
}

void bench_test_name(const bench_result *r, char *buf, size_t cap)
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
    add_drafts(r, buf, cap);
}

typedef struct md_table {
    char columns[512], cells[1024];
} md_table;

static void md_add(md_table *t, const char *column, const char *format, ...)
{
    size_t c = strlen(t->columns), x = strlen(t->cells);
    va_list args;

    snprintf(t->columns + c, sizeof t->columns - c, "%s%s", c ? "|" : "", column);
    if (c)
        x += (size_t)snprintf(t->cells + x, sizeof t->cells - x, "|");
    va_start(args, format);
    vsnprintf(t->cells + x, sizeof t->cells - x, format, args);
    va_end(args);
}

/* Bytes per nanosecond are GB/s. */
static void add_reads(bench_printer *p, const bench_result *r, md_table *t)
{
    const double rate = r->reads.ns > 0 ? (double)r->reads.bytes / (double)r->reads.ns : 0.0;

    if (r->reads.memory_gbs > 0.0) {
        md_add(t, ">experts GB/s@14", "%.2f (%.0f %%)", rate, 100.0 * rate / r->reads.memory_gbs);
        p->memory_gbs = r->reads.memory_gbs;
        p->read_threads = r->params->threads;
    } else {
        md_add(t, ">experts GB/s@14", "%s", "");
    }
}

static void print_md(bench_printer *p, const bench_result *r)
{
    bench_stats s = bench_stats_of(r);
    md_table t = { "", "" };
    char text[96];

    md_add(&t, "model@30", "%.100s", r->info->desc);
    md_add(&t, ">size@10", "%s", human_bytes(r->info->weight_bytes, text, sizeof text));
    md_add(&t, ">params@10", "%s", human_count(r->info->n_params, text, sizeof text));
    md_add(&t, "backend@10", "%.100s", r->backend);
    if (p->show_threads)
        md_add(&t, ">threads@7", "%d", r->params->threads);
    if (p->show_batch)
        md_add(&t, ">n_batch@7", "%d", r->n_batch);
    if (p->show_ubatch)
        md_add(&t, ">n_ubatch@8", "%d", r->params->n_ubatch);
    if (p->show_types) {
        md_add(&t, ">type_k@10", "%s", r->params->type_k);
        md_add(&t, ">type_v@10", "%s", r->params->type_v);
    }
    if (p->show_tail)
        md_add(&t, ">kv_tail@7", "%d", r->params->kv_tail);
    bench_test_name(r, text, sizeof text);
    md_add(&t, ">test@20", "%s", text);
    md_add(&t, ">t/s@20", "%.2f \xC2\xB1 %.2f", s.avg_ts, s.stddev_ts);
    if (p->show_reads)
        add_reads(p, r, &t);
    if (p->n == 0 || p->again)
        table_head(p->f, t.columns);
    p->again = 0;
    table_row(p->f, t.columns, "%s", t.cells);
}

/* ---- the profile ---- */

static const char profile_columns[] = "op@48|>launches@8|>us@9|>%@5|>GB/s of weights@15";

static int by_time(const void *a, const void *b)
{
    const double x = (*(const profile_line *const *)a)->us, y = (*(const profile_line *const *)b)->us;

    return (x < y) - (x > y);
}

static void print_line(FILE *f, const profile_line *l, double passes, double all)
{
    char rate[32] = "";

    if (l->bytes > 0 && l->us > 0)
        snprintf(rate, sizeof rate, "%.0f", l->bytes / l->us / 1e3);
    table_row(f, profile_columns, "%s|%.1f|%.1f|%.1f|%s", l->name, (double)l->launches / passes, l->us / passes,
              all > 0 ? 100 * l->us / all : 0.0, rate);
}

void bench_profile_print(FILE *f, const engine_profile *p, const char *what)
{
    const profile_line *order[PROFILE_LINES];
    profile_line sum = { .name = "all" };
    const double passes = p->passes > 0 ? (double)p->passes : 1;

    for (int i = 0; i < p->n_lines; i++) {
        order[i] = &p->lines[i];
        sum.us += p->lines[i].us;
        sum.launches += p->lines[i].launches;
    }
    qsort(order, (size_t)p->n_lines, sizeof *order, by_time);
    fprintf(f, "\nProfile of %s: one pass of %lld, each launch waited for\n\n", what, (long long)p->passes);
    table_head(f, profile_columns);
    for (int i = 0; i < p->n_lines; i++)
        print_line(f, order[i], passes, sum.us);
    print_line(f, &sum, passes, sum.us);
    fputc('\n', f);
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

    if (strcmp(p->kind, "md") == 0)
        print_md(p, r);
    else if (strcmp(p->kind, "none") != 0)
        code = print_json(p, r, strcmp(p->kind, "jsonl") == 0, diag);
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
    if (strcmp(p->kind, "md") == 0 && p->memory_gbs > 0.0)
        fprintf(p->f, "\nexperts GB/s: of routed experts, read while the CPU computed with them; in brackets the share of the "
                      "%.2f GB/s\nat which %d threads read memory\n", p->memory_gbs, p->read_threads);
    if (strcmp(p->kind, "md") == 0 && p->n)
        fprintf(p->f, "\nbuild: %s; tokenisation and sampling are not in the time\n", commit);
}
