/* check_attn.c: cache_write, page_seal, attn and attn_score over paged caches of every format.
 * Every variant against the scalar reference (NMSE 1e-6), and the bit rules: the same row gives the same bits alone, in
 * a prompt, under every chunking, in a batch, for any number of parts and threads.  Unused memory is NaN everywhere. */
#include <stdint.h>
#include "base/rng.h"
#include "support/check.h"
#include "support/op_run.h"

enum { MAX_SEQS = 8, TABLE = 64 };

/* What a test varies. */
typedef struct setup {
    const char *k, *v;
    int h, h_kv, d_k, d_v, tail_pages, n_seqs;
    int len[MAX_SEQS]; /* tokens in the cache of each sequence; the last ones are the queries */
    int n_query[MAX_SEQS];
    int compute; /* enum kvant_compute */
    int sink_pages;
} setup;

/* A cache with its sequences written, and queries. */
typedef struct scene {
    setup set;
    kvant_attn_args a;
    int32_t q0[MAX_SEQS + 1], pos0[MAX_SEQS], prompt[MAX_SEQS], table[MAX_SEQS * TABLE], tails[MAX_SEQS * TABLE];
    float *q, *out;
    size_t out_floats, side_bytes[2], tail_bytes[2];
    const void *param[2];
} scene;

static void *poison(size_t bytes)
{
    void *p = malloc(bytes + 1);

    memset(p, 0xFF, bytes + 1);
    return p;
}

/* A fixed pseudo-random parameter for formats that need one (a projection): 256 x 128 normal floats are enough. */
static const void *param_of(const kvant_format *f)
{
    static float projection[256 * 128];

    if ((f->flags & KVANT_FORMAT_PARAM) == 0)
        return NULL;
    check_fill_normal(projection, 256 * 128, 7);
    return projection;
}

/* Pages of all sequences shuffled over the pool, so that neighbours in a context are strangers in memory. */
static int shuffle_tables(scene *s, rng *r)
{
    int ids[MAX_SEQS * TABLE], n = 0;

    for (int i = 0; i < MAX_SEQS * TABLE; i++)
        s->table[i] = s->tails[i] = -1;
    for (int i = 0; i < s->set.n_seqs; i++)
        n += (s->set.len[i] + KVANT_PAGE - 1) / KVANT_PAGE;
    for (int i = 0; i < n + 3; i++)
        ids[i] = i;
    for (int i = n + 2; i > 0; i--) {
        const int j = (int)rng_below(r, (uint32_t)i + 1), t = ids[i];
        ids[i] = ids[j];
        ids[j] = t;
    }
    for (int i = 0, next = 0; i < s->set.n_seqs; i++)
        for (int j = 0; j < (s->set.len[i] + KVANT_PAGE - 1) / KVANT_PAGE; j++, next++) {
            s->table[i * TABLE + j] = ids[next];
            s->tails[i * TABLE + j] = ids[n + 2 - next];
        }
    return n + 3;
}

static kvant_kv_side make_side(scene *s, int which, const char *name, int d, int pages)
{
    const kvant_format *f = kvant_format_find(name);
    kvant_kv_side side = {
        .fmt = f, .param = param_of(f), .row_bytes = kvant_format_row_bytes(f, d), .encoder = KVANT_ENCODER_UPSTREAM
    };

    side.head_bytes = side.row_bytes * KVANT_PAGE;
    side.page_bytes = side.head_bytes * (size_t)s->set.h_kv + 5; /* odd strides must work */
    s->side_bytes[which] = side.page_bytes * (size_t)pages;
    side.pages = poison(s->side_bytes[which]);
    if (s->set.tail_pages > 0) {
        s->tail_bytes[which] = (size_t)pages * (size_t)s->set.h_kv * KVANT_PAGE * (size_t)d * sizeof(uint16_t);
        side.tail = poison(s->tail_bytes[which]);
    }
    return side;
}

/* Sequences that cover every cached position. */
static kvant_seqs all_tokens(scene *s, int32_t *q0, int32_t *pos0)
{
    q0[0] = 0;
    for (int i = 0; i < s->set.n_seqs; i++) {
        q0[i + 1] = q0[i] + s->set.len[i];
        pos0[i] = 0;
    }
    return (kvant_seqs){ .n_seqs = s->set.n_seqs,
                         .n_tokens = q0[s->set.n_seqs],
                         .q0 = q0,
                         .pos0 = pos0,
                         .prompt = s->prompt,
                         .table = s->table,
                         .tail_table = s->tails,
                         .table_stride = TABLE };
}

static void fill_side(scene *s, kvant_kv_side *side, int d, uint64_t seed)
{
    int32_t q0[MAX_SEQS + 1], pos0[MAX_SEQS], src[MAX_SEQS * TABLE], dst[MAX_SEQS * TABLE];
    const kvant_seqs seqs = all_tokens(s, q0, pos0);
    const size_t n = (size_t)seqs.n_tokens * (size_t)s->set.h_kv * (size_t)d;
    float *x = malloc(n * sizeof(float));
    int sealed = 0;

    check_fill_normal(x, n, seed);
    const kvant_cache_write_args write = { seqs, *side, x, (int64_t)s->set.h_kv * d, s->set.h_kv, d };
    op_run(KVANT_OP_CACHE_WRITE, kvant_op_cpu(KVANT_OP_CACHE_WRITE), &write, 1);
    for (int i = 0; i < s->set.n_seqs && side->tail != NULL; i++)
        for (int j = 0; j < s->set.len[i] / KVANT_PAGE; j++) {
            src[sealed] = s->tails[i * TABLE + j];
            dst[sealed++] = s->table[i * TABLE + j];
        }
    const kvant_page_seal_args seal = { *side, src, dst, sealed, s->set.h_kv, d };
    op_run(KVANT_OP_PAGE_SEAL, kvant_op_cpu(KVANT_OP_PAGE_SEAL), &seal, 1);
    free(x);
}

static void scene_open(scene *s, const setup *set, uint64_t seed)
{
    rng r = { seed };

    memset(s, 0, sizeof *s);
    s->set = *set;
    const int pages = shuffle_tables(s, &r);
    kvant_attn_args *a = &s->a;
    a->k = make_side(s, 0, set->k, set->d_k, pages);
    a->v = make_side(s, 1, set->v, set->d_v, pages);
    fill_side(s, &a->k, set->d_k, seed + 1);
    fill_side(s, &a->v, set->d_v, seed + 2);
    for (int i = 0; i < set->n_seqs; i++) {
        s->q0[i + 1] = s->q0[i] + set->n_query[i];
        s->pos0[i] = set->len[i] - set->n_query[i];
        s->prompt[i] = set->n_query[i] > 3; /* decode sequences may have several tokens */
        if (set->len[i] - 1 > a->max_pos)
            a->max_pos = set->len[i] - 1;
    }
    const int n = s->q0[set->n_seqs];
    a->seqs = (kvant_seqs){ .n_seqs = set->n_seqs,
                            .n_tokens = n,
                            .q0 = s->q0,
                            .pos0 = s->pos0,
                            .prompt = s->prompt,
                            .table = s->table,
                            .tail_table = s->tails,
                            .table_stride = TABLE };
    a->gq = set->d_k + 3; /* queries lie among other data */
    a->ldq = a->gq * set->h + 5;
    a->ldo = (int64_t)set->h * set->d_v + 7;
    s->q = poison((size_t)(n * a->ldq) * sizeof(float));
    for (int i = 0; i < n; i++)
        for (int j = 0; j < set->h; j++)
            check_fill_normal(s->q + i * a->ldq + j * a->gq, (size_t)set->d_k, seed + 100 + (uint64_t)(i * set->h + j));
    s->out_floats = (size_t)(n * a->ldo);
    s->out = poison(s->out_floats * sizeof(float));
    a->q = s->q;
    a->out = s->out;
    a->h = set->h;
    a->h_kv = set->h_kv;
    a->d_k = set->d_k;
    a->d_v = set->d_v;
    a->scale = 1.0f / sqrtf((float)set->d_k);
    a->tail_pages = set->tail_pages;
    a->sink_pages = set->sink_pages;
    a->compute = set->compute;
}

static void scene_close(scene *s)
{
    free(s->a.k.pages);
    free(s->a.v.pages);
    free(s->a.k.tail);
    free(s->a.v.tail);
    free(s->q);
    free(s->out);
}

/* Runs attn with an output of its own (NaN before); the caller frees it. */
static float *run(const scene *s, const kvant_cpu_kernel *kernel, const kvant_attn_args *args, int parts, int threads)
{
    kvant_attn_args a = *args;
    float *out = check_guarded(s->out_floats * sizeof(float), 4);

    a.out = out;
    if (threads)
        op_run_threads(KVANT_OP_ATTN, kernel, &a, parts);
    else
        op_run(KVANT_OP_ATTN, kernel, &a, parts);
    CHECK(check_guard_ok(out), "attn wrote outside its output");
    return out;
}

static double rows_nmse(const scene *s, const float *x, const float *ref)
{
    double err = 0, sum = 0;

    for (int i = 0; i < s->a.seqs.n_tokens; i++)
        for (int e = 0; e < s->set.h * s->set.d_v; e++) {
            const double y = ref[i * s->a.ldo + e], diff = (double)x[i * s->a.ldo + e] - y;
            err += diff * diff;
            sum += y * y;
        }
    return err / sum;
}

static int row_equal(const scene *s, const float *x, int i, const float *y, int j)
{
    return memcmp(x + i * s->a.ldo, y + j * s->a.ldo, (size_t)(s->set.h * s->set.d_v) * sizeof(float)) == 0;
}

static const char *text_of(const scene *s)
{
    static char text[200];
    const setup *t = &s->set;

    snprintf(text, sizeof text, "K %s V %s h %d/%d d %d/%d tail %d sink %d seqs %d compute %d window %d cap %g%s", t->k,
             t->v, t->h, t->h_kv, t->d_k, t->d_v, t->tail_pages * KVANT_PAGE, t->sink_pages * KVANT_PAGE, t->n_seqs,
             t->compute, s->a.window, (double)s->a.softcap, s->a.sinks ? " sinks" : "");
    return text;
}

/* Gaps between rows stay NaN. */
static int gaps_untouched(const scene *s, const float *out)
{
    for (int i = 0; i < s->a.seqs.n_tokens; i++)
        for (int64_t e = (int64_t)s->set.h * s->set.d_v; e < s->a.ldo; e++)
            if (!isnan(out[i * s->a.ldo + e]))
                return 0;
    return 1;
}

/* f32: 1e-6.  auto: 1e-5, but 2e-4 where a side takes the integer path: half a step of an 8-bit query (the largest of
 * 128 normal values is about 2.6 sigma: 0.6 % of sigma, 3.5e-5 of a score's energy), as much again for 8-bit centroids,
 * scores of unit variance here, and twice that because few keys are averaged.  The formats' own error is near 1e-2. */
static double tolerance(const scene *s)
{
    if (s->set.compute == KVANT_COMPUTE_F32)
        return 1e-6;
    return kvant_format_best(s->a.k.fmt)->prep_q8 || kvant_format_best(s->a.v.fmt)->prep_q8 ? 2e-4 : 1e-5;
}

/* Every usable variant against the reference, for 1, 2 and 7 parts and with real threads. */
static void compare(const scene *s)
{
    float *ref = run(s, kvant_op_reference(KVANT_OP_ATTN), &s->a, 3, 0);
    const char *name;
    int usable;
    const kvant_cpu_kernel *kernel;

    for (int i = 1; (kernel = kvant_op_variant(KVANT_OP_ATTN, i, &name, &usable)) != NULL; i++) {
        if (!usable)
            continue;
        float *one = run(s, kernel, &s->a, 1, 0);
        const double nmse = rows_nmse(s, one, ref);

        CHECK(nmse <= tolerance(s), "attn %s, %s: NMSE %g", name,
              text_of(s), nmse);
        CHECK(gaps_untouched(s, one), "attn %s wrote between the rows", name);
        for (int parts = 2; parts <= 7; parts += 5) {
            float *more = run(s, kernel, &s->a, parts, parts == 2);

            CHECK(memcmp(one, more, s->out_floats * sizeof(float)) == 0, "attn %s, %s: %d parts differ", name,
                  text_of(s), parts);
            check_guard_free(more);
        }
        check_guard_free(one);
    }
    check_guard_free(ref);
}

/* Rows begin .. end - 1 of sequence i become NaN in pages and tails, as they are before those tokens exist. */
static void poison_rows(const scene *s, int i, int begin, int end)
{
    const kvant_kv_side *sides[2] = { &s->a.k, &s->a.v };
    const int d[2] = { s->set.d_k, s->set.d_v };

    for (int w = 0; w < 2; w++)
        for (int h = 0; h < s->set.h_kv; h++)
            for (int p = begin; p < end; p++) {
                const int j = p / KVANT_PAGE, r = p % KVANT_PAGE;
                const size_t page = (size_t)s->table[i * TABLE + j], tail = (size_t)s->tails[i * TABLE + j];

                memset(sides[w]->pages + page * sides[w]->page_bytes + (size_t)h * sides[w]->head_bytes +
                           (size_t)r * sides[w]->row_bytes,
                       0xFF, sides[w]->row_bytes);
                if (sides[w]->tail != NULL)
                    memset(sides[w]->tail +
                               ((tail * (size_t)s->set.h_kv + (size_t)h) * KVANT_PAGE + (size_t)r) * (size_t)d[w],
                           0xFF, (size_t)d[w] * sizeof(uint16_t));
            }
}

/* The last token of a piece (lo..hi-1 of sequence i's queries) run as its own batch equals the same rows of `whole`. */
static void check_piece(const scene *s, const kvant_cpu_kernel *kernel, const char *name, const float *whole, int i,
                        int lo, int hi, int threads)
{
    kvant_attn_args a = s->a;
    int32_t q0[2] = { 0, hi - lo }, pos0[1] = { s->pos0[i] + lo }, prompt[1] = { hi - lo > 1 };

    if (s->set.compute == KVANT_COMPUTE_AUTO)
        prompt[0] = s->prompt[i]; /* auto: the same kind of rows; f32: the bits do not depend on the kind */
    a.seqs = (kvant_seqs){ .n_seqs = 1,
                           .n_tokens = hi - lo,
                           .q0 = q0,
                           .pos0 = pos0,
                           .prompt = prompt,
                           .table = s->table + i * TABLE,
                           .tail_table = s->tails + i * TABLE,
                           .table_stride = TABLE };
    a.q = s->q + (s->q0[i] + lo) * a.ldq;
    a.max_pos = pos0[0] + hi - lo - 1;
    float *out = run(s, kernel, &a, 2, threads);
    int equal = 1;
    for (int t = 0; t < hi - lo; t++)
        equal &= row_equal(s, out, t, whole, s->q0[i] + lo + t);
    CHECK(equal, "attn %s, %s: tokens %d..%d of sequence %d alone differ from the batch", name, text_of(s), lo,
          hi - 1, i);
    check_guard_free(out);
}

/* One variant: every token alone, and pieces of the prompt, against the whole batch. */
static void bits_of_variant(const scene *s, const kvant_cpu_kernel *kernel, const char *name)
{
    float *whole = run(s, kernel, &s->a, 2, 0);

    for (int i = 0; i < s->set.n_seqs; i++) {
        const int n = s->set.n_query[i];

        check_piece(s, kernel, name, whole, i, 0, n, 0);
        for (int lo = 0, step; lo < n; lo += step) {
            step = 1 + (lo * 7 + 5) % 23;
            check_piece(s, kernel, name, whole, i, lo, lo + step < n ? lo + step : n, 0);
        }
        for (int lo = n - 1; lo >= 0; lo -= lo > 3 ? 3 : 1) {
            poison_rows(s, i, s->pos0[i] + lo + 1, s->set.len[i]);
            check_piece(s, kernel, name, whole, i, lo, lo + 1, lo % 4 == 0);
        }
    }
    check_guard_free(whole);
}

/* One variant: what lies before a token's window may be anything. */
static void bits_of_window(const scene *s, const kvant_cpu_kernel *kernel, const char *name)
{
    float *whole = run(s, kernel, &s->a, 2, 0);

    for (int i = 0; i < s->set.n_seqs; i++)
        for (int lo = 0; lo < s->set.n_query[i]; lo += lo > 3 ? 3 : 1) {
            poison_rows(s, i, 0, s->pos0[i] + lo - s->a.window + 1);
            check_piece(s, kernel, name, whole, i, lo, lo + 1, lo % 4 == 0);
        }
    check_guard_free(whole);
}

/* Decode bits == prefill bits; any chunking gives the same bits; rows that are not seen may be anything. */
static void bit_rules(const scene *s)
{
    const kvant_kv_side *sides[2] = { &s->a.k, &s->a.v };
    void *pages[2], *tails[2];
    const kvant_cpu_kernel *kernel;
    const char *name;
    int usable;

    for (int w = 0; w < 2; w++) {
        pages[w] = malloc(s->side_bytes[w]);
        tails[w] = malloc(s->tail_bytes[w] + 1);
        memcpy(pages[w], sides[w]->pages, s->side_bytes[w]);
        if (sides[w]->tail != NULL)
            memcpy(tails[w], sides[w]->tail, s->tail_bytes[w]);
    }
    for (int v = 2; (kernel = kvant_op_variant(KVANT_OP_ATTN, v / 2, &name, &usable)) != NULL; v++) {
        if (!usable || (v % 2 && s->a.window == 0))
            continue;
        (v % 2 ? bits_of_window : bits_of_variant)(s, kernel, name);
        for (int w = 0; w < 2; w++) { /* it left NaN behind */
            memcpy(sides[w]->pages, pages[w], s->side_bytes[w]);
            if (sides[w]->tail != NULL)
                memcpy(sides[w]->tail, tails[w], s->tail_bytes[w]);
        }
    }
    for (int w = 0; w < 2; w++) {
        free(pages[w]);
        free(tails[w]);
    }
}

static void one(const setup *set, uint64_t seed, int bits)
{
    scene s;

    scene_open(&s, set, seed);
    compare(&s);
    if (bits)
        bit_rules(&s);
    scene_close(&s);
}

/* Every format, with and without the tail, in both compute modes.  (Pairs: the op harness, check_variants.) */
static void check_formats(void)
{
    for (int i = 0; i < kvant_format_count(); i++)
        for (int mode = kvant_format_at(i)->flags & KVANT_FORMAT_PAGE ? 1 : 0; mode < 4; mode++) {
            if (mode == 2 && kvant_format_at(i)->flags & KVANT_FORMAT_PAGE)
                continue;                  /* a page is made of a tail */
            const char *name = kvant_format_at(i)->name;
            const setup set = { .k = name,
                                .v = name,
                                .h = 2,
                                .h_kv = 1,
                                .d_k = 128,
                                .d_v = 128,
                                .tail_pages = mode & 1,
                                .n_seqs = 2,
                                .len = { 67, 70 },
                                .n_query = { 5, 1 },
                                .compute = mode >> 1 };
            one(&set, (uint64_t)(i * 101 * 4 + mode), 1);
        }
}

static void check_shapes(void)
{
    static const int dims[] = { 64, 80, 96, 128, 192, 256 }, group[] = { 1, 2, 4, 8 };
    static const char *names[] = { "f32", "f16", "bf16", "q8_0", "q4_0", "tbq4_0", "tbq3_0" };

    for (size_t f = 0; f < sizeof names / sizeof *names; f++)
        for (int d = 0; d < 6; d++) {
            if (kvant_format_check(kvant_format_find(names[f]), dims[d], NULL) != KVANT_OK)
                continue;
            const setup set = {
                names[f],       names[f],     2 * group[(f + (size_t)d) % 4], 2, dims[d], dims[(d + 2) % 6], d % 3, 3,
                { 66, 1, 150 }, { 66, 1, 3 }, (int)(f + (size_t)d) & 1, d & 1
            };
            setup same = set;
            if (kvant_format_check(kvant_format_find(names[f]), set.d_v, NULL) != KVANT_OK)
                same.d_v = set.d_k;
            one(&same, 1000 + f * 10 + (size_t)d, d % 2 == 0);
        }
    for (int g = 0; g < 4; g++)
        for (int tail = 0; tail < 3; tail++)
            for (int compute = 0; compute < 2; compute++) {
                const setup set = {
                    "tbq4_0", "q8_0", group[g] * 3, 3, 64, 64, tail, 2, { 200, 90 }, { 140, 3 }, compute, g & 1
                };
                one(&set, 2000 + (uint64_t)(g * 6 + tail * 2 + compute), 1);
            }
}

/* Contexts of several splits, streams of different lengths, prompts and decode rows in one batch. */
static void check_long(void)
{
    static const char *names[] = { "f16", "tbq4_0", "q4_0" };

    for (int i = 0; i < 6; i++) {
        const setup set = { .k = names[i % 3],
                            .v = names[(i + i / 3) % 3],
                            .h = 4,
                            .h_kv = 2,
                            .d_k = 64,
                            .d_v = 64,
                            .tail_pages = i % 3,
                            .n_seqs = 5,
                            .len = { 2500, 1024, 1025, 17, 1100 },
                            .n_query = { 1, 1, 2, 17, 70 },
                            .compute = i / 3,
                          .sink_pages = i % 2 };
        one(&set, 3000 + (uint64_t)i, 1);
    }
}

/* Scores that grow without end: every page brings a new maximum, and the first ones fall out of range. */
static void check_steep(void)
{
    const setup set = { "f32", "f32", 2, 1, 64, 64, 0, 1, { 2100 }, { 2 }, KVANT_COMPUTE_F32, 0 };
    scene s;

    scene_open(&s, &set, 4000);
    for (int p = 0; p < set.len[0]; p++) {
        float *row = (float *)(void *)(s.a.k.pages + (size_t)s.table[p / KVANT_PAGE] * s.a.k.page_bytes +
                                       (size_t)(p % KVANT_PAGE) * s.a.k.row_bytes);
        const float grows = (float)p * 0.5f;

        for (int e = 0; e < 64; e++)
            memcpy(row + e, &(float){ e == 3 ? grows : 0.01f }, sizeof(float)); /* rows are unaligned */
    }
    for (int i = 0; i < 2; i++)
        for (int h = 0; h < 2; h++)
            s.q[i * s.a.ldq + h * s.a.gq + 3] = 8.0f;
    compare(&s);
    scene_close(&s);
}

/* A window, sinks and a cap: any of them, over contexts of several splits, tails and both kinds of rows. */
static void check_window(void)
{
    static const char *names[] = { "f16", "tbq4_0", "q8_0", "f32" };
    static const int windows[] = { 1, 40, 64, 65, 128, 1000, 1030, 0 };
    static const float sinks[4] = { 1.5f, -3.0f, 6.0f, 0.25f };

    for (int i = 0; i < 24; i++) {
        const setup set = { names[i % 4], names[(i + i / 4) % 4], 4, 2, 64, 64, i % 3, 5,
                            { 2500, 1024, 1090, 90, 1170 }, { 1, 1, 2, 90, 140 }, i / 3 % 2, i % 2 };
        scene s;

        scene_open(&s, &set, 5000 + (uint64_t)i);
        s.a.window = windows[i % 8];
        s.a.sinks = i % 3 ? sinks : NULL;
        s.a.softcap = i % 5 < 2 ? 1.5f : 0.0f;
        compare(&s);
        bit_rules(&s);
        scene_close(&s);
    }
}

/* A window no shorter than the context is none. */
static void check_wide_window(void)
{
    const setup set = { "tbq4_0", "f16", 4, 2, 64, 64, 1, 3, { 1100, 64, 1090 }, { 1, 64, 100 },
                        KVANT_COMPUTE_AUTO, 0 };
    const kvant_cpu_kernel *kernel;
    const char *name;
    int usable;
    scene s;

    scene_open(&s, &set, 6000);
    for (int v = 0; (kernel = kvant_op_variant(KVANT_OP_ATTN, v, &name, &usable)) != NULL; v++) {
        if (!usable)
            continue;
        s.a.window = 0;
        float *none = run(&s, kernel, &s.a, 3, 0);
        for (int window = 1099; window < 1102; window++) {
            s.a.window = window;
            float *wide = run(&s, kernel, &s.a, 3, 0);
            const int equal = memcmp(none, wide, s.out_floats * sizeof(float)) == 0;
            CHECK(equal == (window >= 1100), "attn %s: a window of %d over 1100 tokens is %s none", name, window,
                  equal ? "equal to" : "not");
            check_guard_free(wide);
        }
        check_guard_free(none);
    }
    scene_close(&s);
}

/* First pages that are exact are those of an exact tail that reaches them, in the reference and in what runs. */
static void check_sink(void)
{
    const setup set = { .k = "tbq4_0", .v = "ptcq3", .h = 4, .h_kv = 2, .d_k = 128, .d_v = 128, .tail_pages = 1,
                        .n_seqs = 1, .len = { 190 }, .n_query = { 1 } };
    const kvant_cpu_kernel *kernels[] = { kvant_op_reference(KVANT_OP_ATTN), kvant_op_cpu(KVANT_OP_ATTN) };
    scene s;

    scene_open(&s, &set, 77);
    for (int i = 0; i < 2; i++) {
        const int pages[3][2] = { { 1, 2 }, { 3, 0 }, { 1, 0 } }; /* tail, sink */
        float *out[3];
        for (int j = 0; j < 3; j++) {
            s.a.tail_pages = pages[j][0];
            s.a.sink_pages = pages[j][1];
            out[j] = run(&s, kernels[i], &s.a, 1, 0);
        }
        CHECK(memcmp(out[0], out[1], s.out_floats * sizeof(float)) == 0, "kernel %d: a sink of 2 pages is no tail", i);
        CHECK(memcmp(out[0], out[2], s.out_floats * sizeof(float)) != 0, "kernel %d: a sink changes nothing", i);
        for (int j = 0; j < 3; j++)
            check_guard_free(out[j]);
    }
    scene_close(&s);
}

int main(void)
{
    check_formats();
    check_sink();
    check_shapes();
    check_long();
    check_steep();
    check_window();
    check_wide_window();
    return check_end("check_attn");
}
