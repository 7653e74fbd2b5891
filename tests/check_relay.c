/* check_relay: a program over the CPU and a device that runs it by itself (device.h, relay; relay.h).  The device is
 * made here of the CPU's: a thread that obeys the flags as a GPU's stream does, and replays a copy of what came first
 * under a key, arguments included.  Wherever layers and experts are, the bits are those of one device; an error of the
 * CPU and a device that is lost in the middle each end the step with their own words, and nobody waits for ever. */
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "devices/relay.h"
#include "engine/engine.h"
#include "support/check.h"
#include "support/store_rig.h"

enum { STEPS = 12, PROMPT = 90, MOST_LIST = 512, MOST_OPS = 4096, MOST_KEYS = 8, ROWS = 1 << 20, MOST = 1 << 19 };

extern const kvant_device_vt kvant_device_cpu;

/* ---- the device ---- */

typedef struct recording {
    uint64_t key;
    int n, n_ops, used;
    kvant_relay list[MOST_LIST];
    kvant_op ops[MOST_OPS];
    unsigned char args[MOST_OPS][512];
} recording;

static struct stream {
    pthread_t thread;
    int running;                   /* a list is on its way: whoever calls the device waits for it */
    kvant_device *dev;
    const kvant_relay *list;
    int n;
    _Atomic int lost;              /* the stream ends at its next message, and alive says so */
    int lose_at, fail_at;          /* at this message of a list, this submit of the CPU; -1: never */
    int replayed, messages, submits, slow;
    _Alignas(64) uint32_t out;
    _Alignas(64) uint32_t in;
    unsigned char out_rows[ROWS], in_rows[ROWS];
    recording kept[MOST_KEYS];
} g;

static int alive(void *device, kvant_diag *diag)
{
    (void)device;
    return atomic_load(&g.lost) ? kvant_fail(diag, KVANT_EDEVICE, "the device is lost") : KVANT_OK;
}

static const relay_side side = { &g.out, &g.in, g.out_rows, g.in_rows, alive, NULL, 60000000000 };

/* A message as the device does it; 0: it is lost. */
static int stream_message(const kvant_relay *r)
{
    const int out = r->kind == KVANT_RELAY_OUT;
    uint32_t *flag = out ? &g.out : &g.in;
    unsigned char *at = out ? g.out_rows : g.in_rows;

    if (g.messages++ == g.lose_at)
        atomic_store(&g.lost, 1);
    while (!atomic_load(&g.lost) && __atomic_load_n(flag, __ATOMIC_ACQUIRE) != (uint32_t)!out)
        continue;
    if (atomic_load(&g.lost))
        return 0;
    if (g.slow)
        nanosleep(&(struct timespec){ 0, 5 * 1000 * 1000 }, NULL);
    for (int i = 0; i < KVANT_RELAY_PARTS; at += relay_part_room(r->bytes[i++]))
        if (r->bytes[i])
            memcpy(out ? (void *)at : r->dst[i], out ? r->src[i] : at, r->bytes[i]);
    __atomic_store_n(flag, (uint32_t)out, __ATOMIC_RELEASE);
    return 1;
}

static void *stream_main(void *none)
{
    (void)none;
    for (int i = 0; i < g.n; i++) {
        const kvant_relay *r = &g.list[i];
        if (r->kind == KVANT_RELAY_OPS)
            CHECK(kvant_device_cpu.submit(g.dev, r->ops, r->n, 0, NULL) == KVANT_OK, "ops of the stream");
        else if (r->kind != KVANT_RELAY_HOST && !stream_message(r))
            return NULL;
    }
    return NULL;
}

static void stream_wait(void)
{
    if (g.running)
        pthread_join(g.thread, NULL);
    g.running = 0;
}

/* A copy that outlives the engine's program. */
static void record(recording *k, uint64_t key, const kvant_relay *list, int n)
{
    k->key = key;
    k->n_ops = 0;
    k->n = n;
    CHECK(n <= MOST_LIST, "%d entries", n);
    memcpy(k->list, list, (size_t)n * sizeof *list);
    for (int i = 0; i < n; i++) {
        kvant_relay *r = &k->list[i];
        if (r->kind != KVANT_RELAY_OPS)
            continue;
        r->ops = k->ops + k->n_ops;
        for (int j = 0; j < r->n; j++, k->n_ops++) {
            const size_t bytes = kvant_op_get(list[i].ops[j].id)->args_bytes;
            CHECK(k->n_ops < MOST_OPS && bytes <= sizeof k->args[0], "%d ops, arguments of %zu bytes", k->n_ops, bytes);
            memcpy(k->args[k->n_ops], list[i].ops[j].args, bytes);
            k->ops[k->n_ops] = (kvant_op){ list[i].ops[j].id, k->args[k->n_ops] };
        }
    }
}

static recording *kept(uint64_t key)
{
    recording *old = &g.kept[0];

    for (int i = 0; i < MOST_KEYS; i++) {
        if (g.kept[i].key == key)
            return &g.kept[i];
        old = g.kept[i].used < old->used ? &g.kept[i] : old;
    }
    old->key = 0;
    return old;
}

static int relay(kvant_device *d, const kvant_relay *list, int n, uint64_t key, kvant_relay_fn run, void *user,
                 kvant_diag *diag)
{
    static int clock;
    recording *k = key ? kept(key) : NULL;

    stream_wait();
    if (atomic_load(&g.lost))
        return alive(NULL, diag);
    CHECK(relay_most(list, n, KVANT_RELAY_OUT) <= ROWS && relay_most(list, n, KVANT_RELAY_IN) <= ROWS, "rows");
    g.replayed += k && k->key == key;
    if (k && k->key != key)
        record(k, key, list, n);
    if (k)
        k->used = ++clock;
    g.dev = d;
    g.list = k ? k->list : list;
    g.n = k ? k->n : n;
    g.messages = 0;
    g.running = pthread_create(&g.thread, NULL, stream_main, NULL) == 0;
    CHECK(g.running, "no thread");
    const int code = relay_attend(&side, list, n, run, user, diag);
    if (!key)
        stream_wait();             /* list and arguments are the caller's */
    return code;
}

/* Whatever else the device is asked for comes behind the list. */
static int wait_copy(kvant_device *d, void *dst, const void *src, size_t bytes, kvant_diag *diag)
{
    stream_wait();
    return atomic_load(&g.lost) ? alive(NULL, diag) : kvant_device_cpu.copy_in(d, dst, src, bytes, diag);
}

static int wait_submit(kvant_device *d, const kvant_op *ops, int n, uint64_t key, kvant_diag *diag)
{
    stream_wait();
    return kvant_device_cpu.submit(d, ops, n, key, diag);
}

static void wait_free(kvant_device *d, void *at)
{
    stream_wait();
    kvant_device_cpu.free(d, at);
}

static int cpu_submit(kvant_device *d, const kvant_op *ops, int n, uint64_t key, kvant_diag *diag)
{
    if (g.submits++ == g.fail_at)
        return kvant_fail(diag, KVANT_ENOMEM, "no memory for experts");
    return kvant_device_cpu.submit(d, ops, n, key, diag);
}

/* The place of device `name` becomes such a device, the others fail when they are told to. */
static void change(kvant_engine *e, const char *name)
{
    static kvant_device_vt streamed, failing;

    streamed = failing = kvant_device_cpu;
    streamed.name = "stream";
    streamed.relay = relay;
    streamed.copy_in = streamed.copy_out = wait_copy;
    streamed.submit = wait_submit;
    streamed.free = wait_free;
    failing.submit = cpu_submit;
    for (int i = 0; i < e->split.n; i++)
        e->place[i].dev->vt = strcmp(e->split.name[i], name) == 0 ? &streamed : &failing;
    stream_wait();
    memset(g.kept, 0, sizeof g.kept);
    g.out = g.in = 0;
    g.lost = g.replayed = g.submits = 0;
    g.lose_at = g.fail_at = -1;
    CHECK(engine_relay_place(e) >= 0, "%s is no place", name);
}

/* ---- steps ---- */

static kvant_engine_params params(const char *device)
{
    kvant_engine_params p = kvant_engine_defaults();

    p.device = device;
    p.threads = 1;
    p.n_ctx = 256;
    p.max_seqs = 4;
    p.n_ubatch = 64;
    p.type_k = p.type_v = "f16";
    return p;
}

static kvant_engine *make(kvant_model *m, const kvant_engine_params *p)
{
    kvant_engine *e = NULL;
    kvant_diag diag = { "" };

    CHECK(kvant_engine_create(m, p, &e, &diag) == KVANT_OK, "%s: %s", p->device, diag.text);
    return e;
}

static int step(kvant_engine *e, kvant_item *items, int n, float *x, int *used, kvant_diag *diag)
{
    const int v = kvant_model_get_info(kvant_engine_model(e))->n_vocab, code = kvant_step(e, items, n, diag);

    for (int i = 0; code == KVANT_OK && i < n; i++, *used += v) {
        CHECK(*used + v <= MOST, "%d values", *used);
        if (*used + v <= MOST)
            memcpy(x + *used, kvant_step_logits(e, i, 0), (size_t)v * sizeof *x);
    }
    return code;
}

/* A prompt, then steps of one sequence and of two; returns the values in x. */
static int run_steps(kvant_engine *e, float *x)
{
    int32_t tokens[PROMPT];
    int s[2], used = 0;
    kvant_diag diag = { "" };

    serve_tokens(tokens, PROMPT, 1);
    for (int i = 0; i < 2; i++) {
        CHECK(kvant_seq_new(e, &s[i], NULL) == KVANT_OK, "sequence");
        kvant_item prompt = { s[i], tokens + i, PROMPT - i, 1, KVANT_LOGITS_LAST };
        CHECK(step(e, &prompt, 1, x, &used, &diag) == KVANT_OK, "prompt: %s", diag.text);
    }
    for (int i = 0; i < STEPS; i++) {
        kvant_item both[] = { { s[0], tokens + i, 1, 0, KVANT_LOGITS_LAST },
                              { s[1], tokens + 2 * i, 1, 0, KVANT_LOGITS_LAST } };
        CHECK(step(e, both, 1 + i % 2, x, &used, &diag) == KVANT_OK, "step: %s", diag.text);
    }
    for (int i = 0; i < 2; i++)
        kvant_seq_free(e, s[i]);
    return used;
}

static float want[MOST], got[MOST];
static int compared;

static void compare(kvant_model *m, const kvant_engine_params *p, const char *streamed, int n, const char *path)
{
    kvant_engine *e = make(m, p);

    if (!e || e->split.n == 1) {    /* the first layer has no experts */
        kvant_engine_free(e);
        return;
    }
    change(e, streamed);
    CHECK(run_steps(e, got) == n && memcmp(got, want, (size_t)n * sizeof *got) == 0,
          "%s: %s of %s, %d GPU layers, %d experts: other bits", path, streamed, p->device, p->gpu_layers,
          p->cpu_experts);
    CHECK(g.replayed > STEPS / 2, "%s: %d of %d steps were replayed", path, g.replayed, STEPS);
    kvant_engine_free(e);
    compared++;
}

/* The CPU's experts of all layers and of one, layers before the device's, and behind them, both, and a second place of
 * the CPU. */
static void check_placements(kvant_model *m, const char *path)
{
    kvant_engine_params p = params("cpu");
    kvant_engine *one = make(m, &p);
    const int layers = kvant_model_get_info(m)->n_layer, n = one ? run_steps(one, want) : 0;

    kvant_engine_free(one);
    for (int i = 0; n > 0 && i < 4; i++) {
        p = params("cpu:1");
        p.cpu_experts = i == 0 ? INT_MAX : i == 1 || i == 3 ? 1 : 0;
        p.gpu_layers = i < 2 ? 0 : layers > 2 ? layers - 1 : layers;
        p.tensors = i == 3 ? "_exps=CPU" : NULL;
        if (kvant_model_get_info(m)->n_expert > 0 || i == 2)
            compare(m, &p, "cpu:1", n, path);
    }
    p = params("cpu:1,cpu:2");
    compare(m, &p, "cpu:1", n, path);
    p = params("cpu:1,cpu:2,cpu:3");
    compare(m, &p, "cpu:3", n, path);
}

/* ---- what the CPU reads ---- */

/* Bytes of the routed experts that one token reads. */
static int64_t token_bytes(const kvant_model *m)
{
    int64_t n = 0;
    int l;

    for (int i = 0; i < gguf_tensor_count(m->file); i++) {
        const gguf_tensor *t = gguf_tensor_at(m->file, i);
        if (engine_is_expert(t, &l))
            n += (int64_t)t->bytes / m->hp.moe.n * m->hp.moe.n_used;
    }
    return n;
}

/* Experts are counted in steps without prompts, once where two sequences want the same; with the device's own relay and
 * without. */
static void check_reads(kvant_model *m, int streamed)
{
    kvant_engine_params p = params("cpu:1");
    kvant_item prompt[2], one[2];
    int32_t token = 7;
    int64_t bytes, ns;
    int used = 0, s;

    p.cpu_experts = INT_MAX;
    kvant_engine *e = make(m, &p);
    if (e && streamed)
        change(e, "cpu:1");
    for (int i = 0; e && i < 2; i++) {
        CHECK(kvant_seq_new(e, &s, NULL) == KVANT_OK, "sequence");
        prompt[i] = (kvant_item){ s, &token, 1, 1, KVANT_LOGITS_LAST };
        one[i] = (kvant_item){ s, &token, 1, 0, KVANT_LOGITS_LAST };
    }
    if (!e || step(e, prompt, 2, got, &used, NULL) != KVANT_OK)
        return;
    kvant_engine_expert_reads(e, &bytes, &ns);
    CHECK(bytes == 0 && ns == 0, "%lld bytes of a prompt", (long long)bytes);
    for (int i = 0; i < 3; i++)
        CHECK(step(e, one, 1 + i % 2, got, &used, NULL) == KVANT_OK, "step");
    kvant_engine_expert_reads(e, &bytes, &ns);
    CHECK(bytes >= 3 * token_bytes(m) && bytes < 4 * token_bytes(m) && ns > 0, "%lld bytes in %lld ns, wanted %lld or "
          "little more: two sequences had the same token at one place", (long long)bytes, (long long)ns,
          3 * (long long)token_bytes(m));
    kvant_engine_free(e);
}

/* ---- faults ---- */

static kvant_engine *changed(kvant_model *m)
{
    kvant_engine_params p = params("cpu:1");

    p.cpu_experts = INT_MAX;
    kvant_engine *e = make(m, &p);
    if (e)
        change(e, "cpu:1");
    return e;
}

/* One list of the CPU fails in the middle of a step: the step ends with its words, the stream is not left waiting, and
 * other sequences go on. */
static void check_cpu_fails(kvant_model *m)
{
    for (int at = 0; at < 2; at++) {
        kvant_engine *e = changed(m);
        kvant_diag diag = { "" };
        int32_t tokens[3] = { 1, 2, 3 };
        int seq, used = 0, n = e ? run_steps(e, want) : 0;
        if (!e || kvant_seq_new(e, &seq, NULL) != KVANT_OK)
            return;
        kvant_item one = { seq, tokens, 1, 0, KVANT_LOGITS_LAST };
        CHECK(step(e, &one, 1, got, &used, &diag) == KVANT_OK, "%s", diag.text);
        g.submits = 0;
        g.fail_at = at;
        CHECK(step(e, &one, 1, got, &used, &diag) == KVANT_ENOMEM && strstr(diag.text, "no memory for experts"), "%s",
              diag.text);
        CHECK(g.submits == at + 1, "%d lists of the CPU behind one that failed", g.submits - at - 1);
        kvant_seq_free(e, seq);
        CHECK(run_steps(e, got) == n && memcmp(got, want, (size_t)n * sizeof *got) == 0, "other bits after an error");
        kvant_engine_free(e);
    }
}

/* The device is lost before each message of a step. */
static void check_lost(kvant_model *m)
{
    for (int at = 0; at < 4; at++) {
        kvant_engine *e = changed(m);
        kvant_diag diag = { "" };
        int32_t token = 1;
        int seq, used = 0;
        if (!e || kvant_seq_new(e, &seq, NULL) != KVANT_OK)
            return;
        kvant_item one = { seq, &token, 1, 0, KVANT_LOGITS_LAST };
        for (int i = 0; i < 3; i++)
            CHECK(step(e, &one, 1, got, &used, &diag) == KVANT_OK, "%s", diag.text);
        g.lose_at = at;
        const int code = step(e, &one, 1, got, &used, &diag);
        CHECK(code == KVANT_EDEVICE && strstr(diag.text, "is lost"), "message %d: %s", at, diag.text);
        CHECK(kvant_step_code(e, 0) == KVANT_EDEVICE, "%d", kvant_step_code(e, 0));
        kvant_engine_free(e);
    }
}

static int not_lost(void *device, kvant_diag *diag)
{
    (void)diag;
    ++*(int *)device;
    return KVANT_OK;
}

/* A device that lives but brings nothing, and one that takes nothing, are given up when the limit is over and not
 * before; one that came at the last moment is not. */
static void check_silent(void)
{
    enum { LIMIT = 30 * 1000 * 1000 };
    float row[4] = { 0 };
    int asked = 0;
    const relay_side silent = { &g.out, &g.in, g.out_rows, g.in_rows, not_lost, &asked, LIMIT };

    for (int kind = KVANT_RELAY_OUT; kind <= KVANT_RELAY_IN; kind++) {
        const kvant_relay one = { .kind = kind, .src = { row }, .dst = { row }, .bytes = { sizeof row } };
        kvant_diag diag = { "" };
        const int64_t begin = relay_now();
        g.out = 0;
        g.in = 1;
        const int code = relay_attend(&silent, &one, 1, NULL, NULL, &diag);
        CHECK(code == KVANT_EDEVICE && strstr(diag.text, "for 0.0 s"), "%d: %s", code, diag.text);
        CHECK(relay_now() - begin >= LIMIT && asked > 0, "given up after %lld ns", (long long)(relay_now() - begin));
    }
    CHECK(relay_ask(&silent, &g.in, 1, 1, NULL) == KVANT_OK, "a flag that has come is late");
    g.out = g.in = 0;
}

/* Messages one behind the other on the same side: none is written over before the device, which takes its time, has
 * taken it. */
static void check_messages(void)
{
    static float from[8][16], to[8][16];
    kvant_device dev = { &kvant_device_cpu };
    kvant_relay list[8];

    for (int i = 0; i < 8; i++) {
        check_fill(from[i], 16, -1.0f, 1.0f, (unsigned long long)i);
        list[i] = (kvant_relay){ .kind = i % 4 < 2 ? KVANT_RELAY_IN : KVANT_RELAY_OUT,
                                 .src = { from[i], NULL, from[i] + 7 }, .dst = { to[i], NULL, to[i] + 7 },
                                 .bytes = { 7 * sizeof(float), 0, 9 * sizeof(float) } };
    }
    g.out = g.in = 0;
    atomic_store(&g.lost, 0);
    g.slow = 1;
    g.lose_at = -1;
    CHECK(relay(&dev, list, 8, 0, NULL, NULL, NULL) == KVANT_OK, "messages");
    g.slow = 0;
    CHECK(memcmp(from, to, sizeof from) == 0, "a message was written over");
}

int main(void)
{
    static const char *const files[] = {
        "tests/golden/tiny/qwen3moe.gguf",        "tests/golden/tiny/qwen35moe.gguf",
        "tests/archs/deepseek2-lite.gguf",        "tests/archs/gpt-oss.gguf",
        "tests/archs/nemotron_h_moe-latent.gguf", "tests/golden/tiny/qwen3.gguf",
    };

    check_messages();
    check_silent();
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        kvant_model_params mp = kvant_model_defaults();
        kvant_model *m = NULL;
        kvant_diag diag = { "" };
        mp.path = files[i];
        CHECK(kvant_model_open(&mp, &m, &diag) == KVANT_OK, "%s: %s", mp.path, diag.text);
        if (!m)
            continue;
        check_placements(m, mp.path);
        if (i == 1) {
            check_reads(m, 0);
            check_reads(m, 1);
            check_cpu_fails(m);
            check_lost(m);
        }
        kvant_model_close(m);
    }
    printf("%d placements\n", compared);
    CHECK(compared > 25, "%d placements", compared);
    return check_end("check_relay");
}
