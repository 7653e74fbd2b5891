/* serve_warm.c: passes before the first request.  A GPU's libraries load a kernel at its first use, and use another one
 * for each range of sizes.  Loading takes 10 to 20 ms, and the request that is first would wait for it. */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/serve_room.h"

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
static int passes(kvant_engine *e, const int32_t *tokens, int most, int logits, kvant_diag *diag)
{
    const int64_t begin = clock_ns();

    for (int n = LEAST_PASS, last = 0; !last && clock_ns() - begin < MOST_NS; n += n / 3) {
        last = n >= most;
        KVANT_TRY(pass(e, tokens, last ? most : n, logits, diag));
    }
    const double seconds = (double)(clock_ns() - begin) * 1e-9;
    log_msg(LOG_INFO, "warm-up: passes of up to %d tokens in %.2f s", most, seconds);
    return KVANT_OK;
}

int serve_warm(const opts *o, const kvant_model *m, kvant_engine *e, kvant_diag *diag)
{
    const kvant_engine_params *p = kvant_engine_get_params(e);
    const int64_t room = p->pool_tokens < p->n_ctx ? p->pool_tokens : p->n_ctx;
    const int most = p->n_ubatch < room ? p->n_ubatch : (int)room, vocab = kvant_model_get_info(m)->n_vocab;

    if (opt_flag(o, OPT_SERVE_NO_WARMUP) || is_cpu(opt_str(o, OPT_DEVICE)))
        return KVANT_OK;
    int32_t *tokens = kvant_calloc((size_t)most, sizeof *tokens);
    if (!tokens)
        return kvant_fail(diag, KVANT_ENOMEM, "warm-up: out of memory");
    for (int i = 0; i < most; i++)
        tokens[i] = (int32_t)(i * 7919ll % vocab);
    const int code = passes(e, tokens, most, kvant_model_rank_classes(m) ? KVANT_LOGITS_HIDDEN : KVANT_LOGITS_GREEDY,
                            diag);
    kvant_free(tokens);
    return code;
}
