/* place_sessions.c: sessions of one device and of a placement give the same: prefix hits, snapshots that go on on the
 * other's devices, preemption.  See place_rig.h. */
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/place_rig.h"

static char saves[64];
static const unsigned char salt[16] = "split";

/* Devices; behind them a plus: experts are on the CPU, apart; an equals sign: every layer is in parts. */
static int open_rig(serve_rig *r, const char *path, const char *device, int pages)
{
    const size_t n = strcspn(device, "+=");
    char name[40];

    snprintf(name, sizeof name, "%.*s", (int)n, device);
    kvant_engine_params p = place_params(name, NULL, "f16");
    kvant_session_params sp = kvant_session_defaults();

    p.cpu_experts = device[n] == '+' ? INT_MAX : 0;
    p.split_tensors = device[n] == '=';
    p.n_ubatch = 128;
    p.pool_tokens = (int64_t)pages * KVANT_PAGE;
    p.snapshots = 6;
    sp.batch_tokens = 256;
    sp.ladder = 64;
    sp.snapshot_dir = saves;
    return serve_open(r, path, p, sp);
}

/* A request, it again from the prefix cache, and a save of its slot. */
static void check_hit(serve_rig *r, const char *path, const int32_t *prompt, serve_out *alone)
{
    static serve_out hit;
    kvant_request q = store_request(prompt, PLACE_PROMPT, 40, 1, salt);

    serve_one(r, &q, alone);
    CHECK(alone->n == 40, "%s: %d tokens: %s", path, alone->n, alone->text);
    const reply saved = store_act(r, KVANT_SLOT_SAVE, 1, "split", salt);
    CHECK(saved.r.code == KVANT_OK, "%s: %s", path, saved.text);
    q = store_request(prompt, PLACE_PROMPT, 40, -1, salt);
    serve_one(r, &q, &hit);
    CHECK(hit.n_cached > 0 && serve_same(&hit, alone), "%s: %d tokens cached, or other bits", path, hit.n_cached);
}

/* What one placement saved goes on in another with the bits that it would have had. */
static void check_restored(serve_rig *r, const char *path, const int32_t *prompt, const serve_out *alone,
                           serve_out *out)
{
    int32_t more[RIG_TOKENS];
    const reply back = store_act(r, KVANT_SLOT_RESTORE, 2, "split", salt);

    CHECK(back.r.code == KVANT_OK && back.r.n_tokens == PLACE_PROMPT + 39, "%s: %d tokens: %s", path, back.r.n_tokens,
          back.text);
    memcpy(more, prompt, PLACE_PROMPT * sizeof *more);
    memcpy(more + PLACE_PROMPT, alone->tokens, 40 * sizeof *more);
    serve_tokens(more + PLACE_PROMPT + 40, 20, 3);
    kvant_request q = store_request(more, PLACE_PROMPT + 60, 8, 2, salt);
    serve_one(r, &q, out);
    CHECK(out->n_cached == PLACE_PROMPT + 39, "%s: %d tokens were restored", path, out->n_cached);
}

/* Two requests in a pool that has no room for both: the younger one goes on after the other. */
static void check_preempted(const char *path, const char *device, const int32_t *prompt, const serve_out *alone)
{
    static serve_out out[2];
    static int32_t other[PLACE_PROMPT];
    serve_rig r;
    int preempted = 0;

    if (!open_rig(&r, path, device, 5))
        return;
    serve_tokens(other, PLACE_PROMPT, 4);
    for (int round = 0; round < 5 && !preempted; round++) {
        for (int i = 0; i < 2; i++) {
            kvant_request q = store_request(i ? prompt : other, PLACE_PROMPT, i ? 40 : 100, -1, salt);
            kvant_diag d = { "" };
            q.cache = KVANT_CACHE_NO_READ | KVANT_CACHE_NO_WRITE;
            CHECK(serve_submit(&r, &q, &out[i], &d) == KVANT_OK, "%s: %s", path, d.text);
        }
        for (int i = 0; i < 2; i++)
            serve_wait(&out[i]);
        CHECK(serve_same(&out[1], alone), "%s: other bits beside another request", path);
        preempted = out[0].n_preempted + out[1].n_preempted;
    }
    CHECK(preempted > 0, "%s: nobody was preempted", path);
    serve_close(&r);
}

static void check_both(const char *path, const char *placed)
{
    static serve_out alone[2], on[2];
    int32_t prompt[PLACE_PROMPT];
    serve_rig one, two;

    serve_tokens(prompt, PLACE_PROMPT, 5);
    if (!open_rig(&one, path, "cpu", 24) || !open_rig(&two, path, placed, 24))
        return;
    check_hit(&one, path, prompt, &alone[0]);
    check_restored(&two, path, prompt, &alone[0], &on[0]);
    check_hit(&two, path, prompt, &alone[1]);
    CHECK(serve_same(&alone[0], &alone[1]), "%s: two devices give other bits", path);
    check_restored(&one, path, prompt, &alone[1], &on[1]);
    CHECK(serve_same(&on[0], &on[1]), "%s: a snapshot goes on with other bits on other devices", path);
    serve_close(&one);
    serve_close(&two);
    check_preempted(path, placed, prompt, &alone[0]);
}

void place_sessions(const char *path, const char *placed)
{
    char remove[96];

    snprintf(saves, sizeof saves, "/tmp/kvant-place-XXXXXX");
    CHECK(mkdtemp(saves) != NULL, "%s", saves);
    check_both(path, placed);
    snprintf(remove, sizeof remove, "rm -rf %s", saves);
    CHECK(system(remove) == 0, "%s", remove);
}
