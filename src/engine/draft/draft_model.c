/* draft_model.c: see draft_model.h. */
#include "engine/draft/draft_model.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

enum {
    FEW = 8,          /* rows that are taken in as decode rows; arbitrary, not tuned */
    PADDING = 128,    /* rows of a vocabulary without tokens, by which files of one family differ */
    CANDIDATES = 10   /* the likeliest tokens, among which p is a share */
};

/* ---- create ---- */

static int check_token(const kvant_model *a, const kvant_model *b, int32_t id, kvant_diag *diag)
{
    char x[256], y[256];
    const int n = kvant_token_bytes(a, id, 1, x, sizeof x), m = kvant_token_bytes(b, id, 1, y, sizeof y);
    const int most = (int)sizeof x, shown = n < most ? n : most;

    if (n == m && (n <= 0 || memcmp(x, y, (size_t)shown) == 0))
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EINVAL, "draft model: token %d is \"%.*s\", wanted the model's \"%.*s\": another vocabulary",
                      id, m < 0 ? 0 : m < 60 ? m : 60, y, n < 0 ? 0 : n < 60 ? n : 60, x);
}

static int check_vocabulary(const kvant_model *a, const kvant_model *b, kvant_diag *diag)
{
    const int n = a->hp.n_vocab, m = b->hp.n_vocab, both = n < m ? n : m;

    if (n - m > PADDING || m - n > PADDING)
        return kvant_fail(diag, KVANT_EINVAL, "draft model: a vocabulary of %d tokens, wanted the model's %d", m, n);
    for (int32_t id = 0; id < both; id++)
        KVANT_TRY(check_token(a, b, id, diag));
    return KVANT_OK;
}

static int check_engine(const kvant_engine *target, const kvant_engine *e, kvant_diag *diag)
{
    if (e == target)
        return kvant_fail(diag, KVANT_EINVAL, "draft model: the engine is the model's own, wanted another one");
    if (e->p.max_seqs < target->p.max_seqs)
        return kvant_fail(diag, KVANT_EINVAL, "draft model: an engine of %d sequences, wanted the model's %d",
                          e->p.max_seqs, target->p.max_seqs);
    for (int i = 0; i < e->p.max_seqs; i++)
        if (e->kv.seqs[i].used)
            return kvant_fail(diag, KVANT_EINVAL, "draft model: sequence %d of its engine is in use, wanted an idle engine",
                              i);
    for (int l = 0; l < e->m->hp.n_layer; l++)
        if (kv_has_state(&e->kv.cfg, l))
            return kvant_fail(diag, KVANT_EUNSUPPORTED,
                              "draft model: layer %d is recurrent, its state cannot take guesses back", l);
    return check_vocabulary(target->m, e->m, diag);
}

int draft_model_create(draft_model *d, const kvant_engine *target, kvant_engine *e, kvant_diag *diag)
{
    const size_t n = (size_t)e->p.max_seqs;

    KVANT_TRY(check_engine(target, e, diag));
    *d = (draft_model){ .e = e, .n_vocab = target->m->hp.n_vocab };
    d->items = kvant_calloc(n, sizeof *d->items);
    d->lane_of = kvant_calloc(n, sizeof *d->lane_of);
    return d->items && d->lane_of ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "draft model: out of memory");
}

void draft_model_free(draft_model *d)
{
    kvant_free(d->items);
    kvant_free(d->lane_of);
    memset(d, 0, sizeof *d);
}

void draft_model_drop(draft_model *d, draft_seq *at)
{
    if (at->place > 0)
        kvant_seq_free(d->e, at->place - 1);
    memset(at, 0, sizeof *at);
}

/* ---- a step of the draft engine ---- */

static void turn_off(draft_model *d, draft_lane *lane)
{
    draft_model_drop(d, lane->at);
    lane->at->off = 1;
    lane->live = 0;
}

/* The share of the likeliest token among the next ones. */
static float share_of(const float *logits, int n)
{
    double sum = 0;

    for (int i = 0; i < n && i < CANDIDATES; i++)
        sum += exp((double)logits[i] - (double)logits[0]);
    return sum > 0 ? (float)(1 / sum) : 0.0f;
}

static void take_guess(draft_model *d, int item, draft_lane *lane)
{
    const float *logits = NULL;
    const int32_t *ids = NULL;
    const int n = kvant_step_top(d->e, item, &logits, &ids);

    lane->token = kvant_step_token(d->e, item);
    lane->p = n > 0 ? share_of(logits, n) : 1.0f;
    if (lane->token < 0 || lane->token >= d->n_vocab)
        lane->live = 0;
}

/* A step that was refused has too little room: the longest text gives up its place there. */
static void make_room(draft_model *d, draft_lane *lanes, int n)
{
    int longest = 0;

    for (int i = 1; i < n; i++)
        if (lanes[d->lane_of[i]].n > lanes[d->lane_of[longest]].n)
            longest = i;
    turn_off(d, &lanes[d->lane_of[longest]]);
    for (int i = 0; i < n; i++)
        lanes[d->lane_of[i]].live = 0;
}

/* A lane's rows in the step are its own now; first: they are of the text. */
static void take_rows(draft_seq *at, int n, int first)
{
    if (first)
        at->rows += n;
    else
        at->n_fed += n;
}

/* Runs n items; returns the rows that they had, 0: none came of it. */
static int run(draft_model *d, draft_lane *lanes, int n, int first)
{
    kvant_diag diag = { "" };
    const int code = n > 0 ? kvant_step(d->e, d->items, n, &diag) : KVANT_OK;
    int rows = 0;

    if (code == KVANT_EDEVICE || code == KVANT_EIO || code == KVANT_EINTERNAL) {
        d->dead = 1;
        log_msg(LOG_WARN, "draft model: %s; it guesses no more", diag.text);
    }
    if (n > 0 && d->e->n_items == 0) {
        make_room(d, lanes, n);
        return 0;
    }
    for (int i = 0; i < n; i++) {
        draft_lane *lane = &lanes[d->lane_of[i]];
        if (d->dead || kvant_step_code(d->e, i) != KVANT_OK)
            turn_off(d, lane);
        else
            take_rows(lane->at, d->items[i].n, first);
        if (lane->live)
            take_guess(d, i, lane);
        rows += d->items[i].n;
    }
    return rows;
}

/* ---- what the text has become ---- */

/* The place of the text there, with the rows that agree with it; 0: it can have none. */
static int find_place(draft_model *d, draft_lane *lane)
{
    draft_seq *at = lane->at;
    int seq, fed = 0;

    if (at->place == 0) {
        if (kvant_seq_new(d->e, &seq, NULL) != KVANT_OK)
            return 0;
        *at = (draft_seq){ .place = seq + 1 };
        return 1;
    }
    seq = at->place - 1;
    while (fed < at->n_fed && at->rows + fed < lane->n - 1 && at->fed[fed] == lane->tokens[at->rows + fed])
        fed++;
    fed += at->rows;
    at->rows = fed < lane->n - 1 ? fed : lane->n - 1; /* at least one token is left to guess from */
    at->n_fed = 0;
    if (engine_seq_rewind(d->e, seq, at->rows) == KVANT_OK)
        return 1;
    draft_model_drop(d, at);
    return find_place(d, lane);
}

static int wanted(int likely)
{
    return likely ? KVANT_LOGITS_TOP : KVANT_LOGITS_GREEDY;
}

/* 1: the drafter has all tokens of the text that it has not seen; its vocabulary may be the smaller one. */
static int knows_text(const draft_model *d, const draft_lane *lane)
{
    for (int i = lane->at->rows; i < lane->n; i++)
        if (lane->tokens[i] < 0 || lane->tokens[i] >= d->e->m->hp.n_vocab)
            return 0;
    return 1;
}

/* The tokens that the text has more than its rows there; at most `left` where they are many.  The last of them gives
 * the guess. */
static void add_text(draft_model *d, draft_lane *lane, int i, int *n_items, int *left, int likely)
{
    draft_seq *at = lane->at;
    const int missing = lane->n - at->rows;
    int n = missing <= FEW || missing <= *left ? missing : (at->rows + *left) / KVANT_PAGE * KVANT_PAGE - at->rows;

    if (!knows_text(d, lane)) {
        turn_off(d, lane);
        return;
    }
    lane->live = n == missing;
    if (n <= 0)
        return;
    *left -= missing <= FEW ? 0 : n;
    d->lane_of[*n_items] = i;
    d->items[(*n_items)++] = (kvant_item){ .seq = at->place - 1, .tokens = lane->tokens + at->rows, .n = n,
                                           .prompt = missing > FEW, .logits = lane->live ? wanted(likely) : 0 };
}

int draft_model_begin(draft_model *d, draft_lane *lanes, int n, int likely)
{
    int n_items = 0, left = d->e->p.n_ubatch;

    for (int i = 0; i < n; i++) {
        draft_lane *lane = &lanes[i];
        const int fits = !d->dead && !lane->at->off && lane->n < d->e->p.n_ctx;
        lane->live = lane->live && fits && find_place(d, lane);
        if (lane->live)
            add_text(d, lane, i, &n_items, &left, likely);
    }
    return run(d, lanes, n_items, 1);
}

int draft_model_next(draft_model *d, draft_lane *lanes, int n, int likely)
{
    int n_items = 0;

    for (int i = 0; i < n; i++) {
        draft_lane *lane = &lanes[i];
        draft_seq *at = lane->at;
        if (!lane->live)
            continue;
        lane->live = at->n_fed < DRAFT_MOST && kvant_seq_length(d->e, at->place - 1) < d->e->p.n_ctx &&
                     lane->token < d->e->m->hp.n_vocab;
        if (!lane->live)
            continue;
        engine_seq_hold(d->e, at->place - 1, at->rows);
        at->fed[at->n_fed] = lane->token;
        d->lane_of[n_items] = i;
        d->items[n_items++] = (kvant_item){ .seq = at->place - 1, .tokens = &at->fed[at->n_fed], .n = 1,
                                            .logits = wanted(likely) };
    }
    return run(d, lanes, n_items, 0);
}
