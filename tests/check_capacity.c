/* check_capacity: how many sequences of 2,048 tokens a fixed budget of cache bytes holds, against f16: pages and exact
 * tail counted, with the cache's own accounts (no model runs).  The shape is that of a dense model with heads of 128:
 * 8 layers, 2 KV heads; the ratios do not depend on layers and heads. */
#include "cache/kv.h"
#include "support/check.h"

enum { LAYERS = 8, HEADS = 2, DIM = 128, TOKENS = 2048, MOST = 256 };

static const int64_t budget = (int64_t)1 << 28;
static unsigned char kinds[LAYERS];
static kv_types types[LAYERS];

static kv_config config(const char *format, int tail, int seqs, int pages)
{
    const kvant_format *f = NULL;
    kvant_diag d = { "" };

    CHECK(kvant_format_parse(format, &f, &d) == KVANT_OK, "%s", d.text);
    for (int l = 0; l < LAYERS; l++) {
        kinds[l] = KV_LAYER_ATTN;
        types[l] = (kv_types){ f, f, HEADS, DIM, DIM };
    }
    return (kv_config){ .n_layer = LAYERS, .h = 8, .kinds = kinds, .types = types, .tail = tail, .max_seqs = seqs,
                        .n_ctx = 2 * TOKENS, .n_ubatch = 64, .n_pages = pages };
}

/* Pages that are left of the budget beside the tails of so many sequences; of a prompt pass, which takes tail pages
 * only while it runs, none are counted. */
static int pages_beside(const char *format, int tail, int seqs)
{
    kv_sizes one, all;
    kv_config c = config(format, tail, 1, 1);

    kv_measure(&c, &one, NULL);
    c.max_seqs = seqs + 1;
    kv_measure(&c, &all, NULL);
    return (int)((budget - (all.tail - one.tail)) / (one.per_token * KVANT_PAGE));
}

/* Runs rows [0, n) of every sequence through the cache's accounts, a row at a time from `first` on. */
static int fill(kv_cache *kv, int seqs, int first, int n)
{
    int32_t src[MOST], dst[MOST], window[MOST];

    for (int pos = 0; pos < n; pos += pos < first ? KVANT_PAGE : 1)
        for (int s = 0; s < seqs; s++) {
            const int rows = pos < first ? KVANT_PAGE : 1;
            kv_seals seals = { src, dst, window, 0 };
            if (kv_pages_missing(kv, s, pos + rows) > kv->pages.n_free || !kv_pass_fits(kv, s, pos, rows))
                return 0;
            kv_reserve(kv, s, pos + rows);
            kv_pass_begin(kv, s, pos, rows, &seals);
            kv->seqs[s].len = pos + rows;
            kv_pass_end(kv, s, pos + rows);
        }
    return 1;
}

/* 1: so many sequences of `tokens` fit, each with its open page. */
static int fits(const char *format, int tail, int seqs, int tokens)
{
    const int pages = pages_beside(format, tail, seqs);
    kv_config c = config(format, tail, seqs, pages);
    kv_cache kv;
    kvant_device_config dc = { .threads = 1 };
    kvant_device *dev = NULL;
    int ok = 0, seq;

    if (pages < 1 || device_open("cpu", &dc, &dev, NULL) != KVANT_OK)
        return 0;
    const kv_place at = { dev, NULL, 0 };
    c.places = &at;
    c.n_places = 1;
    if (kv_create(&c, &kv, NULL) == KVANT_OK) {
        for (int i = 0; i < seqs; i++)
            kv_seq_new(&kv, &seq, NULL);
        ok = fill(&kv, seqs, tokens - 2 * KVANT_PAGE, tokens);
        for (int i = 0; i < seqs; i++)
            kv_seq_free(&kv, i);
        CHECK(kv.pages.n_free == kv.pages.n && kv.tails.n_free == kv.tails.n, "%s: pages leak", format);
        kv_destroy(&kv);
    }
    dev->vt->close(dev);
    return ok;
}

static int most(const char *format, int tail)
{
    int n = 0;

    while (n < MOST && fits(format, tail, n + 1, TOKENS - 1))   /* the last token that is generated is never run */
        n++;
    return n;
}

static void check_ratio(const char *format, int tail, int f16, double bar)
{
    const int n = most(format, tail);
    const double ratio = (double)n / f16;

    printf("check_capacity: %lld bytes: %d sequences of %d tokens in %s with an exact tail of %d, %d in f16: %.2f times\n",
           (long long)budget, n, TOKENS, format, tail, f16, ratio);
    CHECK(ratio >= bar, "%s, tail %d: %.3f times, wanted %.2f", format, tail, ratio, bar);
}

int main(void)
{
    const int f16 = most("f16", 64);

    CHECK(f16 == budget / ((int64_t)2 * LAYERS * HEADS * DIM * 2 * TOKENS), "%d sequences in f16", f16);
    check_ratio("tbq4_0", 0, f16, 3.4);
    check_ratio("turbo4_66", 0, f16, 3.7);
    check_ratio("tbq4_0", 64, f16, 3.25);
    check_ratio("turbo4_66", 64, f16, 3.5);
    return check_end("check_capacity");
}
