/* engine_lora.c: which adapters a sequence has, and how strongly.  The matrices are model/lora.c's. */
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"

/* The numbers of token rows, on each device: which rows an adapter's product gathers. */
static int create_rows(kvant_engine *e, kvant_diag *diag)
{
    const size_t bytes = (size_t)e->p.n_ubatch * sizeof(int32_t);
    void *mem;

    for (int i = 0; i < e->p.n_ubatch; i++)
        e->in_sent[i] = i; /* the inputs have at least as much room for token ids */
    for (int i = 0; i < e->split.n; i++) {
        engine_place *at = &e->place[i];
        KVANT_TRY(at->dev->vt->alloc(at->dev, bytes, &mem, diag));
        at->lora_rows = mem;
        KVANT_TRY(at->dev->vt->copy_in(at->dev, at->lora_rows, e->in_sent, bytes, diag));
    }
    return KVANT_OK;
}

int engine_lora_create(kvant_engine *e, kvant_diag *diag)
{
    const size_t n = (size_t)e->m->lora.n;

    if (n == 0)
        return KVANT_OK;
    e->lora_scales = kvant_calloc((size_t)e->p.max_seqs * n, sizeof *e->lora_scales);
    if (!e->lora_scales)
        return kvant_fail(diag, KVANT_ENOMEM, "engine: out of memory for the scales of %zu adapters", n);
    return create_rows(e, diag);
}

void engine_lora_set(kvant_engine *e, int seq, const float *scales)
{
    const lora_set *set = &e->m->lora;

    for (int i = 0; i < set->n; i++)
        e->lora_scales[seq * set->n + i] = scales ? scales[i] : set->files[i].scale;
}

void engine_lora_copy(kvant_engine *e, int from, int to)
{
    if (e->m->lora.n > 0)
        engine_lora_set(e, to, e->lora_scales + (size_t)from * (size_t)e->m->lora.n);
}

int engine_lora_any(const kvant_engine *e, int seq)
{
    const int n = e->m->lora.n;

    for (int i = 0; i < n; i++)
        if (e->lora_scales[seq * n + i] != 0.0f)
            return 1;
    return 0;
}

int engine_lora_check(const kvant_model *m, const float *scales, const char *what, kvant_diag *diag)
{
    for (int i = 0; i < m->lora.n; i++)
        if (!(scales[i] >= -KVANT_LORA_MOST && scales[i] <= KVANT_LORA_MOST))
            return kvant_fail(diag, KVANT_EINVAL, "%s: scale %g of adapter %d, wanted -%d to %d", what,
                              (double)scales[i], i, KVANT_LORA_MOST, KVANT_LORA_MOST);
    return KVANT_OK;
}

int kvant_seq_lora(kvant_engine *e, int seq, const float *scales, int n, kvant_diag *diag)
{
    if (!kv_seq_valid(&e->kv, seq) || e->kv.seqs[seq].len > 0)
        return kvant_fail(diag, KVANT_EINVAL, "adapters: sequence %d %s", seq,
                          kv_seq_valid(&e->kv, seq) ? "has tokens already, wanted an empty one" : "does not exist");
    if (n != e->m->lora.n)
        return kvant_fail(diag, KVANT_EINVAL, "adapters: %d scales, the model has %d", n, e->m->lora.n);
    KVANT_TRY(engine_lora_check(e->m, scales, "adapters", diag));
    engine_lora_set(e, seq, scales);
    return KVANT_OK;
}
