/* port_gdn.c: conv_step, conv_chunk, gdn_step, gdn_chunk, ssm_step, ssm_chunk.  All reads of state come
 * before any write: a first dispatch copies what is read to scratch; a sequence that keeps its slot is read in place,
 * but for conv. */
#include "devices/portable/core/port_dev.h"
#include "devices/portable/gdn/gdn_params.h"

#include <math.h>

enum { DECODE = 0, PROMPT = 1, MAX_DK = 512 };
/* gdn_matrix.k: its threadgroup memory, CHUNK, DEEP, COLUMNS and MIX; and from how many tokens more than sequences on a
 * pass of prompts takes it. */
enum { MATRIX_BYTES = 32768, CHUNK = 64, DEEP = 32, COLUMNS = 16, MIX = 2 * CHUNK + 2, LEAST_MORE = 8 };

static int64_t spans(int64_t n)
{
    return (n + SLOT_SPAN - 1) / SLOT_SPAN;
}

static void define_state(port_call *c, int type)
{
    if (type == KVANT_STATE_BF16)
        port_define(c, "STATE_BF16");
}

static int gather(port_device *d, const kvant_seqs *q, const void *state, int type, const struct p_gather *p,
                  kvant_diag *diag)
{
    const size_t seqs = (size_t)q->n_seqs * 4;
    port_call c = PORT_CALL(gather, *p);
    define_state(&c, type);
    port_read(&c, state, d->rest(d, state));
    port_write(&c, d->scratch, (size_t)q->n_seqs * (size_t)p->n * sizeof(float));
    port_read(&c, q->q0, seqs + 4);
    port_read(&c, q->prompt, seqs);
    port_read(&c, q->slot_in, seqs);
    port_read(&c, q->slot_out, seqs);
    return port_dispatch(d, &c, spans(p->n), q->n_seqs, 1, diag);
}

static size_t rows_of(const kvant_seqs *q, int64_t ld, int64_t width)
{
    return (size_t)((q->n_tokens - 1) * ld + width) * sizeof(float);
}

/* ---- conv ---- */

static size_t conv_scratch(port_device *d, const void *args)
{
    const kvant_conv_args *a = args;
    (void)d;
    return (size_t)a->seqs.n_seqs * (size_t)a->c * (size_t)(a->k - 1) * sizeof(float);
}

static int conv_run(port_device *d, const kvant_conv_args *a, int prompt, kvant_diag *diag)
{
    const kvant_seqs *q = &a->seqs;
    const size_t seqs = (size_t)q->n_seqs * 4, window = conv_scratch(d, a);
    const struct p_gather g = { .n = (int64_t)a->c * (a->k - 1), .slot_stride = a->slot_stride, .prompt = prompt };
    const struct p_conv p = { .ldx = a->ldx, .slot_stride = a->slot_stride, .c = a->c, .k = a->k, .prompt = prompt,
                              .linear = a->linear, .has_bias = a->bias != NULL };
    port_call c = PORT_CALL(conv, p);
    if (q->n_tokens <= 0)
        return KVANT_OK;
    if (window)
        KVANT_TRY(gather(d, q, a->state, KVANT_STATE_F32, &g, diag));
    port_read(&c, a->x, rows_of(q, a->ldx, a->c));
    port_read(&c, a->w, (size_t)a->c * (size_t)a->k * sizeof(float));
    port_read(&c, d->scratch, window);
    port_write(&c, a->state, d->rest(d, a->state));
    port_write(&c, a->y, rows_of(q, a->c, a->c));
    port_read(&c, q->q0, seqs + 4);
    port_read(&c, q->prompt, seqs);
    port_read(&c, q->slot_out, seqs);
    port_read(&c, a->bias, a->bias ? (size_t)a->c * sizeof(float) : 0);
    return port_dispatch(d, &c, (a->c + PORT_THREADS - 1) / PORT_THREADS, q->n_seqs, 1, diag);
}

static int conv_step_run(port_device *d, const void *args, kvant_diag *diag)
{
    return conv_run(d, args, DECODE, diag);
}
PORT_OP_SCRATCH(conv_step, NULL, conv_scratch, conv_step_run)

static int conv_chunk_run(port_device *d, const void *args, kvant_diag *diag)
{
    return conv_run(d, args, PROMPT, diag);
}
PORT_OP_SCRATCH(conv_chunk, NULL, conv_scratch, conv_chunk_run)

/* ---- gated delta rule ---- */

static int gdn_supports(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_gdn_args *a = args;
    if (a->dk <= MAX_DK)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EUNSUPPORTED, "device %s: gated delta rule: dk %d, wanted at most %d",
                      d->base.vt->name, a->dk, MAX_DK);
}

/* Bytes of copied states. */
static size_t copy_bytes(const kvant_gdn_args *a)
{
    return (size_t)a->seqs.n_seqs * (size_t)a->hv * (size_t)a->dv * (size_t)a->dk * sizeof(float);
}

/* Bytes of what gdn_chunks.k leaves. */
static size_t mix_bytes(const kvant_gdn_args *a)
{
    return (size_t)a->seqs.n_tokens * (size_t)a->hv * MIX * sizeof(float);
}

/* Gates of channels have no chunks here; --compute f32 keeps the sums of single tokens. */
static int takes_matrices(const port_device *d, const kvant_gdn_args *a, int prompt)
{
    const int width = (a->dk + DEEP - 1) / DEEP * DEEP;
    return prompt && d->matrices && a->compute == KVANT_COMPUTE_AUTO && !a->per_channel &&
           4 * (COLUMNS * width + COLUMNS * CHUNK + DEEP * CHUNK) <= MATRIX_BYTES &&
           a->seqs.n_tokens - a->seqs.n_seqs >= LEAST_MORE;
}

static size_t step_scratch(port_device *d, const void *args)
{
    (void)d;
    return copy_bytes(args);
}

static size_t chunk_scratch(port_device *d, const void *args)
{
    return copy_bytes(args) + (takes_matrices(d, args, PROMPT) ? mix_bytes(args) : 0);
}

/* mix: gates, or what gdn_chunks.k made of them. */
static void gdn_buffers(const port_device *d, port_call *c, const kvant_gdn_args *a, const void *mix)
{
    const kvant_seqs *q = &a->seqs;
    const size_t seqs = (size_t)q->n_seqs * 4;
    const int64_t gates = (int64_t)a->hv * (a->per_channel ? a->dk : 1);
    port_read(c, a->q, rows_of(q, a->ldq, (int64_t)a->hk * a->dk));
    port_read(c, a->k, rows_of(q, a->ldk, (int64_t)a->hk * a->dk));
    port_read(c, a->v, rows_of(q, a->ldv, (int64_t)a->hv * a->dv));
    port_read(c, mix ? mix : a->g, mix ? mix_bytes(a) : rows_of(q, gates, gates));
    port_read(c, a->beta, rows_of(q, a->hv, a->hv));
    port_write(c, a->state, d->rest(d, a->state));
    port_read(c, d->scratch, copy_bytes(a));
    port_write(c, a->o, rows_of(q, (int64_t)a->hv * a->dv, (int64_t)a->hv * a->dv));
    port_read(c, q->q0, seqs + 4);
    port_read(c, q->pos0, seqs);
    port_read(c, q->prompt, seqs);
    port_read(c, q->slot_in, seqs);
    port_read(c, q->slot_out, seqs);
}

/* gdn_chunks.k over all chunks. */
static int run_chunks(port_device *d, const kvant_gdn_args *a, const struct p_gdn *p, void *mix, kvant_diag *diag)
{
    const kvant_seqs *q = &a->seqs;
    const size_t seqs = (size_t)q->n_seqs * 4;
    port_call c = PORT_CALL(gdn_chunks, *p);
    port_define(&c, "DK %d", a->dk);
    port_read(&c, a->q, rows_of(q, a->ldq, (int64_t)a->hk * a->dk));
    port_read(&c, a->k, rows_of(q, a->ldk, (int64_t)a->hk * a->dk));
    port_read(&c, a->g, rows_of(q, a->hv, a->hv));
    port_read(&c, a->beta, rows_of(q, a->hv, a->hv));
    port_write(&c, mix, mix_bytes(a));
    port_read(&c, q->q0, seqs + 4);
    port_read(&c, q->pos0, seqs);
    port_read(&c, q->prompt, seqs);
    return port_dispatch(d, &c, port_spans(q, CHUNK), a->hv, 1, diag);
}

static int gdn_run(port_device *d, const kvant_gdn_args *a, int prompt, kvant_diag *diag)
{
    const struct p_gather g = { .n = (int64_t)a->hv * a->dv * a->dk, .slot_stride = a->slot_stride, .prompt = prompt,
                                .in_place = 1 };
    const struct p_gdn p = { .ldq = a->ldq, .ldk = a->ldk, .ldv = a->ldv, .slot_stride = a->slot_stride, .hk = a->hk,
                             .hv = a->hv, .dv = a->dv, .interleaved = a->interleaved, .prompt = prompt,
                             .n_seqs = a->seqs.n_seqs, .scale = (float)(1.0 / sqrt((double)a->dk)) };
    void *mix = takes_matrices(d, a, prompt) ? (char *)d->scratch + copy_bytes(a) : NULL;
    const int columns = mix ? COLUMNS : PORT_THREADS;
    port_call c = PORT_CALL(gdn, p);
    if (a->seqs.n_tokens <= 0)
        return KVANT_OK;
    KVANT_TRY(gather(d, &a->seqs, a->state, a->state_type, &g, diag));
    if (mix) {
        KVANT_TRY(run_chunks(d, a, &p, mix, diag));
        c.kernel = PORT_KERNEL_gdn_matrix;
    }
    define_state(&c, a->state_type);
    port_define(&c, "DK %d", a->dk);
    if (a->per_channel)
        port_define(&c, "CHANNELS");
    gdn_buffers(d, &c, a, mix);
    return port_dispatch(d, &c, (a->dv + columns - 1) / columns, a->hv, a->seqs.n_seqs, diag);
}

static int gdn_step_run(port_device *d, const void *args, kvant_diag *diag)
{
    return gdn_run(d, args, DECODE, diag);
}
PORT_OP_SCRATCH(gdn_step, gdn_supports, step_scratch, gdn_step_run)

static int gdn_chunk_run(port_device *d, const void *args, kvant_diag *diag)
{
    return gdn_run(d, args, PROMPT, diag);
}
PORT_OP_SCRATCH(gdn_chunk, gdn_supports, chunk_scratch, gdn_chunk_run)

/* ---- Mamba2 ---- */

static int ssm_supports(port_device *d, const void *args, kvant_diag *diag)
{
    const kvant_ssm_args *a = args;
    if (a->n <= MAX_DK)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EUNSUPPORTED, "device %s: ssm: n %d, wanted at most %d", d->base.vt->name, a->n,
                      MAX_DK);
}

static size_t ssm_scratch(port_device *d, const void *args)
{
    const kvant_ssm_args *a = args;
    (void)d;
    return (size_t)a->seqs.n_seqs * (size_t)a->h * (size_t)a->p * (size_t)a->n * sizeof(float);
}

static void ssm_buffers(const port_device *d, port_call *c, const kvant_ssm_args *a, size_t copy)
{
    const kvant_seqs *q = &a->seqs;
    const size_t seqs = (size_t)q->n_seqs * 4, heads = (size_t)a->h * sizeof(float);
    port_read(c, a->x, rows_of(q, a->ldx, (int64_t)a->h * a->p));
    port_read(c, a->dt, rows_of(q, a->lddt, a->h));
    port_read(c, a->b, rows_of(q, a->ldb, (int64_t)a->g * a->n));
    port_read(c, a->c, rows_of(q, a->ldb, (int64_t)a->g * a->n));
    port_read(c, a->a, heads);
    port_read(c, a->d, heads);
    port_read(c, a->dt_bias, heads);
    port_write(c, a->state, d->rest(d, a->state));
    port_read(c, d->scratch, copy);
    port_write(c, a->y, rows_of(q, (int64_t)a->h * a->p, (int64_t)a->h * a->p));
    port_read(c, q->q0, seqs + 4);
    port_read(c, q->pos0, seqs);
    port_read(c, q->prompt, seqs);
    port_read(c, q->slot_in, seqs);
    port_read(c, q->slot_out, seqs);
}

static int ssm_run(port_device *d, const kvant_ssm_args *a, int prompt, kvant_diag *diag)
{
    const struct p_gather g = { .n = (int64_t)a->h * a->p * a->n, .slot_stride = a->slot_stride, .prompt = prompt,
                                .in_place = 1 };
    const struct p_ssm p = { .ldx = a->ldx, .lddt = a->lddt, .ldb = a->ldb, .slot_stride = a->slot_stride, .h = a->h,
                             .rows = a->p, .g = a->g, .prompt = prompt };
    port_call c = PORT_CALL(ssm, p);
    if (a->seqs.n_tokens <= 0)
        return KVANT_OK;
    KVANT_TRY(gather(d, &a->seqs, a->state, a->state_type, &g, diag));
    define_state(&c, a->state_type);
    port_define(&c, "N %d", a->n);
    ssm_buffers(d, &c, a, ssm_scratch(d, a));
    return port_dispatch(d, &c, (a->p + PORT_THREADS - 1) / PORT_THREADS, a->h, a->seqs.n_seqs, diag);
}

static int ssm_step_run(port_device *d, const void *args, kvant_diag *diag)
{
    return ssm_run(d, args, DECODE, diag);
}
PORT_OP_SCRATCH(ssm_step, ssm_supports, ssm_scratch, ssm_step_run)

static int ssm_chunk_run(port_device *d, const void *args, kvant_diag *diag)
{
    return ssm_run(d, args, PROMPT, diag);
}
PORT_OP_SCRATCH(ssm_chunk, ssm_supports, ssm_scratch, ssm_chunk_run)
