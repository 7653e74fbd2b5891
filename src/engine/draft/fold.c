/* fold.c: the rows of items with drafts leave recurrent states as they are; those that turned out to count go into the
 * states here, in their order: from the ring, by the ops that a step of one token runs on the same values, and so with
 * its bits.  It happens before the next step, for all sequences at once, or when a state is asked for (kv_settle). */
#include <string.h>

#include "engine/pass/pass.h"
#include "engine/place/profile.h"
#include "engine/tensor/tensor.h"

/* Rows of one sequence, and of none: behind each lie those that did not count, maybe none, which the ops of decode rows
 * pass over as a prompt's.  So what a device records is the same whoever accepted how many. */
typedef struct fold_lists { int32_t *q0, *pos0, *prompt, *slot_in, *slot_out; } fold_lists;

enum { LISTS = 5 };

static size_t list_room(const kvant_engine_params *p)
{
    return STEP_INPUT_ROOM(2 * (size_t)p->max_seqs + 2);
}

size_t engine_fold_values(const kvant_engine_params *p)
{
    return p->draft_rows > 0 ? LISTS * list_room(p) : 0;
}

static fold_lists lists_at(const kvant_engine *e, int32_t *base)
{
    const size_t n = list_room(&e->p);
    return (fold_lists){ .q0 = base, .pos0 = base + n, .prompt = base + 2 * n, .slot_in = base + 3 * n,
                         .slot_out = base + 4 * n };
}

static void put(fold_lists *l, int *n, int end, int prompt, int in, int out)
{
    l->pos0[*n] = 0; /* the ops do not read it */
    l->prompt[*n] = prompt;
    l->slot_in[*n] = in;
    l->slot_out[*n] = out;
    l->q0[++*n] = end;
}

/* The sequence whose rows come first from row `at` on; -1: none. */
static int next_at(const kvant_engine *e, int only, int at)
{
    int next = -1;

    for (int s = 0; s < e->p.max_seqs; s++) {
        const kv_seq *q = &e->kv.seqs[s];
        if (q->used && q->ring_n > 0 && q->ring_at >= at && (only < 0 || only == s) &&
            (next < 0 || q->ring_at < e->kv.seqs[next].ring_at))
            next = s;
    }
    return next;
}

/* Returns how many sequences there are, with those of no rows. */
static int fill(const kvant_engine *e, int only, fold_lists *l)
{
    int n = 0, at = 0;

    l->q0[0] = 0;
    for (int s; (s = next_at(e, only, at)) >= 0;) {
        const kv_seq *q = &e->kv.seqs[s];
        if (n > 0 || q->ring_at > 0)
            put(l, &n, q->ring_at, 1, -1, -1);
        at = q->ring_at + q->ring_n;
        put(l, &n, at, 0, q->len == q->ring_n ? -1 : s, s);
    }
    put(l, &n, e->ring_used, 1, -1, -1);
    return n;
}

static int send(kvant_engine *e, int place, kvant_diag *diag)
{
    const engine_place *at = &e->place[place];

    return at->dev->vt->copy_in(at->dev, at->in_dev, e->in_sent, engine_fold_values(&e->p) * sizeof *at->in_dev, diag);
}

/* The layers of one place; those of a tensor split, whose states are everywhere, of all. */
static int run(kvant_engine *e, int place, int n_seqs, int n_rows, kvant_diag *diag)
{
    const engine_place *at = &e->place[place];
    const fold_lists l = lists_at(e, at->in_dev);
    builder *b = &e->b;

    for (int i = place; i < (e->way.tensor ? e->split.n : place + 1); i++)
        KVANT_TRY(send(e, i, diag));
    arena_reset(&e->args);
    engine_bind(e, place);
    b->n_ops = b->error = b->any_prompt = 0;
    b->any_decode = b->ring.fold = 1;
    b->n = n_rows;
    b->seqs = (kvant_seqs){ .n_seqs = n_seqs, .n_tokens = n_rows, .q0 = l.q0, .pos0 = l.pos0, .prompt = l.prompt,
                            .slot_in = l.slot_in, .slot_out = l.slot_out };
    for (int i = 0; i < e->m->hp.n_layer; i++)
        if (e->split.of[i] == place)
            build_fold(b, i);
    if (b->error)
        return kvant_fail(diag, KVANT_EINTERNAL, "fold: more than %d ops", e->max_ops);
    if (e->way.tensor) {
        KVANT_TRY(tensor_cut(e, diag));
        KVANT_TRY(tensor_check(e, diag));
        return tensor_submit(e, 0, diag);
    }
    for (int i = 0; i < b->n_ops; i++)
        KVANT_TRY(kvant_op_check(e->ops[i].id, e->ops[i].args, diag));
    const uint64_t key = (uint64_t)PASS_KEY_FOLD << 62 | (uint64_t)n_seqs << 31 | (uint64_t)n_rows;
    return b->n_ops ? engine_submit_to(e, at->dev, e->ops, b->n_ops, key, diag) : KVANT_OK;
}

int engine_fold(kvant_engine *e, int seq, kvant_diag *diag)
{
    int code = KVANT_OK;

    if (next_at(e, seq, 0) < 0)
        return KVANT_OK;
    fold_lists l = lists_at(e, e->in_sent);
    memset(e->in_sent, 0, engine_fold_values(&e->p) * sizeof *e->in_sent);
    const int n = fill(e, seq, &l);
    for (int i = 0; i < (e->way.tensor ? 1 : e->split.n) && code == KVANT_OK; i++)
        code = run(e, i, n, l.q0[n], diag);
    for (int i = 0; i < n; i++) {
        if (l.prompt[i])
            continue;
        kv_seq *s = &e->kv.seqs[l.slot_out[i]];
        s->ring_at += s->ring_n; /* drafts that are accepted only now lie behind */
        s->ring_n = 0;
        s->broken |= code != KVANT_OK;
    }
    return code;
}
