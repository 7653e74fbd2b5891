/* check_archs.c [DEVICE[/experts] [NAME ...]]: every model of tests/archs against what its JSON file recorded from
 * another implementation (tests/archs/README.md), in f32 throughout.  DEVICE/experts: the CPU has the routed experts.
 *
 * Logits of some positions within NMSE 1e-6 and greedy ids equal, with the whole prompt in one piece and token by
 * token; a prompt cut on the 64-token grid gives the same bits.  On the CPU also: the same tokens and the same bits of
 * log-probabilities beside another request, after a prefix hit, after preemption, and after a snapshot was restored;
 * the pages that the plan counts are those that the engine has. */
#include "cache/kv_image.h"
#include "engine/session_impl.h"

#include <dirent.h>
#include <limits.h>
#include <unistd.h>
#include "support/check.h"
#include "support/device_here.h"
#include "support/store_rig.h"
#include "support/text_file.h"
#include "base/text/json.h"

enum { MOST_PROMPT = 256, MOST_ROWS = 16, MOST_GREEDY = 64, MOST_VOCAB = 1024, LONG = 100 };

static const float NEVER = -1e29f;     /* logits of tokens that a model never writes are below */

typedef struct expect {
    char name[64], path[300];
    int n_prompt, n_rows, n_greedy, n_vocab;
    int32_t prompt[MOST_PROMPT], rows[MOST_ROWS], greedy[MOST_GREEDY];
    float logits[MOST_ROWS * MOST_VOCAB];
} expect;

/* The numbers of an array, -1 when there are more than `cap`. */
static int read_ints(gjson v, int32_t *out, int cap)
{
    gjson it = { 0 };
    int n = 0;
    while (gjson_next(v, &it)) {
        if (n == cap)
            return -1;
        out[n++] = (int32_t)gjson_number(it);
    }
    return n;
}

static int read_logits(gjson v, expect *e)
{
    gjson row = { 0 };
    int rows = 0;
    while (gjson_next(v, &row)) {
        gjson it = { 0 };
        int n = 0;
        while (rows < MOST_ROWS && n < MOST_VOCAB && gjson_next(row, &it))
            e->logits[rows * MOST_VOCAB + n++] = (float)gjson_number(it);
        if (rows > 0 && n != e->n_vocab)
            return -1;
        e->n_vocab = n;
        rows++;
    }
    return rows;
}

static int expect_read(const char *name, expect *e)
{
    char path[300];
    size_t n = 0;
    gjson root;
    kvant_diag d = { "" };

    memset(e, 0, sizeof *e);
    snprintf(e->name, sizeof e->name, "%s", name);
    snprintf(path, sizeof path, "tests/archs/%s.json", name);
    snprintf(e->path, sizeof e->path, "tests/archs/%s.gguf", name);
    char *text = text_file_read(path, &n);
    const int ok = text && gjson_parse(text, n, &root, &d) == KVANT_OK;
    CHECK(ok, "%s: %s", path, text ? d.text : "cannot be read");
    if (ok) {
        e->n_prompt = read_ints(gjson_get(root, "prompt"), e->prompt, MOST_PROMPT);
        e->n_rows = read_ints(gjson_get(root, "positions"), e->rows, MOST_ROWS);
        e->n_greedy = read_ints(gjson_get(root, "greedy"), e->greedy, MOST_GREEDY);
        CHECK(e->n_prompt > KVANT_PAGE && e->n_greedy > 0 && e->n_rows > 0 && e->n_rows <= MOST_ROWS &&
                  read_logits(gjson_get(root, "logits"), e) == e->n_rows && e->n_vocab > 0,
              "%s: prompt, positions, logits or greedy: missing or too long", path);
    }
    free(text);
    return ok;
}

/* ---- logits ---- */

static int32_t best_of(const float *x, int n)
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
    const kvant_item item = { .seq = seq, .tokens = tokens, .n = n, .prompt = prompt, .logits = KVANT_LOGITS_ALL };
    const int rc = kvant_step(eng, &item, 1, &diag);
    CHECK(rc == KVANT_OK, "step of %d tokens: %s: %s", n, kvant_error_name(rc), diag.text);
    for (int i = 0; rc == KVANT_OK && i < n; i++)
        memcpy(logits + (size_t)i * (size_t)n_vocab, kvant_step_logits(eng, 0, i), (size_t)n_vocab * sizeof *logits);
    return rc == KVANT_OK;
}

static void check_logits(const expect *e, const float *logits, int piece)
{
    const size_t v = (size_t)e->n_vocab;
    for (int i = 0; i < e->n_rows; i++) {
        static float mine[MOST_VOCAB], wanted[MOST_VOCAB];
        memcpy(mine, logits + (size_t)e->rows[i] * v, v * sizeof *mine);
        memcpy(wanted, e->logits + i * MOST_VOCAB, v * sizeof *wanted);
        for (size_t j = 0; j < v; j++)
            if (wanted[j] <= NEVER) {
                CHECK(mine[j] <= NEVER, "%s: token %zu of position %d has %g", e->name, j, e->rows[i], (double)mine[j]);
                mine[j] = wanted[j] = 0.0f;
            }
        const double nmse = check_nmse(mine, wanted, v);
        CHECK(nmse <= 1e-6, "%s: logits of position %d, pieces of %d: NMSE %.3g", e->name, e->rows[i], piece, nmse);
        if (i == e->n_rows - 1)
            printf("%s: pieces of %d: NMSE %.3g at position %d\n", e->name, piece, nmse, e->rows[i]);
    }
}

/* The prompt in pieces of `piece` tokens (1: the one-token path), then greedy. */
static void check_path(kvant_engine *eng, const expect *e, int piece, float *logits)
{
    const size_t v = (size_t)e->n_vocab;
    kvant_diag diag = { "" };
    int seq, wrong = 0;

    CHECK(kvant_seq_new(eng, &seq, &diag) == KVANT_OK, "%s: %s", e->name, diag.text);
    for (int at = 0; at < e->n_prompt && !wrong; at += piece) {
        const int n = piece < e->n_prompt - at ? piece : e->n_prompt - at;
        wrong = !append(eng, seq, e->prompt + at, n, piece != 1, e->n_vocab, logits + (size_t)at * v);
    }
    if (!wrong)
        check_logits(e, logits, piece);
    float *next = malloc(v * sizeof *next);
    memcpy(next, logits + (size_t)(e->n_prompt - 1) * v, v * sizeof *next);
    for (int i = 0; i < e->n_greedy && !wrong; i++) {
        const int32_t id = best_of(next, e->n_vocab);
        CHECK(id == e->greedy[i], "%s: greedy id %d is %d, wanted %d (piece %d)", e->name, i, id, e->greedy[i], piece);
        wrong = id != e->greedy[i] || !append(eng, seq, &id, 1, 0, e->n_vocab, next);
    }
    free(next);
    CHECK(kvant_seq_free(eng, seq) == KVANT_OK, "%s", e->name);
}

/* The prompt in pieces of a page of which only the last gives logits, and those of one token: where a device may leave
 * out what no logits need. */
static void check_last(kvant_engine *eng, const expect *e, const float *whole, int same_bits)
{
    const size_t v = (size_t)e->n_vocab;
    kvant_diag diag = { "" };
    int seq, rc = KVANT_OK;

    CHECK(kvant_seq_new(eng, &seq, &diag) == KVANT_OK, "%s: %s", e->name, diag.text);
    for (int at = 0; at < e->n_prompt && rc == KVANT_OK; at += KVANT_PAGE) {
        const int n = KVANT_PAGE < e->n_prompt - at ? KVANT_PAGE : e->n_prompt - at, last = at + n == e->n_prompt;
        const kvant_item item = { seq, e->prompt + at, n, 1, last ? KVANT_LOGITS_LAST : KVANT_LOGITS_NONE };
        rc = kvant_step(eng, &item, 1, &diag);
        CHECK(rc == KVANT_OK, "%s: %s", e->name, diag.text);
    }
    const float *last = rc == KVANT_OK ? kvant_step_logits(eng, 0, 0) : NULL;
    const double nmse = last ? check_nmse(last, whole, v) : 1.0;
    CHECK(last && nmse <= 1e-6, "%s: logits of the last token alone: NMSE %.3g", e->name, nmse);
    CHECK(!same_bits || (last && memcmp(last, whole, v * sizeof *last) == 0), "%s: other bits of the last token alone",
          e->name);
    CHECK(kvant_seq_free(eng, seq) == KVANT_OK, "%s", e->name);
}

static int cpu_experts;

static kvant_engine_params engine_params(const char *device)
{
    kvant_engine_params p = kvant_engine_defaults();
    p.device = device;
    p.cpu_experts = cpu_experts;
    p.threads = 2;
    p.compute = KVANT_COMPUTE_F32;
    p.n_ctx = 2 * MOST_PROMPT;
    p.type_k = p.type_v = "f32";
    return p;
}

static void check_against(kvant_model *model, const expect *e, const char *device)
{
    kvant_diag diag = { "" };
    kvant_engine *eng = NULL;
    kvant_engine_params p = engine_params(device);
    p.logits_rows = MOST_PROMPT;
    CHECK(kvant_engine_create(model, &p, &eng, &diag) == KVANT_OK, "%s: %s", e->name, diag.text);
    if (!eng)
        return;
    const size_t bytes = (size_t)e->n_prompt * (size_t)e->n_vocab * sizeof(float);
    float *whole = calloc(1, bytes), *cut = calloc(1, bytes);
    check_path(eng, e, e->n_prompt, whole);
    check_path(eng, e, KVANT_PAGE, cut);
    CHECK(strcmp(device, "cpu") != 0 || memcmp(whole, cut, bytes) == 0,
          "%s: a prompt cut at 64 tokens gives other bits than the whole", e->name);
    check_last(eng, e, whole + (size_t)(e->n_prompt - 1) * (size_t)e->n_vocab, strcmp(device, "cpu") == 0);
    check_path(eng, e, 1, cut);
    free(whole);
    free(cut);
    kvant_engine_free(eng);
}

/* ---- the same bits whatever else happens ---- */

static char folder[64];
static const unsigned char salt[16] = "archs";

static kvant_engine_params session_engine(int pages)
{
    kvant_engine_params p = engine_params("cpu");
    p.threads = 1;
    p.max_seqs = 4;
    p.n_ubatch = 128;
    p.pool_tokens = (int64_t)pages * KVANT_PAGE;
    p.snapshots = 6;
    return p;
}

static kvant_session_params session_params(void)
{
    kvant_session_params p = kvant_session_defaults();
    p.batch_tokens = 256;
    p.ladder = 64;
    p.snapshot_dir = folder;
    return p;
}

static int same(const serve_out *a, const serve_out *b)
{
    return a->n == b->n && memcmp(a->tokens, b->tokens, (size_t)a->n * 4) == 0 &&
           memcmp(a->logprob, b->logprob, (size_t)a->n * 4) == 0;
}

static void check_plan(const serve_rig *r, const expect *e)
{
    kvant_plan plan;
    CHECK(kvant_plan_make(r->m, &r->e->p, &plan, NULL) == KVANT_OK, "%s: plan", e->name);
    CHECK(plan.kv == (int64_t)kv_page_image_bytes(&r->e->kv) * r->e->kv.pages.n &&
              (plan.kv > 0) == (kvant_model_get_info(r->m)->n_attn_layers > 0),
          "%s: the plan has %lld bytes of pages, the engine %lld", e->name, (long long)plan.kv,
          (long long)kv_page_image_bytes(&r->e->kv) * r->e->kv.pages.n);
    CHECK(plan.window == (int64_t)kv_window_image_bytes(&r->e->kv) * r->e->kv.windows.n,
          "%s: the plan has %lld bytes of windows, the engine %lld", e->name, (long long)plan.window,
          (long long)kv_window_image_bytes(&r->e->kv) * r->e->kv.windows.n);
}

/* The recorded prompt after n - 1 others, at once; it must give what `want` says.  The youngest is preempted. */
static int check_beside(serve_rig *r, const expect *e, const serve_out *want, int n, const char *what)
{
    static serve_out out[2];
    static int32_t other[2][MOST_PROMPT];
    for (int i = 0; i < n; i++) {
        kvant_request q = store_request(i < n - 1 ? other[i] : e->prompt, e->n_prompt, LONG, -1, salt);
        kvant_diag d = { "" };
        q.cache = KVANT_CACHE_NO_READ | KVANT_CACHE_NO_WRITE;
        serve_tokens(other[i], MOST_PROMPT, (uint64_t)i);
        CHECK(serve_submit(r, &q, &out[i], &d) == KVANT_OK, "%s, %s: %s", e->name, what, d.text);
    }
    for (int i = 0; i < n; i++)
        serve_wait(&out[i]);
    CHECK(same(&out[n - 1], want), "%s: other bits %s", e->name, what);
    return out[n - 1].n_preempted;
}

static void check_restored(const expect *e, const int32_t *more, int n, int n_saved, const serve_out *want)
{
    static serve_out out;
    serve_rig r;
    if (!serve_open(&r, e->path, session_engine(8), session_params()))
        return;
    const reply back = store_act(&r, KVANT_SLOT_RESTORE, 2, e->name, salt);
    CHECK(back.r.code == KVANT_OK && back.r.n_tokens == n_saved, "%s: restored %d tokens of %d: %s", e->name,
          back.r.n_tokens, n_saved, back.text);
    kvant_request q = store_request(more, n, 8, 2, salt);
    serve_one(&r, &q, &out);
    CHECK(out.n_cached == n_saved && same(&out, want), "%s: %d tokens restored, other bits", e->name, out.n_cached);
    serve_close(&r);
}

/* A second turn on a slot, straight on and after a save, a new engine and a restore. */
static void check_snapshot(serve_rig *r, const expect *e)
{
    static serve_out one, two;
    int32_t more[2 * MOST_PROMPT];
    const int n = e->n_prompt, saved_n = n + e->n_greedy - 1, n2 = n + e->n_greedy + 20;
    kvant_request q = store_request(e->prompt, n, e->n_greedy, 1, salt);

    serve_one(r, &q, &one);
    const reply saved = store_act(r, KVANT_SLOT_SAVE, 1, e->name, salt);
    CHECK(saved.r.code == KVANT_OK && saved.r.n_tokens == saved_n, "%s: saved: %s", e->name, saved.text);
    memcpy(more, e->prompt, (size_t)n * 4);
    memcpy(more + n, one.tokens, (size_t)one.n * 4);
    serve_tokens(more + n + one.n, 20, 78);
    q = store_request(more, n2, 8, 1, salt);
    serve_one(r, &q, &two);
    check_restored(e, more, n2, saved_n, &two);
}

static void check_preempted(const expect *e, const serve_out *want)
{
    serve_rig r;
    if (!serve_open(&r, e->path, session_engine(7), session_params()))
        return;
    int n = 0;
    for (int i = 0; i < 5 && n == 0; i++) /* again where a busy machine let the first one end before the second came */
        n = check_beside(&r, e, want, 2, "with a pool too small for two");
    CHECK(n > 0, "%s: the younger of two was not preempted", e->name);
    serve_close(&r);
}

static void check_sessions(const expect *e)
{
    static serve_out alone, hit;
    serve_rig r;
    if (!serve_open(&r, e->path, session_engine(24), session_params()))
        return;
    check_plan(&r, e);
    kvant_request q = store_request(e->prompt, e->n_prompt, LONG, -1, salt);
    serve_one(&r, &q, &alone);
    CHECK(alone.n == LONG && alone.n_cached == 0 &&
              memcmp(alone.tokens, e->greedy, (size_t)e->n_greedy * sizeof *e->greedy) == 0,
          "%s: a request gives %d tokens, or others than recorded", e->name, alone.n);
    serve_one(&r, &q, &hit);
    CHECK(hit.n_cached > 0 && same(&hit, &alone), "%s: %d tokens of the prompt cached, or other bits", e->name,
          hit.n_cached);
    check_beside(&r, e, &alone, 2, "in a batch of two");
    check_snapshot(&r, e);
    serve_close(&r);
    check_preempted(e, &alone);
}

/* ---- all of them ---- */

static void check_arch(const char *name, const char *device)
{
    static expect e;
    kvant_diag diag = { "" };
    kvant_model *model = NULL;

    if (!expect_read(name, &e))
        return;
    const kvant_model_params mp = { .size = sizeof(kvant_model_params), .path = e.path };
    CHECK(kvant_model_open(&mp, &model, &diag) == KVANT_OK, "%s: %s", e.path, diag.text);
    if (model) {
        const int n_vocab = kvant_model_get_info(model)->n_vocab;
        CHECK(n_vocab == e.n_vocab, "%s: %d tokens, recorded %d", e.path, n_vocab, e.n_vocab);
        if (n_vocab == e.n_vocab)
            check_against(model, &e, device);
        if (n_vocab == e.n_vocab && strcmp(device, "cpu") == 0)
            check_sessions(&e);
    }
    kvant_model_close(model);
}

/* Names of tests/archs/NAME.json, in order of the alphabet. */
static int is_record(const struct dirent *f)
{
    const char *dot = strrchr(f->d_name, '.');
    return dot && strcmp(dot, ".json") == 0;
}

static void check_all(const char *device)
{
    struct dirent **list = NULL;
    const int n = scandir("tests/archs", &list, is_record, alphasort);
    CHECK(n > 0, "tests/archs: no models");
    for (int i = 0; i < n; i++) {
        *strrchr(list[i]->d_name, '.') = 0;
        check_arch(list[i]->d_name, device);
        free(list[i]);
    }
    free(list);
}

int main(int argc, char **argv)
{
    char *device = argc > 1 ? argv[1] : "cpu", *slash = strchr(device, '/');
    char remove[96];

    if (slash) {
        CHECK(strcmp(slash, "/experts") == 0, "%s", device);
        *slash = 0;
        cpu_experts = INT_MAX;
    }

    if (!device_here(device))
        return check_end("check_archs");
    snprintf(folder, sizeof folder, "/tmp/kvant-archs-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    for (int i = 2; i < argc; i++)
        check_arch(argv[i], device);
    if (argc < 3)
        check_all(device);
    snprintf(remove, sizeof remove, "rm -rf %s", folder);
    CHECK(system(remove) == 0, "%s", remove);
    return check_end("check_archs");
}
