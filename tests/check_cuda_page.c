/* check_cuda_page.c: pages of page scope as the lanes of the CUDA device's fast attention read them (page_lanes.cuh,
 * compiled as C), against the reference: the states of random pages, for the lanes of K and of prompts and for those of
 * V, each of which takes the bits before its own from its neighbour; and the paths that its search finds.  Needs no
 * GPU. */
#include <stdint.h>
#include "base/half.h"
#include "base/rng.h"
#define CARDS_PAGES
#include "cards/decode.h"
#include "devices/cuda/core/page_lanes.cuh"
#include "formats/ptcq/ptcq.h"
#include "kvant/format.h"
#include "support/check.h"

enum { D = 256, PAGES = 16, GROUPS = D / PAGE_GROUP };

typedef struct page_kind {
    const char *name;
    int k;
    const float *book;
} page_kind;

#define CARD_PAGE(name, values, bytes, space, bits, book) { #name, bits, fmt_c_##name##_book },
static const page_kind kinds[] = {
#include "cards/lists.inc"
};
#undef CARD_PAGE

/* The nine bits from `bit` on. */
static uint32_t state_at(const uint32_t *x, int bit)
{
    uint64_t both = x[bit / 32];
    if (bit % 32 > 32 - PAGE_STATE_BITS)
        both |= (uint64_t)x[bit / 32 + 1] << 32;
    return (uint32_t)(both >> bit % 32) & (PAGE_STATES - 1);
}

/* What 128 values of a page share, and one of its rows. */
typedef struct row_of {
    const uint8_t *codes, *rest;
    int r, k;
    const float *book;
} row_of;

static float value_of(const row_of *o, int j, uint32_t state)
{
    uint32_t step = 0;
    for (int i = 0; i < 16; i++)
        step |= (uint32_t)(o->rest[PAGE_START + i] >> 7) << i;
    const uint16_t scale = ((const uint16_t *)o->rest)[o->r];
    return o->book[state] * half_to_f32(scale) + (float)(int8_t)o->rest[PAGE_MEAN + j] * half_to_f32((uint16_t)step);
}

/* By four lanes of 32 values. */
static void by_keys(const row_of *o, float *out)
{
    uint32_t x[5] = { 0 };
    for (int t = 0; t < 4; t++) {
        x[0] = t == 0 ? page_start(o->k, o->rest[PAGE_START + o->r]) : x[o->k];
        page_words_k(x + 1, o->codes, t, o->k);
        for (int i = 0; i < 32; i++)
            out[32 * t + i] = value_of(o, 32 * t + i, state_at(x, page_bit(o->k, i)));
    }
}

/* By eight lanes of 16 values. */
static void by_values(const row_of *o, float *out)
{
    uint32_t x[4] = { 0 };
    for (int g = 0; g < 8; g++) {
        x[0] = g == 0 ? page_start(o->k, o->rest[PAGE_START + o->r]) : page_last_v(x + 1, o->k);
        page_words_v(x + 1, o->codes, g, o->k);
        for (int i = 0; i < 16; i++)
            out[16 * g + i] = value_of(o, 16 * g + i, state_at(x, page_bit(o->k, i)));
    }
}

static int same(const float *a, const float *b, int n)
{
    for (int i = 0; i < n; i++)
        if (memcmp(a + i, b + i, sizeof *a) != 0 && (a[i] == a[i] || b[i] == b[i]))
            return 0;
    return 1;
}

static void check_kind(const page_kind *kind)
{
    static uint32_t words[KVANT_PAGE * D / 4];
    uint8_t *page = (uint8_t *)words;
    const kvant_format *f = kvant_format_find(kind->name);
    const size_t group = KVANT_PAGE * (size_t)f->group_bytes;
    int keys = 0, values = 0;
    rng r = { 17 };

    CHECK(group == 2 * page_codes(kind->k) + PAGE_REST, "%s: %zu bytes of 128 values of a page, here %u", f->name,
          group, 2 * page_codes(kind->k) + PAGE_REST);
    for (int i = 0; i < PAGES * KVANT_PAGE * GROUPS; i++) {
        const int row = i / GROUPS % KVANT_PAGE, g = i % GROUPS;
        const uint8_t *codes = page + (size_t)g * group;
        const row_of o = { codes + row * 16 * kind->k, codes + 2 * page_codes(kind->k), row, kind->k, kind->book };
        float want[D], got[PAGE_GROUP];
        for (size_t j = 0; j < group * GROUPS && i % (KVANT_PAGE * GROUPS) == 0; j++)
            page[j] = (uint8_t)(rng_u64(&r) >> 20);
        f->ref.decode_page(NULL, page, row, 1, want, D);
        by_keys(&o, got);
        keys += !same(want + g * PAGE_GROUP, got, PAGE_GROUP);
        by_values(&o, got);
        values += !same(want + g * PAGE_GROUP, got, PAGE_GROUP);
    }
    CHECK(keys == 0, "%s: %d rows differ where lanes have 32 values", f->name, keys);
    CHECK(values == 0, "%s: %d rows differ where lanes have 16 values", f->name, values);
}

/* ---- the search ---- */

/* A warp's walk in step, as encode_pages.cu has it. */
typedef struct walker {
    float cost[32][PAGE_OWN], best[PAGE_OWN / 4 * PAGE_ROW];
    uint8_t back[PAGE_GROUP][32];
} walker;

static void walk_step(walker *w, const page_kind *kind, int t, float y)
{
    const int k = kind->k;
    for (int lane = 0; lane < 32; lane++) {
        w->back[t][lane] = 0;
        for (int r = 0; r < PAGE_OWN >> k; r++) {
            const float *own = w->cost[lane] + (r << k);
            int at = 0;
            for (int p = 1; p < 1 << k; p++)
                at = own[p] < own[at] ? p : at;
            w->best[page_walk_at(32 * r + lane)] = own[at];
            w->back[t][lane] = (uint8_t)(w->back[t][lane] | at << (k * r));
        }
    }
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < PAGE_OWN; i++) {
            const float e = y - kind->book[page_walk_state(k, lane, i)];
            w->cost[lane][i] = w->best[page_walk_at(page_walk_from(k, lane)) + (i & ((1 << k) - 1))] + e * e;
        }
}

static void walk(walker *w, const page_kind *kind, const float *y, ptcq_path *path)
{
    const int k = kind->k;
    int s = -1;
    float best = 0.0f;

    memset(w, 0, sizeof *w);
    for (int t = 0; t < PAGE_GROUP; t++)
        walk_step(w, kind, t, y[t]);
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < PAGE_OWN; i++) {
            const int at = page_walk_state(k, lane, i);
            if (s < 0 || w->cost[lane][i] < best || (w->cost[lane][i] == best && at < s)) {
                s = at;
                best = w->cost[lane][i];
            }
        }
    for (int t = PAGE_GROUP - 1; t >= 0; t--) {
        const int g = s & ((PAGE_STATES >> k) - 1);
        path->symbol[t] = (uint8_t)(s >> (PAGE_STATE_BITS - k));
        path->start = g;
        s = g << k | (w->back[t][g % 32] >> (k * (g / 32)) & ((1 << k) - 1));
    }
}

/* Also rows of a few values, where costs are equal. */
static void check_walk(const page_kind *kind)
{
    static float y[KVANT_PAGE][PTCQ_GROUP];
    static walker w;
    ptcq_path want[KVANT_PAGE], got;
    int differ = 0;
    rng r = { 19 };

    for (int i = 0; i < KVANT_PAGE; i++)
        for (int j = 0; j < PTCQ_GROUP; j++)
            y[i][j] = i % 4 ? rng_normal(&r) : (float)rng_below(&r, 3) - 1.0f;
    ptcq_walk_ref(kind->book, kind->k, (const float (*)[PTCQ_GROUP])y, want);
    for (int i = 0; i < KVANT_PAGE; i++) {
        walk(&w, kind, y[i], &got);
        differ += got.start != want[i].start || memcmp(got.symbol, want[i].symbol, sizeof got.symbol) != 0;
    }
    CHECK(differ == 0, "%s: %d of %d paths differ", kind->name, differ, KVANT_PAGE);
}

int main(void)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        check_kind(&kinds[i]);
        check_walk(&kinds[i]);
    }
    return check_end("check_cuda_page");
}
