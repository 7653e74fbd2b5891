/* check_stream: passes of many rows whose experts, the CPU's, come to slots of the device that has the other ops
 * (engine/place/place_stream.h).  Both are the CPU here: the bits are those of one device, for every mixture of the
 * tests and two of random weights; steps of few rows fill nothing; no slot is filled before the lists that read it are
 * done; an error in the middle ends the step and leaves nothing behind. */
#include <dirent.h>
#include <limits.h>

#include "engine/place/place_stream.h"
#include "support/check.h"
#include "support/store_rig.h"

enum { PROMPT = 150, ROWS = 32, STEPS = 3, MOST = 1 << 18 };

extern const kvant_device_vt kvant_device_cpu;

/* ---- the device's slots, watched ---- */

static struct watched {
    int fills, used, fail_at;      /* fail_at: this fill; -1: none */
    int open[KVANT_SLOTS];         /* filled since the last `used` of this slot */
    const void *first[KVANT_SLOTS];        /* the weight that is filled first in a layer */
} g;

/* A layer's matrices are filled one behind the other; the slot must be free before the first of them. */
static int watched_fill(kvant_device *d, kvant_weight *w, int slot, const copy_piece *list, int n, kvant_diag *diag)
{
    CHECK(slot >= 0 && slot < KVANT_SLOTS && n > 0, "slot %d, %d pieces", slot, n);
    CHECK(!g.open[slot] || g.first[slot] != w, "slot %d is filled again while lists may read it", slot);
    if (!g.open[slot])
        g.first[slot] = w;
    g.open[slot] = 1;
    if (g.fills++ == g.fail_at)
        return kvant_fail(diag, KVANT_EDEVICE, "the link is gone");
    return kvant_device_cpu.slots->fill(d, w, slot, list, n, diag);
}

static int watched_used(kvant_device *d, int slot, kvant_diag *diag)
{
    g.used++;
    g.open[slot] = 0;
    return kvant_device_cpu.slots->used(d, slot, diag);
}

static void watch(kvant_engine *e)
{
    static kvant_slots_vt slots;
    static kvant_device_vt vt;

    slots = *kvant_device_cpu.slots;
    slots.fill = watched_fill;
    slots.used = watched_used;
    vt = kvant_device_cpu;
    vt.slots = &slots;
    e->place[0].dev->vt = &vt;
    memset(&g, 0, sizeof g);
    g.fail_at = -1;
}

/* ---- steps ---- */

static kvant_model *open_one(const char *path, const char *made)
{
    kvant_model_params mp = kvant_model_defaults();
    kvant_model *m = NULL;
    kvant_diag diag = { "" };

    mp.path = path;
    mp.synthetic = made;
    CHECK(kvant_model_open(&mp, &m, &diag) == KVANT_OK, "%s: %s", path ? path : made, diag.text);
    return m;
}

static kvant_engine *make(kvant_model *m, int apart)
{
    kvant_engine_params p = kvant_engine_defaults();
    kvant_engine *e = NULL;
    kvant_diag diag = { "" };

    p.device = "cpu:1";
    p.cpu_experts = apart ? INT_MAX : 0;
    p.threads = 1;
    p.n_ctx = 256;
    p.max_seqs = 2;
    p.n_ubatch = 64;
    p.logits_rows = 2;
    CHECK(kvant_engine_create(m, &p, &e, &diag) == KVANT_OK, "%s", diag.text);
    return e;
}

static int step(kvant_engine *e, int seq, const int32_t *ids, int n, int prompt, float *x, int *used, kvant_diag *diag)
{
    const int v = kvant_model_get_info(kvant_engine_model(e))->n_vocab;
    kvant_item item = { seq, ids, n, prompt, KVANT_LOGITS_LAST };
    const int code = kvant_step(e, &item, 1, diag);

    CHECK(code != KVANT_OK || *used + v <= MOST, "%d values", *used);
    if (code == KVANT_OK && *used + v <= MOST)
        memcpy(x + *used, kvant_step_logits(e, 0, 0), (size_t)v * sizeof *x);
    *used += v;
    return code;
}

/* A prompt of two passes and a bit, steps, a prompt of few rows, and one of many again. */
static int run(kvant_engine *e, float *x, int *few)
{
    const int n_vocab = kvant_model_get_info(kvant_engine_model(e))->n_vocab;
    int32_t ids[PROMPT];
    kvant_diag diag = { "" };
    int seq, used = 0;

    serve_tokens(ids, PROMPT, 1);
    for (int i = 0; i < PROMPT; i++)
        ids[i] %= n_vocab;
    CHECK(kvant_seq_new(e, &seq, NULL) == KVANT_OK, "sequence");
    CHECK(step(e, seq, ids, PROMPT, 1, x, &used, &diag) == KVANT_OK, "prompt: %s", diag.text);
    const int before = g.fills;
    for (int i = 0; i < STEPS; i++)
        CHECK(step(e, seq, ids + i, 1, 0, x, &used, &diag) == KVANT_OK, "step: %s", diag.text);
    CHECK(step(e, seq, ids, ROWS - 1, 1, x, &used, &diag) == KVANT_OK, "few rows: %s", diag.text);
    *few = g.fills - before;
    CHECK(step(e, seq, ids, ROWS, 1, x, &used, &diag) == KVANT_OK, "many rows: %s", diag.text);
    kvant_seq_free(e, seq);
    return used;
}

static float want[MOST], got[MOST];

/* Matrices of experts that a pass reads in layers that have them apart.  Of the last one only rows that give logits are
 * computed. */
static int matrices_of(const kvant_engine *e)
{
    int n = 0;

    for (int l = 0; l < e->m->hp.n_layer - 1; l++) {
        const layer_weights *w = &e->m->layers[l];
        if (e->split.experts[l] != e->split.of[l])
            n += w->exps.gate_up >= 0 || w->exps.gate < 0 ? 2 : 3;
    }
    return n;
}

static int check_model(kvant_model *m, const char *name)
{
    kvant_engine *one = make(m, 0), *e = make(m, 1);
    kvant_diag diag = { "" };
    int few = 0, few_one = 0;

    if (!one || !e || e->split.n == 1) {
        kvant_engine_free(one);
        kvant_engine_free(e);
        return 0;
    }
    const int n = run(one, want, &few_one);
    kvant_engine_free(one);
    CHECK(engine_stream_open(e, 0, ROWS, &diag) == KVANT_OK, "%s: %s", name, diag.text);
    watch(e);
    CHECK(run(e, got, &few) == n && memcmp(got, want, (size_t)n * sizeof *got) == 0, "%s: other bits", name);
    CHECK(few == 0, "%s: %d fills for few rows", name, few);
    CHECK(g.fills == 3 * matrices_of(e), "%s: %d fills of %d matrices in 3 passes", name, g.fills, matrices_of(e));
    CHECK(e->way.reads.bytes > 0, "%s: steps read no experts on the CPU", name);
    kvant_engine_free(e);
    return 1;
}

/* The link fails in the middle: the step ends with its words, and the engine is freed whole. */
static void check_fails(kvant_model *m)
{
    for (int at = 0; at < 4; at++) {
        kvant_engine *e = make(m, 1);
        kvant_diag diag = { "" };
        int32_t ids[PROMPT] = { 1, 2, 3 };
        int seq, used = 0;
        if (!e || engine_stream_open(e, 0, ROWS, &diag) != KVANT_OK || kvant_seq_new(e, &seq, NULL) != KVANT_OK)
            return;
        watch(e);
        g.fail_at = at;
        const int code = step(e, seq, ids, PROMPT, 1, got, &used, &diag);
        CHECK(code == KVANT_EDEVICE && strstr(diag.text, "link is gone"), "fill %d: %s", at, diag.text);
        kvant_engine_free(e);
    }
}

/* The rule: devices that stream, passes that are large enough, experts that are this machine's; and how many rows. */
static void check_rule(const char *name, int wanted)
{
    kvant_model *m = open_one(NULL, name);
    kvant_engine_params p = kvant_engine_defaults();
    char device[40];

    p.device = "cuda";
    p.threads = 16;
    p.n_ctx = 4096;
    p.n_ubatch = 2048;
    p.cpu_experts = INT_MAX;
    const int rows = engine_stream_about(m, &p, device, sizeof device);
    CHECK(rows == wanted && strncmp(device, "cuda", 4) == 0, "%d rows on %s", rows, device);
    p.n_ubatch = (rows - 1) / KVANT_PAGE * KVANT_PAGE;
    CHECK(engine_stream_about(m, &p, device, sizeof device) == 0, "passes that are too small");
    p.n_ubatch = (rows + KVANT_PAGE - 1) / KVANT_PAGE * KVANT_PAGE;
    CHECK(engine_stream_about(m, &p, device, sizeof device) == rows, "passes that are just large enough");
    p.cpu_experts = 0;
    CHECK(engine_stream_about(m, &p, device, sizeof device) == 0, "experts that are the device's");
    p.cpu_experts = INT_MAX;
    p.device = "cpu:1";
    CHECK(engine_stream_about(m, &p, device, sizeof device) == 0, "a device that is the CPU");
    kvant_model_close(m);
}

/* Pieces that reach beyond a weight's rows, or are too large, are told before anything is written. */
static void check_beyond(void)
{
    static const struct {
        uintptr_t to;
        size_t bytes;
        int wrong;
    } cases[] = { { 0, 100, 0 }, { 60, 40, 0 }, { 61, 40, 1 }, { 100, 0, 0 }, { 101, 0, 1 }, { 0, 101, 1 },
                  { 0, 81, 1 }, { UINTPTR_MAX, 2, 1 } };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const copy_piece list[2] = { { (void *)0, NULL, 10 }, { (void *)cases[i].to, NULL, cases[i].bytes } };
        const size_t most = i == 6 ? 80 : 1000;
        CHECK(copy_pieces_beyond(list, 2, 100, most) == (cases[i].wrong ? 1 : -1), "case %zu", i);
    }
}

int main(void)
{
    static const char *const files[] = { "tests/golden/tiny/qwen3moe.gguf", "tests/golden/tiny/qwen35moe.gguf",
                                         "tiny-qwen3moe:q4_k", "tiny-qwen3next:q6_k" };
    DIR *d = opendir("tests/archs");
    char path[512];
    int n = 0;

    check_beyond();
    CHECK(d != NULL, "tests/archs");
    for (struct dirent *f; d && (f = readdir(d));) {
        const char *dot = strrchr(f->d_name, '.');
        if (!dot || strcmp(dot, ".gguf") != 0)
            continue;
        snprintf(path, sizeof path, "tests/archs/%s", f->d_name);
        kvant_model *m = open_one(path, NULL);
        if (m && kvant_model_get_info(m)->n_expert > 0)
            n += check_model(m, path);
        kvant_model_close(m);
    }
    if (d)
        closedir(d);
    for (int i = 0; i < 4; i++) {
        kvant_model *m = open_one(i < 2 ? files[i] : NULL, i < 2 ? NULL : files[i]);
        if (m)
            n += check_model(m, files[i]);
        if (m && i == 1)
            check_fails(m);
        kvant_model_close(m);
    }
    check_rule("qwen3moe-30b-a3b:q4_K", 213);
    check_rule("qwen35moe-35b-a3b:q4_K", 426);
    printf("%d mixtures\n", n);
    CHECK(n > 12, "%d mixtures", n);
    return check_end("check_stream");
}
