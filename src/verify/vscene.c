/* vscene.c: paged caches for cases: sequences over shuffled pages, and sides filled with encoded rows.
 *
 * Encoding every row of every case by the references would take most of the time, so rows come from a bank: ROWS rows
 * per (format, head_dim), encoded once.  ROWS is prime and does not divide a page, so that no two neighbouring tokens,
 * heads or pages hold the same row, and a kernel that confuses them is seen.  The bank of a format of page
 * scope has PAGES whole pages. */
#include <pthread.h>
#include <string.h>
#include "base/half.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kvant/qjl.h"
#include "ops/op_util.h"
#include "verify/vcase.h"

enum { ROWS = 97, PAGES = 5, KEPT = 48, FEW = 4 };

static float projection[KVANT_QJL_VALUES];          /* constant after build_projection */

static void build_projection(void)
{
    kvant_qjl_projection_build(KVANT_QJL_SEED, projection);
}

const void *vcase_param(const kvant_format *f)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, build_projection);
    return f->flags & KVANT_FORMAT_PARAM ? projection : NULL;
}

void vscene_seqs(vcase *c, vscene *s, const int *len, const int *ask)
{
    int32_t q0[VCASE_SEQS + 1] = { 0 }, pos0[VCASE_SEQS], all0[VCASE_SEQS + 1] = { 0 }, zero[VCASE_SEQS] = { 0 };
    int32_t prompt[VCASE_SEQS], ids[VCASE_SEQS * VCASE_TABLE], n = 0;
    rng r = { 11 };

    memset(s, 0, sizeof *s);
    for (int i = 0; i < VCASE_SEQS; i++) {
        s->len[i] = len[i];
        q0[i + 1] = q0[i] + ask[i];
        pos0[i] = len[i] - ask[i];
        all0[i + 1] = all0[i] + len[i];
        prompt[i] = ask[i] > 1;
        n += (len[i] + KVANT_PAGE - 1) / KVANT_PAGE;
    }
    s->pages = n + 2;
    for (int i = 0; i < s->pages; i++)
        ids[i] = i;
    for (int i = s->pages - 1; i > 0; i--) {
        const int j = (int)rng_below(&r, (uint32_t)i + 1), t = ids[i];
        ids[i] = ids[j];
        ids[j] = t;
    }
    int32_t *table = vcase_take(c, VCASE_SEQS * VCASE_TABLE * sizeof *table);
    int32_t *tails = vcase_take(c, VCASE_SEQS * VCASE_TABLE * sizeof *tails);
    for (int i = 0, next = 0; i < VCASE_SEQS; i++)
        for (int j = 0; j < (len[i] + KVANT_PAGE - 1) / KVANT_PAGE; j++, next++) {
            table[i * VCASE_TABLE + j] = ids[next];
            tails[i * VCASE_TABLE + j] = ids[s->pages - 1 - next];
        }
    s->seqs = (kvant_seqs){ .n_seqs = VCASE_SEQS, .n_tokens = q0[VCASE_SEQS], .q0 = vcase_ints(c, q0, VCASE_SEQS + 1),
                            .pos0 = vcase_ints(c, pos0, VCASE_SEQS), .prompt = vcase_ints(c, prompt, VCASE_SEQS),
                            .table = table, .tail_table = tails, .table_stride = VCASE_TABLE };
    for (int *few = &s->seqs.n_few; *few < VCASE_SEQS && ask[*few] <= FEW; ++*few)
        s->seqs.few_rows += ask[*few];
    s->all = s->seqs;
    s->all.n_few = s->all.few_rows = 0;
    s->all.n_tokens = all0[VCASE_SEQS];
    s->all.q0 = vcase_ints(c, all0, VCASE_SEQS + 1);
    s->all.pos0 = vcase_ints(c, zero, VCASE_SEQS);
}

void vscene_side(vcase *c, vscene *s, int which, const kvant_format *f, int h, int d, int tail, int encoder)
{
    kvant_kv_side *side = &s->side[which];

    *side = (kvant_kv_side){ .fmt = f, .param = vcase_param(f), .row_bytes = kvant_format_row_bytes(f, d),
                             .encoder = encoder };
    side->head_bytes = side->row_bytes * KVANT_PAGE;
    /* pages are not a power of two apart, and of some widths not at multiples of 16 bytes */
    side->page_bytes = side->head_bytes * (size_t)h + (d % 128 ? 4 : 16);
    side->pages = vcase_take(c, side->page_bytes * (size_t)s->pages);
    if (tail)
        side->tail = vcase_take(c, (size_t)s->pages * (size_t)(h * KVANT_PAGE * d) * sizeof(uint16_t));
    s->rows[which] = (vcase_rows){ .side = side, .h = h, .d = d, .pages = s->pages };
    s->rows[which].origin = kvant_calloc((size_t)(s->pages * h * KVANT_PAGE), sizeof(float *));
    if (!s->rows[which].origin)
        c->rc = KVANT_ENOMEM;
}

void vscene_close(vscene *s)
{
    for (int w = 0; w < 2; w++) {
        kvant_free(s->rows[w].origin);
        s->rows[w].origin = NULL;
    }
}

/* ---- the bank ---- */

typedef struct bank {
    const kvant_format *f;
    int d;
    uint8_t *encoded;
    float *values;              /* as f16 holds them, so that encoded and exact rows have the same origin */
} bank;

/* The last few (format, d). */
struct vcase_banks { bank list[KEPT]; int next; };

static void bank_drop(bank *b)
{
    kvant_free(b->encoded);
    kvant_free(b->values);
    *b = (bank){ .f = NULL };
}

void vscene_end(vcase *c)
{
    for (int i = 0; c->banks && i < KEPT; i++)
        bank_drop(&c->banks->list[i]);
    kvant_free(c->banks);
    c->banks = NULL;
}

static int is_paged(const kvant_format *f)
{
    return (f->flags & KVANT_FORMAT_PAGE) != 0;
}

static int bank_rows(const kvant_format *f)
{
    return is_paged(f) ? PAGES * KVANT_PAGE : ROWS;
}

/* Encodes the PAGES pages of b, in the common mean that neighbouring tokens have; 0: no memory. */
static int encode_pages(bank *b)
{
    const int dp = kvant_format_padded(b->f, b->d);
    const size_t page = kvant_format_row_bytes(b->f, b->d) * KVANT_PAGE;
    float *x = kvant_calloc((size_t)(KVANT_PAGE * dp), sizeof *x);

    for (int i = 0; x && i < PAGES; i++) {
        for (int r = 0; r < KVANT_PAGE; r++)
            memcpy(x + r * dp, b->values + (i * KVANT_PAGE + r) * b->d, (size_t)b->d * sizeof *x);
        kvant_format_best(b->f)->encode_page(vcase_param(b->f), x, (size_t)dp, b->encoded + (size_t)i * page, dp, 0);
    }
    kvant_free(x);
    return x != NULL;
}

/* ROWS rows of f, or PAGES pages. */
static const bank *bank_of(vcase *c, const kvant_format *f, int d)
{
    const size_t row_bytes = kvant_format_row_bytes(f, d);
    float pad[KVANT_MAX_PLAIN_HEAD_DIM];

    if (!c->banks && !(c->banks = kvant_calloc(1, sizeof *c->banks)))
        return NULL;
    for (int i = 0; i < KEPT; i++)
        if (c->banks->list[i].f == f && c->banks->list[i].d == d)
            return &c->banks->list[i];
    bank *b = &c->banks->list[c->banks->next++ % KEPT];
    bank_drop(b);
    const size_t n = (size_t)bank_rows(f);
    *b = (bank){ f, d, kvant_alloc(n * row_bytes), kvant_alloc(n * (size_t)d * sizeof(float)) };
    if (!b->encoded || !b->values) {
        bank_drop(b);
        return NULL;
    }
    vcase_fill(b->values, n * (size_t)d, 30);
    for (size_t i = 0; i < n * (size_t)d; i++)
        b->values[i] = half_to_f32(f32_to_half(b->values[i] + (is_paged(f) ? 0.5f : 0.0f)));
    if (is_paged(f) && !encode_pages(b)) {
        bank_drop(b);
        return NULL;
    }
    for (int i = 0; i < ROWS && !is_paged(f); i++) {
        memset(pad, 0, sizeof pad);
        memcpy(pad, b->values + i * d, (size_t)d * sizeof *pad);
        kvant_format_best(f)->encode(vcase_param(f), pad, b->encoded + (size_t)i * row_bytes, kvant_format_padded(f, d),
                                     KVANT_ENCODER_UPSTREAM);
    }
    return b;
}

static void put_row(const vscene *s, int which, const bank *b, int seq, int pos, int h)
{
    const kvant_kv_side *side = &s->side[which];
    const int n_h = s->rows[which].h, d = s->rows[which].d, page = pos / KVANT_PAGE, r = pos % KVANT_PAGE;
    const int of_page = (page * 7 + h * 13 + seq * 17 + which * 29) % PAGES * KVANT_PAGE + r;
    const int i = is_paged(side->fmt) ? of_page : (pos * 7 + h * 13 + seq * 17 + which * 29) % ROWS;
    const int32_t t = s->all.tail_table[seq * VCASE_TABLE + page];

    /* a page with an exact tail is encoded when it is full */
    if (is_paged(side->fmt) && r == 0)
        memcpy(kv_row(side, kv_page(&s->all, seq, page), h, 0), b->encoded + (size_t)i * side->row_bytes,
               side->head_bytes);
    else if (!is_paged(side->fmt) && (!side->tail || (page + 1) * KVANT_PAGE <= s->len[seq]))
        memcpy(kv_row(side, kv_page(&s->all, seq, page), h, r), b->encoded + (size_t)i * side->row_bytes,
               side->row_bytes);
    for (int e = 0; e < d && side->tail; e++)
        kv_tail_row(side, t, n_h, h, r, d)[e] = f32_to_half(b->values[i * d + e]);
}

void vscene_fill(vcase *c, vscene *s, int which, int h, int d)
{
    const bank *b = c->ask ? NULL : bank_of(c, s->side[which].fmt, d);

    if (!b) {
        c->rc = c->ask ? c->rc : KVANT_ENOMEM;
        return;
    }
    for (int i = 0; i < VCASE_SEQS; i++)
        for (int p = 0; p < s->len[i]; p++)
            for (int j = 0; j < h; j++)
                put_row(s, which, b, i, p, j);
}
