/* cases_attn.c: cases of attn: every pair of formats, decode and prompt passes, with and without the exact tail; every
 * head size; grouped heads; contexts of several splits; window, cap and sinks; and of attn_score, every format. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/half.h"
#include "base/mem.h"
#include "ops/op_util.h"
#include "verify/cases.h"

/* bf16 rows may hold these, but halves cannot: keys of great numbers; great or small values; values that are none. */
enum extreme { ORDINARY, GREAT_KEYS, GREAT_VALUES, SMALL_VALUES, NO_KEYS, NO_VALUES, EXTREMES };

/* Which of window, cap and sinks a case has. */
enum variant { PLAIN, WINDOW, CAP, SINKS, ALL, VARIANTS };
static const struct {
    const char *name;
    int window, sinks;
    float softcap;
} variants[VARIANTS] = {
    [PLAIN] = { "", 0, 0, 0.0f },      [WINDOW] = { " window", 70, 0, 0.0f }, [CAP] = { " cap", 0, 0, 1.5f },
    [SINKS] = { " sinks", 0, 1, 0.0f }, [ALL] = { " all", 1100, 1, 2.0f },
};

/* The properties that cases vary.  tail: pages read exactly. */
typedef struct setup {
    const kvant_format *k, *v;
    int h, h_kv, d_k, d_v, tail, compute, extreme, variant;
} setup;

typedef struct phase {
    const char *shape;
    int len[VCASE_SEQS], ask[VCASE_SEQS];
} phase;

static const phase decode = { "decode", { 130, 1, 200 }, { 1, 1, 1 } };
static const phase prompt = { "prompt", { 100, 30, 150 }, { 37, 30, 40 } };
static const phase mixed = { "mixed", { 100, 64, 150 }, { 1, 30, 2 } };
static const phase drafts = { "drafts", { 130, 1, 200 }, { 4, 1, 3 } };
static const phase longer = { "long", { 2100, 64, 1030 }, { 1, 5, 2 } };
static const phase empty = { "empty", { 70, 1, 9 }, { 0, 0, 0 } };

/* f32: 1e-6.  auto: 1e-5 with 16-bit tiles; a format of 8 bits or less may also be read by an 8-bit query and 8-bit
 * centroids, two roundings of step^2/12 each, step = m/127 where the largest of d normal values is seldom above
 * m = sqrt(2 ln 4d).  Scores have unit variance here, so that is the output's relative energy; twice it, because
 * few keys are averaged: 2.6e-4 at d = 128.  The formats' own error is near 1e-2. */
static double attn_limit(const setup *t)
{
    if (t->compute == KVANT_COMPUTE_F32)
        return 1e-6;
    if (t->k->flags & t->v->flags & KVANT_FORMAT_WIDE)
        return 1e-5;
    const double step2 = 2.0 * log(4.0 * t->d_k) / (127.0 * 127.0);
    return 2.0 * 2.0 * step2 / 12.0;
}

static void subject(char *text, size_t cap, const setup *t)
{
    snprintf(text, cap, "%s:%s", t->k->name, t->v->name);
}

/* ---- rows out of the ordinary ---- */

static void scale_row(uint8_t *row, int d, float by)
{
    for (int e = 0; e < d; e++)
        store_u16(row + 2 * e, f32_to_bf16(bf16_to_f32(load_u16(row + 2 * e)) * by));
}

/* Returns 1 if the rows of a side are changed by `extreme`. */
static int is_extreme(const kvant_format *f, int which, int extreme)
{
    return extreme && f == kvant_format_find("bf16") && (extreme == GREAT_KEYS || extreme == NO_KEYS) == (which == 0);
}

/* One row of every sequence, or all rows where values change; what is no number is in rows that all queries of a
 * sequence see. */
static void make_extreme(vscene *s, int which, int extreme)
{
    enum { AT = 3, NONE = 5 };
    const vcase_rows *r = &s->rows[which];

    for (int i = 0; i < VCASE_SEQS; i++)
        for (int h = 0; h < r->h; h++)
            for (int p = 0; p < s->len[i]; p++) {
                uint8_t *row = kv_row(&s->side[which], kv_page(&s->all, i, p / KVANT_PAGE), h, p % KVANT_PAGE);
                if ((extreme == GREAT_KEYS && p == AT) || extreme == GREAT_VALUES)
                    scale_row(row, r->d, 1e30f);
                else if (extreme == SMALL_VALUES)
                    scale_row(row, r->d, 1e-30f);
                else if (extreme == NO_KEYS && p == AT && s->len[i] > KVANT_PAGE)
                    store_u16(row + 2 * h, 0xff80); /* -infinity: no weight, or the whole of it */
                else if (extreme == NO_VALUES && p == AT && s->len[i] > KVANT_PAGE)
                    store_u16(row + 2 * h, 0x7fc1); /* NaN */
                else if (extreme == NO_VALUES && p == NONE && s->len[i] > KVANT_PAGE)
                    store_u16(row + 2 * h + 4, 0xff80);
            }
}

static void attn(vcase *c, const setup *t, const phase *p, int ask)
{
    char pair[32], shape[32];
    vscene s;
    int top = 0;

    subject(pair, sizeof pair, t);
    snprintf(shape, sizeof shape, "%s%s%s%s", p->shape, t->extreme ? " wide" : "", variants[t->variant].name,
             t->compute == KVANT_COMPUTE_AUTO ? " auto" : "");
    if (!vcase_begin(c, KVANT_OP_ATTN, shape, pair))
        return;
    if (ask)
        vcase_ask(c);
    vscene_seqs(c, &s, p->len, p->ask);
    vscene_side(c, &s, 0, t->k, t->h_kv, t->d_k, t->tail > 0 && !(t->k->flags & KVANT_FORMAT_WIDE), 0);
    vscene_side(c, &s, 1, t->v, t->h_kv, t->d_v, t->tail > 0 && !(t->v->flags & KVANT_FORMAT_WIDE), 0);
    vscene_fill(c, &s, 0, t->h_kv, t->d_k);
    vscene_fill(c, &s, 1, t->h_kv, t->d_v);
    for (int w = 0; w < 2 && !ask && c->rc == KVANT_OK; w++)
        if (is_extreme(w ? t->v : t->k, w, t->extreme))
            make_extreme(&s, w, t->extreme);
    for (int i = 0; i < VCASE_SEQS; i++)
        top = p->ask[i] && p->len[i] > top ? p->len[i] : top;
    const int n = s.seqs.n_tokens, gq = t->d_k + 4, ldq = t->h * gq + 4, ldo = t->h * t->d_v + 4;
    const kvant_attn_args a = { .seqs = s.seqs, .k = s.side[0], .v = s.side[1],
                                .q = vcase_normal(c, (size_t)(n * ldq), 8), .out = vcase_out(c, (size_t)(n * ldo)),
                                .ldq = ldq, .gq = gq, .ldo = ldo, .h = t->h, .h_kv = t->h_kv, .d_k = t->d_k,
                                .d_v = t->d_v, .scale = 1.0f / sqrtf((float)t->d_k), .tail_pages = t->tail,
                                .compute = t->compute, .max_pos = top > 0 ? top - 1 : 0,
                                .window = variants[t->variant].window, .softcap = variants[t->variant].softcap,
                                .sinks = variants[t->variant].sinks ? vcase_normal(c, (size_t)t->h, 9) : NULL };
    vcase_about(c, "h %d/%d d %d/%d tail %d %s extreme %d", t->h, t->h_kv, t->d_k, t->d_v, t->tail,
                t->compute ? "f32" : "auto", t->extreme);
    c->alike = t->d_v;                  /* by a query's rounding all values of its head move together */
    vcase_run(c, &a, attn_limit(t));
    vscene_close(&s);
}

/* ---- pairs ---- */

/* The pairs of --pairs ci: the diagonal, everything beside f16, and what the fused kernels serve. */
static int in_ci(const kvant_format *k, const kvant_format *v)
{
    static const char *const named[][2] = { { "qjl1_256", "tbq3_0" }, { "qjl1_256", "q4_polar" } };

    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (strcmp(k->name, named[i][0]) == 0 && strcmp(v->name, named[i][1]) == 0)
            return 1;
    return k == v || strcmp(k->name, "f16") == 0 || strcmp(v->name, "f16") == 0;
}

static int selected(const vcase *c, const kvant_format *k, const kvant_format *v)
{
    const char *pairs = c->o->pairs;
    char name[64];

    snprintf(name, sizeof name, "%s:%s", k->name, v->name);
    if (pairs && *pairs && strcmp(pairs, "all") != 0 && strcmp(pairs, "ci") != 0)
        return verify_listed(pairs, name);
    if (!verify_listed(c->o->formats, k->name) && !verify_listed(c->o->formats, v->name))
        return 0;
    return (pairs && strcmp(pairs, "all") == 0) || (!c->quick && !(pairs && strcmp(pairs, "ci") == 0)) || in_ci(k, v);
}

/* Both phases in both compute modes.  A pair that is not selected is only asked for. */
static void pair(vcase *c, const kvant_format *k, const kvant_format *v, int i)
{
    const int run = selected(c, k, v);

    if (!run && c->o->pairs && strchr(c->o->pairs, ':'))
        return;                                         /* pairs were named: these and no others */
    for (int compute = 0; compute < 2; compute++) {
        const setup a = { k, v, 4, 2, 128, 128, (i + compute) % 3, compute, ORDINARY, PLAIN };
        const setup b = { k, v, 2, 1, 64, 64, (i + compute + 1) % 3, compute, ORDINARY, PLAIN };
        attn(c, &a, &decode, !run);
        attn(c, &b, &prompt, !run);
        if (run && !c->unaligned && in_ci(k, v))
            attn(c, &a, &mixed, 0);
        if (run && !c->unaligned && in_ci(k, v))
            attn(c, &a, &drafts, 0);
        if (run && !c->unaligned && k == v)
            attn(c, &a, &empty, 0);
    }
}

/* ---- head sizes and shapes ---- */

static void head_sizes(vcase *c, const kvant_format *f)
{
    static const int dims[] = { 64, 80, 96, 128, 192, 256, 512 };

    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        phase d = decode, p = prompt;
        char name[2][16];

        if (kvant_format_check(f, dims[i], NULL) != KVANT_OK)
            continue;
        snprintf(name[0], sizeof name[0], "decode d%d", dims[i]);
        snprintf(name[1], sizeof name[1], "prompt d%d", dims[i]);
        d.shape = name[0];
        p.shape = name[1];
        for (int compute = 0; compute < 2; compute++) {
            const setup t = { f, f, 4, 2, dims[i], dims[i], ((int)i + compute) % 3, compute, ORDINARY, PLAIN };
            attn(c, &t, &d, 0);
            attn(c, &t, &p, 0);
        }
    }
}

/* Contexts that end just behind a split: with two exact pages, tails on both of its sides are merged. */
static void splits(vcase *c, const kvant_format *f)
{
    for (int compute = 0; compute < 2; compute++)
        for (int tail = 0; tail < 3; tail += 2) {
            const setup t = { f, f, 4, 2, 128, 128, tail, compute, ORDINARY, PLAIN };
            attn(c, &t, &longer, 0);
        }
}

/* Grouped heads, d_k != d_v, odd sizes, several splits. */
static void shapes(vcase *c)
{
    static const struct {
        const char *k, *v;
        int h, h_kv, d_k, d_v, tail;
    } list[] = {
        { "tbq4_0", "tbq4_0", 16, 1, 128, 128, 1 }, { "q8_0", "q4_0", 24, 1, 64, 96, 2 },
        { "f16", "f16", 5, 5, 80, 80, 0 },          { "turbo4_66", "turbo3_tcq", 16, 2, 256, 256, 1 },
        { "f32", "f32", 6, 3, 33, 17, 0 },          { "qjl1_256", "tbq3_0", 8, 2, 256, 256, 1 },
        { "f16", "f16", 16, 1, 576, 512, 0 },       { "f32", "tbq4_0", 3, 1, 576, 512, 1 },
        { "bf16", "f8_e4m3", 8, 1, 576, 512, 0 },   { "f8_e4m3", "f16", 5, 1, 576, 512, 0 },
        { "f16", "f16", 8, 1, 128, 128, 0 },        { "turbo3", "q4_polar_r", 12, 4, 384, 384, 1 },
    };

    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        for (int compute = 0; compute < 2; compute++) {
            const setup t = { kvant_format_find(list[i].k), kvant_format_find(list[i].v), list[i].h, list[i].h_kv,
                              list[i].d_k, list[i].d_v, list[i].tail, compute, ORDINARY, PLAIN };
            if (!selected(c, t.k, t.v))
                continue;
            attn(c, &t, &mixed, 0);
            if (list[i].h <= 8)
                attn(c, &t, &longer, 0);
        }
}

/* bf16 rows that halves could not hold, beside each kind of other side; up to 16 heads for a KV head. */
static void wide_rows(vcase *c)
{
    static const char *const pairs[][2] = {
        { "bf16", "bf16" }, { "bf16", "f16" }, { "f16", "bf16" }, { "bf16", "tbq4_0" }, { "turbo4_66", "bf16" }
    };

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (int compute = 0; compute < 2; compute++)
            for (int e = 1; e < EXTREMES; e++) {
                const setup t = { .k = kvant_format_find(pairs[i][0]),
                                  .v = kvant_format_find(pairs[i][1]),
                                  .h = e % 2 ? 16 : 6,
                                  .h_kv = e % 2 ? 1 : 2,
                                  .d_k = e % 3 ? 128 : 256,
                                  .d_v = e % 3 ? 128 : 256,
                                  .tail = e % 2,
                                  .compute = compute,
                                  .extreme = e,
                                  .variant = PLAIN };
                if (!selected(c, t.k, t.v) || !(is_extreme(t.k, 0, e) || is_extreme(t.v, 1, e)))
                    continue;
                attn(c, &t, &decode, 0);
                attn(c, &t, &prompt, 0);
            }
}

/* Window, cap and sinks, alone and together: decode, prompts, and windows that begin in a later split. */
static void variants_of(vcase *c, const kvant_format *f, int i)
{
    for (int variant = PLAIN + 1; variant < VARIANTS; variant++)
        for (int compute = 0; compute < 2; compute++) {
            const setup t = { f, f, 4, 2, 128, 128, (i + variant) % 3, compute, ORDINARY, variant };

            attn(c, &t, &decode, 0);
            attn(c, &t, &prompt, 0);
            if (!c->quick)
                attn(c, &t, &longer, 0);
        }
}

void cases_attn(vcase *c)
{
    const int n = kvant_format_count();

    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            if (!c->unaligned || i == j)
                pair(c, kvant_format_at(i), kvant_format_at(j), i + j);
    if (c->unaligned)
        return;
    for (int i = 0; i < n; i++)
        if (selected(c, kvant_format_at(i), kvant_format_at(i)))
            variants_of(c, kvant_format_at(i), i);
    if (c->quick)
        return;
    for (int i = 0; i < n; i++)
        if (selected(c, kvant_format_at(i), kvant_format_at(i))) {
            head_sizes(c, kvant_format_at(i));
            splits(c, kvant_format_at(i));
        }
    shapes(c);
    wide_rows(c);
}

/* ---- attn_score ---- */

/* DOT: (sdim/4 + 16) e sum|q k|, and as much times |q||k| for the query's preparation, itself a sum of d terms (its
 * error meets the key by Cauchy-Schwarz).  Keys are decoded here, not taken from the op's reference. */
static double key_bound(const kvant_kv_side *k, const float *q, const float *prep, const vscene *s, int seq, int head,
                        int j, int exact, int d)
{
    const int dp = kvant_format_padded(k->fmt, d), n = exact ? d : kvant_format_sdim(k->fmt, dp), page = j / KVANT_PAGE;
    float key[2 * KVANT_MAX_HEAD_DIM];
    const float *with = exact ? q : prep;
    double sum = 0, qq = 0, kk = 0;

    if (exact)
        for (int e = 0; e < d; e++)
            key[e] = half_to_f32(
                kv_tail_row(k, s->seqs.tail_table[seq * VCASE_TABLE + page], s->rows[0].h, head, j % KVANT_PAGE, d)[e]);
    else
        kvant_page_decode_acc(k->fmt, k->param, kv_row(k, kv_page(&s->seqs, seq, page), head, 0), j % KVANT_PAGE, key,
                              dp);
    for (int e = 0; e < n; e++) {
        sum += fabs((double)with[e] * (double)key[e]);
        qq += (double)with[e] * (double)with[e];
        kk += (double)key[e] * (double)key[e];
    }
    return (n / 4 + 16) * 0x1p-24 * (sum + sqrt(qq * kk));
}

static void score_bounds(const kvant_attn_score_args *a, const vscene *s, double *bound)
{
    float pad[KVANT_MAX_PLAIN_HEAD_DIM], prep[2 * KVANT_MAX_HEAD_DIM];
    const int dp = kvant_format_padded(a->k.fmt, a->d_k);

    for (int i = 0; i < VCASE_SEQS; i++)
        for (int t = s->seqs.q0[i]; t < s->seqs.q0[i + 1]; t++)
            for (int h = 0; h < a->h; h++) {
                const float *q = a->q + t * a->ldq + h * a->gq;
                const int pos = s->seqs.pos0[i] + t - s->seqs.q0[i];
                memset(pad, 0, sizeof pad);
                memcpy(pad, q, (size_t)a->d_k * sizeof *q);
                a->k.fmt->ref.prep_q(a->k.param, pad, prep, dp);
                for (int j = 0; j <= pos; j++) {
                    const int exact = a->k.tail && pos / KVANT_PAGE - j / KVANT_PAGE < a->tail_pages;
                    bound[((int64_t)t * a->h + h) * a->lds + j] =
                        (double)a->scale * key_bound(&a->k, q, prep, s, i, h / (a->h / a->h_kv), j, exact, a->d_k);
                }
            }
}

static void score(vcase *c, const kvant_format *f, const phase *p, int h, int h_kv, int d, int tail)
{
    const int lds = 160, gq = d + 4, ldq = h * gq;
    vscene s;

    if (!vcase_begin(c, KVANT_OP_ATTN_SCORE, p->shape, f->name))
        return;
    vscene_seqs(c, &s, p->len, p->ask);
    vscene_side(c, &s, 0, f, h_kv, d, tail > 0 && !(f->flags & KVANT_FORMAT_WIDE), 0);
    vscene_fill(c, &s, 0, h_kv, d);
    const size_t n = (size_t)s.seqs.n_tokens, cells = n * (size_t)(h * lds);
    const kvant_attn_score_args a = {
        s.seqs, s.side[0], vcase_normal(c, n * (size_t)ldq, 8), vcase_out(c, cells), ldq, gq, lds, h, h_kv, d,
        0.125f, tail, 0
    };
    double *bound = kvant_calloc(cells + 1, sizeof *bound);
    if (bound) {
        score_bounds(&a, &s, bound);
        vcase_bounds(c, a.s, bound);
        vcase_about(c, "h %d/%d d %d tail %d", h, h_kv, d, tail);
        vcase_run(c, &a, 0.0);
    } else {
        c->rc = KVANT_ENOMEM;
    }
    kvant_free(bound);
    vscene_close(&s);
}

void cases_score(vcase *c)
{
    static const phase few = { "decode", { 70, 1, 150 }, { 1, 1, 1 } };
    static const phase many = { "prompt", { 70, 1, 150 }, { 3, 1, 9 } };

    for (int i = 0; i < kvant_format_count(); i++) {
        const kvant_format *f = kvant_format_at(i);
        if (!verify_listed(c->o->formats, f->name))
            continue;
        score(c, f, &few, 4, 2, 128, 0);
        score(c, f, &many, 2, 2, c->quick ? 128 : 256, 1);
        score(c, f, &empty, 2, 2, 128, 0);
    }
}
