/* check_tensor: every layer in parts over two and three devices, all of them the CPU: every model of tests/archs and of
 * tests/golden/tiny gives the bits that one device gives, with f16 and compressed caches, even and uneven shares, rows
 * that go from memory to memory and through host buffers: prompts, steps of several sequences, forks, hidden states,
 * and sessions with prefix hits, preemption and snapshots that another placement restores.  OpenCL beside the CPU,
 * where it is here, is as close to the CPU as the class of its products says. */
#include <unistd.h>

#include "engine/tensor/tensor.h"
#include "support/device_here.h"
#include "support/place_rig.h"

static int compare(kvant_model *m, const kvant_engine_params *p, const place_record *want, const char *path)
{
    static place_record r;
    kvant_diag diag = { "" };
    const int code = place_run(m, p, &r, &diag);

    CHECK(code == KVANT_OK, "%s, %s, %s: %s", path, p->device, p->split ? p->split : "", diag.text);
    CHECK(r.n == want->n && memcmp(r.x, want->x, r.n * sizeof *r.x) == 0, "%s, %s, split %s, %s: other bits", path,
          p->device, p->split ? p->split : "-", p->type_k);
    return code == KVANT_OK;
}

/* Exchanges through host buffers, as devices that do not reach each other's memory have them. */
static int compare_buffers(kvant_model *m, const kvant_engine_params *p, const place_record *want, const char *path)
{
    static place_record r;
    kvant_diag diag = { "" };
    kvant_engine *e = NULL;

    CHECK(kvant_engine_create(m, p, &e, &diag) == KVANT_OK, "%s: %s", path, diag.text);
    if (!e)
        return 0;
    CHECK(e->way.tensor->direct, "%s: CPUs copy memory", path);
    e->way.tensor->direct = 0;
    CHECK(tensor_host_memory(e, &diag) == KVANT_OK, "%s: %s", path, diag.text);
    r.n = 0;
    place_steps(e, &r);
    CHECK(r.n == want->n && memcmp(r.x, want->x, r.n * sizeof *r.x) == 0, "%s, %s: other bits through buffers", path,
          p->device);
    kvant_engine_free(e);
    return 1;
}

static int check_format(kvant_model *m, const char *format, const char *path)
{
    static const char *const devices[] = { "cpu,cpu", "cpu,cpu,cpu" };
    static place_record want;
    kvant_engine_params p = place_params("cpu", NULL, format);
    kvant_diag diag = { "" };
    int n = 0;

    const int code = place_run(m, &p, &want, &diag);
    if (code != KVANT_OK) {        /* the format has no heads of every size */
        CHECK((code == KVANT_EINVAL || code == KVANT_EUNSUPPORTED) && strcmp(format, "f16") != 0 &&
              strstr(diag.text, format), "%s, %s: %s: %s", path, format, kvant_error_name(code), diag.text);
        return 0;
    }
    p.split_tensors = 1;
    for (int i = 0; i < 2; i++) {
        p.device = devices[i];
        n += compare(m, &p, &want, path);
        if (strcmp(format, "f16") == 0)
            n += compare_buffers(m, &p, &want, path);
    }
    if (kvant_model_get_info(m)->n_head_kv % 4)
        return n;
    p.device = "cpu,cpu";
    p.split = "3,1";
    return n + compare(m, &p, &want, path);
}

static int check_file(const char *path)
{
    kvant_model *m = place_open(path);
    int n = 0;

    if (!m)
        return 0;
    n += check_format(m, "f16", path);
    n += check_format(m, "tbq4_0", path);
    n += check_format(m, "ptcq3", path);
    CHECK(n > 0, "%s: no split", path);
    kvant_model_close(m);
    return n;
}

/* ---- other devices ---- */

extern const kvant_device_vt kvant_device_cpu;

static struct sides {
    const kvant_engine *e;
    int seen[KV_MOST_PLACES];
} g;

/* The cut gives a place's list its own sides, whatever layer they are of. */
static void check_side(int place, const kvant_kv_side *s)
{
    const kv_cache *kv = &g.e->kv;
    int found = 0;

    for (int l = 0; l < kv->cfg.n_layer; l++) {
        const int i = kv_at(&kv->cfg, place, l);
        found |= kv_has_attn(&kv->cfg, l) &&
                 (memcmp(s, &kv->k[i], sizeof *s) == 0 || memcmp(s, &kv->v[i], sizeof *s) == 0);
    }
    CHECK(found, "place %d: layout %d is of another place", place, s->layout);
    g.seen[place]++;
}

/* The CPU runs what it is given with the order that it knows. */
static int plain_submit(kvant_device *dev, const kvant_op *ops, int n, uint64_t key, kvant_diag *diag)
{
    int place = 0;

    while (place < g.e->split.n - 1 && g.e->place[place].dev != dev)
        place++;
    for (int i = 0; i < n; i++) {
        if (ops[i].id == KVANT_OP_ATTN) {
            check_side(place, &((const kvant_attn_args *)ops[i].args)->k);
            check_side(place, &((const kvant_attn_args *)ops[i].args)->v);
        } else if (ops[i].id == KVANT_OP_CACHE_WRITE) {
            check_side(place, &((const kvant_cache_write_args *)ops[i].args)->side);
        } else if (ops[i].id == KVANT_OP_PAGE_SEAL) {
            check_side(place, &((const kvant_page_seal_args *)ops[i].args)->side);
        }
    }
    return kvant_device_cpu.submit(dev, ops, n, key, diag);
}

/* Places whose devices order the bytes of pages in ways of their own; heads are shared out, or copies. */
static void check_sides(const char *path, const char *device, const char *format, int copied)
{
    static kvant_device_vt vt;
    static place_record r;
    kvant_model *m = place_open(path);
    kvant_engine_params p = place_params(device, NULL, format);
    kvant_engine *e = NULL;
    kvant_diag diag = { "" };

    p.split_tensors = 1;
    CHECK(m && kvant_engine_create(m, &p, &e, &diag) == KVANT_OK, "%s: %s", path, diag.text);
    memset(&g, 0, sizeof g);
    g.e = e;
    vt = kvant_device_cpu;
    vt.submit = plain_submit;
    for (int i = 0; e && i < e->split.n; i++) {
        e->place[i].dev->vt = &vt;
        for (int l = 0; l < e->kv.cfg.n_layer; l++) {
            CHECK(!kv_has_attn(&e->kv.cfg, l) || kv_is_copied(&e->kv.cfg, l) == copied, "%s: layer %d", path, l);
            e->kv.k[kv_at(&e->kv.cfg, i, l)].layout = e->kv.v[kv_at(&e->kv.cfg, i, l)].layout = 10 + i;
        }
    }
    r.n = 0;
    if (e)
        place_steps(e, &r);
    for (int i = 0; e && i < e->split.n; i++)
        CHECK(g.seen[i] > 20, "%s: place %d: %d sides", path, i, g.seen[i]);
    kvant_engine_free(e);
    kvant_model_close(m);
}

/* Rows that cross between unlike devices. */
static void check_beside(const char *path, const char *device)
{
    static place_record want, r;
    kvant_model *m = place_open(path);
    kvant_engine_params p = place_params("cpu", NULL, "f16");
    kvant_diag diag = { "" };

    if (!m)
        return;
    p.compute = KVANT_COMPUTE_F32;
    CHECK(place_run(m, &p, &want, &diag) == KVANT_OK, "%s: %s", path, diag.text);
    p.device = device;
    p.split_tensors = 1;
    CHECK(place_run(m, &p, &r, &diag) == KVANT_OK, "%s, %s: %s", path, device, diag.text);
    CHECK(r.n == want.n && check_nmse(r.x, want.x, r.n) < 1e-6, "%s, %s: NMSE %.2g", path, device,
          r.n == want.n ? check_nmse(r.x, want.x, r.n) : -1);
    kvant_model_close(m);
}

/* An op of an address that no place has is named. */
static void check_named(void)
{
    kvant_model *m = place_open("tests/golden/tiny/llama.gguf");
    kvant_engine_params p = place_params("cpu,cpu", NULL, "f16");
    kvant_engine *e = NULL;
    kvant_diag diag = { "" };
    int32_t id = 1;
    int seq;

    p.split_tensors = 1;
    CHECK(m && kvant_engine_create(m, &p, &e, &diag) == KVANT_OK && kvant_seq_new(e, &seq, NULL) == KVANT_OK, "%s",
          diag.text);
    if (e) {
        kvant_item item = { seq, &id, 1, 1, KVANT_LOGITS_LAST };
        e->way.tensor->n_range = 0;
        CHECK(kvant_step(e, &item, 1, &diag) == KVANT_EINTERNAL &&
              strstr(diag.text, "embed: memory that no device has"), "%s", diag.text);
    }
    kvant_engine_free(e);
    kvant_model_close(m);
}

/* ---- refusals ---- */

static void check_not_made(kvant_model *m, const kvant_engine_params *p, int code, const char *text)
{
    kvant_engine *e = NULL;
    kvant_diag diag = { "" };
    const int got = kvant_engine_create(m, p, &e, &diag);

    CHECK(got == code && strstr(diag.text, text) && !e, "%s, %s: %s: %s", p->device, p->split ? p->split : "-",
          kvant_error_name(got), diag.text);
    kvant_engine_free(e);
}

static void check_refused(kvant_model *m, const char *device, const char *split, int code, const char *text)
{
    kvant_engine_params p = place_params(device, split, "f16");

    p.split_tensors = 1;
    check_not_made(m, &p, code, text);
}

static void check_refusals(void)
{
    kvant_model *m = place_open("tests/golden/tiny/llama.gguf");
    kvant_engine_params p = place_params("cpu,cpu", NULL, "f16");

    if (!m)
        return;
    check_refused(m, "cpu,cpu", "1", KVANT_EINVAL, "2 shares");
    check_refused(m, "cpu,cpu", "1,x", KVANT_EINVAL, "2 shares");
    check_refused(m, "cpu,cpu", "1e308,1e308", KVANT_EINVAL, "the sum of the shares is no number");
    check_refused(m, "cpu,cpu", "1,0", KVANT_EINVAL, "2 shares");
    check_refused(m, "cpu,cpu", "2,1", KVANT_EINVAL, " KV heads of layer 0 do not divide so; wanted whole heads");
    check_refused(m, "cpu,gone", NULL, KVANT_EDEVICE, "unknown");
    check_refused(m, "cpu,,cpu", NULL, KVANT_EINVAL, "wanted a name");
    p.split_tensors = p.gpu_layers = 1;
    check_not_made(m, &p, KVANT_EUNSUPPORTED, "1 layers on the devices, wanted all");
    p.gpu_layers = 0;
    p.cpu_experts = 1;
    check_not_made(m, &p, KVANT_EUNSUPPORTED, "wanted them with their layers");
    p.device = "cpu";
    check_not_made(m, &p, KVANT_EUNSUPPORTED, "wanted them with their layers");
    p.device = "cpu,cpu";
    p.cpu_experts = 0;
    p.device_memory[1] = 1 << 16;
    check_not_made(m, &p, KVANT_ENOSPC, "device cpu: ");
    kvant_model_close(m);
}

/* A place's bytes: half of the matrices and of the pages, all of the norms, and the first one's table. */
static void check_plan(void)
{
    kvant_model *m = place_open("tests/golden/tiny/llama.gguf");
    kvant_engine_params p = place_params("cpu,cpu", NULL, "f16");
    kvant_plan one, all;
    kvant_plan_part part[2];

    if (!m)
        return;
    CHECK(kvant_plan_make(m, &p, &one, NULL) == KVANT_OK, "plan");
    p.split_tensors = 1;
    CHECK(kvant_plan_make(m, &p, &all, NULL) == KVANT_OK, "plan");
    for (int i = 0; i < 2; i++)
        CHECK(kvant_plan_device(m, &p, i, &part[i], NULL) == KVANT_OK, "part");
    CHECK(part[0].plan.kv == one.kv / 2 && part[1].plan.kv == one.kv / 2 && all.kv == one.kv, "%lld + %lld of %lld",
          (long long)part[0].plan.kv, (long long)part[1].plan.kv, (long long)one.kv);
    CHECK(part[1].plan.weights < part[0].plan.weights && part[1].plan.weights * 2 > one.weights / 2 &&
          all.weights == part[0].plan.weights + part[1].plan.weights && all.weights < one.weights * 5 / 4,
          "%lld + %lld of %lld", (long long)part[0].plan.weights, (long long)part[1].plan.weights,
          (long long)one.weights);
    kvant_model_close(m);
}

/* A block that predicts further tokens is not loaded, and not counted. */
static void check_mtp(void)
{
    kvant_model_params mp = kvant_model_defaults();
    kvant_engine_params p = place_params("cpu,cpu", NULL, "f16");
    kvant_plan plan[2];

    p.split_tensors = 1;
    for (int i = 0; i < 2; i++) {
        kvant_model *m = NULL;
        kvant_diag diag = { "" };
        mp.synthetic = i ? "qwen3-8b:q4_K+mtp" : "qwen3-8b:q4_K";
        CHECK(kvant_model_open(&mp, &m, &diag) == KVANT_OK && kvant_plan_make(m, &p, &plan[i], &diag) == KVANT_OK &&
              kvant_model_get_info(m)->n_mtp == i, "%s: %s", mp.synthetic, diag.text);
        kvant_model_close(m);
    }
    CHECK(plan[0].weights == plan[1].weights, "weights %lld, with a further block %lld", (long long)plan[0].weights,
          (long long)plan[1].weights);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        check_file(argv[1]);
        return check_end("check_tensor");
    }
    check_refusals();
    check_plan();
    check_mtp();
    check_named();
    check_sides("tests/golden/tiny/llama.gguf", "cpu,cpu", "q8_0", 0);
    check_sides("tests/golden/tiny/llama.gguf", "cpu,cpu,cpu", "q8_0", 1);
    check_sides("tests/archs/deepseek2.gguf", "cpu,cpu", "f16", 1);
    for (int i = 0; i < 2 && device_here("opencl"); i++) {
        check_beside("tests/golden/tiny/llama.gguf", i ? "opencl,cpu" : "cpu,opencl");
        check_beside("tests/golden/tiny/qwen3moe.gguf", i ? "opencl,cpu" : "cpu,opencl");
    }
    place_folder("tests/golden/tiny", check_file, 2, "splits");
    place_folder("tests/archs", check_file, 2, "splits");
    check_file("models/novella-hybrid-q8_0.gguf");
    place_sessions("tests/golden/tiny/llama.gguf", "cpu,cpu=");
    place_sessions("tests/golden/tiny/qwen35moe.gguf", "cpu,cpu,cpu=");
    place_sessions("tests/archs/gpt-oss.gguf", "cpu,cpu=");
    place_sessions("tests/archs/deepseek2.gguf", "cpu,cpu,cpu=");
    return check_end("check_tensor");
}
