/* check_devices.c: every device of this build: the op harness, and whole tiny models.  A device that is not here must
 * say so in one line ("skipped: no device").
 *
 *   check_devices                the CPU on a reduced set, one format of each class (check_variants: each of its
 *                                kernels, with all of them), the others on all; not vulkan and opencl, often
 *                                software: check_vulkan.py, check_opencl.py
 *   check_devices NAME [quick]   that device; quick: the reduced set, for compute-sanitizer
 *
 * The capability report of a device is written by `kvant verify --device NAME --json FILE`. */
#include <stdint.h>
#include "devices/device.h"
#include "kvant/engine.h"
#include "support/check.h"
#include "verify/verify.h"

static kvant_diag diag;

/* One of each class of codes, cache and weights: what is a device's own work (lists, stages, memory) does not ask for
 * more. */
static const char some[] = "q8_0,tbq4_0,turbo3,turbo3_tcq,qjl1_256,q4_polar,BF16,Q8_0,Q4_K,IQ4_XS,TQ2_0";

static void harness(kvant_device *dev, const char *name, int quick, const char *formats)
{
    const verify_options o = { .quick = quick, .formats = formats };
    static verify_report r;

    memset(&r, 0, sizeof r);
    CHECK(verify_device(dev, &o, &r, &diag) == KVANT_OK, "%s: %s", name, diag.text);
    for (int i = 0; i < r.n_failures; i++)
        CHECK(0, "%s", r.failures[i]);
    check_passed += r.passed;
    CHECK(r.failed == 0, "%s: %d cases failed", name, r.failed);
    int unsupported = 0;
    for (int i = 0; i < r.n; i++)
        unsupported += r.entries[i].state == VERIFY_UNSUPPORTED;
    CHECK(strcmp(name, "cpu") != 0 || unsupported == 0, "the CPU refuses %d shape classes", unsupported);
    printf("%s: %s: %d cases passed, %d failed, %d shape classes unsupported\n", name, r.device, r.passed, r.failed,
           unsupported);
    verify_report_free(&r);
}

/* ---- whole models ---- */

typedef struct expect {
    int32_t n_prompt, n_vocab, n_greedy, prompt[256], greedy[64];
    float *logits;
} expect;

static int expect_read(const char *path, expect *e)
{
    char magic[8];
    FILE *f = fopen(path, "rb");
    int ok = f && fread(magic, 1, 8, f) == 8 && memcmp(magic, "KVTINY1", 8) == 0 && fread(e, 4, 3, f) == 3 &&
             e->n_prompt > 0 && e->n_prompt <= 256 && e->n_greedy > 0 && e->n_greedy <= 64 && e->n_vocab > 0;
    if (ok) {
        const size_t n = (size_t)e->n_prompt * (size_t)e->n_vocab;
        e->logits = malloc(n * sizeof(float));
        ok = fread(e->prompt, 4, (size_t)e->n_prompt, f) == (size_t)e->n_prompt &&
             fread(e->greedy, 4, (size_t)e->n_greedy, f) == (size_t)e->n_greedy && fread(e->logits, 4, n, f) == n;
    }
    if (f)
        fclose(f);
    return ok;
}

static int argmax(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

/* The prompt whole (step 0) or token by token (step 1), then greedy; prints the error. */
static void model_path(const char *arch, kvant_engine *eng, const expect *e, int step, double tol)
{
    const size_t row = (size_t)e->n_vocab;
    float *logits = malloc((size_t)e->n_prompt * row * sizeof(float)), *next = malloc(row * sizeof(float));
    int seq, ok = kvant_seq_new(eng, &seq, &diag) == KVANT_OK, right = 0;

    for (int at_i = 0, n; ok && at_i < e->n_prompt; at_i += n) {
        n = step ? 1 : e->n_prompt;
        const kvant_item item = { .seq = seq, .tokens = e->prompt + at_i, .n = n, .prompt = !step,
                                  .logits = KVANT_LOGITS_ALL };
        ok = kvant_step(eng, &item, 1, &diag) == KVANT_OK;
        CHECK(ok, "%s: %s", arch, diag.text);
        for (int i = 0; ok && i < n; i++)
            memcpy(logits + (size_t)(at_i + i) * row, kvant_step_logits(eng, 0, i), row * sizeof(float));
    }
    if (ok) {
        const double nmse = check_nmse(logits, e->logits, (size_t)e->n_prompt * row);
        CHECK(nmse <= tol, "%s: logits NMSE %.3g, wanted %.1g", arch, nmse, tol);
        memcpy(next, logits + (size_t)(e->n_prompt - 1) * row, row * sizeof(float));
        for (int i = 0; ok && i < e->n_greedy; i++) {
            const int32_t id = argmax(next, e->n_vocab);
            right += id == e->greedy[i];
            const kvant_item item = { .seq = seq, .tokens = &e->greedy[i], .n = 1, .logits = KVANT_LOGITS_LAST };
            ok = kvant_step(eng, &item, 1, &diag) == KVANT_OK;
            CHECK(ok, "%s: %s", arch, diag.text);
            if (ok)
                memcpy(next, kvant_step_logits(eng, 0, 0), row * sizeof(float));
        }
        CHECK(right == e->n_greedy, "%s: %d of %d greedy ids", arch, right, e->n_greedy);
        printf("model %s %s: logits NMSE %.3g, greedy %d of %d\n", arch, step ? "token by token" : "whole prompt", nmse,
               right, e->n_greedy);
    }
    kvant_seq_free(eng, seq);
    free(logits);
    free(next);
}

static void check_model(const char *device, const char *arch)
{
    char path[256];
    expect e = { 0 };
    kvant_model *model = NULL;
    kvant_engine *eng = NULL;

    snprintf(path, sizeof path, "tests/golden/tiny/%s.expect", arch);
    CHECK(expect_read(path, &e), "%s is missing or malformed", path);
    snprintf(path, sizeof path, "tests/golden/tiny/%s.gguf", arch);
    const kvant_model_params mp = { .size = sizeof(kvant_model_params), .path = path };
    CHECK(kvant_model_open(&mp, &model, &diag) == KVANT_OK, "%s: %s", path, diag.text);
    kvant_engine_params p = kvant_engine_defaults();
    p.device = device;
    p.compute = KVANT_COMPUTE_F32;
    p.n_ctx = 256;
    p.type_k = p.type_v = "f32";
    p.logits_rows = 256;
    if (model)
        CHECK(kvant_engine_create(model, &p, &eng, &diag) == KVANT_OK, "%s: %s", arch, diag.text);
    for (int step = 0; eng && step < 2; step++)
        model_path(arch, eng, &e, step, 1e-6);
    kvant_engine_free(eng);
    kvant_model_close(model);
    free(e.logits);
}

/* ---- main ---- */

/* A device that is not here: the code for it and one line, and the same again with an index. */
static void absent(const char *name, int rc)
{
    char far[64];
    kvant_device *dev = NULL;

    CHECK(rc == KVANT_EDEVICE, "opening %s: code %d, wanted %d", name, rc, KVANT_EDEVICE);
    CHECK(diag.text[0] && !strchr(diag.text, '\n'), "%s: no reason, or more than one line: \"%s\"", name, diag.text);
    printf("skipped: no device (%s)\n", diag.text);
    snprintf(far, sizeof far, "%s:200", name);
    CHECK(device_open(far, NULL, &dev, &diag) == KVANT_EDEVICE, "%s opened", far);
}

static void check_device(const char *name, int quick)
{
    static const char *const archs[] = { "qwen3", "qwen3moe", "llama", "qwen35", "qwen35moe", "qwen3next" };
    kvant_device *dev = NULL;
    const int rc = device_open(name, NULL, &dev, &diag), cpu = strcmp(name, "cpu") == 0;

    if (rc != KVANT_OK) {
        absent(name, rc);
        return;
    }
    harness(dev, name, quick || cpu, cpu ? some : NULL);
    dev->vt->close(dev);
    for (size_t i = 0; i < sizeof archs / sizeof archs[0] && !cpu && !(quick && i); i++)
        check_model(name, archs[i]);        /* on the CPU: check_tiny */
}

int main(int argc, char **argv)
{
    const int quick = argc > 2 && strcmp(argv[2], "quick") == 0;

    for (int i = 0; i < kvant_devices_count(); i++) {
        const char *name = kvant_devices_at(i)->name;
        const int own_test = strcmp(name, "vulkan") == 0 || strcmp(name, "opencl") == 0;
        if (argc < 2 ? !own_test : strcmp(argv[1], name) == 0)
            check_device(name, quick);
    }
    return check_end("check_devices");
}
