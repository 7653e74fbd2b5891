/* fit_warm.c: passes before the first request (kvant/fit.h). */
#include "base/clock.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/fit/fit_device.h"

enum { LEAST_PASS = 64, MOST_NS = 1000000000 };

/* One pass of n tokens of a prompt, in a sequence of its own.  These tokens mean nothing: if a model has no finite
 * logits for them, that says nothing of the requests to come. */
static int pass(kvant_engine *e, const int32_t *tokens, int n, int logits, kvant_diag *diag)
{
    kvant_item item = { 0, tokens, n, 1, logits };

    KVANT_TRY(kvant_seq_new(e, &item.seq, diag));
    const int code = kvant_step(e, &item, 1, diag);
    kvant_seq_free(e, item.seq);
    return code == KVANT_ENUMERIC ? KVANT_OK : code;
}

/* From few tokens to a full pass, about a third more each time; a slow GPU is left alone after a second. */
static int passes(kvant_engine *e, const int32_t *tokens, int most, int *done, kvant_diag *diag)
{
    const int64_t begin = clock_ns();
    const int logits = kvant_model_rank_classes(e->m) ? KVANT_LOGITS_HIDDEN : KVANT_LOGITS_GREEDY;

    for (int n = LEAST_PASS; *done < most && clock_ns() - begin < MOST_NS; n += n / 3) {
        KVANT_TRY(pass(e, tokens, n < most ? n : most, logits, diag));
        *done = n < most ? n : most;
    }
    return KVANT_OK;
}

int kvant_engine_warm(kvant_engine *e, int *tokens, kvant_diag *diag)
{
    const int64_t room = e->p.pool_tokens < e->p.n_ctx ? e->p.pool_tokens : e->p.n_ctx;
    const int most = e->p.n_ubatch < room ? e->p.n_ubatch : (int)room;
    int done = 0, code = KVANT_OK;

    if (!device_is_cpu(e->p.device)) {
        int32_t *ids = kvant_calloc((size_t)most, sizeof *ids);
        if (!ids)
            return kvant_fail(diag, KVANT_ENOMEM, "warm-up: out of memory");
        for (int i = 0; i < most; i++)
            ids[i] = (int32_t)(i * 7919ll % e->m->hp.n_vocab);
        code = passes(e, ids, most, &done, diag);
        kvant_free(ids);
    }
    if (tokens)
        *tokens = done;
    return code;
}
