/* bench_device_cases.c: the cases of bench_device.def: shapes, buffers, and the bytes and operations they must cost. */
#include <math.h>
#include <stdio.h>
#include "base/half.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cli/bench/bench_device.h"
#include "kvant/engine.h"
#include "kvant/qjl.h"

/* ---- caches ---- */

static const void *param_of(const kvant_format *f)
{
    static float projection[KVANT_QJL_VALUES]; /* constant after the first call; one thread */

    if (!(f->flags & KVANT_FORMAT_PARAM))
        return NULL;
    if (projection[0] == 0.0f)
        kvant_qjl_projection_build(KVANT_QJL_SEED, projection);
    return projection;
}

static kvant_kv_side side_of(room *r, const kvant_format *f, int pages, int h, int d, int encoder)
{
    kvant_kv_side s = { .fmt = f, .param = param_of(f), .row_bytes = kvant_format_row_bytes(f, d), .encoder = encoder };

    s.head_bytes = s.row_bytes * KVANT_PAGE;
    s.page_bytes = s.head_bytes * (size_t)h;
    s.pages = room_copy(r, NULL, s.page_bytes * (size_t)pages);
    return s;
}

typedef struct attn_shape {
    int n_seqs, h_kv, d, len, group;
} attn_shape;

/* Pages at a time that are filled, and pages of a tail. */
enum { AT_ONCE = 128 };

/* Encodes random rows into every page: 8192 tokens at a time through tables of their own. */
static void write_pages(room *r, const kvant_kv_side *s, const float *x, int from, int n, int h, int d)
{
    int32_t ids[AT_ONCE], q0[2] = { 0, n * KVANT_PAGE }, zero = 0;

    for (int i = 0; i < n; i++)
        ids[i] = from + i;
    kvant_seqs q = { .n_seqs = 1, .n_tokens = n * KVANT_PAGE, .table_stride = n };
    q.table = room_copy(r, ids, (size_t)n * sizeof ids[0]);
    q.q0 = room_copy(r, q0, sizeof q0);
    q.pos0 = q.prompt = q.slot_in = q.slot_out = room_copy(r, &zero, sizeof zero);
    const kvant_cache_write_args a = { q, *s, x, (int64_t)h * d, h, d };
    room_run(r, KVANT_OP_CACHE_WRITE, &a);
}

/* Encodes pages from the side's tail pages, as an engine fills pages whose order of bytes is the device's own. */
static void seal_pages(room *r, const kvant_kv_side *s, int from, int n, int h, int d)
{
    int32_t src[AT_ONCE], dst[AT_ONCE];

    for (int i = 0; i < n; i++) {
        src[i] = i;
        dst[i] = from + i;
    }
    const size_t bytes = (size_t)n * sizeof src[0];
    const kvant_page_seal_args a = { *s, room_copy(r, src, bytes), room_copy(r, dst, bytes), n, h, d };
    room_run(r, KVANT_OP_PAGE_SEAL, &a);
}

static void fill_side(room *r, const kvant_kv_side *s, const float *x, int pages, int h, int d)
{
    for (int from = 0; r->rc == KVANT_OK && from < pages; from += AT_ONCE) {
        const int n = pages - from < AT_ONCE ? pages - from : AT_ONCE, mark = r->n_mem;

        if (s->tail)
            seal_pages(r, s, from, n, h, d);
        else
            write_pages(r, s, x, from, n, h, d);
        room_drop(r, mark);
    }
}

/* AT_ONCE tail pages of normal values: for formats of fewer than 16 bits, as in an engine. */
static uint16_t *tail_of(room *r, const kvant_format *f, int h, int d)
{
    enum { BLOCK = 1 << 16 };
    const size_t n = (size_t)AT_ONCE * KVANT_PAGE * (size_t)h * (size_t)d;
    uint16_t *host;
    rng g = { 17 };

    if (f->flags & KVANT_FORMAT_WIDE)
        return NULL;
    host = room_host(r, n * sizeof *host);
    for (size_t i = 0; host && i < n; i++)
        host[i] = i < BLOCK ? f32_to_half(rng_normal(&g)) : host[i % BLOCK];
    uint16_t *tail = room_copy(r, host, n * sizeof *host);
    kvant_free(host);
    return tail;
}

/* Each sequence's last page is also tail page i of sequence i, the others have none. */
static const int32_t *tail_table_of(room *r, const kvant_seqs *q)
{
    const size_t n = (size_t)q->n_seqs * (size_t)q->table_stride;
    int32_t *host = room_host(r, n * sizeof *host);

    for (size_t i = 0; host && i < n; i++)
        host[i] = (i + 1) % (size_t)q->table_stride ? -1 : (int32_t)(i / (size_t)q->table_stride);
    const int32_t *table = room_copy(r, host, n * sizeof *host);
    kvant_free(host);
    return table;
}

/* The cache as an engine makes it: an exact last page (--kv-tail 64), full pages in the device's own order. */
static void attn_pair(room *r, const attn_shape *a, const kvant_format *fk, const kvant_format *fv, const float *x)
{
    const int mark = r->n_mem, pages = a->n_seqs * ((a->len + KVANT_PAGE - 1) / KVANT_PAGE), h = a->h_kv * a->group;
    const size_t rows = (size_t)a->n_seqs * (size_t)h;
    kvant_attn_args args = { .seqs = room_seqs(r, a->n_seqs, 1, a->len - 1, 0),
                             .k = side_of(r, fk, pages, a->h_kv, a->d, KVANT_ENCODER_UPSTREAM),
                             .v = side_of(r, fv, pages, a->h_kv, a->d, KVANT_ENCODER_UPSTREAM),
                             .q = room_normal(r, rows * (size_t)a->d),
                             .out = room_copy(r, NULL, rows * (size_t)a->d * sizeof(float)),
                             .ldq = (int64_t)h * a->d,
                             .gq = a->d,
                             .ldo = (int64_t)h * a->d,
                             .h = h,
                             .h_kv = a->h_kv,
                             .d_k = a->d,
                             .d_v = a->d,
                             .scale = 1.0f / sqrtf((float)a->d),
                             .tail_pages = 1,
                             .compute = KVANT_COMPUTE_AUTO,
                             .max_pos = a->len - 1 };
    const double tokens = (double)a->n_seqs * a->len * a->h_kv;

    args.seqs.tail_table = tail_table_of(r, &args.seqs);
    args.k.tail = tail_of(r, fk, a->h_kv, a->d);
    args.v.tail = tail_of(r, fv, a->h_kv, a->d);
    if (r->rc == KVANT_OK && r->dev->vt->kv_layout)
        r->dev->vt->kv_layout(r->dev, &args);
    fill_side(r, &args.k, x, pages, a->h_kv, a->d);
    fill_side(r, &args.v, x, pages, a->h_kv, a->d);
    room_time(r, KVANT_OP_ATTN, &args, tokens * (double)(args.k.row_bytes + args.v.row_bytes), 0.0, "%s + %s", fk->name,
              fv->name);
    room_drop(r, mark);
}

/* --pairs, or the pairs that the bars name. */
static void attn(room *r, const attn_shape *a)
{
    static const char *const pairs[][2] = {
        { "f16", "f16" },        { "bf16", "bf16" },     { "f8_e4m3", "f8_e4m3" },
        { "q8_0", "q8_0" },      { "tbq4_0", "tbq4_0" }, { "turbo4_66", "turbo4_66" },
        { "tbq3_0", "tbq3_0" },  { "turbo3", "turbo3" }, { "turbo3_tcq", "turbo3_tcq" },
        { "qjl1_256", "tbq3_0" }
    };
    const float *x = room_normal(r, (size_t)8192 * (size_t)(a->h_kv * a->d));

    for (size_t i = 0; r->rc == KVANT_OK && i < sizeof pairs / sizeof pairs[0]; i++)
        attn_pair(r, a, kvant_format_find(pairs[i][0]), kvant_format_find(pairs[i][1]), x);
}

void case_attn_a(room *r);
void case_attn_b(room *r);
void case_attn_d(room *r);
void case_attn_e(room *r);
void case_gdn_step(room *r);
void case_gdn_chunk(room *r);
void case_ssm_step(room *r);
void case_ssm_chunk(room *r);
void case_cache_write(room *r);
void case_top_k(room *r);
void case_attn_score(room *r);

void case_attn_a(room *r)
{
    const attn_shape a = { 32, 8, 128, 32768, 4 };
    attn(r, &a);
}

void case_attn_b(room *r)
{
    const attn_shape a = { 1, 4, 128, 262144, 4 };
    attn(r, &a);
}

void case_attn_d(room *r)
{
    const attn_shape a = { 16, 2, 256, 32768, 8 };
    attn(r, &a);
}

void case_attn_e(room *r)
{
    const attn_shape a = { 32, 8, 128, 16384, 4 };
    attn(r, &a);
}

/* n queries at the end of one sequence. */
static void score_rows(room *r, const kvant_format *f, int n, const float *x)
{
    enum { LEN = 2048, H_KV = 8, H = 32, D = 128, PAGES = LEN / KVANT_PAGE };
    const int mark = r->n_mem;
    const kvant_kv_side k = side_of(r, f, PAGES, H_KV, D, KVANT_ENCODER_UPSTREAM);
    const kvant_attn_score_args a = { .seqs = room_seqs(r, 1, n, LEN - n, n > 1),
                                      .k = k,
                                      .q = x,
                                      .s = room_copy(r, NULL, (size_t)n * H * LEN * sizeof(float)),
                                      .ldq = H * D,
                                      .gq = D,
                                      .lds = LEN,
                                      .h = H,
                                      .h_kv = H_KV,
                                      .d_k = D,
                                      .scale = 1.0f / sqrtf((float)D) };

    fill_side(r, &k, x, PAGES, H_KV, D);
    room_time(r, KVANT_OP_ATTN_SCORE, &a, (double)LEN * H_KV * (double)k.row_bytes + 4.0 * n * H * (D + LEN),
              2.0 * n * H * LEN * D, "%s, %d queries", f->name, n);
    room_drop(r, mark);
}

void case_attn_score(room *r)
{
    static const char *const formats[] = { "f16", "q8_0", "tbq4_0" };
    const float *x = room_normal(r, (size_t)8192 * 8 * 128);

    for (int i = 0; i < 3 * ROOM_COUNTS; i++)
        score_rows(r, kvant_format_find(formats[i / ROOM_COUNTS]), room_counts[i % ROOM_COUNTS], x);
}

void case_cache_write(room *r)
{
    enum { TOKENS = 8192, H = 8, D = 128 };
    const kvant_seqs q = room_seqs(r, 1, TOKENS, 0, 1);
    const float *x = room_normal(r, (size_t)TOKENS * H * D);

    for (int i = 0; r->rc == KVANT_OK && i < kvant_format_count(); i++)
        for (int encoder = 0; encoder < 2 && !(kvant_format_at(i)->flags & KVANT_FORMAT_PAGE); encoder++) {
            const kvant_format *f = kvant_format_at(i);
            const kvant_kv_side s = side_of(r, f, TOKENS / KVANT_PAGE, H, D, encoder);
            const kvant_cache_write_args a = { q, s, x, H * D, H, D };
            room_time(r, KVANT_OP_CACHE_WRITE, &a, (double)TOKENS * H * (D * 4.0 + (double)s.row_bytes), 0.0, "%s %s",
                      f->name, encoder == KVANT_ENCODER_BEST ? "best" : "upstream");
            if (r->n_mem > 0 && s.pages)
                r->dev->vt->free(r->dev, r->mem[--r->n_mem]);
        }
}

/* ---- gated delta rule ---- */

enum { HEADS = 32, STATE = 128 };

/* Keys and queries of length one, small decays, as a model makes them.  bf16 states: f32 bits, read in halves (the time
 * does not depend on values). */
static kvant_gdn_args gdn_of(room *r, kvant_seqs q, int state_type, int per_channel)
{
    const size_t n = (size_t)q.n_tokens, width = HEADS * STATE, gates = n * (per_channel ? width : HEADS);
    float *host = room_host(r, gates * sizeof *host);
    kvant_gdn_args a = { .seqs = q,
                         .hk = HEADS,
                         .hv = HEADS,
                         .dk = STATE,
                         .dv = STATE,
                         .state_type = state_type,
                         .per_channel = per_channel };
    rng g = { 5 };

    a.q = room_normal(r, n * width);
    a.k = room_normal(r, n * width);
    a.v = room_normal(r, n * width);
    const kvant_norm_l2_args nq = { (float *)a.q, 1e-6f, q.n_tokens, HEADS, STATE, (int64_t)width, STATE };
    const kvant_norm_l2_args nk = { (float *)a.k, 1e-6f, q.n_tokens, HEADS, STATE, (int64_t)width, STATE };
    room_run(r, KVANT_OP_NORM_L2, &nq);
    room_run(r, KVANT_OP_NORM_L2, &nk);
    for (size_t i = 0; host && i < gates; i++)
        host[i] = (float)(-0.1 * rng_unit(&g));
    a.g = room_copy(r, host, gates * sizeof *host);
    for (size_t i = 0; host && i < n * HEADS; i++)
        host[i] = (float)rng_unit(&g);
    a.beta = room_copy(r, host, n * HEADS * sizeof *host);
    kvant_free(host);
    a.state = room_normal(r, (size_t)q.n_seqs * width * STATE * kvant_state_bytes(state_type) / sizeof(float));
    a.o = room_copy(r, NULL, n * width * sizeof(float));
    a.ldq = a.ldk = a.ldv = (int64_t)width;
    a.slot_stride = (int64_t)width * STATE;
    return a;
}

void case_gdn_step(room *r)
{
    static const int counts[] = { 1, 32, 128, 512 };

    static const char *const kinds[] = { "", ", bf16 states", ", gates per channel" };

    for (int i = 0; r->rc == KVANT_OK && i < 12; i++) {
        const int mark = r->n_mem, n = counts[i % 4], type = i / 4 == 1 ? KVANT_STATE_BF16 : KVANT_STATE_F32;
        const double bytes = 2.0 * n * HEADS * STATE * STATE * (double)kvant_state_bytes(type); /* read, written */
        const kvant_gdn_args a = gdn_of(r, room_seqs(r, n, 1, 0, 0), type, i / 4 == 2);
        room_time(r, KVANT_OP_GDN_STEP, &a, bytes, 0.0, "%d sequences%s", n, kinds[i / 4]);
        room_drop(r, mark);
    }
}

void case_gdn_chunk(room *r)
{
    static const int lengths[] = { 2048, 8192, 65536 };

    for (int i = 0; r->rc == KVANT_OK && i < 5; i++) {
        const int mark = r->n_mem, per_channel = i >= 3;
        const double n = lengths[i % 3];
        const kvant_gdn_args a = gdn_of(r, room_seqs(r, 1, lengths[i % 3], 0, 1), KVANT_STATE_F32, per_channel);
        /* read q, k, v, write o; per chunk of 64 tokens 10 products of 64 x 64 x 128 */
        room_time(r, KVANT_OP_GDN_CHUNK, &a, (per_channel ? 20.0 : 16.0) * n * HEADS * STATE,
                  n / 64.0 * HEADS * 10.0 * 2.0 * 64 * 64 * 128, "%d tokens%s", lengths[i % 3],
                  per_channel ? ", gates per channel" : "");
        room_drop(r, mark);
    }
}

/* ---- Mamba2 ---- */

enum { SSM_HEADS = 128, SSM_DIM = 64, SSM_STATE = 128 };

/* One group; x, B and C lie in one row, as the convolution leaves them. */
static kvant_ssm_args ssm_of(room *r, kvant_seqs q, int state_type)
{
    const size_t inner = (size_t)SSM_HEADS * SSM_DIM, ld = inner + 2 * SSM_STATE, n = (size_t)q.n_tokens;
    const size_t values = inner * SSM_STATE;
    const float *x = room_normal(r, n * ld);
    float rates[SSM_HEADS];
    kvant_ssm_args a = { .seqs = q,
                         .x = x,
                         .b = x + inner,
                         .c = x + inner + SSM_STATE,
                         .h = SSM_HEADS,
                         .p = SSM_DIM,
                         .g = 1,
                         .n = SSM_STATE,
                         .state_type = state_type };

    for (int i = 0; i < SSM_HEADS; i++)
        rates[i] = -0.1f * (float)(i + 1);
    a.a = room_copy(r, rates, sizeof rates);
    a.dt = room_normal(r, n * SSM_HEADS);
    a.d = a.dt_bias = room_normal(r, SSM_HEADS);
    a.state = room_normal(r, (size_t)q.n_seqs * values * kvant_state_bytes(state_type) / sizeof(float));
    a.y = room_copy(r, NULL, n * inner * sizeof(float));
    a.ldx = a.ldb = (int64_t)ld;
    a.lddt = SSM_HEADS;
    a.slot_stride = (int64_t)values;
    return a;
}

void case_ssm_step(room *r)
{
    static const int counts[] = { 1, 32, 128 };

    for (int i = 0; r->rc == KVANT_OK && i < 6; i++) {
        const int mark = r->n_mem, n = counts[i % 3], type = i < 3 ? KVANT_STATE_F32 : KVANT_STATE_BF16;
        const double values = (double)n * SSM_HEADS * SSM_DIM * SSM_STATE;
        const kvant_ssm_args a = ssm_of(r, room_seqs(r, n, 1, 0, 0), type);
        room_time(r, KVANT_OP_SSM_STEP, &a, 2.0 * values * (double)kvant_state_bytes(type), 0.0, "%d sequences%s", n,
                  i < 3 ? "" : ", bf16 states");
        room_drop(r, mark);
    }
}

void case_ssm_chunk(room *r)
{
    static const int lengths[] = { 512, 8192 };

    for (int i = 0; r->rc == KVANT_OK && i < 2; i++) {
        const int mark = r->n_mem;
        const double n = lengths[i], inner = SSM_HEADS * SSM_DIM;
        const kvant_ssm_args a = ssm_of(r, room_seqs(r, 1, lengths[i], 0, 1), KVANT_STATE_F32);
        /* read x, B, C, write y; per value of the state and token two products and a sum of each */
        room_time(r, KVANT_OP_SSM_CHUNK, &a, 8.0 * n * (inner + SSM_STATE), 5.0 * n * inner * SSM_STATE, "%d tokens",
                  lengths[i]);
        room_drop(r, mark);
    }
}

/* ---- top_k ---- */

void case_top_k(room *r)
{
    enum { VOCAB = 151936, MOST = 64 };
    static const int rows[] = { 1, MOST };
    const float *x = room_normal(r, (size_t)MOST * VOCAB);
    float *values = room_copy(r, NULL, (size_t)MOST * KVANT_STEP_TOP * sizeof *values);
    int32_t *ids = room_copy(r, NULL, (size_t)MOST * KVANT_STEP_TOP * sizeof *ids);

    for (int i = 0; r->rc == KVANT_OK && i < 2; i++) {
        const double bytes = 4.0 * rows[i] * VOCAB;
        const kvant_argmax_args one = { x, ids, rows[i], VOCAB };
        const kvant_top_k_args some = { x, values, ids, rows[i], VOCAB, KVANT_STEP_TOP };
        room_time(r, KVANT_OP_ARGMAX, &one, bytes, 0, "argmax, %d rows", rows[i]);
        if (r->rc == KVANT_OK)
            room_time(r, KVANT_OP_TOP_K, &some, bytes, 0, "%d largest, %d rows", KVANT_STEP_TOP, rows[i]);
    }
}
