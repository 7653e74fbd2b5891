/* check_split: the layers of a model over two and three devices, and routed experts apart from them, all of them the
 * CPU: every model of tests/archs and of tests/golden/tiny gives the bits that one device gives, wherever the cut is:
 * prompts, steps of several sequences, forks, hidden states, and sessions with prefix hits, preemption and snapshots
 * that another placement restores. */
#include <limits.h>

#include "support/place_rig.h"

typedef place_record record;

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
        place_steps(e, r);
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
        p = place_params("cpu:1", NULL, "f16");
        p.cpu_experts = k == layers - 1 ? INT_MAX : k;
        n += compare(m, &p, want, path);
    }
    for (int i = 0; i < 3; i++) {
        p = place_params("cpu:1,cpu:2", NULL, "f16");
        p.tensors = rules[i];
        n += compare(m, &p, want, path);
    }
    return n;
}

/* Every cut into two for f16; one cut into two and one into three for a compressed cache. */
static int check_file(const char *path)
{
    static record want;
    kvant_model *m = place_open(path);
    kvant_diag diag = { "" };
    char split[32];
    int cuts = 0;

    if (!m)
        return 0;
    const int layers = kvant_model_get_info(m)->n_layer + 1;
    kvant_engine_params p = place_params("cpu", NULL, "f16");
    CHECK(run(m, &p, &want, &diag) == KVANT_OK, "%s: %s", path, diag.text);
    for (int k = 1; k < layers; k++) {
        snprintf(split, sizeof split, "%d,%d", k, layers - k);
        p = place_params("cpu,cpu", split, "f16");
        cuts += compare(m, &p, &want, path);
        p = place_params("cpu:1", NULL, "f16");
        p.gpu_layers = layers - k;
        cuts += compare(m, &p, &want, path);
    }
    if (layers > 2) {
        p = place_params("cpu,cpu,cpu", NULL, "f16");
        cuts += compare(m, &p, &want, path);
    }
    if (kvant_model_get_info(m)->n_expert > 0)
        cuts += check_experts(m, layers, &want, path);
    p = place_params("cpu", NULL, "tbq4_0");
    if (run(m, &p, &want, &diag) == KVANT_OK) { /* the format has no heads of every size */
        p.device = "cpu,cpu";
        cuts += compare(m, &p, &want, path);
    }
    kvant_model_close(m);
    return cuts;
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
    kvant_engine_params p = place_params(device, split, "f16");

    p.gpu_layers = gpu_layers;
    check_not_made(m, &p, code, text);
}

static void check_rule(kvant_model *m, const char *rules, int cpu_experts, int code, const char *text)
{
    kvant_engine_params p = place_params("cpu:1", NULL, "f16");

    p.tensors = rules;
    p.cpu_experts = cpu_experts;
    check_not_made(m, &p, code, text);
}

/* One line each, which names the rule and what it met. */
static void check_rules(void)
{
    static char many[65 * 8], longest[300];
    kvant_model *m = place_open("tests/golden/tiny/qwen3moe.gguf");

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
    kvant_model *m = place_open("tests/golden/tiny/llama.gguf");

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
    kvant_engine_params small = place_params("cpu:1,cpu:2", NULL, "f16");
    small.device_memory[1] = 1 << 16;
    check_not_made(m, &small, KVANT_ENOSPC, "device cpu:2: ");
    small = place_params("cpu:1", NULL, "f16");
    small.gpu_layers = 1;
    small.host_memory = 1 << 16;
    check_not_made(m, &small, KVANT_ENOSPC, "device cpu: ");
    kvant_model_close(m);
}

int main(void)
{
    check_refusals();
    check_rules();
    place_folder("tests/golden/tiny", check_file, 3, "placements");
    place_folder("tests/archs", check_file, 3, "placements");
    place_sessions("tests/golden/tiny/llama.gguf", "cpu,cpu");
    place_sessions("tests/golden/tiny/qwen35moe.gguf", "cpu:1+");
    place_sessions("tests/archs/gpt-oss.gguf", "cpu:1,cpu:2+");
    place_sessions("tests/archs/gemma3.gguf", "cpu,cpu");
    return check_end("check_split");
}
