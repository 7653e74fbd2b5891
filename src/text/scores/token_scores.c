/* token_scores.c: see token_scores.h. */
#include "text/scores/token_scores.h"

#include <math.h>
#include "base/log.h"
#include "base/mem.h"

static const char key[] = "tokenizer.ggml.scores";

/* SentencePiece numbers the tokens of its BPE in the order of their merges and gives each -number as its score. */
static void by_order(float *scores, uint32_t n)
{
    log_msg(LOG_WARN, "%s: absent; the order of the tokens stands for them", key);
    for (uint32_t i = 0; i < n; i++)
        scores[i] = -(float)i;
}

static int take(const gguf_kv *kv, float *scores, uint32_t n, kvant_diag *diag)
{
    double least = 0;

    for (uint32_t i = 0; i < n; i++) {
        double x = least - 1;
        if (i < kv->count && (!gguf_real_at(kv, i, &x) || isnan(x)))
            return kvant_fail(diag, KVANT_EFORMAT, "%s[%u]: not a number, want one", key, i);
        scores[i] = (float)x;
        least = i < kv->count && x < least ? x : least;
    }
    if (kv->count != n)
        log_msg(LOG_WARN, "%s: %llu entries, wanted one per token: %u; tokens without one come last", key,
                (unsigned long long)kv->count, n);
    return KVANT_OK;
}

int scores_read(const gguf *g, uint32_t n, int required, float **out, kvant_diag *diag)
{
    const gguf_kv *kv = gguf_find(g, key);
    float *scores;
    int err = KVANT_OK;

    if (kv ? kv->type != GGUF_ARRAY || kv->count == 0 : required)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %s, want a number for each token", key, kv ? "no array" : "absent");
    scores = kvant_alloc((size_t)n * sizeof *scores);
    if (!scores)
        return kvant_fail(diag, KVANT_ENOMEM, "%s: out of memory", key);
    if (kv)
        err = take(kv, scores, n, diag);
    else
        by_order(scores, n);
    if (err < 0)
        kvant_free(scores);
    else
        *out = scores;
    return err;
}
