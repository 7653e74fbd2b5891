/* check_golden.c: the engine against recorded outputs of an independent implementation (Transformers, f32) on the
 * novella models.
 *
 * For each model: four prompts: argmax per position, last logits within 2e-2, log-sum-exp, 48 greedy ids; and the
 * negative log-likelihood of the first 1024 validation tokens, with the RoPE frequencies of the recording and with the
 * usual ones.  The models are large and optional (../shared/models or $KVANT_MODELS): absent ones are skipped with a
 * line.  check_golden NAME runs them on that device ("cuda"), with the same limits; check_golden NAME first only the
 * ids of the first prompt, in an f16 cache: for software drivers.  Under a sanitizer, which looks at memory and not at
 * numbers, two of the four cases run: all logits in f32, and the usual engine. */
#include <math.h>

#include "base/file/file.h"
#include "base/mem.h"
#include "base/text/json.h"
#include "kvant/engine.h"
#include "support/check.h"

enum { MAX_IDS = 2048, GREEDY = 48 };
static const char *device;             /* NULL: the CPU */
static int only_first;

static int read_ids(gjson v, int32_t *ids)
{
    gjson it = { 0 };
    int n = 0;
    while (n < MAX_IDS && gjson_next(v, &it))
        ids[n++] = (int32_t)gjson_number(it);
    return n;
}

static int read_floats(gjson v, float *x, int cap)
{
    gjson it = { 0 };
    int n = 0;
    while (n < cap && gjson_next(v, &it))
        x[n++] = (float)gjson_number(it);
    return n;
}

static int argmax(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

static double logsumexp(const float *x, int n)
{
    double m = x[argmax(x, n)], s = 0;
    for (int i = 0; i < n; i++)
        s += exp(x[i] - m);
    return m + log(s);
}

typedef struct setup {
    kvant_model *m;
    kvant_engine *e;
    int n_vocab;
} setup;

/* The recordings were made by a module cast to bf16 as a whole, its RoPE frequencies included, and then run in f32:
 * with the same frequencies the engine agrees to 1e-4; with the usual f32 ones (`freq` NULL) the mean agrees and single
 * tokens differ. */
static int setup_open(setup *s, const char *path, const char *type, int compute, const char *freq)
{
    kvant_diag d = { "" };
    kvant_engine_params p = kvant_engine_defaults();
    kvant_model_params mp = { .size = sizeof(kvant_model_params), .path = path, .rope_freq_dtype = freq };
    p.type_k = p.type_v = type;
    p.compute = compute;
    p.n_ctx = 2048;
    p.logits_rows = 2048;
    p.threads = 2;
    p.device = device;
    s->m = NULL;
    s->e = NULL;
    CHECK(kvant_model_open(&mp, &s->m, &d) == KVANT_OK, "%s: %s", path, d.text);
    if (!s->m)
        return 0;
    CHECK(kvant_engine_create(s->m, &p, &s->e, &d) == KVANT_OK, "%s: %s", path, d.text);
    s->n_vocab = kvant_model_get_info(s->m)->n_vocab;
    return s->e != NULL;
}

static void setup_close(setup *s)
{
    kvant_engine_free(s->e);
    kvant_model_close(s->m);
}

static int step(kvant_engine *e, int seq, const int32_t *ids, int n, int prompt, int logits)
{
    kvant_diag d = { "" };
    const kvant_item it = { seq, ids, n, prompt, logits };
    int code = kvant_step(e, &it, 1, &d);
    CHECK(code == KVANT_OK, "step: %s", d.text);
    return code == KVANT_OK;
}

/* One prompt of the golden file; returns whether all greedy ids agree. */
static int check_prompt(const setup *s, gjson g, int with_logits, const char *what)
{
    static int32_t ids[MAX_IDS], want[MAX_IDS];
    static float ref[1 << 16];
    int n = read_ids(gjson_get(g, "prompt_ids"), ids), same = 1, seq, n_top;

    kvant_seq_new(s->e, &seq, NULL);
    if (!step(s->e, seq, ids, n, 1, KVANT_LOGITS_ALL))
        return 0;
    if (with_logits) {
        int agree = 0;
        double worst = 0;
        n_top = read_ids(gjson_get(g, "argmax_per_pos"), want);
        for (int i = 0; i < n; i++)
            agree += argmax(kvant_step_logits(s->e, 0, i), s->n_vocab) == want[i];
        CHECK(n_top == n && agree >= (int)ceil(0.995 * n), "%s: argmax agrees at %d of %d", what, agree, n);
        read_floats(gjson_get(g, "logsumexp_per_pos"), ref, n);
        for (int i = 0; i < n; i++)
            CHECK_CLOSE(logsumexp(kvant_step_logits(s->e, 0, i), s->n_vocab), ref[i], 2e-2, "%s: logsumexp at %d", what,
                        i);
        CHECK(read_floats(gjson_get(g, "last_logits"), ref, 1 << 16) == s->n_vocab, "%s: vocabulary", what);
        for (int i = 0; i < s->n_vocab; i++)
            worst = fmax(worst, fabs((double)kvant_step_logits(s->e, 0, n - 1)[i] - ref[i]));
        CHECK(worst <= 2e-2, "%s: last logits differ by up to %.3g", what, worst);
        printf("%s: argmax %d/%d, last logits within %.2g\n", what, agree, n, worst);
    }
    int32_t token = argmax(kvant_step_logits(s->e, 0, n - 1), s->n_vocab);
    int n_want = read_ids(gjson_get(g, "greedy_ids"), want), good = 0;
    for (int i = 0; i < GREEDY && i < n_want; i++) {
        same = same && token == want[i];
        good += same;
        if (!step(s->e, seq, &token, 1, 0, KVANT_LOGITS_LAST))
            return 0;
        token = argmax(kvant_step_logits(s->e, 0, 0), s->n_vocab);
    }
    printf("%s: first %d of %d greedy ids equal\n", what, good, n_want);
    kvant_seq_free(s->e, seq);
    return same && n_want == GREEDY;
}

typedef struct nll_limits { double mean, worst; } nll_limits;

static void check_nll(const setup *s, gjson root, nll_limits limit, const char *what)
{
    static int32_t ids[MAX_IDS];
    static float nll[MAX_IDS];
    gjson v = gjson_get(root, "valid_first_1024");
    int n = read_ids(gjson_get(v, "ids"), ids), m = read_floats(gjson_get(v, "nll"), nll, MAX_IDS), seq;
    double mean = 0, worst = 0;

    CHECK(n == 1024 && m == 1023, "%s: %d ids, %d nll", what, n, m);
    kvant_seq_new(s->e, &seq, NULL);
    if (!step(s->e, seq, ids, n, 1, KVANT_LOGITS_ALL))
        return;
    for (int i = 0; i + 1 < n; i++) {
        const float *x = kvant_step_logits(s->e, 0, i);
        double d = logsumexp(x, s->n_vocab) - x[ids[i + 1]] - nll[i];
        mean += d / (n - 1);
        worst = fmax(worst, fabs(d));
    }
    CHECK(fabs(mean) <= limit.mean, "%s: nll mean difference %.3g, wanted at most %.3g", what, mean, limit.mean);
    CHECK(worst <= limit.worst, "%s: nll worst difference %.3g, wanted at most %.3g", what, worst, limit.worst);
    printf("%s: nll of 1023 tokens: mean difference %.2g, worst %.2g\n", what, mean, worst);
    kvant_seq_free(s->e, seq);
}

typedef struct run_case {
    const char *type, *freq;       /* cache type; RoPE frequencies ("bf16": as recorded) */
    int compute, strict;           /* strict: logits and nll too */
} run_case;

/* Runs all prompts; returns a bit mask of those whose greedy ids are all equal. */
static int check_run(const char *path, gjson root, const char *name, run_case c, nll_limits limit)
{
    setup s;
    gjson it = { 0 };
    int mask = 0;
    char what[96];

    if (!setup_open(&s, path, c.type, c.compute, c.freq))
        return 0;
    for (int i = 0; gjson_next(gjson_get(root, "golden"), &it) && !(only_first && i); i++) {
        snprintf(what, sizeof what, "%s %s%s%s prompt %d", name, c.type, c.compute ? " f32" : "",
                 c.freq ? " as recorded" : "", i);
        mask |= check_prompt(&s, it, c.strict, what) << i;
    }
    snprintf(what, sizeof what, "%s %s%s%s", name, c.type, c.compute ? " f32" : "", c.freq ? " as recorded" : "");
    if (c.strict)
        check_nll(&s, root, limit, what);
    setup_close(&s);
    return mask;
}

static int bits(int mask)
{
    int n = 0;
    for (; mask; mask &= mask - 1)
        n++;
    return n;
}

/* must: mask of prompts whose greedy ids have to be equal with compute f32; returns prompts equal with the default
 * compute. */
static int check_model(const char *name, int must, nll_limits usual_limits)
{
    char path[512], json[512], file[96];
    char *text = NULL;
    size_t size;
    gjson root;
    kvant_diag d = { "" };

    snprintf(file, sizeof file, "novella-%s-bf16.gguf", name);
    if (!check_model_path(file, path, sizeof path))
        return -1;
    snprintf(file, sizeof file, "novella-%s-golden.json", name);
    if (!check_model_path(file, json, sizeof json))
        return -1;
    CHECK(file_read(json, 1 << 24, &text, &size, &d) == KVANT_OK && gjson_parse(text, size, &root, &d) == KVANT_OK,
          "%s", d.text);
    const run_case cases[] = { { "f32", "bf16", KVANT_COMPUTE_F32, 1 }, { "f32", NULL, KVANT_COMPUTE_F32, 1 },
                               { "f16", NULL, KVANT_COMPUTE_F32, 0 }, { "f16", NULL, KVANT_COMPUTE_AUTO, 0 } };
    const nll_limits recorded = { 1e-4, 1e-2 };
    const int from = only_first ? 2 : 0, end = only_first ? 3 : 4, step = check_sanitized ? 3 : 1;
    int got[4] = { 0 };
    must = only_first ? 1 : must;
    for (int i = from; i < end; i += step)
        got[i] = check_run(path, root, name, cases[i], i == 0 ? recorded : usual_limits);
    for (int i = from; i < 3; i += step)
        CHECK((got[i] & must) == must, "%s, case %d: greedy ids equal for prompts %x, wanted %x", name, i, got[i],
              must);
    kvant_free(text);
    return bits(got[3]);
}

int main(int argc, char **argv)
{
    device = argc > 1 ? argv[1] : NULL;
    only_first = argc > 2 && strcmp(argv[2], "first") == 0;
    /* With f32 frequencies single tokens differ by more than the recordings' own accuracy: an f64 evaluation of the
     * dense model shows the same 0.063.  docs/evidence/golden.md has the table. */
    int dense = check_model("dense", 15, (nll_limits){ 1e-3, 0.08 });
    int hybrid = check_model("hybrid", 15, (nll_limits){ 1e-3, 0.05 });
    check_model("moe", 5, (nll_limits){ 1e-3, 0.4 });
    if (dense >= 0 && hybrid >= 0 && !only_first)
        CHECK(dense + hybrid >= 7, "default compute: %d of 8 prompts give the golden ids, wanted 7", dense + hybrid);
    return check_end("check_golden");
}
