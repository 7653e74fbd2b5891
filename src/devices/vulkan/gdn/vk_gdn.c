/* vk_gdn.c: conv_step, conv_chunk, gdn_step, gdn_chunk, ssm_step, ssm_chunk.  All reads of state come before any write:
 * a first dispatch copies what is read into scratch; a sequence that keeps its slot is read in place by the delta rule
 * and by Mamba2.  Their chunk ops run the same recurrence as the step ops, token by token, where vk_chunks.c does not
 * take the op. */
#include "devices/vulkan/gdn/vk_gdn.h"

#include <math.h>

enum { DECODE = 0, PROMPT = 1, MAX_DK = 512, GATHER_GROUPS = 64 };
enum { LANES = 8, VECTORS = VK_GROUP / LANES };    /* threads of a column or row of a state; such vectors in a group */

static int gather(vk_device *d, vk_list *l, const kvant_seqs *q, const void *state, int64_t stride, int64_t n,
                  int phase, int in_place, kvant_diag *diag)
{
    const size_t seqs = (size_t)q->n_seqs * 4;
    const int64_t groups = (n + VK_GROUP - 1) / VK_GROUP;
    vk_call c;
    vk_call_begin(&c, VK_SHADER_state_gather);
    vk_ptr(&c, state, vk_rest(d, state), VK_READ);
    vk_ptr(&c, d->scratch, (size_t)q->n_seqs * (size_t)n * 4, VK_WRITE);
    vk_ptr(&c, q->q0, seqs + 4, VK_READ);
    vk_ptr(&c, q->prompt, seqs, VK_READ);
    vk_ptr(&c, q->slot_in, seqs, VK_READ);
    vk_ptr(&c, q->slot_out, seqs, VK_READ);
    vk_uint(&c, n);
    vk_uint(&c, stride);
    vk_uint(&c, phase);
    vk_uint(&c, in_place);
    return vk_dispatch(d, l, &c, (uint64_t)(groups < GATHER_GROUPS ? groups : GATHER_GROUPS), (uint32_t)q->n_seqs, 1,
                       diag);
}

/* ---- conv ---- */

static int conv_supports(vk_device *d, const void *args, kvant_diag *diag)
{
    const kvant_conv_args *a = args;
    if ((uint32_t)a->seqs.n_tokens > d->caps.max_groups)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device vulkan: conv: %d tokens, wanted at most %u",
                          a->seqs.n_tokens, d->caps.max_groups);
    return vk_fits("conv", (int64_t)a->seqs.n_tokens * (a->ldx > a->c ? a->ldx : a->c), diag);
}

static size_t conv_scratch(vk_device *d, const void *args)
{
    const kvant_conv_args *a = args;
    (void)d;
    return (size_t)a->seqs.n_seqs * (size_t)a->c * (size_t)(a->k - 1) * sizeof(float);
}

static int conv_run(vk_device *d, vk_list *l, const kvant_conv_args *a, int phase, kvant_diag *diag)
{
    const kvant_seqs *q = &a->seqs;
    const size_t seqs = (size_t)q->n_seqs * 4, window = conv_scratch(d, a);
    vk_call c;

    if (q->n_tokens <= 0)
        return KVANT_OK;
    KVANT_TRY(conv_supports(d, a, diag));
    if (window)
        KVANT_TRY(gather(d, l, q, a->state, a->slot_stride, (int64_t)a->c * (a->k - 1), phase, 0, diag));
    vk_call_begin(&c, VK_SHADER_conv);
    vk_ptr(&c, a->x, (size_t)((q->n_tokens - 1) * a->ldx + a->c) * 4, VK_READ);
    vk_ptr(&c, a->w, (size_t)a->c * (size_t)a->k * 4, VK_READ);
    vk_ptr(&c, window ? d->scratch : NULL, window, VK_READ);
    vk_ptr(&c, a->state, vk_rest(d, a->state), VK_WRITE);
    vk_ptr(&c, a->y, (size_t)q->n_tokens * (size_t)a->c * 4, VK_WRITE);
    vk_ptr(&c, q->q0, seqs + 4, VK_READ);
    vk_ptr(&c, q->prompt, seqs, VK_READ);
    vk_ptr(&c, q->slot_out, seqs, VK_READ);
    vk_ptr(&c, a->bias, a->bias ? (size_t)a->c * 4 : 0, VK_READ);
    vk_uint(&c, q->n_tokens);
    vk_uint(&c, q->n_seqs);
    vk_uint(&c, a->c);
    vk_uint(&c, a->k);
    vk_uint(&c, a->ldx);
    vk_uint(&c, a->slot_stride);
    vk_uint(&c, phase);
    vk_uint(&c, a->linear);
    vk_uint(&c, a->bias != NULL);
    return vk_dispatch(d, l, &c, (uint64_t)((a->c + VK_GROUP - 1) / VK_GROUP), (uint32_t)q->n_tokens, 1, diag);
}

static int conv_step_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    return conv_run(d, l, args, DECODE, diag);
}

static int conv_chunk_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    return conv_run(d, l, args, PROMPT, diag);
}

const vk_op vk_op_conv_step = { .supports = conv_supports, .scratch = conv_scratch, .run = conv_step_run };
const vk_op vk_op_conv_chunk = { .supports = conv_supports, .scratch = conv_scratch, .run = conv_chunk_run };

/* ---- gated delta rule ---- */

/* Words of n values of a state. */
static int64_t state_words(int state_type, int64_t n)
{
    return n * (int64_t)kvant_state_bytes(state_type) / 4;
}

/* Values of bf16 go two and two. */
static int state_supports(const char *op, int state_type, int width, int64_t stride, kvant_diag *diag)
{
    if (state_type == KVANT_STATE_BF16 && (width % 2 || stride % 2))
        return kvant_fail(diag, KVANT_EUNSUPPORTED,
                          "device vulkan: %s: bf16 states of %d values a row, slots %lld apart: wanted even numbers", op,
                          width, (long long)stride);
    return KVANT_OK;
}

static int gdn_supports(vk_device *d, const void *args, kvant_diag *diag)
{
    const kvant_gdn_args *a = args;
    KVANT_TRY(state_supports("gated delta rule", a->state_type, a->dk, a->slot_stride, diag));
    if (a->dk > MAX_DK)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device vulkan: gated delta rule: dk %d, wanted at most %d", a->dk,
                          MAX_DK);
    if ((uint32_t)a->seqs.n_seqs > d->caps.max_groups)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device vulkan: gated delta rule: %d sequences, wanted at most %u",
                          a->seqs.n_seqs, d->caps.max_groups);
    KVANT_TRY(vk_fits("gated delta rule", (int64_t)a->seqs.n_tokens * a->hv * (a->per_channel ? a->dk : 1), diag));
    return vk_fits("gated delta rule", a->slot_stride, diag);
}

static size_t state_floats(const kvant_gdn_args *a)
{
    return (size_t)a->hv * (size_t)a->dv * (size_t)a->dk;
}

static size_t gdn_scratch(vk_device *d, const void *args)
{
    const kvant_gdn_args *a = args;
    (void)d;
    return (size_t)a->seqs.n_seqs * state_floats(a) * sizeof(float);
}

static size_t gdn_chunk_scratch(vk_device *d, const void *args)
{
    const size_t states = gdn_scratch(d, args);
    return vk_chunks_take(d, args) ? vk_chunks_scratch(args, states) : states;
}

size_t vk_gdn_rows(const kvant_seqs *q, int64_t ld, int64_t width)
{
    return (size_t)((q->n_tokens - 1) * ld + width) * 4;
}

static int gdn_run(vk_device *d, vk_list *l, const kvant_gdn_args *a, int phase, kvant_diag *diag)
{
    const kvant_seqs *q = &a->seqs;
    const size_t seqs = (size_t)q->n_seqs * 4, heads = (size_t)q->n_tokens * (size_t)a->hv * 4;
    vk_call c;

    if (q->n_tokens <= 0)
        return KVANT_OK;
    KVANT_TRY(gdn_supports(d, a, diag));
    KVANT_TRY(gather(d, l, q, a->state, state_words(a->state_type, a->slot_stride),
                     state_words(a->state_type, (int64_t)state_floats(a)), phase, 1, diag));
    if (phase == PROMPT && vk_chunks_take(d, a))
        return vk_chunks_run(d, l, a, gdn_scratch(d, a), diag);
    vk_call_begin(&c, VK_SHADER_gdn);
    vk_ptr(&c, a->q, vk_gdn_rows(q, a->ldq, (int64_t)a->hk * a->dk), VK_READ);
    vk_ptr(&c, a->k, vk_gdn_rows(q, a->ldk, (int64_t)a->hk * a->dk), VK_READ);
    vk_ptr(&c, a->v, vk_gdn_rows(q, a->ldv, (int64_t)a->hv * a->dv), VK_READ);
    vk_ptr(&c, a->g, heads * (size_t)(a->per_channel ? a->dk : 1), VK_READ);
    vk_ptr(&c, a->beta, heads, VK_READ);
    vk_ptr(&c, a->state, vk_rest(d, a->state), VK_WRITE);
    vk_ptr(&c, d->scratch, gdn_scratch(d, a), VK_READ);
    vk_ptr(&c, a->o, heads * (size_t)a->dv, VK_WRITE);
    vk_ptr(&c, q->q0, seqs + 4, VK_READ);
    vk_ptr(&c, q->pos0, seqs, VK_READ);
    vk_ptr(&c, q->prompt, seqs, VK_READ);
    vk_ptr(&c, q->slot_in, seqs, VK_READ);
    vk_ptr(&c, q->slot_out, seqs, VK_READ);
    vk_uint(&c, a->hk);
    vk_uint(&c, a->hv);
    vk_uint(&c, a->dv);
    vk_uint(&c, a->interleaved);
    vk_uint(&c, a->ldq);
    vk_uint(&c, a->ldk);
    vk_uint(&c, a->ldv);
    vk_uint(&c, state_words(a->state_type, a->slot_stride));
    vk_uint(&c, phase);
    vk_float(&c, (float)(1.0 / sqrt((double)a->dk)));
    vk_spec(&c, (uint32_t)a->dk);
    vk_spec(&c, LANES);
    vk_spec(&c, a->state_type == KVANT_STATE_BF16);
    vk_spec(&c, a->per_channel != 0);
    return vk_dispatch(d, l, &c, (uint64_t)((a->dv + VECTORS - 1) / VECTORS), (uint32_t)a->hv, (uint32_t)q->n_seqs,
                       diag);
}

static int gdn_step_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    return gdn_run(d, l, args, DECODE, diag);
}

static int gdn_chunk_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    return gdn_run(d, l, args, PROMPT, diag);
}

const vk_op vk_op_gdn_step = { .supports = gdn_supports, .scratch = gdn_scratch, .run = gdn_step_run };
const vk_op vk_op_gdn_chunk = { .supports = gdn_supports, .scratch = gdn_chunk_scratch, .run = gdn_chunk_run };

/* ---- Mamba2 ---- */

static int ssm_supports(vk_device *d, const void *args, kvant_diag *diag)
{
    const kvant_ssm_args *a = args;
    const int most = a->h > a->seqs.n_seqs ? a->h : a->seqs.n_seqs;
    const int64_t ld = a->ldx > a->ldb ? a->ldx : a->ldb;

    KVANT_TRY(state_supports("Mamba2", a->state_type, a->n, a->slot_stride, diag));
    if ((uint32_t)most > d->caps.max_groups)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "device vulkan: Mamba2: %d heads, %d sequences, wanted at most %u",
                          a->h, a->seqs.n_seqs, d->caps.max_groups);
    KVANT_TRY(vk_fits("Mamba2", a->seqs.n_tokens * (ld > a->lddt ? ld : a->lddt), diag));
    return vk_fits("Mamba2", a->slot_stride, diag);
}

static size_t ssm_scratch(vk_device *d, const void *args)
{
    const kvant_ssm_args *a = args;
    (void)d;
    return (size_t)a->seqs.n_seqs * (size_t)a->h * (size_t)a->p * (size_t)a->n * sizeof(float);
}

static void ssm_inputs(vk_call *c, const kvant_ssm_args *a)
{
    const int64_t bc = (int64_t)a->g * a->n;
    const size_t head = (size_t)a->h * 4;

    vk_ptr(c, a->x, vk_gdn_rows(&a->seqs, a->ldx, (int64_t)a->h * a->p), VK_READ);
    vk_ptr(c, a->dt, vk_gdn_rows(&a->seqs, a->lddt, a->h), VK_READ);
    vk_ptr(c, a->b, vk_gdn_rows(&a->seqs, a->ldb, bc), VK_READ);
    vk_ptr(c, a->c, vk_gdn_rows(&a->seqs, a->ldb, bc), VK_READ);
    vk_ptr(c, a->a, head, VK_READ);
    vk_ptr(c, a->d, head, VK_READ);
    vk_ptr(c, a->dt_bias, head, VK_READ);
}

static int ssm_run(vk_device *d, vk_list *l, const kvant_ssm_args *a, int phase, kvant_diag *diag)
{
    const kvant_seqs *q = &a->seqs;
    const size_t seqs = (size_t)q->n_seqs * 4;
    vk_call c;

    if (q->n_tokens <= 0)
        return KVANT_OK;
    KVANT_TRY(ssm_supports(d, a, diag));
    KVANT_TRY(gather(d, l, q, a->state, state_words(a->state_type, a->slot_stride),
                     state_words(a->state_type, (int64_t)a->h * a->p * a->n), phase, 1, diag));
    vk_call_begin(&c, VK_SHADER_ssm);
    ssm_inputs(&c, a);
    vk_ptr(&c, a->state, vk_rest(d, a->state), VK_WRITE);
    vk_ptr(&c, d->scratch, ssm_scratch(d, a), VK_READ);
    vk_ptr(&c, a->y, vk_gdn_rows(q, (int64_t)a->h * a->p, (int64_t)a->h * a->p), VK_WRITE);
    vk_ptr(&c, q->q0, seqs + 4, VK_READ);
    vk_ptr(&c, q->pos0, seqs, VK_READ);
    vk_ptr(&c, q->prompt, seqs, VK_READ);
    vk_ptr(&c, q->slot_in, seqs, VK_READ);
    vk_ptr(&c, q->slot_out, seqs, VK_READ);
    vk_uint(&c, a->h);
    vk_uint(&c, a->p);
    vk_uint(&c, a->g);
    vk_uint(&c, a->ldx);
    vk_uint(&c, a->lddt);
    vk_uint(&c, a->ldb);
    vk_uint(&c, state_words(a->state_type, a->slot_stride));
    vk_uint(&c, phase);
    vk_spec(&c, (uint32_t)a->n);
    vk_spec(&c, LANES);
    vk_spec(&c, a->state_type == KVANT_STATE_BF16);
    return vk_dispatch(d, l, &c, (uint64_t)((a->p + VECTORS - 1) / VECTORS), (uint32_t)a->h, (uint32_t)q->n_seqs, diag);
}

static int ssm_step_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    return ssm_run(d, l, args, DECODE, diag);
}

static int ssm_chunk_run(vk_device *d, vk_list *l, const void *args, kvant_diag *diag)
{
    return ssm_run(d, l, args, PROMPT, diag);
}

const vk_op vk_op_ssm_step = { .supports = ssm_supports, .scratch = ssm_scratch, .run = ssm_step_run };
const vk_op vk_op_ssm_chunk = { .supports = ssm_supports, .scratch = ssm_scratch, .run = ssm_chunk_run };
