/* bench_spec.c: see bench_spec.h. */
#include "cli/bench/bench_spec.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kvant/session.h"

int bench_spec_read(const opts *o, bench_spec *out, kvant_diag *diag)
{
    const char *s = opt_str(o, OPT_BENCH_SPEC), *number = s && strncmp(s, "ngram:", 6) == 0 ? s + 6 : "";
    char *end;

    *out = (bench_spec){ 0, opt_num(o, OPT_SPEC_ACCEPT) };
    if (!s || !*s)
        return KVANT_OK;
    const long k = strtol(number, &end, 10);
    if (end == number || *end || k < 1 || k > KVANT_MOST_DRAFTS)
        return kvant_fail(diag, KVANT_EINVAL, "%s: found \"%.40s\", wanted ngram:K with 1 to %d drafts (other drafters "
                          "are not supported yet)", opt_origin(o, OPT_BENCH_SPEC), s, KVANT_MOST_DRAFTS);
    out->k = (int)k;
    return KVANT_OK;
}

/* A sequence on its way, and what its next step carries. */
typedef struct runner {
    int done, drafts;
} runner;

/* Returns the items of those that have not done n tokens. */
static int make_items(const kvant_engine *e, int k, const int *seqs, runner *run, int n_seqs, const int32_t *ids, int n,
                      kvant_item *items, int *drafts)
{
    int n_items = 0;

    for (int s = 0; s < n_seqs; s++) {
        const int left = n - run[s].done - 1, room = kvant_seq_draft_room(e, seqs[s]);
        if (left < 0)
            continue;
        run[s].drafts = k < room ? k : room;
        run[s].drafts = run[s].drafts < left ? run[s].drafts : left;
        drafts[n_items] = run[s].drafts;
        items[n_items++] = (kvant_item){ seqs[s], ids + run[s].done, 1 + run[s].drafts, 0, KVANT_LOGITS_GREEDY };
    }
    return n_items;
}

static int accept_some(kvant_engine *e, double chance, const int *seqs, runner *run, int n_seqs, int n, rng *r,
                       kvant_diag *diag)
{
    for (int s = 0; s < n_seqs; s++) {
        int taken = 0;
        if (run[s].done >= n)
            continue;
        while (taken < run[s].drafts && (double)rng_below(r, 1 << 20) < chance * (1 << 20))
            taken++;
        KVANT_TRY(kvant_seq_accept(e, seqs[s], taken, diag));
        run[s].done += 1 + taken;
    }
    return KVANT_OK;
}

int bench_spec_decode(kvant_engine *e, const bench_spec *b, const int *seqs, int n_seqs, const int32_t *ids, int n,
                      kvant_diag *diag)
{
    runner *run = kvant_calloc((size_t)n_seqs, sizeof *run);
    kvant_item *items = kvant_calloc((size_t)n_seqs, sizeof *items);
    int *drafts = kvant_calloc((size_t)n_seqs, sizeof *drafts), code = KVANT_OK, count;
    rng r = { 20260101 }; /* arbitrary, but the same in every run */

    if (!run || !items || !drafts)
        code = kvant_fail(diag, KVANT_ENOMEM, "bench: no memory for %d sequences", n_seqs);
    while (code == KVANT_OK && (count = make_items(e, b->k, seqs, run, n_seqs, ids, n, items, drafts)) > 0) {
        code = kvant_step_drafts(e, items, drafts, count, diag);
        if (code == KVANT_OK)
            code = accept_some(e, b->accept, seqs, run, n_seqs, n, &r, diag);
    }
    kvant_free(run);
    kvant_free(items);
    kvant_free(drafts);
    return code;
}
