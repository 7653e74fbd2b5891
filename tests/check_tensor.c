/* check_tensor: every layer in parts over two and three devices, all of them the CPU: every model of tests/archs and of
 * tests/golden/tiny gives the bits that one device gives, with f16 and compressed caches, even and uneven shares:
 * prompts, steps of several sequences, forks, hidden states, and sessions with prefix hits, preemption and snapshots
 * that another placement restores. */
#include <dirent.h>
#include <unistd.h>

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

static int check_format(kvant_model *m, const char *format, const char *path)
{
    static const char *const devices[] = { "cpu,cpu", "cpu,cpu,cpu" };
    static place_record want;
    kvant_engine_params p = place_params("cpu", NULL, format);
    kvant_diag diag = { "" };
    int n = 0;

    if (place_run(m, &p, &want, &diag) != KVANT_OK) { /* the format has no heads of every size */
        CHECK(strcmp(format, "f16") != 0, "%s: %s", path, diag.text);
        return 0;
    }
    p.split_tensors = 1;
    for (int i = 0; i < 2; i++) {
        p.device = devices[i];
        n += compare(m, &p, &want, path);
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

static void check_folder(const char *folder)
{
    DIR *d = opendir(folder);
    char path[512];
    int files = 0, n = 0;

    CHECK(d != NULL, "%s", folder);
    for (struct dirent *f; d && (f = readdir(d));) {
        const char *dot = strrchr(f->d_name, '.');
        if (!dot || strcmp(dot, ".gguf") != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, f->d_name);
        n += check_file(path);
        files++;
    }
    if (d)
        closedir(d);
    printf("%s: %d models, %d splits\n", folder, files, n);
    CHECK(files > 5 && n > 2 * files, "%s: %d models, %d splits", folder, files, n);
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
    check_refused(m, "cpu,cpu", "1,0", KVANT_EINVAL, "2 shares");
    check_refused(m, "cpu,cpu", "2,1", KVANT_EINVAL, " KV heads of layer 0 do not divide so; wanted whole heads");
    check_refused(m, "cpu,gone", NULL, KVANT_EDEVICE, "unknown");
    check_refused(m, "cpu,,cpu", NULL, KVANT_EINVAL, "wanted a name");
    p.split_tensors = p.gpu_layers = 1;
    check_not_made(m, &p, KVANT_EUNSUPPORTED, "1 layers on the devices, wanted all");
    p.gpu_layers = 0;
    p.cpu_experts = 1;
    check_not_made(m, &p, KVANT_EUNSUPPORTED, "wanted them with their layers");
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

int main(int argc, char **argv)
{
    if (argc > 1) {
        check_file(argv[1]);
        return check_end("check_tensor");
    }
    check_refusals();
    check_plan();
    check_folder("tests/golden/tiny");
    check_folder("tests/archs");
    check_file("models/novella-hybrid-q8_0.gguf");
    place_sessions("tests/golden/tiny/llama.gguf", "cpu,cpu=");
    place_sessions("tests/golden/tiny/qwen35moe.gguf", "cpu,cpu,cpu=");
    place_sessions("tests/archs/gpt-oss.gguf", "cpu,cpu=");
    place_sessions("tests/archs/deepseek2.gguf", "cpu,cpu,cpu=");
    return check_end("check_tensor");
}
