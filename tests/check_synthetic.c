/* check_synthetic: models without a file (kvant_model_params.synthetic) on the CPU: every architecture and weight type
 * at a tiny shape runs, twice with the same tokens; greedy tokens are the argmax of the logits; bad names are refused;
 * the big shapes open and have the published sizes, without their weights. */
#include <stdint.h>
#include "kvant/engine.h"
#include "support/check.h"

enum { PROMPT = 70, STEPS = 6 };

static int open_made(const char *spec, kvant_model **m, kvant_diag *diag)
{
    const kvant_model_params p = { .size = sizeof(kvant_model_params), .synthetic = spec };
    return kvant_model_open(&p, m, diag);
}

static int best_of(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

/* Prompt and STEPS greedy tokens; with == 1: picked by the device, 0: from logits. */
static void generate(kvant_engine *e, const char *spec, int with, int32_t *out)
{
    kvant_diag diag = { "" };
    int32_t ids[PROMPT], next = 0;
    int seq, n_vocab = kvant_model_get_info(kvant_engine_model(e))->n_vocab;

    for (int i = 0; i < PROMPT; i++)
        ids[i] = (i * 37 + 5) % n_vocab;
    CHECK(kvant_seq_new(e, &seq, &diag) == KVANT_OK, "%s: %s", spec, diag.text);
    for (int i = 0; i <= STEPS; i++) {
        kvant_item item = { seq, i ? &next : ids, i ? 1 : PROMPT, !i, with ? KVANT_LOGITS_GREEDY : KVANT_LOGITS_LAST };
        int rc = kvant_step(e, &item, 1, &diag);
        CHECK(rc == KVANT_OK, "%s step %d: %s", spec, i, diag.text);
        if (rc < 0)
            return;
        const float *x = kvant_step_logits(e, 0, 0);
        CHECK(with ? x == NULL : x != NULL, "%s: logits came back: %d", spec, x != NULL);
        CHECK(with || kvant_step_token(e, 0) == -1, "%s: a token without being asked for", spec);
        next = out[i] = with ? kvant_step_token(e, 0) : best_of(x, n_vocab);
        CHECK(next >= 0 && next < n_vocab, "%s: token %d", spec, next);
    }
    kvant_seq_free(e, seq);
}

static void check_runs(const char *spec)
{
    kvant_diag diag = { "" };
    kvant_model *m = NULL;
    kvant_engine *e = NULL;
    int32_t a[STEPS + 1], b[STEPS + 1];
    int rc = open_made(spec, &m, &diag);

    CHECK(rc == KVANT_OK, "%s: %s", spec, diag.text);
    if (rc < 0)
        return;
    kvant_engine_params p = kvant_engine_defaults();
    p.threads = 2;
    p.n_ctx = 128;
    rc = kvant_engine_create(m, &p, &e, &diag);
    CHECK(rc == KVANT_OK, "%s: %s", spec, diag.text);
    if (rc == KVANT_OK) {
        generate(e, spec, 0, a);
        generate(e, spec, 1, b);
        CHECK(memcmp(a, b, sizeof a) == 0, "%s: the device picks other tokens than the logits say", spec);
    }
    kvant_engine_free(e);
    kvant_model_close(m);
}

static void check_refused(const char *spec, const char *word)
{
    kvant_diag diag = { "" };
    kvant_model *m = NULL;
    int rc = open_made(spec, &m, &diag);

    CHECK(rc == KVANT_EINVAL && strstr(diag.text, word), "\"%s\": %s: %s", spec, kvant_error_name(rc), diag.text);
}

/* Parameters of the published models, in billions; matrices only, so within 2 percent. */
static void check_size(const char *spec, double params)
{
    kvant_diag diag = { "" };
    kvant_model *m = NULL;
    int rc = open_made(spec, &m, &diag);

    CHECK(rc == KVANT_OK, "%s: %s", spec, diag.text);
    if (rc < 0)
        return;
    double n = (double)kvant_model_get_info(m)->n_params / 1e9;
    CHECK(n > 0.98 * params && n < 1.02 * params, "%s: %.2f billion parameters, wanted %.2f", spec, n, params);
    kvant_model_close(m);
}

int main(void)
{
    static const char *const types[] = { "f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q6_k", "mxfp4", "nvfp4" };
    static const char *const archs[] = { "qwen3", "llama", "qwen3moe", "qwen3next", "qwen35", "qwen35moe" };
    char spec[64];

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        snprintf(spec, sizeof spec, "tiny-qwen3:%s", types[i]);
        check_runs(spec);
    }
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        snprintf(spec, sizeof spec, "tiny-%s:%s", archs[i], i % 2 ? "q4_k" : "bf16");
        check_runs(spec);
    }
    check_size("qwen3-8b:bf16", 8.19);
    check_size("qwen35moe-35b-a3b:q4_k", 34.7);
    check_size("qwen3next-80b-a3b:bf16", 79.7);
    check_size("qwen3-32b:q8_0", 32.8);
    check_refused("qwen3-9b:bf16", "qwen3-8b");
    check_refused("qwen3-8b", "weight type");
    check_refused("qwen3-8b:q9_k", "weight type");
    check_refused("", "NAME:TYPE");
    return check_end("check_synthetic");
}
