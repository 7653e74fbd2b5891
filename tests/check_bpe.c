/* check_bpe.c: both ways of merging against the obvious one, on random tables. */
#include "base/mem.h"
#include "base/rng.h"
#include "support/check.h"
#include "text/tokenizer_bpe.h"

static void naive_merge(const bpe *b, uint32_t *id, size_t *n)
{
    for (;;) {
        int64_t best = INT64_MAX;
        size_t at = 0;
        for (size_t i = 0; i + 1 < *n; i++) {
            int64_t r = bpe_rank(b, id[i], id[i + 1]);
            if (r >= 0 && r < best) {
                best = r;
                at = i;
            }
        }
        if (best == INT64_MAX)
            return;
        id[at] = b->merges[best].merged;
        memmove(id + at + 1, id + at + 2, (*n - at - 2) * sizeof *id);
        --*n;
    }
}

/* A random table: `base` symbols, `n` merges.  Trained tables only join what exists; others are shuffled. */
static void random_table(rng *r, bpe *b, uint32_t base, uint32_t n, int shuffled)
{
    bpe_merge m[64];
    uint32_t ids = base, rank;

    for (uint32_t i = 0; i < n; i++) {
        m[i].left = rng_below(r, ids);
        m[i].right = rng_below(r, ids);
        m[i].merged = rng_below(r, 8) || ids == base ? ids : base + rng_below(r, ids - base);
        ids += m[i].merged == ids;
    }
    for (uint32_t i = n; shuffled && i-- > 1;) {
        uint32_t j = rng_below(r, i + 1);
        bpe_merge t = m[i];
        m[i] = m[j];
        m[j] = t;
    }
    bpe_init(b, n, NULL);
    for (uint32_t i = 0; i < n; i++)
        bpe_add(b, m[i].left, m[i].right, m[i].merged, &rank); /* repeated pairs are refused: fine here */
    bpe_finish(b, ids, NULL);
}

static void test_merging(void)
{
    rng r = { 17 };
    bpe_work heap = { .method = BPE_HEAP }, buckets = { .method = BPE_BUCKETS };
    int ordered = 0, unordered = 0;

    for (int i = 0; i < 3000; i++) {
        bpe b;
        size_t n = 1 + rng_below(&r, i % 50 ? 40 : 400), want_n = n, got;
        uint32_t ids[400], base = 1 + rng_below(&r, 3);
        random_table(&r, &b, base, 1 + rng_below(&r, 24), i % 3 == 2);
        ordered += b.ordered;
        unordered += !b.ordered;
        for (size_t k = 0; k < n; k++)
            ids[k] = rng_below(&r, base);
        bpe_work *ways[2] = { &heap, b.ordered ? &buckets : &heap };
        uint32_t want[400];
        memcpy(want, ids, n * 4);
        naive_merge(&b, want, &want_n);
        for (int k = 0; k < 2; k++) {
            CHECK(bpe_reserve(ways[k], n) == 0, "reserve");
            memcpy(ways[k]->id, ids, n * 4);
            CHECK(bpe_merge_ids(&b, ways[k], n, &got) == 0, "merge");
            CHECK(got == want_n && memcmp(ways[k]->id, want, got * 4) == 0, "case %d, way %d: %zu ids, naive %zu", i, k,
                  got, want_n);
        }
        kvant_free(buckets.head); /* sized by the table */
        kvant_free(buckets.active);
        buckets.head = NULL;
        buckets.active = NULL;
        bpe_free(&b);
    }
    CHECK(ordered > 500 && unordered > 500, "%d ordered tables, %d others", ordered, unordered);
    bpe_work_free(&heap);
    bpe_work_free(&buckets);
}

int main(void)
{
    test_merging();
    return check_end("check_bpe");
}
