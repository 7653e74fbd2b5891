/* place_reads.c: lists of the CPU in a program over places, and how much of the routed experts they read in what time:
 * a token's speed is memory's, so that these two numbers say how much of it is reached. */
#include <string.h>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/place/profile.h"

/* Bytes of one expert as the file has them. */
static int64_t expert_bytes(const kvant_weight *w)
{
    return w->n_in / w->type->block * w->type->bytes * w->n_out;
}

/* An expert that several rows have is read once: those rows are multiplied together. */
static int64_t read_bytes(const kvant_matmul_id_args *a, unsigned char *seen)
{
    int64_t n = 0;

    memset(seen, 0, (size_t)a->w->n_expert);
    for (int64_t i = 0; i < (int64_t)a->n * a->k; i++) {
        n += !seen[a->ids[i]];
        seen[a->ids[i]] = 1;
    }
    return n * expert_bytes(a->w);
}

/* Ops whose weight is experts'. */
static const unsigned char of_experts[KVANT_OP_COUNT] = { [KVANT_OP_MATMUL_ID] = 1 };

int engine_submit_host(kvant_engine *e, int place, const kvant_op *ops, int n, kvant_diag *diag)
{
    kvant_device *dev = e->place[place].dev;
    engine_reads *r = &e->way.reads;
    const int counts = r->seen && !e->b.any_prompt && of_experts[ops[0].id];
    const int64_t start = counts ? clock_ns() : 0;

    KVANT_TRY(engine_submit_to(e, dev, ops, n, 0, diag));
    if (!counts)
        return KVANT_OK;
    r->ns += clock_ns() - start;
    for (int i = 0; i < n; i++)
        if (of_experts[ops[i].id])
            r->bytes += read_bytes(ops[i].args, r->seen);
    return KVANT_OK;
}

int engine_reads_create(kvant_engine *e, kvant_diag *diag)
{
    if (!e->parted)
        return KVANT_OK;
    e->way.reads.seen = kvant_calloc((size_t)e->m->hp.moe.n, 1);
    return e->way.reads.seen ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "engine: out of memory");
}

void kvant_engine_expert_reads(const kvant_engine *e, int64_t *bytes, int64_t *ns)
{
    *bytes = e->way.reads.bytes;
    *ns = e->way.reads.ns;
}
