/* check_imatrix.c: importance matrices: what an engine counts against sums computed here from the file, the file's way
 * through writer and reader, and what weights do in the searches of the weight types and in model_quantize. */
#include <unistd.h>
#include "make/collect.h"
#include "make/imatrix.h"
#include "make/quantize.h"
#include "model/gguf/gguf.h"
#include "support/check.h"

enum { TOKENS = 70, MOST = 4096 };

static char temp_dir[256];
static kvant_diag diag;

static const char *temp_path(const char *name)
{
    static char path[4][512];
    static int next;
    char *p = path[next++ % 4];

    snprintf(p, sizeof path[0], "%s/%s", temp_dir, name);
    return p;
}

static void ids_of(int32_t *ids, int n_vocab)
{
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (i * 37 + 11) % n_vocab;
}

/* TOKENS tokens of the model through an engine that is counted; the file is temp_path("im.gguf"). */
static int count_model(const char *path)
{
    const kvant_model_params params = { .size = sizeof(kvant_model_params), .path = path };
    kvant_engine_params p = kvant_engine_defaults();
    kvant_model *m = NULL;
    kvant_engine *e = NULL;
    collect *c = NULL;
    int32_t ids[TOKENS];
    int seq, n = -1;

    p.n_ctx = 128;
    p.max_seqs = 1;
    p.logits_rows = 64;
    p.threads = 2;
    CHECK(kvant_model_open(&params, &m, &diag) == KVANT_OK, "%s", diag.text);
    CHECK(kvant_engine_create(m, &p, &e, &diag) == KVANT_OK, "%s", diag.text);
    CHECK(collect_open(e, &c, &diag) == KVANT_OK, "%s", diag.text);
    ids_of(ids, kvant_model_get_info(m)->n_vocab);
    CHECK(kvant_seq_new(e, &seq, &diag) == KVANT_OK, "%s", diag.text);
    for (int at = 0; at < TOKENS; at += 64) {
        const kvant_item item = { seq, ids + at, TOKENS - at < 64 ? TOKENS - at : 64, 1, KVANT_LOGITS_ALL };
        CHECK(kvant_step(e, &item, 1, &diag) == KVANT_OK, "%s", diag.text);
    }
    CHECK(collect_save(c, temp_path("im.gguf"), "a text", 3, 64, &n, &diag) == KVANT_OK, "%s", diag.text);
    collect_close(c);
    kvant_engine_free(e);
    kvant_model_close(m);
    return n;
}

static void row_of(const gguf *g, const char *name, int64_t r, float *x)
{
    const gguf_tensor *t = gguf_tensor_find(g, name);
    const kvant_wtype *type = t ? kvant_wtype_by_id(t->type) : NULL;

    CHECK(t && type && t->ne[0] <= MOST, "%s", name);
    if (t && type)
        type->dequant(t->data + (size_t)(r * t->ne[0] / type->block) * (size_t)type->bytes, x, t->ne[0]);
}

/* What the first layer's q is multiplied with is the normed embedding: its squares, added up here. */
static void check_first_layer(const char *path, const char *arch, const imatrix *im)
{
    static float x[MOST], w[MOST], mean[MOST];
    static double sum[MOST];
    char key[80];
    int32_t ids[TOKENS];
    uint32_t n = 0;
    float eps = 0;
    gguf *g = NULL;

    memset(sum, 0, sizeof sum);
    CHECK(gguf_open(path, &g, &diag) == KVANT_OK, "%s", diag.text);
    snprintf(key, sizeof key, "%s.embedding_length", arch);
    CHECK(gguf_u32(g, key, 1, &n, &diag) == KVANT_OK && n <= MOST, "%s", diag.text);
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    CHECK(gguf_f32(g, key, 1, &eps, &diag) == KVANT_OK, "%s", diag.text);
    row_of(g, "blk.0.attn_norm.weight", 0, w);
    ids_of(ids, (int)gguf_tensor_find(g, "token_embd.weight")->ne[1]);
    for (int t = 0; t < TOKENS; t++) {
        double ss = 0;
        row_of(g, "token_embd.weight", ids[t], x);
        for (uint32_t i = 0; i < n; i++)
            ss += (double)x[i] * x[i];
        for (uint32_t i = 0; i < n; i++) {
            const double y = x[i] / sqrt(ss / n + eps) * w[i];
            sum[i] += y * y;
        }
    }
    CHECK(imatrix_mean(im, "blk.0.attn_q.weight", n, 1, 0, mean, &diag) == 1, "%s", diag.text);
    for (uint32_t i = 0; i < n; i++)
        CHECK_CLOSE(mean[i], sum[i] / TOKENS, 1e-5 * (1 + sum[i] / TOKENS), "column %u", i);
    gguf_close(g);
}

static float count_of(const gguf *g, const char *name, int i)
{
    const gguf_tensor *t = gguf_tensor_find(g, name);
    float v = NAN;

    if (t && t->ne[0] == 1 && t->ne[1] > i)
        memcpy(&v, t->data + (size_t)i * sizeof v, sizeof v);
    return v;
}

static int same_sums(const gguf *g, const char *a, const char *b)
{
    const gguf_tensor *x = gguf_tensor_find(g, a), *y = gguf_tensor_find(g, b);
    return x && y && x->bytes == y->bytes && memcmp(x->data, y->data, x->bytes) == 0;
}

/* Every token is counted once for a matrix of all tokens, k times over the experts; q, k and v see the same rows. */
static void check_counts(const char *arch, int matrices, int experts, int k)
{
    gguf *g = NULL;
    float total = 0;

    CHECK(gguf_open(temp_path("im.gguf"), &g, &diag) == KVANT_OK, "%s", diag.text);
    CHECK(gguf_tensor_count(g) == 2 * matrices, "%s: %d tensors for %d matrices", arch, gguf_tensor_count(g), matrices);
    CHECK(count_of(g, "blk.0.attn_output.weight.counts", 0) == TOKENS, "%s: attn_output", arch);
    CHECK(same_sums(g, "blk.0.attn_q.weight.in_sum2", "blk.0.attn_k.weight.in_sum2"), "%s: q and k", arch);
    CHECK(!same_sums(g, "blk.0.attn_q.weight.in_sum2", "blk.1.attn_q.weight.in_sum2"), "%s: two layers", arch);
    for (int e = 0; e < experts; e++)
        total += count_of(g, "blk.0.ffn_down_exps.weight.counts", e);
    CHECK(total == (float)(TOKENS * k), "%s: experts counted %g rows", arch, (double)total);
    if (experts)
        CHECK(same_sums(g, "blk.1.ffn_gate_exps.weight.in_sum2", "blk.1.ffn_up_exps.weight.in_sum2"), "gate and up");
    gguf_close(g);
}

static void check_model(const char *arch, int experts, int k)
{
    char path[80];
    imatrix *im = NULL;

    snprintf(path, sizeof path, "tests/golden/tiny/%s.gguf", arch);
    const int n = count_model(path);
    CHECK(n > 0 && imatrix_open(temp_path("im.gguf"), &im, &diag) == KVANT_OK, "%s", diag.text);
    CHECK(imatrix_chunks(im) == 3 && imatrix_entries(im) == n, "%u chunks", imatrix_chunks(im));
    check_first_layer(path, arch, im);
    check_counts(arch, n, experts, k);
    imatrix_close(im);
}

/* ---- files that are wrong ---- */

static void check_files(void)
{
    double sum2[] = { 2, 4, 6, 0, 0, 0 };
    const int64_t rows[] = { 2, 0 };
    imatrix_entry list[] = { { "blk.0.b.weight", 3, 2, sum2, rows }, { "blk.0.a.weight", 3, 1, sum2, rows } };
    float mean[3];
    char text[16];
    imatrix *im = NULL;

    CHECK(imatrix_save(temp_path("im2.gguf"), list, 2, "t", 7, 64, &diag) == KVANT_OK, "%s", diag.text);
    CHECK(imatrix_open(temp_path("im2.gguf"), &im, &diag) == KVANT_OK, "%s", diag.text);
    imatrix_dataset(im, text, sizeof text);
    CHECK(imatrix_chunks(im) == 7 && strcmp(text, "t") == 0, "%u chunks of %s", imatrix_chunks(im), text);
    CHECK(imatrix_mean(im, "blk.0.b.weight", 3, 2, 0, mean, &diag) == 1 && mean[0] == 1 && mean[2] == 3, "%s",
          diag.text);
    CHECK(imatrix_mean(im, "blk.0.b.weight", 3, 2, 1, mean, &diag) == 0, "no row came to the second matrix");
    CHECK(imatrix_mean(im, "blk.0.c.weight", 3, 2, 0, mean, &diag) == 0, "an entry that is not there");
    CHECK(imatrix_mean(im, "blk.0.b.weight", 4, 2, 0, mean, &diag) == KVANT_EFORMAT &&
              strstr(diag.text, "3 columns of 2 matrices, 4 of 2 wanted"),
          "%s", diag.text);
    imatrix_close(im);
    sum2[1] = -1;
    CHECK(imatrix_save(temp_path("im2.gguf"), list, 2, "t", 7, 64, &diag) == KVANT_OK, "%s", diag.text);
    CHECK(imatrix_open(temp_path("im2.gguf"), &im, &diag) == KVANT_OK, "%s", diag.text);
    CHECK(imatrix_mean(im, "blk.0.b.weight", 3, 2, 0, mean, &diag) == KVANT_EFORMAT &&
              strstr(diag.text, "value 1 is -1"),
          "%s", diag.text);
    imatrix_close(im);
    CHECK(imatrix_open("tests/golden/tiny/llama.gguf", &im, &diag) == KVANT_EFORMAT &&
              strstr(diag.text, "general.type"),
          "%s", diag.text);
}

/* ---- the searches ---- */

static double weighted_error(const float *x, const float *y, const float *importance, int n)
{
    double err = 0;

    for (int i = 0; i < n; i++)
        err += (double)importance[i] * (x[i] - y[i]) * (x[i] - y[i]);
    return err;
}

/* Columns of very different importance: the error where it counts is smaller than without; NULL is the plain quant. */
static void check_type(const kvant_wtype *t)
{
    enum { N = 256 * 16 };
    static float x[N], y[N], importance[N];
    static uint8_t plain[N * 4], weighted[N * 4];
    const size_t bytes = (size_t)(N / t->block * t->bytes);

    check_fill_normal(x, N, 5);
    check_fill(importance, N, 0.0f, 1.0f, 6);
    for (int i = 0; i < N; i++)
        importance[i] = importance[i] > 0.9f ? 100.0f : importance[i];
    memset(weighted, 0, sizeof weighted);
    t->quant(x, plain, N);
    if (!kvant_wtype_quant_weighted(t, x, NULL, weighted, N)) {
        CHECK(!strstr(t->name, "_K") && !strstr(t->name, "IQ4"), "%s takes no weights", t->name);
        return;
    }
    CHECK(memcmp(plain, weighted, bytes) == 0, "%s: without an importance other bytes", t->name);
    t->dequant(plain, y, N);
    const double before = weighted_error(x, y, importance, N);
    CHECK(kvant_wtype_quant_weighted(t, x, importance, weighted, N) == 1, "%s", t->name);
    t->dequant(weighted, y, N);
    const double after = weighted_error(x, y, importance, N);
    CHECK(after < 0.95 * before, "%s: error %g with, %g without an importance", t->name, after, before);
    memset(importance, 0, sizeof importance);
    CHECK(kvant_wtype_quant_weighted(t, x, importance, weighted, N) == 1, "%s", t->name);
    t->dequant(weighted, y, N);
    for (int i = 0; i < N; i++)
        CHECK(isfinite(y[i]), "%s: value %d with no importance at all", t->name, i);
}

static void check_quantize(void)
{
    const quantize_params p = { .type = kvant_wtype_find("IQ4_NL"), .imatrix = temp_path("im.gguf") };
    quantize_result r = { 0 };
    gguf_str s = { "", 0 };
    uint32_t n = 0;
    gguf *g = NULL;

    CHECK(count_model("tests/golden/tiny/qwen3moe.gguf") > 0, "counted");
    CHECK(model_quantize("tests/golden/tiny/qwen3moe.gguf", temp_path("q.gguf"), &p, NULL, NULL, &r, &diag) == KVANT_OK,
          "%s", diag.text);
    CHECK(r.n_weighted > 0 && r.n_weighted < r.n_converted, "%d of %d with an importance (not the embedding)",
          r.n_weighted, r.n_converted);
    CHECK(gguf_open(temp_path("q.gguf"), &g, &diag) == KVANT_OK, "%s", diag.text);
    CHECK(gguf_u32(g, "quantize.imatrix.chunks_count", 1, &n, &diag) == KVANT_OK && n == 3, "%u", n);
    CHECK(gguf_string(g, "quantize.imatrix.dataset", 1, &s, &diag) == KVANT_OK && s.n == 6, "%s", diag.text);
    gguf_close(g);
    CHECK(count_model("tests/golden/tiny/llama.gguf") > 0, "counted");
    unlink(temp_path("q.gguf"));
    const int rc = model_quantize("tests/golden/tiny/qwen3.gguf", temp_path("q.gguf"), &p, NULL, NULL, &r, &diag);
    CHECK(rc == KVANT_OK || (rc == KVANT_EFORMAT && strstr(diag.text, "columns")), "another model's: %s", diag.text);
}

int main(void)
{
    const char *tmp = getenv("TMPDIR");
    char command[400];

    snprintf(temp_dir, sizeof temp_dir, "%.200s/kvant-imatrix-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(temp_dir))
        return 1;
    check_model("llama", 0, 0);
    check_model("qwen3moe", 8, 2);
    check_files();
    for (int i = 0; i < kvant_wtype_count(); i++)
        if (kvant_wtype_at(i)->quant)
            check_type(kvant_wtype_at(i));
    check_quantize();
    snprintf(command, sizeof command, "rm -rf '%s'", temp_dir);
    if (system(command) != 0)
        printf("could not remove %s\n", temp_dir);
    return check_end("check_imatrix");
}
