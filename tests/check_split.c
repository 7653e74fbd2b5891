/* check_split: the layers of a model over two and three devices, and routed experts apart from them, all of them the
 * CPU: every model of tests/archs and of tests/golden/tiny gives the bits that one device gives, wherever the cut is:
 * prompts, steps of several sequences, forks, hidden states, and sessions with prefix hits, preemption and snapshots
 * that another placement restores. */
#include <limits.h>
#include <dirent.h>
#include <unistd.h>

#include "support/check.h"
#include "support/store_rig.h"

enum { MOST = 1 << 20, PROMPT = 100, OTHER = 70, STEPS = 4 };

/* Everything that a run gives, in order. */
typedef struct record {
    float x[MOST];
    size_t n;
} record;

static void note(record *r, const float *x, size_t n)
{
    CHECK(x && r->n + n <= MOST, "no values, or more than %d", MOST);
    if (!x || r->n + n > MOST)
        return;
    memcpy(r->x + r->n, x, n * sizeof *x);
    r->n += n;
}

static kvant_model *open_file(const char *path)
{
    kvant_model_params mp = kvant_model_defaults();
    kvant_model *m = NULL;
    kvant_diag diag = { "" };

    mp.path = path;
    CHECK(kvant_model_open(&mp, &m, &diag) == KVANT_OK, "%s: %s", path, diag.text);
    return m;
}

static kvant_engine_params params(const char *device, const char *split, const char *format)
{
    kvant_engine_params p = kvant_engine_defaults();

    p.device = device;
    p.split = split;
    p.threads = 1;
    p.n_ctx = 256;
    p.max_seqs = 4;
    p.n_ubatch = 64;
    p.type_k = p.type_v = format;
    p.logits_rows = 128;
    return p;
}

/* ---- plain steps ---- */

static void step(kvant_engine *e, kvant_item *items, int n, record *r)
{
    const size_t v = (size_t)kvant_model_get_info(kvant_engine_model(e))->n_vocab;
    kvant_diag diag = { "" };
    const float *top;
    const int32_t *ids;
    const int code = kvant_step(e, items, n, &diag);

    CHECK(code == KVANT_OK, "step: %s", diag.text);
    for (int i = 0; code == KVANT_OK && i < n; i++)
        if (items[i].logits == KVANT_LOGITS_TOP)
            note(r, (const float *)(kvant_step_top(e, i, &top, &ids) ? top : NULL), 8);
        else if (items[i].logits == KVANT_LOGITS_LAST)
            note(r, kvant_step_logits(e, i, 0), v);
        else if (items[i].logits == KVANT_LOGITS_ALL)
            for (int k = 0; k < items[i].n; k++)
                note(r, kvant_step_logits(e, i, k), v);
}

/* Two prompts, the second beside a token of the first; steps of both; a fork of the first; hidden states. */
static void run_steps(kvant_engine *e, record *r)
{
    const int d = kvant_model_get_info(kvant_engine_model(e))->n_embd;
    int32_t a[PROMPT], b[OTHER];
    float hidden[2 * 4096];
    int s[4];

    serve_tokens(a, PROMPT, 1);
    serve_tokens(b, OTHER, 2);
    for (int i = 0; i < 3; i++)
        CHECK(kvant_seq_new(e, &s[i], NULL) == KVANT_OK, "sequence");
    kvant_item one[] = { { s[0], a, PROMPT, 1, KVANT_LOGITS_ALL } };
    step(e, one, 1, r);
    kvant_item two[] = { { s[0], b, 1, 0, KVANT_LOGITS_LAST }, { s[1], b, OTHER, 1, KVANT_LOGITS_LAST } };
    step(e, two, 2, r);
    for (int i = 0; i < STEPS; i++) {
        kvant_item both[] = { { s[0], a + i, 1, 0, KVANT_LOGITS_TOP }, { s[1], b + i, 1, 0, KVANT_LOGITS_LAST } };
        step(e, both, 2, r);
    }
    CHECK(kvant_seq_fork(e, s[0], &s[3], NULL) == KVANT_OK, "fork");
    kvant_item fork[] = { { s[3], a, 1, 0, KVANT_LOGITS_LAST } };
    step(e, fork, 1, r);
    kvant_item last[] = { { s[2], a, PROMPT, 1, KVANT_LOGITS_HIDDEN } };
    step(e, last, 1, r);
    CHECK(d <= 4096 && kvant_seq_hidden(e, s[2], hidden, hidden + d) == KVANT_OK, "hidden states of %d values", d);
    note(r, hidden, 2 * (size_t)d);
}

static int run(kvant_model *m, const kvant_engine_params *p, record *r, kvant_diag *diag)
{
    kvant_engine *e = NULL;
    const int code = kvant_engine_create(m, p, &e, diag);

    r->n = 0;
    if (code == KVANT_OK && (p->tensors || p->cpu_experts >= kvant_model_get_info(m)->n_layer)) {
        char about[512];
        kvant_engine_describe(e, about, sizeof about);
        CHECK(strstr(about, "experts of "), "experts are not apart: %s", about);
    }
    if (code == KVANT_OK)
        run_steps(e, r);
    kvant_engine_free(e);
    return code;
}

static int compare(kvant_model *m, const kvant_engine_params *p, const record *want, const char *path)
{
    static record r;
    kvant_diag diag = { "" };
    const int code = run(m, p, &r, &diag);

    if (code == KVANT_EUNSUPPORTED) {
        CHECK(strstr(diag.text, "reads K and V of layer"), "%s: %s", path, diag.text);
        return 0;
    }
    CHECK(code == KVANT_OK, "%s, %s, %s: %s", path, p->device, p->split ? p->split : "", diag.text);
    CHECK(r.n == want->n && memcmp(r.x, want->x, r.n * sizeof *r.x) == 0,
          "%s, %s, split %s, %d GPU layers, %s: other bits", path, p->device, p->split ? p->split : "-", p->gpu_layers,
          p->type_k);
    return 1;
}

/* Experts apart: of every number of layers, by rules on a third device, and beside a cut into two. */
static int check_experts(kvant_model *m, int layers, const record *want, const char *path)
{
    static const char *const rules[] = { "_exps=CPU", "blk\\.\\d+\\.ffn_(gate|up|down|gate_up)_exps\\.=cpu:7",
                                         "blk\\.[0-9]{1,3}\\.ffn_.*_exps.*=cpu:2" };
    kvant_engine_params p;
    int n = 0;

    for (int k = 1; k < layers; k++) {
        p = params("cpu:1", NULL, "f16");
        p.cpu_experts = k == layers - 1 ? INT_MAX : k;
        n += compare(m, &p, want, path);
    }
    for (int i = 0; i < 3; i++) {
        p = params("cpu:1,cpu:2", NULL, "f16");
        p.tensors = rules[i];
        n += compare(m, &p, want, path);
    }
    return n;
}

/* Every cut into two for f16; one cut into two and one into three for a compressed cache. */
static int check_file(const char *path)
{
    static record want;
    kvant_model *m = open_file(path);
    kvant_diag diag = { "" };
    char split[32];
    int cuts = 0;

    if (!m)
        return 0;
    const int layers = kvant_model_get_info(m)->n_layer + 1;
    kvant_engine_params p = params("cpu", NULL, "f16");
    CHECK(run(m, &p, &want, &diag) == KVANT_OK, "%s: %s", path, diag.text);
    for (int k = 1; k < layers; k++) {
        snprintf(split, sizeof split, "%d,%d", k, layers - k);
        p = params("cpu,cpu", split, "f16");
        cuts += compare(m, &p, &want, path);
        p = params("cpu:1", NULL, "f16");
        p.gpu_layers = layers - k;
        cuts += compare(m, &p, &want, path);
    }
    if (layers > 2) {
        p = params("cpu,cpu,cpu", NULL, "f16");
        cuts += compare(m, &p, &want, path);
    }
    if (kvant_model_get_info(m)->n_expert > 0)
        cuts += check_experts(m, layers, &want, path);
    p = params("cpu", NULL, "tbq4_0");
    if (run(m, &p, &want, &diag) == KVANT_OK) { /* the format has no heads of every size */
        p.device = "cpu,cpu";
        cuts += compare(m, &p, &want, path);
    }
    kvant_model_close(m);
    return cuts;
}

static void check_folder(const char *folder)
{
    DIR *d = opendir(folder);
    char path[512];
    int files = 0, cuts = 0;

    CHECK(d != NULL, "%s", folder);
    for (struct dirent *f; d && (f = readdir(d));) {
        const char *dot = strrchr(f->d_name, '.');
        if (!dot || strcmp(dot, ".gguf") != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, f->d_name);
        cuts += check_file(path);
        files++;
    }
    if (d)
        closedir(d);
    printf("%s: %d models, %d placements\n", folder, files, cuts);
    CHECK(files > 5 && cuts > 3 * files, "%s: %d models, %d placements", folder, files, cuts);
}

/* ---- sessions ---- */

static char saves[64];
static const unsigned char salt[16] = "split";

/* device "cpu:N" and experts on the CPU where it ends with a plus. */
static int open_rig(serve_rig *r, const char *path, const char *device, int pages)
{
    const char *plus = strchr(device, '+');
    char name[40];

    snprintf(name, sizeof name, "%.*s", plus ? (int)(plus - device) : 39, device);
    kvant_engine_params p = params(name, NULL, "f16");
    kvant_session_params sp = kvant_session_defaults();

    p.cpu_experts = plus ? INT_MAX : 0;
    p.n_ubatch = 128;
    p.pool_tokens = (int64_t)pages * KVANT_PAGE;
    p.snapshots = 6;
    sp.batch_tokens = 256;
    sp.ladder = 64;
    sp.snapshot_dir = saves;
    return serve_open(r, path, p, sp);
}

static int same(const serve_out *a, const serve_out *b)
{
    return a->n == b->n && memcmp(a->tokens, b->tokens, (size_t)a->n * 4) == 0 &&
           memcmp(a->logprob, b->logprob, (size_t)a->n * 4) == 0;
}

/* A request, it again from the prefix cache, and a save of its slot. */
static void check_hit(serve_rig *r, const char *path, const int32_t *prompt, serve_out *alone)
{
    static serve_out hit;
    kvant_request q = store_request(prompt, PROMPT, 40, 1, salt);

    serve_one(r, &q, alone);
    CHECK(alone->n == 40, "%s: %d tokens: %s", path, alone->n, alone->text);
    const reply saved = store_act(r, KVANT_SLOT_SAVE, 1, "split", salt);
    CHECK(saved.r.code == KVANT_OK, "%s: %s", path, saved.text);
    q = store_request(prompt, PROMPT, 40, -1, salt);
    serve_one(r, &q, &hit);
    CHECK(hit.n_cached > 0 && same(&hit, alone), "%s: %d tokens cached, or other bits", path, hit.n_cached);
}

/* What one placement saved goes on in another with the bits that it would have had. */
static void check_restored(serve_rig *r, const char *path, const int32_t *prompt, const serve_out *alone,
                           serve_out *out)
{
    int32_t more[RIG_TOKENS];
    const reply back = store_act(r, KVANT_SLOT_RESTORE, 2, "split", salt);

    CHECK(back.r.code == KVANT_OK && back.r.n_tokens == PROMPT + 39, "%s: %d tokens: %s", path, back.r.n_tokens,
          back.text);
    memcpy(more, prompt, PROMPT * sizeof *more);
    memcpy(more + PROMPT, alone->tokens, 40 * sizeof *more);
    serve_tokens(more + PROMPT + 40, 20, 3);
    kvant_request q = store_request(more, PROMPT + 60, 8, 2, salt);
    serve_one(r, &q, out);
    CHECK(out->n_cached == PROMPT + 39, "%s: %d tokens were restored", path, out->n_cached);
}

/* Two requests in a pool that has no room for both: the younger one goes on after the other. */
static void check_preempted(const char *path, const char *device, const int32_t *prompt, const serve_out *alone)
{
    static serve_out out[2];
    static int32_t other[PROMPT];
    serve_rig r;
    int preempted = 0;

    if (!open_rig(&r, path, device, 5))
        return;
    serve_tokens(other, PROMPT, 4);
    for (int round = 0; round < 5 && !preempted; round++) {
        for (int i = 0; i < 2; i++) {
            kvant_request q = store_request(i ? prompt : other, PROMPT, i ? 40 : 100, -1, salt);
            kvant_diag d = { "" };
            q.cache = KVANT_CACHE_NO_READ | KVANT_CACHE_NO_WRITE;
            CHECK(serve_submit(&r, &q, &out[i], &d) == KVANT_OK, "%s: %s", path, d.text);
        }
        for (int i = 0; i < 2; i++)
            serve_wait(&out[i]);
        CHECK(same(&out[1], alone), "%s: other bits beside another request", path);
        preempted = out[0].n_preempted + out[1].n_preempted;
    }
    CHECK(preempted > 0, "%s: nobody was preempted", path);
    serve_close(&r);
}

static void check_sessions(const char *path, const char *placed)
{
    static serve_out alone[2], on[2];
    int32_t prompt[PROMPT];
    serve_rig one, two;

    serve_tokens(prompt, PROMPT, 5);
    if (!open_rig(&one, path, "cpu", 24) || !open_rig(&two, path, placed, 24))
        return;
    check_hit(&one, path, prompt, &alone[0]);
    check_restored(&two, path, prompt, &alone[0], &on[0]);
    check_hit(&two, path, prompt, &alone[1]);
    CHECK(same(&alone[0], &alone[1]), "%s: two devices give other bits", path);
    check_restored(&one, path, prompt, &alone[1], &on[1]);
    CHECK(same(&on[0], &on[1]), "%s: a snapshot goes on with other bits on other devices", path);
    serve_close(&one);
    serve_close(&two);
    check_preempted(path, placed, prompt, &alone[0]);
}

/* ---- refusals ---- */

static void check_not_made(kvant_model *m, const kvant_engine_params *p, int code, const char *text)
{
    kvant_engine *e = NULL;
    kvant_diag diag = { "" };
    const int got = kvant_engine_create(m, p, &e, &diag);

    CHECK(got == code && strstr(diag.text, text) && !e, "%s, %s, %s: %s: %s", p->device, p->split ? p->split : "-",
          p->tensors ? p->tensors : "-", kvant_error_name(got), diag.text);
}

static void check_refused(kvant_model *m, const char *device, const char *split, int gpu_layers, int code,
                          const char *text)
{
    kvant_engine_params p = params(device, split, "f16");

    p.gpu_layers = gpu_layers;
    check_not_made(m, &p, code, text);
}

static void check_rule(kvant_model *m, const char *rules, int cpu_experts, int code, const char *text)
{
    kvant_engine_params p = params("cpu:1", NULL, "f16");

    p.tensors = rules;
    p.cpu_experts = cpu_experts;
    check_not_made(m, &p, code, text);
}

/* One line each, which names the rule and what it met. */
static void check_rules(void)
{
    static char many[65 * 8], longest[300];
    kvant_model *m = open_file("tests/golden/tiny/qwen3moe.gguf");

    if (!m)
        return;
    for (int i = 0; i < 65; i++)
        strcat(many, i ? ",x=cpu" : "x=cpu");
    memset(longest, 'x', sizeof longest - 1);
    memcpy(longest + sizeof longest - 6, "=cpu", 4);
    check_rule(m, "exps", 0, KVANT_EINVAL, "\"exps\", wanted PATTERN=DEVICE");
    check_rule(m, "exps=", 0, KVANT_EINVAL, "wanted PATTERN=DEVICE");
    check_rule(m, "=cpu", 0, KVANT_EINVAL, "wanted PATTERN=DEVICE");
    check_rule(m, "exps=cpu,", 0, KVANT_EINVAL, "\"\", wanted PATTERN=DEVICE");
    check_rule(m, longest, 0, KVANT_EINVAL, "wanted PATTERN=DEVICE");
    check_rule(m, many, 0, KVANT_EINVAL, "more than 64 rules");
    check_rule(m, "(exps=cpu", 0, KVANT_EINVAL, "\"(exps\", wanted an extended regular expression");
    check_rule(m, "exps=tpu0", 0, KVANT_EDEVICE, "device tpu:0: unknown");
    check_rule(m, "exps=cpu:999", 0, KVANT_EDEVICE, "index must be");
    check_rule(m, "exps=cpu,blk\\.99\\.=cpu", 0, KVANT_EINVAL, "\"blk\\.99\\.=cpu\" matches none of 26 tensors");
    check_rule(m, "exps=cpu,exps=cpu:2", 0, KVANT_EINVAL, "\"exps=cpu:2\" matches none");
    check_rule(m, "attn_k=cpu", 0, KVANT_EUNSUPPORTED, "blk.0.attn_k.weight, which stays on cpu:1");
    check_rule(m, "down_exps=cpu", 0, KVANT_EUNSUPPORTED, "wanted a layer's experts on one device");
    check_rule(m, NULL, -2, KVANT_EINVAL, "layers with experts on the CPU: -2");
    kvant_model_close(m);
}

static void check_refusals(void)
{
    kvant_model *m = open_file("tests/golden/tiny/llama.gguf");

    if (!m)
        return;
    check_refused(m, "cpu,cpu", "1", 0, KVANT_EINVAL, "2 shares");
    check_refused(m, "cpu,cpu", "1,1,1", 0, KVANT_EINVAL, "2 shares");
    check_refused(m, "cpu,cpu", "1,x", 0, KVANT_EINVAL, "2 shares");
    check_refused(m, "cpu,cpu", "1,0", 0, KVANT_EINVAL, "2 shares");
    check_refused(m, "cpu,cpu", "1,inf", 0, KVANT_EINVAL, "2 shares");
    check_refused(m, "cpu,cpu", "1000,1", 0, KVANT_EINVAL, "its share is none of");
    check_refused(m, "cpu,,cpu", NULL, 0, KVANT_EINVAL, "wanted a name");
    check_refused(m, "cpu,gone", NULL, 0, KVANT_EDEVICE, "unknown");
    check_refused(m, "cpu", NULL, -1, KVANT_EINVAL, "GPU layers");
    kvant_engine_params small = params("cpu:1,cpu:2", NULL, "f16");
    small.device_memory[1] = 1 << 16;
    check_not_made(m, &small, KVANT_ENOSPC, "device cpu:2: ");
    small = params("cpu:1", NULL, "f16");
    small.gpu_layers = 1;
    small.host_memory = 1 << 16;
    check_not_made(m, &small, KVANT_ENOSPC, "device cpu: ");
    kvant_model_close(m);
}

int main(void)
{
    char remove[96];

    snprintf(saves, sizeof saves, "/tmp/kvant-split-XXXXXX");
    if (!mkdtemp(saves))
        return 1;
    check_refusals();
    check_rules();
    check_folder("tests/golden/tiny");
    check_folder("tests/archs");
    check_sessions("tests/golden/tiny/llama.gguf", "cpu,cpu");
    check_sessions("tests/golden/tiny/qwen35moe.gguf", "cpu:1+");
    check_sessions("tests/archs/gpt-oss.gguf", "cpu:1,cpu:2+");
    check_sessions("tests/archs/gemma3.gguf", "cpu,cpu");
    snprintf(remove, sizeof remove, "rm -rf %s", saves);
    CHECK(system(remove) == 0, "%s", remove);
    return check_end("check_split");
}
