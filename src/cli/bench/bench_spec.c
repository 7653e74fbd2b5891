/* bench_spec.c: see bench_spec.h. */
#include "cli/bench/bench_spec.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/draft/synth.h"
#include "engine/engine.h"
#include "kvant/session.h"

int bench_spec_read(const opts *o, bench_spec *out, kvant_diag *diag)
{
    const char *s = opt_str(o, OPT_BENCH_SPEC), *number = "";
    char *end;

    *out = (bench_spec){ 0, 0, opt_num(o, OPT_SPEC_ACCEPT) };
    if (!s || !*s)
        return KVANT_OK;
    out->mtp = strncmp(s, "mtp:", 4) == 0;
    if (out->mtp || strncmp(s, "ngram:", 6) == 0)
        number = strchr(s, ':') + 1;
    const long k = strtol(number, &end, 10);
    if (end == number || *end || k < 1 || k > KVANT_MOST_DRAFTS)
        return kvant_fail(diag, KVANT_EINVAL, "%s: found \"%.40s\", wanted ngram:K or mtp:K with 1 to %d drafts",
                          opt_origin(o, OPT_BENCH_SPEC), s, KVANT_MOST_DRAFTS);
    out->k = (int)k;
    return KVANT_OK;
}

/* A sequence on its way, what its next step carries, and the token that the next guess is behind. */
typedef struct runner {
    int seq, done, drafts;
    int32_t token;
} runner;

typedef struct decoding {
    kvant_engine *e;
    const bench_spec *spec;
    const int32_t *ids;    /* [n] what every sequence takes */
    int n, n_seqs;
    runner *run;           /* [n_seqs] */
    kvant_item *items;
    int *drafts;           /* of items */
    mtp_item *guesses;
} decoding;

/* How many drafts each sequence's next step carries. */
static void plan(decoding *d)
{
    for (int s = 0; s < d->n_seqs; s++) {
        runner *r = &d->run[s];
        const int left = d->n - r->done - 1, room = kvant_seq_draft_room(d->e, r->seq), k = d->spec->k;
        r->drafts = k < room ? k : room;
        r->drafts = r->drafts < left ? r->drafts : left;
        r->token = left < 0 ? -1 : d->ids[r->done];
    }
}

/* The block guesses as many.  The tokens of the step are those of ids all the same: what guesses cost is measured, not
 * what they say. */
static int guess(decoding *d, kvant_diag *diag)
{
    int n = 0;

    for (int s = 0; s < d->n_seqs; s++)
        if (d->run[s].drafts > 0)
            d->guesses[n++] = (mtp_item){ .seq = d->run[s].seq, .n = d->run[s].drafts, .token = d->run[s].token };
    if (n > 0)
        KVANT_TRY(engine_mtp_guess(d->e, d->guesses, n, 0, diag));
    for (int i = 0; i < n; i++) {
        if (d->guesses[i].guess[d->guesses[i].n - 1] < 0)
            return kvant_fail(diag, KVANT_ENUMERIC, "bench: the block for further tokens guessed none");
        engine_mtp_end(d->e, d->guesses[i].seq);
    }
    return KVANT_OK;
}

/* Returns the items of those that have not done n tokens. */
static int make_items(decoding *d)
{
    int n = 0;

    for (int s = 0; s < d->n_seqs; s++) {
        const runner *r = &d->run[s];
        if (r->done >= d->n)
            continue;
        d->drafts[n] = r->drafts;
        d->items[n++] = (kvant_item){ .seq = r->seq, .tokens = d->ids + r->done, .n = 1 + r->drafts,
                                      .logits = KVANT_LOGITS_GREEDY };
    }
    return n;
}

static int accept_some(decoding *d, rng *random, kvant_diag *diag)
{
    const draft_synth chances = synth_of_chance(d->spec->accept, d->spec->k);

    for (int s = 0; s < d->n_seqs; s++) {
        runner *r = &d->run[s];
        int taken = 0;
        if (r->done >= d->n)
            continue;
        while (taken < r->drafts && synth_takes(&chances, taken, random))
            taken++;
        KVANT_TRY(kvant_seq_accept(d->e, r->seq, taken, diag));
        r->done += 1 + taken;
    }
    return KVANT_OK;
}

static int decode(decoding *d, kvant_diag *diag)
{
    rng r = { 20260101 }; /* arbitrary, but the same in every run */

    for (int n;;) {
        plan(d);
        n = make_items(d);
        if (n == 0)
            return KVANT_OK;
        if (d->spec->mtp)
            KVANT_TRY(guess(d, diag));
        KVANT_TRY(kvant_step_drafts(d->e, d->items, d->drafts, n, diag));
        KVANT_TRY(accept_some(d, &r, diag));
    }
}

int bench_spec_decode(kvant_engine *e, const bench_spec *b, const int *seqs, int n_seqs, const int32_t *ids, int n,
                      kvant_diag *diag)
{
    const size_t m = (size_t)n_seqs;
    decoding d = { .e = e, .spec = b, .ids = ids, .n = n, .n_seqs = n_seqs, .run = kvant_calloc(m, sizeof *d.run),
                   .items = kvant_calloc(m, sizeof *d.items), .drafts = kvant_calloc(m, sizeof *d.drafts),
                   .guesses = kvant_calloc(m, sizeof *d.guesses) };
    int code = KVANT_OK;

    if (!d.run || !d.items || !d.drafts || !d.guesses)
        code = kvant_fail(diag, KVANT_ENOMEM, "bench: no memory for %d sequences", n_seqs);
    for (int s = 0; code == KVANT_OK && s < n_seqs; s++)
        d.run[s].seq = seqs[s];
    if (code == KVANT_OK)
        code = decode(&d, diag);
    kvant_free(d.run);
    kvant_free(d.items);
    kvant_free(d.drafts);
    kvant_free(d.guesses);
    return code;
}
