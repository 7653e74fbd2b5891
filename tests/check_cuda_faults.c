/* check_cuda_faults.c: a GPU that fails.
 * Memory taken by others: a second device object holds all of it but some MiB.  An engine that wants more gets a clear
 * error, gives everything back, and the process goes on; one that finds enough gives the tokens it gives on an empty
 * GPU.  Once with rising room, before any launch, once with falling room.
 * A lost device: after an access to an illegal address every call on the GPU fails with one line, and engines on the
 * CPU go on.  It comes last, because the process never gets the GPU back.
 * Wants the GPU for itself.  Prints "skipped: no device" without one. */
#include "devices/device.h"
#include "kvant/kvant.h"
#include "support/check.h"
#include "support/serve_rig.h"

enum { MIB = 1 << 20, STEP = 4, MOST = 96, PROMPT = 150, MADE = 12, BLOCKS = 512 };

static kvant_device *hog;
static void *blocks[BLOCKS];
static int n_blocks;

/* ---- all memory but some ---- */

static void release(int kept)
{
    while (n_blocks > kept)
        hog->vt->free(hog, blocks[--n_blocks]);
}

/* Whether so many bytes are free in one piece. */
static int fits(size_t bytes)
{
    kvant_diag diag = { "" };
    void *p = NULL;
    const int rc = hog->vt->alloc(hog, bytes, &p, &diag);
    if (rc == KVANT_OK)
        hog->vt->free(hog, p);
    return rc == KVANT_OK;
}

/* Leaves `room` MiB. */
static void take_all_but(int room)
{
    kvant_diag diag = { "" };
    void *kept = NULL;
    CHECK(room == 0 || hog->vt->alloc(hog, (size_t)room * MIB, &kept, &diag) == KVANT_OK, "%d MiB: %s", room,
          diag.text);
    for (size_t size = (size_t)1 << 36; size >= MIB && n_blocks < BLOCKS; size /= 2)
        while (n_blocks < BLOCKS && hog->vt->alloc(hog, size, &blocks[n_blocks], &diag) == KVANT_OK)
            n_blocks++;
    CHECK(n_blocks < BLOCKS && strstr(diag.text, "MiB wanted"), "after %d blocks: \"%s\"", n_blocks, diag.text);
    if (kept)
        hog->vt->free(hog, kept);
}

/* ---- an engine in what is left ---- */

static int generate(kvant_engine *e, int32_t *out, kvant_diag *diag)
{
    int32_t prompt[PROMPT];
    int seq = 0;
    serve_tokens(prompt, PROMPT, 7);
    int rc = kvant_seq_new(e, &seq, diag);
    for (int i = 0; i < MADE && rc == KVANT_OK; i++) {
        const kvant_item it = i == 0 ? (kvant_item){ seq, prompt, PROMPT, 1, KVANT_LOGITS_GREEDY }
                                     : (kvant_item){ seq, &out[i - 1], 1, 0, KVANT_LOGITS_GREEDY };
        rc = kvant_step(e, &it, 1, diag);
        out[i] = kvant_step_token(e, 0);
    }
    kvant_seq_free(e, seq);
    return rc;
}

static int create(const char *device, kvant_model *m, const char *type, kvant_engine **e, kvant_diag *diag)
{
    kvant_engine_params ep = kvant_engine_defaults();
    ep.device = device;
    ep.threads = 1;
    ep.n_ctx = 1024;
    ep.max_seqs = 8;
    ep.type_k = ep.type_v = type;
    return kvant_engine_create(m, &ep, e, diag);
}

static kvant_model *open_model(const char *path)
{
    const kvant_model_params mp = { .size = sizeof(kvant_model_params), .path = path };
    kvant_diag diag = { "" };
    kvant_model *m = NULL;
    CHECK(kvant_model_open(&mp, &m, &diag) == KVANT_OK, "%s: %s", path, diag.text);
    return m;
}

/* Whether it ran; its tokens. */
static int run(const char *path, const char *type, int room, int32_t *out)
{
    kvant_diag diag = { "" };
    kvant_engine *e = NULL;
    kvant_model *m = open_model(path);
    int rc = create("cuda", m, type, &e, &diag);
    if (rc == KVANT_OK)
        rc = generate(e, out, &diag);
    CHECK(rc == KVANT_OK || ((rc == KVANT_ENOMEM || rc == KVANT_ENOSPC) && diag.text[0]),
          "%s %s with %d MiB: %s \"%s\"", path, type, room, kvant_error_name(rc), diag.text);
    kvant_engine_free(e);
    kvant_model_close(m);
    return rc == KVANT_OK;
}

/* One size of room; ran_before: libraries have what they load, so all of the room must come back. */
static int try_room(const char *path, const char *type, int room, int ran_before, const int32_t *want, int32_t *out)
{
    const int before = n_blocks;
    take_all_but(room);
    const int ran = run(path, type, room, out);
    if (ran && want)
        CHECK(memcmp(out, want, MADE * sizeof *want) == 0, "%s %s with %d MiB: other tokens", path, type, room);
    if (ran_before && room > STEP)
        CHECK(fits((size_t)(room - STEP) * MIB), "%s %s: %d MiB did not come back", path, type, room);
    release(before);
    return ran;
}

static void check_model(const char *path, const char *type)
{
    int32_t first[MOST / STEP + 1][MADE], want[MADE], out[MADE];
    int ran[MOST / STEP + 1], some = 0, all = 0;
    for (int i = 0; i <= MOST / STEP; i++)
        ran[i] = try_room(path, type, STEP * i, 0, NULL, first[i]);
    CHECK(run(path, type, -1, want), "%s %s: refused on an empty GPU", path, type);
    for (int i = 0; i <= MOST / STEP; i++, all++) {
        some += ran[i];
        CHECK(!ran[i] || memcmp(first[i], want, sizeof want) == 0, "%s %s with %d MiB: other tokens", path, type,
              STEP * i);
    }
    for (int i = MOST / STEP; i >= 0; i--)
        ran[i] = try_room(path, type, STEP * i, 1, want, out);
    CHECK(ran[MOST / STEP] && !ran[0], "%s %s: runs with %d MiB: %d, with none: %d", path, type, MOST, ran[MOST / STEP],
          ran[0]);
    printf("%s %s: ran in %d of %d sizes of free memory, refused in the others\n", path, type, some, all);
}

/* ---- a lost device ---- */

static void fails(int rc, const kvant_diag *diag, const char *what)
{
    CHECK(rc == KVANT_EDEVICE && strstr(diag->text, "device cuda"), "%s: %s \"%s\"", what, kvant_error_name(rc),
          diag->text);
}

/* A sum whose operands lie where no memory is. */
static void lose(void)
{
    kvant_diag diag = { "" };
    float *nowhere = (float *)(uintptr_t)4096;
    const kvant_add_args args = { nowhere, nowhere, 1, 64 };
    const kvant_op op = { KVANT_OP_ADD, &args };
    int rc = hog->vt->submit(hog, &op, 1, 0, &diag);
    if (rc == KVANT_OK)
        rc = hog->vt->sync(hog, &diag);
    fails(rc, &diag, "the op");
    printf("lost: %s\n", diag.text);
}

static void check_lost(const char *path, const char *type)
{
    int32_t want[MADE], out[MADE];
    kvant_diag diag = { "" };
    kvant_engine *gpu = NULL, *cpu = NULL, *again = NULL;
    kvant_model *m = open_model(path);
    CHECK(create("cpu", m, type, &cpu, &diag) == KVANT_OK && create("cuda", m, type, &gpu, &diag) == KVANT_OK &&
              generate(cpu, want, &diag) == KVANT_OK && generate(gpu, out, &diag) == KVANT_OK,
          "%s", diag.text);
    lose();
    fails(generate(gpu, out, &diag), &diag, "a step");
    fails(create("cuda", m, type, &again, &diag), &diag, "an engine");
    CHECK(generate(cpu, out, &diag) == KVANT_OK && memcmp(out, want, sizeof want) == 0, "the CPU: %s", diag.text);
    kvant_engine_free(gpu);
    kvant_engine_free(cpu);
    kvant_model_close(m);
}

int main(void)
{
    const kvant_device_config cfg = { .threads = 1 };
    kvant_diag diag = { "" };
    if (device_open("cuda", &cfg, &hog, &diag) != KVANT_OK) {
        printf("skipped: no device (%s)\n", diag.text);
        return check_end("check_cuda_faults");
    }
    take_all_but(2 * MOST); /* most of it once: it takes a second */
    check_model("tests/golden/tiny/llama.gguf", "tbq4_0");
    check_model("tests/golden/tiny/qwen35.gguf", "qjl1_256");
    check_model("tests/golden/tiny/llama.gguf", "turbo3_tcq");
    release(0);
    check_lost("tests/golden/tiny/qwen35.gguf", "turbo4_66");
    hog->vt->close(hog);
    return check_end("check_cuda_faults");
}
