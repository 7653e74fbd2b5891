/* bench_serve_out.c: tables, saved runs, comparison and plot of bench-serve. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/file/file.h"
#include "base/mem.h"
#include "cli/bench/bench_serve.h"
#include "cli/table.h"

/* X(member, title): the numbers of a run, in the order of the table and of saved lines. */
#define BS_NUMBERS(X)                                                                                                  \
    X(agg_tps, "agg t/s")                                                                                              \
    X(decode_agg_tps, "decode t/s") X(perseq_tps, "t/s each") X(prefill_tps, "prefill t/s") X(ttft_mean, "ttft")       \
        X(ttft_p50, "p50") X(ttft_p99, "p99") X(ttft_max, "max") X(itl_p50, "itl p50") X(itl_p99, "itl p99")           \
            X(wall_s, "wall s")

static const struct {
    const char *name, *title;
    size_t at;
} numbers[] = {
#define BS_ROW(member, title) { #member, title, offsetof(bs_run, member) },
    BS_NUMBERS(BS_ROW)
#undef BS_ROW
};
enum { N_NUMBERS = sizeof numbers / sizeof *numbers, AGG = 0, TTFT = 4 };

static double value_of(const bs_run *r, int i)
{
    double v;

    memcpy(&v, (const char *)r + numbers[i].at, sizeof v);
    return v;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* Median and noise (max of 2 % and three standard deviations, as a part of the median) of a number over n runs. */
static double median_of(const bs_run *runs, int n, int number, double *noise)
{
    double v[128], mean = 0, var = 0;

    n = n < 128 ? n : 128;
    for (int i = 0; i < n; i++) {
        v[i] = value_of(&runs[i], number);
        mean += v[i] / n;
    }
    for (int i = 0; i < n; i++)
        var += (v[i] - mean) * (v[i] - mean) / (n > 1 ? n - 1 : 1);
    qsort(v, (size_t)n, sizeof *v, compare);
    double median = n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
    if (noise)
        *noise = fmax(0.02, median > 0 ? 3 * sqrt(var) / median : 0);
    return median;
}

static double turn_median(const bs_report *r, int row, int turn)
{
    double v[128];
    int n = r->reps < 128 ? r->reps : 128;

    for (int i = 0; i < n; i++)
        v[i] = r->runs[row * r->reps + i].ttft_turn[turn];
    qsort(v, (size_t)n, sizeof *v, compare);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static int quiet(const bs_report *r)
{
    return opt_flag(r->o, OPT_JSON);
}

/* A row of as many cells as there are numbers or turns. */
typedef struct row_text {
    char text[2048];
} row_text;

static void append(row_text *l, const char *format, ...)
{
    size_t n = strlen(l->text);
    va_list args;

    va_start(args, format);
    vsnprintf(l->text + n, sizeof l->text - n, format, args);
    va_end(args);
}

void bs_print_row(const bs_report *r, int row)
{
    const bs_run *runs = &r->runs[row * r->reps];
    int errors = 0;

    if (quiet(r))
        return;
    row_text columns = { ">conc|>reqs|>errors" }, cells = { "" };
    for (int i = 0; i < r->reps; i++)
        errors += runs[i].errors;
    append(&cells, "%d|%d|%d", runs->concurrency, runs->requests, errors);
    for (int i = 0; i < N_NUMBERS; i++) {
        append(&columns, "|>%s", numbers[i].title);
        append(&cells, "|%.*f", i == N_NUMBERS - 1 ? 3 : 1, median_of(runs, r->reps, i, NULL));
    }
    if (row == 0)
        table_head(stdout, columns.text);
    table_row(stdout, columns.text, "%s", cells.text);
    fflush(stdout);
}

/* ---- JSON ---- */

static void run_json(const bs_report *r, const bs_run *x, jsonw *w)
{
    jsonw_object(w);
    jsonw_kstr(w, "url", r->o->pos[0]);
    jsonw_kstr(w, "model", r->model);
    jsonw_kint(w, "n", x->concurrency);
    jsonw_kint(w, "reqs", x->requests);
    jsonw_kint(w, "errors", x->errors);
    jsonw_knum(w, "rate", x->rate);
    jsonw_kint(w, "gen_total", x->gen_total);
    jsonw_kint(w, "prompt_tok_total", x->prompt_total);
    jsonw_kint(w, "cached_tok_total", x->cached_total);
    jsonw_kint(w, "gen_per_req", opt_int(r->o, OPT_BS_GEN));
    for (int i = 0; i < N_NUMBERS; i++)
        jsonw_knum(w, numbers[i].name, value_of(x, i));
    jsonw_key(w, "ttft_turn");
    jsonw_array(w);
    for (int i = 0; i < x->turns; i++)
        jsonw_num(w, x->ttft_turn[i]);
    jsonw_end(w);
    jsonw_end(w);
}

static int save_runs(const bs_report *r, kvant_diag *diag)
{
    const char *path = opt_str(r->o, OPT_BS_SAVE);
    FILE *f = path ? fopen(path, "a") : NULL;
    int ok = 1;

    if (!path)
        return KVANT_OK;
    if (!f)
        return kvant_fail(diag, KVANT_EIO, "%s: cannot be written", path);
    for (int i = 0; i < r->rows * r->reps && ok; i++) {
        jsonw w;
        jsonw_init(&w);
        run_json(r, &r->runs[i], &w);
        ok = !jsonw_error(&w) && fprintf(f, "%s\n", w.buf) > 0;
        jsonw_free(&w);
    }
    if (fclose(f) != 0 || !ok)
        return kvant_fail(diag, KVANT_EIO, "%s: cannot be written", path);
    return KVANT_OK;
}

/* ---- comparison ---- */

static double saved_number(const char *line, const char *name)
{
    char key[64];

    snprintf(key, sizeof key, "\"%s\":", name);
    const char *s = strstr(line, key);
    return s ? strtod(s + strlen(key), NULL) : 0;
}

int bs_read_base(bs_report *r, kvant_diag *diag)
{
    const char *path = opt_str(r->o, OPT_BS_BASE);
    char *text, *save = NULL;
    size_t size;
    int cap = 1;

    if (!path)
        return KVANT_OK;
    KVANT_TRY(file_read(path, 64 << 20, &text, &size, diag));
    for (size_t i = 0; i < size; i++)
        cap += text[i] == '\n';
    r->base = kvant_calloc((size_t)cap, sizeof *r->base);
    for (char *line = strtok_r(text, "\n", &save); line && r->base; line = strtok_r(NULL, "\n", &save)) {
        bs_run *x = &r->base[r->n_base++];
        x->concurrency = (int)saved_number(line, "n");
        for (int i = 0; i < N_NUMBERS; i++) {
            double v = saved_number(line, numbers[i].name);
            memcpy((char *)x + numbers[i].at, &v, sizeof v);
        }
    }
    kvant_free(text);
    return r->base ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "bench-serve: out of memory");
}

static void compare_row(const bs_report *r, const char *columns, int row)
{
    const bs_run *runs = &r->runs[row * r->reps];
    bs_run base[128];
    int n = 0;
    static const int shown[] = { AGG, 1, 3, TTFT, 8 };

    for (int i = 0; i < r->n_base && n < 128; i++)
        if (r->base[i].concurrency == runs->concurrency)
            base[n++] = r->base[i];
    if (!n)
        return;
    row_text cells = { "" };
    append(&cells, "%d", runs->concurrency);
    for (size_t k = 0; k < sizeof shown / sizeof *shown; k++) {
        double noise_a, noise_b, a = median_of(runs, r->reps, shown[k], &noise_a),
                                 b = median_of(base, n, shown[k], &noise_b);
        double ratio = b > 0 ? a / b : 0, noise = fmax(noise_a, noise_b);
        append(&cells, "|%.3fx%s", ratio, fabs(ratio - 1) > noise ? "" : " (noise)");
    }
    table_row(stdout, columns, "%s", cells.text);
}

static void print_comparison(const bs_report *r)
{
    if (!r->base || quiet(r))
        return;
    printf("\nthis / base (noise: within max(2 %%, 3 standard deviations)):\n");
    static const char columns[] = ">conc|>agg t/s|>decode t/s|>prefill t/s|>ttft|>itl p50";
    table_head(stdout, columns);
    for (int row = 0; row < r->rows; row++)
        compare_row(r, columns, row);
}

static void print_turns(const bs_report *r)
{
    int turns = r->runs->turns;

    if (quiet(r) || turns < 2)
        return;
    row_text columns = { ">conc" };
    for (int t = 0; t < turns; t++)
        append(&columns, "|>turn %d", t + 1);
    printf("\nttft by turn (ms):\n");
    table_head(stdout, columns.text);
    for (int row = 0; row < r->rows; row++) {
        row_text cells = { "" };
        append(&cells, "%d", r->runs[row * r->reps].concurrency);
        for (int t = 0; t < turns; t++)
            append(&cells, "|%.1f", turn_median(r, row, t));
        table_row(stdout, columns.text, "%s", cells.text);
    }
}

/* ---- plot ---- */

enum { PLOT_W = 420, PLOT_H = 240, LEFT = 60, TOP = 40, GAP = 80 };

static double place_x(const bs_report *r, int panel, int row)
{
    int span = r->rows > 1 ? r->rows - 1 : 1;

    return LEFT + panel * (PLOT_W + GAP) + (double)PLOT_W * row / span;
}

static void draw_panel(FILE *f, const bs_report *r, int panel, int number, const char *title, const char *color)
{
    double most = 0, x0 = LEFT + panel * (PLOT_W + GAP);

    for (int row = 0; row < r->rows; row++)
        most = fmax(most, median_of(&r->runs[row * r->reps], r->reps, number, NULL));
    most = most > 0 ? most * 1.1 : 1;
    fprintf(f, "<text x=\"%g\" y=\"24\" font-size=\"14\">%s</text>\n", x0, title);
    for (int i = 0; i <= 4; i++) {
        double y = TOP + PLOT_H - PLOT_H * i / 4.0;
        fprintf(
            f,
            "<line x1=\"%g\" y1=\"%g\" x2=\"%g\" y2=\"%g\" stroke=\"#ddd\"/><text x=\"%g\" y=\"%g\" text-anchor=\"end\">%.4g</text>\n",
            x0, y, x0 + PLOT_W, y, x0 - 6, y + 4, most * i / 4);
    }
    fprintf(f, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", color);
    for (int row = 0; row < r->rows; row++)
        fprintf(f, "%g,%g ", place_x(r, panel, row),
                TOP + PLOT_H * (1 - median_of(&r->runs[row * r->reps], r->reps, number, NULL) / most));
    fprintf(f, "\"/>\n");
    for (int row = 0; row < r->rows; row++) {
        for (int i = 0; i < r->reps; i++)
            fprintf(f, "<circle cx=\"%g\" cy=\"%g\" r=\"3\" fill=\"%s\"/>\n", place_x(r, panel, row),
                    TOP + PLOT_H * (1 - value_of(&r->runs[row * r->reps + i], number) / most), color);
        fprintf(f, "<text x=\"%g\" y=\"%d\" text-anchor=\"middle\">%d</text>\n", place_x(r, panel, row),
                TOP + PLOT_H + 18, r->runs[row * r->reps].concurrency);
    }
    fprintf(f, "<text x=\"%g\" y=\"%d\" text-anchor=\"middle\">requests in flight</text>\n", x0 + PLOT_W / 2.0,
            TOP + PLOT_H + 36);
}

static int plot(const bs_report *r, kvant_diag *diag)
{
    const char *path = opt_str(r->o, OPT_BS_PLOT);
    FILE *f = path ? fopen(path, "w") : NULL;

    if (!path)
        return KVANT_OK;
    if (!f)
        return kvant_fail(diag, KVANT_EIO, "%s: cannot be written", path);
    fprintf(
        f,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"11\">\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
        LEFT + 2 * PLOT_W + GAP + 30, TOP + PLOT_H + 50);
    draw_panel(f, r, 0, AGG, "generated tokens per second (agg_tps)", "#1a6fb5");
    draw_panel(f, r, 1, TTFT, "mean time to first token, ms", "#b5501a");
    fprintf(f, "</svg>\n");
    return fclose(f) == 0 ? KVANT_OK : kvant_fail(diag, KVANT_EIO, "%s: cannot be written", path);
}

int bs_finish(const bs_report *r, kvant_diag *diag)
{
    KVANT_TRY(save_runs(r, diag));
    KVANT_TRY(plot(r, diag));
    print_turns(r);
    print_comparison(r);
    if (!quiet(r))
        return KVANT_OK;
    jsonw w;
    jsonw_init(&w);
    jsonw_object(&w);
    jsonw_key(&w, "runs");
    jsonw_array(&w);
    for (int i = 0; i < r->rows * r->reps; i++)
        run_json(r, &r->runs[i], &w);
    jsonw_end(&w);
    jsonw_end(&w);
    return put_json(&w, diag);
}
