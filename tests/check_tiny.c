/* check_tiny: the six architectures against Hugging Face Transformers on tiny seeded models (tests/golden/tiny).
 *
 * With f32 compute and an f32 cache: logits of a 150-token prompt within NMSE 1e-6 and 32 greedy ids equal, on the
 * chunk path and on the one-token path; a prompt cut on the 64-token grid gives the same bits as the whole. */
#include "support/check.h"

#include <stdint.h>
#include "kvant/engine.h"

enum { MAX_PROMPT = 256, MAX_GREEDY = 64 };

typedef struct expect {
    int32_t n_prompt, n_vocab, n_greedy;
    int32_t prompt[MAX_PROMPT], greedy[MAX_GREEDY];
    float *logits;                      /* [n_prompt][n_vocab] */
} expect;

/* 1 if the file is there and whole; its layout is described in tools/make_tiny_models.py. */
static int expect_read(const char *path, expect *e)
{
    char magic[8];
    FILE *f = fopen(path, "rb");
    int ok = f && fread(magic, 1, 8, f) == 8 && memcmp(magic, "KVTINY1", 8) == 0 && fread(e, 4, 3, f) == 3;
    ok = ok && e->n_prompt > 64 && e->n_prompt <= MAX_PROMPT && e->n_greedy > 0 && e->n_greedy <= MAX_GREEDY &&
         e->n_vocab > 0;
    if (ok) {
        size_t n = (size_t)e->n_prompt * (size_t)e->n_vocab;
        e->logits = malloc(n * sizeof(float));
        ok = e->logits && fread(e->prompt, 4, (size_t)e->n_prompt, f) == (size_t)e->n_prompt &&
             fread(e->greedy, 4, (size_t)e->n_greedy, f) == (size_t)e->n_greedy && fread(e->logits, 4, n, f) == n &&
             fgetc(f) == EOF;
    }
    if (f)
        fclose(f);
    return ok;
}

static int32_t argmax(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

/* Appends n tokens as one step and copies the logits of all of them; 0 on failure. */
static int append(kvant_engine *eng, int seq, const int32_t *tokens, int n, int prompt, int n_vocab, float *logits)
{
    kvant_diag diag = { "" };
    kvant_item item = { .seq = seq, .tokens = tokens, .n = n, .prompt = prompt, .logits = KVANT_LOGITS_ALL };
    int rc = kvant_step(eng, &item, 1, &diag);
    CHECK(rc == KVANT_OK, "step of %d tokens: %s: %s", n, kvant_error_name(rc), diag.text);
    for (int i = 0; rc == KVANT_OK && i < n; i++) {
        const float *row = kvant_step_logits(eng, 0, i);
        if (!row)
            return 0;
        memcpy(logits + (size_t)i * (size_t)n_vocab, row, (size_t)n_vocab * sizeof(float));
    }
    return rc == KVANT_OK;
}

/* The prompt in pieces of `piece` tokens (0: whole; 1: one-token path), then greedy.  logits f32[n_prompt][n_vocab]
 * out. */
static void check_path(const char *arch, kvant_engine *eng, const expect *e, int piece, float *logits)
{
    kvant_diag diag = { "" };
    int seq, step = piece ? piece : e->n_prompt, wrong = 0;
    CHECK(kvant_seq_new(eng, &seq, &diag) == KVANT_OK, "%s: %s", arch, diag.text);
    for (int at = 0; at < e->n_prompt; at += step) {
        int n = step < e->n_prompt - at ? step : e->n_prompt - at;
        if (!append(eng, seq, e->prompt + at, n, piece != 1, e->n_vocab, logits + (size_t)at * (size_t)e->n_vocab)) {
            CHECK(0, "%s: no logits at %d (piece %d)", arch, at, piece);
            kvant_seq_free(eng, seq);
            return;
        }
    }
    double nmse = check_nmse(logits, e->logits, (size_t)e->n_prompt * (size_t)e->n_vocab);
    CHECK(nmse <= 1e-6, "%s: logits NMSE %.3g, piece %d", arch, nmse, piece);
    printf("%s: piece %d: logits NMSE %.3g\n", arch, piece, nmse);

    float *next = malloc((size_t)e->n_vocab * sizeof(float));
    memcpy(next, logits + (size_t)(e->n_prompt - 1) * (size_t)e->n_vocab, (size_t)e->n_vocab * sizeof(float));
    for (int i = 0; i < e->n_greedy && !wrong; i++) {
        int32_t id = argmax(next, e->n_vocab);
        CHECK(id == e->greedy[i], "%s: greedy id %d is %d, wanted %d (piece %d)", arch, i, id, e->greedy[i], piece);
        wrong = id != e->greedy[i] || !append(eng, seq, &id, 1, 0, e->n_vocab, next);
    }
    free(next);
    CHECK(kvant_seq_free(eng, seq) == KVANT_OK, "%s", arch);
}

static void check_arch(const char *arch)
{
    char path[256];
    kvant_diag diag = { "" };
    kvant_model *model = NULL;
    kvant_engine *eng = NULL;
    expect *e = calloc(1, sizeof *e);

    snprintf(path, sizeof path, "tests/golden/tiny/%s.expect", arch);
    CHECK(expect_read(path, e), "%s is missing or malformed", path);
    snprintf(path, sizeof path, "tests/golden/tiny/%s.gguf", arch);
    kvant_model_params mp = { .size = sizeof(kvant_model_params), .path = path };
    int rc = kvant_model_open(&mp, &model, &diag);
    CHECK(rc == KVANT_OK, "%s: %s", path, diag.text);
    if (rc == KVANT_OK) {
        const kvant_model_info *info = kvant_model_get_info(model);
        CHECK(strcmp(info->arch, arch) == 0 && info->n_vocab == e->n_vocab, "%s: %s, vocabulary %d", path, info->arch,
              info->n_vocab);
        kvant_engine_params p = kvant_engine_defaults();
        p.threads = 2;
        p.compute = KVANT_COMPUTE_F32;
        p.n_ctx = MAX_PROMPT;
        p.type_k = p.type_v = "f32";
        p.logits_rows = MAX_PROMPT;
        rc = kvant_engine_create(model, &p, &eng, &diag);
        CHECK(rc == KVANT_OK, "%s: %s", arch, diag.text);
    }
    if (rc == KVANT_OK) {
        size_t bytes = (size_t)e->n_prompt * (size_t)e->n_vocab * sizeof(float);
        float *whole = calloc(1, bytes), *cut = calloc(1, bytes);
        check_path(arch, eng, e, 0, whole);
        check_path(arch, eng, e, 64, cut);
        CHECK(memcmp(whole, cut, bytes) == 0, "%s: a prompt cut at 64 tokens gives other bits than the whole", arch);
        check_path(arch, eng, e, 1, cut);
        free(whole);
        free(cut);
    }
    kvant_engine_free(eng);
    kvant_model_close(model);
    free(e->logits);
    free(e);
}

int main(void)
{
    static const char *const archs[] = { "qwen3", "qwen3moe", "llama", "qwen35", "qwen35moe", "qwen3next" };
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        check_arch(archs[i]);
    return check_end("check_tiny");
}
