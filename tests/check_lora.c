/* check_lora.c [DEVICE]: adapters of a model against what tests/lora/MODEL.json recorded from peft, in f32 throughout;
 * on the CPU also: the same bits of a sequence alone and beside others with other scales, cut, on other threads; a
 * sequence without adapters has the bits of an engine that has none; adapter files that do not fit are refused. */
#include <unistd.h>

#include "base/text/json.h"
#include "model/lora.h"
#include "model/model.h"
#include "support/check.h"
#include "support/device_here.h"
#include "support/gguf_build.h"
#include "support/text_file.h"

enum { PROMPT = 160, ROWS = 4, CASES = 4, VOCAB = 512, FILES = 2, GEN = 6 };

typedef struct record {
    char model[80], path[FILES][80];
    kvant_lora lora[FILES];
    int n_lora, n_prompt, n_rows, n_cases, n_vocab;
    int32_t prompt[PROMPT], rows[ROWS];
    float scales[CASES][FILES];
    float logits[CASES][ROWS][VOCAB];
} record;

/* ---- the recorded numbers ---- */

static int read_ints(gjson v, int32_t *out, int cap)
{
    gjson it = { 0 };
    int n = 0;
    while (gjson_next(v, &it) && n < cap)
        out[n++] = (int32_t)gjson_number(it);
    return n;
}

static int read_floats(gjson v, float *out, int cap)
{
    gjson it = { 0 };
    int n = 0;
    while (gjson_next(v, &it) && n < cap)
        out[n++] = (float)gjson_number(it);
    return n;
}

static void read_cases(gjson list, record *r)
{
    gjson c = { 0 };
    while (gjson_next(list, &c) && r->n_cases < CASES) {
        gjson row = { 0 };
        int n = 0;
        CHECK(read_floats(gjson_get(c, "scales"), r->scales[r->n_cases], FILES) == r->n_lora, "scales");
        while (gjson_next(gjson_get(c, "logits"), &row) && n < ROWS)
            r->n_vocab = read_floats(row, r->logits[r->n_cases][n++], VOCAB);
        CHECK(n == r->n_rows, "%d rows of logits, %d positions", n, r->n_rows);
        r->n_cases++;
    }
}

static int read_record(const char *name, record *r)
{
    char path[80], adapter[32];
    size_t n;
    gjson root, it = { 0 };
    kvant_diag d = { "" };

    memset(r, 0, sizeof *r);
    snprintf(path, sizeof path, "tests/lora/%s.json", name);
    snprintf(r->model, sizeof r->model, "tests/archs/%s.gguf", name);
    char *text = text_file_read(path, &n);
    const int ok = text && gjson_parse(text, n, &root, &d) == KVANT_OK;
    CHECK(ok, "%s: %s", path, text ? d.text : "cannot be read");
    while (ok && gjson_next(gjson_get(root, "adapters"), &it) && r->n_lora < FILES) {
        gjson_text(it, adapter, sizeof adapter);
        snprintf(r->path[r->n_lora], sizeof r->path[0], "tests/lora/%s.gguf", adapter);
        r->lora[r->n_lora] = (kvant_lora){ r->path[r->n_lora], 1.0f };
        r->n_lora++;
    }
    if (ok) {
        r->n_prompt = read_ints(gjson_get(root, "prompt"), r->prompt, PROMPT);
        r->n_rows = read_ints(gjson_get(root, "positions"), r->rows, ROWS);
        read_cases(gjson_get(root, "cases"), r);
    }
    CHECK(r->n_lora > 0 && r->n_prompt > KVANT_PAGE && r->n_cases > 1, "%s: incomplete", path);
    free(text);
    return ok;
}

/* ---- engines ---- */

static kvant_engine *engine_open(kvant_model *m, const char *device, int threads)
{
    kvant_engine_params p = kvant_engine_defaults();
    kvant_engine *e = NULL;
    kvant_diag d = { "" };

    p.device = device;
    p.threads = threads;
    p.compute = KVANT_COMPUTE_F32;
    p.n_ctx = 2 * PROMPT;
    p.max_seqs = 6;
    p.n_ubatch = 128;
    p.logits_rows = 2 * PROMPT;
    p.type_k = p.type_v = "f32";
    CHECK(kvant_engine_create(m, &p, &e, &d) == KVANT_OK, "%s", d.text);
    return e;
}

static kvant_model *model_open(const record *r, int n_lora)
{
    const kvant_model_params p = { sizeof(kvant_model_params), .path = r->model, .lora = r->lora, .n_lora = n_lora };
    kvant_model *m = NULL;
    kvant_diag d = { "" };
    CHECK(kvant_model_open(&p, &m, &d) == KVANT_OK, "%s: %s", r->model, d.text);
    return m;
}

static int seq_with(kvant_engine *e, const float *scales, int n)
{
    int seq = -1;
    kvant_diag d = { "" };
    CHECK(kvant_seq_new(e, &seq, &d) == KVANT_OK, "%s", d.text);
    if (n > 0)
        CHECK(kvant_seq_lora(e, seq, scales, n, &d) == KVANT_OK, "%s", d.text);
    return seq;
}

/* The logits of all tokens of the prompt, in pieces; 1: as decode steps. */
static void run_prompt(kvant_engine *e, const record *r, int seq, int piece, float *out)
{
    kvant_diag d = { "" };
    for (int at = 0; at < r->n_prompt; at += piece) {
        const int n = piece < r->n_prompt - at ? piece : r->n_prompt - at;
        const kvant_item it = { seq, r->prompt + at, n, piece != 1, KVANT_LOGITS_ALL };
        const int code = kvant_step(e, &it, 1, &d);
        CHECK(code == KVANT_OK, "step: %s", d.text);
        for (int i = 0; code == KVANT_OK && i < n; i++)
            memcpy(out + (at + i) * r->n_vocab, kvant_step_logits(e, 0, i), (size_t)r->n_vocab * sizeof *out);
    }
    kvant_seq_free(e, seq);
}

/* ---- against peft ---- */

static void check_case(kvant_engine *e, const record *r, int c, const char *device)
{
    static float out[3][PROMPT * VOCAB];
    const int pieces[3] = { PROMPT, KVANT_PAGE, 1 };
    const int n_paths = c == 0 || strcmp(device, "cpu") == 0 ? 3 : 2; /* single steps take a software GPU long */

    for (int k = 0; k < n_paths; k++) {
        run_prompt(e, r, seq_with(e, r->scales[c], r->n_lora), pieces[k], out[k]);
        for (int i = 0; i < r->n_rows; i++) {
            const double nmse = check_nmse(out[k] + r->rows[i] * r->n_vocab, r->logits[c][i], (size_t)r->n_vocab);
            CHECK(nmse <= 1e-6, "%s: case %d, position %d, pieces of %d: NMSE %.3g", r->model, c, r->rows[i], pieces[k],
                  nmse);
            if (i == r->n_rows - 1)
                printf("%s: case %d, pieces of %d: NMSE %.3g\n", r->model, c, pieces[k], nmse);
        }
    }
    CHECK(strcmp(device, "cpu") != 0 || memcmp(out[0], out[1], (size_t)(r->n_prompt * r->n_vocab) * 4) == 0,
          "%s: case %d: a prompt cut at 64 tokens has other bits", r->model, c);
}

/* ---- the same bits whatever else is in the batch ---- */

typedef struct run {
    float prompt[VOCAB], gen[GEN][VOCAB];
    float joined[2][VOCAB];        /* of the first run of a batch: prompts that joined it */
} run;

static void keep(kvant_engine *e, const record *r, int item, float *out)
{
    const float *x = kvant_step_logits(e, item, 0);
    CHECK(x != NULL, "no logits of item %d", item);
    if (x)
        memcpy(out, x, (size_t)r->n_vocab * sizeof *out);
}

/* n sequences at once, each with its scales (NULL: an engine without adapters); a prompt with
 * adapters and one without join in every decode step. */
static void run_batch(kvant_engine *e, const record *r, const float (*scales)[FILES], int n, run *out)
{
    kvant_item items[6];
    kvant_diag d = { "" };
    for (int i = 0; i < n; i++)
        items[i] = (kvant_item){ seq_with(e, scales ? scales[i] : NULL, scales ? r->n_lora : 0), r->prompt, 100, 1,
                                 KVANT_LOGITS_LAST };
    CHECK(kvant_step(e, items, n, &d) == KVANT_OK, "%s", d.text);
    for (int i = 0; i < n; i++)
        keep(e, r, i, out[i].prompt);
    for (int g = 0; g < GEN; g++) {
        const int more = n > 1 ? 2 : 0;
        for (int i = 0; i < n; i++)
            items[i] = (kvant_item){ items[i].seq, r->prompt + 100 + g, 1, 0, KVANT_LOGITS_LAST };
        for (int i = 0; i < more; i++)
            items[n + i] = (kvant_item){ seq_with(e, scales ? scales[i] : NULL, scales ? r->n_lora : 0), r->prompt,
                                         20, 1, KVANT_LOGITS_LAST };
        CHECK(kvant_step(e, items, n + more, &d) == KVANT_OK, "%s", d.text);
        for (int i = 0; i < n; i++)
            keep(e, r, i, out[i].gen[g]);
        for (int i = 0; i < more; i++) {
            keep(e, r, n + i, out[0].joined[i]);
            kvant_seq_free(e, items[n + i].seq);
        }
    }
    for (int i = 0; i < n; i++)
        kvant_seq_free(e, items[i].seq);
}

/* Whether a prompt that joined a batch has the logits that all its rows have together, alone. */
static void check_joined(kvant_engine *e, const record *r, const float *scales, const float *found)
{
    const kvant_item it = { seq_with(e, scales, r->n_lora), r->prompt, 20, 1, KVANT_LOGITS_ALL };
    kvant_diag d = { "" };
    CHECK(kvant_step(e, &it, 1, &d) == KVANT_OK, "%s", d.text);
    CHECK(memcmp(kvant_step_logits(e, 0, 19), found, (size_t)r->n_vocab * 4) == 0, "a joined prompt: other bits");
    kvant_seq_free(e, it.seq);
}

static void check_batches(const record *r)
{
    static const float scales[4][FILES] = { { 1.0f, 0.0f }, { 0.0f, 0.0f }, { 0.25f, -1.0f }, { 0.0f, 1.5f } };
    static run together[4], alone, bare;
    memset(together, 0, sizeof together);
    kvant_model *m = model_open(r, r->n_lora), *plain = model_open(r, 0);
    kvant_engine *e = engine_open(m, "cpu", 3), *one = engine_open(m, "cpu", 1), *none = engine_open(plain, "cpu", 1);
    run_batch(e, r, scales, 4, together);
    for (int i = 0; i < 2; i++)
        check_joined(one, r, scales[i], together[0].joined[i]);
    memset(together[0].joined, 0, sizeof together[0].joined);
    for (int i = 0; i < 4; i++) {
        memset(&alone, 0, sizeof alone);
        run_batch(one, r, scales + i, 1, &alone);
        CHECK(memcmp(&alone, &together[i], sizeof alone) == 0, "%s: scales %g %g: other bits in a batch", r->model,
              (double)scales[i][0], (double)scales[i][1]);
        for (int k = 0; k < i; k++)
            CHECK(memcmp(&together[i], &together[k], sizeof alone) != 0, "scales %d and %d: the same", i, k);
    }
    memset(&bare, 0, sizeof bare);
    run_batch(none, r, NULL, 1, &bare);
    CHECK(memcmp(&bare, &together[1], sizeof bare) == 0, "%s: without adapters: other bits", r->model);
    kvant_engine_free(e);
    kvant_engine_free(one);
    kvant_engine_free(none);
    kvant_model_close(m);
    kvant_model_close(plain);
}

/* ---- sequences and plans ---- */

static void check_sequences(const record *r)
{
    kvant_model *m = model_open(r, 2), *plain = model_open(r, 0);
    kvant_engine *e = engine_open(m, "cpu", 1);
    kvant_engine_params p = *kvant_engine_get_params(e);
    const float good[2] = { 1, 2 }, bad[2] = { 1, NAN };
    kvant_plan with, without;
    kvant_lora_info info;
    kvant_diag d = { "" };
    int seq = seq_with(e, NULL, 0), fork;

    CHECK(kvant_seq_lora(e, 99, good, 2, &d) == KVANT_EINVAL && strstr(d.text, "does not exist"), "%s", d.text);
    CHECK(kvant_seq_lora(e, seq, good, 1, &d) == KVANT_EINVAL && strstr(d.text, "the model has 2"), "%s", d.text);
    CHECK(kvant_seq_lora(e, seq, bad, 2, &d) == KVANT_EINVAL && strstr(d.text, "scale nan of adapter 1"), "%s", d.text);
    CHECK(kvant_seq_lora(e, seq, good, 2, &d) == KVANT_OK, "%s", d.text);
    const kvant_item it = { seq, r->prompt, 3, 1, KVANT_LOGITS_NONE };
    CHECK(kvant_step(e, &it, 1, &d) == KVANT_OK, "%s", d.text);
    CHECK(kvant_seq_lora(e, seq, good, 2, &d) == KVANT_EINVAL && strstr(d.text, "has tokens already"), "%s", d.text);
    CHECK(kvant_seq_fork(e, seq, &fork, &d) == KVANT_OK, "%s", d.text);
    const kvant_item two[2] = { { seq, r->prompt, 1, 0, KVANT_LOGITS_LAST },
                                { fork, r->prompt, 1, 0, KVANT_LOGITS_LAST } };
    CHECK(kvant_step(e, two, 2, &d) == KVANT_OK, "%s", d.text);
    CHECK(memcmp(kvant_step_logits(e, 0, 0), kvant_step_logits(e, 1, 0), (size_t)r->n_vocab * 4) == 0,
          "a fork has other adapters");
    CHECK(kvant_plan_make(m, &p, &with, &d) == KVANT_OK, "%s", d.text);
    CHECK(kvant_plan_make(plain, &p, &without, &d) == KVANT_OK, "%s", d.text);
    CHECK(with.weights - without.weights == m->lora.bytes && m->lora.bytes > 0 && with.scratch > without.scratch,
          "the plan has %lld bytes more for adapters of %lld", (long long)(with.weights - without.weights),
          (long long)m->lora.bytes);
    CHECK(kvant_model_lora(m, 1, &info) == KVANT_OK && info.rank == 6 && info.alpha == 9.0f && info.scale == 1.0f,
          "adapter 1: rank %d, alpha %g", info.rank, (double)info.alpha);
    CHECK(kvant_model_lora(m, 2, &info) == KVANT_EINVAL, "an adapter 2 of two");
    kvant_engine_free(e);
    kvant_model_close(m);
    kvant_model_close(plain);
}

/* ---- files that do not fit ---- */

typedef struct bad_file {
    const char *wanted;            /* in the message */
    const char *type, *lora, *arch, *base;
    float alpha;
    int64_t a0, a1, b0, b1;
    int dtype, no_b, alora;
} bad_file;

static void write_bad(const bad_file *f, const char *path)
{
    char name[96];
    gb b = { 0 };
    const int64_t a[2] = { f->a0, f->a1 }, bb[2] = { f->b0, f->b1 };
    const int32_t token = 1;
    const size_t bytes = (size_t)(f->a0 * f->a1) * 4;

    gb_begin(&b, 3, f->no_b ? 1 : 2, f->alora ? 5 : 4);
    gb_kv_str(&b, "general.type", f->type ? f->type : "adapter");
    gb_kv_str(&b, "adapter.type", f->lora ? f->lora : "lora");
    gb_kv_str(&b, "general.architecture", f->arch ? f->arch : "qwen2");
    gb_kv_f32(&b, "adapter.lora.alpha", f->alpha);
    if (f->alora)
        gb_kv_array(&b, "adapter.alora.invocation_tokens", GGUF_I32, 1, &token, sizeof token);
    snprintf(name, sizeof name, "%s%s", f->base ? f->base : "blk.0.attn_q.weight", f->no_b > 1 ? "" : ".lora_a");
    gb_tensor(&b, name, 2, a, (uint32_t)f->dtype, 0);
    snprintf(name, sizeof name, "%s.lora_b", f->base ? f->base : "blk.0.attn_q.weight");
    if (!f->no_b)
        gb_tensor(&b, name, 2, bb, 0, (bytes + 31) / 32 * 32);
    gb_pad(&b, 32);
    gb_fill(&b, (bytes + 31) / 32 * 32 + (size_t)(f->b0 * f->b1) * 4, 1);
    CHECK(gb_write(&b, path) == 0, "%s", path);
    gb_free(&b);
}

/* The model has 64 values, attn_q [64, 64], attn_k [64, 32]. */
static void check_bad_files(const record *r)
{
    static const bad_file files[] = {
        { "general.type: \"model\", wanted adapter", "model", NULL, NULL, NULL, 1, 64, 4, 4, 64, 0, 0, 0 },
        { "adapter.type: \"ia3\", wanted lora", NULL, "ia3", NULL, NULL, 1, 64, 4, 4, 64, 0, 0, 0 },
        { "general.architecture: \"llama\", wanted qwen2", NULL, NULL, "llama", NULL, 1, 64, 4, 4, 64, 0, 0, 0 },
        { "adapter.lora.alpha", NULL, NULL, NULL, NULL, NAN, 64, 4, 4, 64, 0, 0, 0 },
        { "adapter.lora.alpha", NULL, NULL, NULL, NULL, INFINITY, 64, 4, 4, 64, 0, 0, 0 },
        { "invocation_tokens", NULL, NULL, NULL, NULL, 1, 64, 4, 4, 64, 0, 0, 1 },
        { "attn_q.weight.lora_a: shape [63, 4, 1], wanted [64, 4]", NULL, NULL, NULL, NULL, 1, 63, 4, 4, 64, 0, 0, 0 },
        { "attn_q.weight.lora_b: shape [5, 64, 1], wanted [4, 64]", NULL, NULL, NULL, NULL, 1, 64, 4, 5, 64, 0, 0, 0 },
        { "attn_q.weight.lora_b: shape [4, 65, 1], wanted [4, 64]", NULL, NULL, NULL, NULL, 1, 64, 4, 4, 65, 0, 0, 0 },
        { "rank 4097, wanted 1 to 4096", NULL, NULL, NULL, NULL, 1, 64, 4097, 4097, 64, 0, 0, 0 },
        { "9.attn_q.weight.lora_a: the model has no", NULL, NULL, NULL,
          "blk.9.attn_q.weight", 1, 64, 4, 4, 64, 0, 0, 0 },
        { "attn_q.weight.lora_b: missing", NULL, NULL, NULL, NULL, 1, 64, 4, 4, 64, 0, 1, 0 },
        { "not part of a LoRA", NULL, NULL, NULL, NULL, 1, 64, 4, 4, 64, 0, 2, 0 },
        { "is a vector", NULL, NULL, NULL, "blk.0.attn_norm.weight", 1, 64, 4, 4, 1, 0, 0, 0 },
        { "embedding of tokens", NULL, NULL, NULL, "token_embd.weight", 1, 64, 4, 4, 272, 0, 0, 0 },
        { "lora_a: Q4_0, wanted type F32, F16, BF16 or Q8_0", NULL, NULL, NULL, NULL, 1, 64, 4, 4, 64, 2, 0, 0 },
    };
    char path[] = "/tmp/kvant-lora-XXXXXX";
    const int fd = mkstemp(path);
    CHECK(fd >= 0, "%s", path);
    close(fd);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const kvant_lora lora = { path, 1.0f };
        const kvant_model_params p = { sizeof(kvant_model_params), .path = r->model, .lora = &lora, .n_lora = 1 };
        kvant_model *m = NULL;
        kvant_diag d = { "" };
        write_bad(&files[i], path);
        const int code = kvant_model_open(&p, &m, &d);
        CHECK(code < 0 && strstr(d.text, files[i].wanted), "bad file %zu: %d %s", i, code, d.text);
        kvant_model_close(code < 0 ? NULL : m);
    }
    remove(path);
}

static void check_model(const char *name, const char *device)
{
    static record r;
    if (!read_record(name, &r))
        return;
    kvant_model *m = model_open(&r, r.n_lora);
    kvant_engine *e = m ? engine_open(m, device, 2) : NULL;
    for (int c = 0; e && c < r.n_cases; c++)
        check_case(e, &r, c, device);
    kvant_engine_free(e);
    kvant_model_close(m);
    if (strcmp(device, "cpu") != 0 || r.n_lora < 2)
        return;
    check_batches(&r);
    check_sequences(&r);
    check_bad_files(&r);
}

int main(int argc, char **argv)
{
    const char *device = argc > 1 ? argv[1] : "cpu";
    if (!device_here(device))
        return check_end("check_lora");
    check_model("qwen2", device);
    check_model("llama-yarn", device);
    return check_end("check_lora");
}
