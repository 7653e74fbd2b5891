/* place_stream.c: prompts with experts on the CPU.  A pass of many rows has rows for nearly all experts of a layer, so
 * that the CPU would read all of them and multiply each with many rows, at which a GPU is better by more than the link
 * is slower than memory.  From the row count on at which that pays, a layer's experts go to one of two slots on the
 * device of its other ops, while the device computes with the other slot, and are multiplied there.
 *
 * The rows come from the file's pages, or, of a synthetic model, from a copy that is kept for it. */
#include "engine/place/place_stream.h"

#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "base/log.h"
#include "base/mem.h"

enum { LEAST_ROWS = 64, NO_SLOT = 255, ROOM = 256 };

/* ---- the rule ---- */

/* The one place whose layers have experts on the CPU of this machine; -1: none, or several. */
static int home_of(const kvant_model *m, const engine_split *s)
{
    int home = -1;

    for (int l = 0; l < m->hp.n_layer; l++) {
        if (s->experts[l] == s->of[l])
            continue;
        if (!engine_place_is_host(s, s->experts[l]) || (home >= 0 && home != s->of[l]))
            return -1;
        home = s->of[l];
    }
    return home;
}

/* A layer takes bytes / link on the way, and rows x used / experts x values / rate on the CPU: they are equal at
 * experts / used x a factor x threads.  Measured on an H200 with 16 cores of a Xeon, prompts of 512 tokens, Q4_K_M:
 * Qwen3-30B-A3B (128 experts, 8 used) 0.42 s from slots, 0.99 s on the CPU: equal at 219 rows; Qwen3.5-35B-A3B (256, 8)
 * 0.67 s on the CPU, 0.49 s for its 19.5 GB at 40 GB/s: at 374.  5/6 gives 213 and 426. */
static int rows_that_pay(const hparams *hp, int threads)
{
    const int64_t n = threads > 0 ? threads : cpu_count();
    const int64_t rows = hp->moe.n * 5 * n / (6 * (int64_t)hp->moe.n_used);

    return rows > LEAST_ROWS ? (int)rows : LEAST_ROWS;
}

/* The rule, whatever room there is. */
static int rows_wanted(const kvant_model *m, const kvant_engine_params *p, const engine_split *s, int *home)
{
    const kvant_device_vt *vt;
    int index = 0;

    *home = m->hp.moe.n > 0 && !s->tensors ? home_of(m, s) : -1;
    if (*home < 0 || kvant_device_find(s->name[*home], &vt, &index, NULL) < 0 || !vt->streams)
        return 0;
    const int rows = rows_that_pay(&m->hp, p->threads);
    return rows <= p->n_ubatch ? rows : 0;
}

/* bytes[n_layer]: the experts of each layer as the file has them, 0 where they are not apart; returns the sum. */
static int64_t apart_bytes(const kvant_model *m, const engine_split *s, int64_t *bytes)
{
    int64_t sum = 0;
    int l;

    memset(bytes, 0, (size_t)m->hp.n_layer * sizeof *bytes);
    for (int i = 0; i < gguf_tensor_count(m->file); i++) {
        const gguf_tensor *t = gguf_tensor_at(m->file, i);
        if (!engine_is_expert(t, &l) || l >= m->hp.n_layer || s->experts[l] == s->of[l])
            continue;
        bytes[l] += (int64_t)t->bytes + 2 * ROOM;
        sum += (int64_t)t->bytes + 2 * ROOM;
    }
    return sum;
}

static int64_t slots_bytes(const kvant_model *m, const engine_split *s)
{
    int64_t bytes[MODEL_MAX_LAYERS], most = 0;

    apart_bytes(m, s, bytes);
    for (int l = 0; l < m->hp.n_layer; l++)
        most = bytes[l] > most ? bytes[l] : most;
    return KVANT_SLOTS * most;
}

/* Slots are for speed: they never take what something else wants, nor the sixteenth that stays free. */
static int have_room(const kvant_model *m, const kvant_engine_params *p, const engine_split *s, int home)
{
    const int64_t have = engine_place_memory(p, s, home);
    kvant_plan base;

    if (have <= 0)
        return 1;
    return engine_plan_base(m, p, s, home, &base, NULL) == KVANT_OK &&
           base.total + slots_bytes(m, s) <= have - have / 16;
}

int engine_stream_rows(const kvant_model *m, const kvant_engine_params *p, const engine_split *s, int *home)
{
    const int rows = rows_wanted(m, p, s, home);

    return rows > 0 && have_room(m, p, s, *home) ? rows : 0;
}

int engine_stream_lost(const kvant_model *m, const kvant_engine_params *params)
{
    kvant_engine_params p;
    engine_split s;
    int home;

    if (engine_resolve(m, params, &p, NULL) < 0 || engine_split_make(m, &p, &s, NULL) < 0)
        return 0;
    return rows_wanted(m, &p, &s, &home) > 0 && !have_room(m, &p, &s, home);
}

int64_t engine_stream_memory(const kvant_model *m, const kvant_engine_params *p, const engine_split *s, int place)
{
    int home;

    return engine_stream_rows(m, p, s, &home) && (place < 0 || place == home) ? slots_bytes(m, s) : 0;
}

/* ---- slots ---- */

enum { MATRICES = 3 };

/* Ids of the expert matrices that the program of a layer reads; returns how many.  Gate and up that are joined have ids
 * of their own too. */
static int matrices(const kvant_engine *e, int l, int *ids)
{
    const layer_weights *w = &e->m->layers[l];
    const int joined = w->exps.gate_up >= 0;
    const int all[MATRICES] = { joined ? w->exps.gate_up : w->exps.gate, joined ? -1 : w->exps.up, w->exps.down };
    int n = 0;

    for (int i = 0; i < MATRICES; i++)
        if (all[i] >= 0)
            ids[n++] = all[i];
    return n;
}

static int is_apart(const kvant_engine *e, int l)
{
    return e->split.experts[l] != e->split.of[l];
}

/* Bytes of a slot: those of the largest layer. */
static int slot_room(const kvant_engine *e, const kvant_device *dev, size_t *room, kvant_diag *diag)
{
    const engine_place *home = &e->place[e->way.stream.home];
    int ids[MATRICES];

    *room = 0;
    for (int l = 0; l < e->m->hp.n_layer; l++) {
        size_t all = 0, one;
        for (int i = 0, n = is_apart(e, l) ? matrices(e, l, ids) : 0; i < n; i++) {
            KVANT_TRY(dev->vt->slots->bytes(home->dev, &home->weights.w[ids[i]], &one, diag));
            all += (one + ROOM - 1) & ~(size_t)(ROOM - 1);
        }
        *room = all > *room ? all : *room;
    }
    return KVANT_OK;
}

/* The weights of a layer at their places of a slot. */
static int place_layer(kvant_engine *e, int l, unsigned char *at, kvant_diag *diag)
{
    engine_place *home = &e->place[e->way.stream.home];
    const kvant_slots_vt *slots = home->dev->vt->slots;
    int ids[MATRICES];

    for (int i = 0, n = matrices(e, l, ids); i < n; i++) {
        const kvant_weight *there = &e->place[e->split.experts[l]].weights.w[ids[i]];
        kvant_weight *w = &home->weights.w[ids[i]];
        size_t bytes;
        w->scale = there->scale;
        w->n_scale = there->n_scale;
        KVANT_TRY(slots->bytes(home->dev, w, &bytes, diag));
        KVANT_TRY(slots->make(home->dev, w, at, diag));
        at += (bytes + ROOM - 1) & ~(size_t)(ROOM - 1);
    }
    return KVANT_OK;
}

static int place_layers(kvant_engine *e, kvant_diag *diag)
{
    engine_stream *st = &e->way.stream;
    kvant_device *dev = e->place[st->home].dev;
    size_t room;
    int n = 0;

    KVANT_TRY(slot_room(e, dev, &room, diag));
    KVANT_TRY(dev->vt->alloc(dev, KVANT_SLOTS * room, &st->mem, diag));
    for (int l = 0; l < e->m->hp.n_layer; l++) {
        if (!is_apart(e, l))
            continue;
        st->slot[l] = (unsigned char)(n++ % KVANT_SLOTS);
        KVANT_TRY(place_layer(e, l, (unsigned char *)st->mem + st->slot[l] * room, diag));
    }
    return KVANT_OK;
}

/* ---- rows ---- */

static int make_one(const kvant_engine *e, int id, void **rows, kvant_diag *diag)
{
    const weight_spec *s = &e->m->specs[id];
    const uint8_t *table;
    int n;

    KVANT_TRY(synthetic_table(e->m->made, s->type, &table, &n, diag));
    *rows = kvant_alloc(weight_bytes(s));
    if (!*rows)
        return kvant_fail(diag, KVANT_ENOMEM, "%s: out of memory for %zu bytes", s->name, weight_bytes(s));
    synthetic_fill(table, n, (size_t)s->type->bytes, synthetic_seed(id), weight_bytes(s) / (size_t)s->type->bytes,
                   *rows);
    return KVANT_OK;
}

/* The pieces of the largest matrix, and the rows of a synthetic model, which are in no file. */
static int make_rows(kvant_engine *e, kvant_diag *diag)
{
    engine_stream *st = &e->way.stream;
    int most = 1, ids[MATRICES];

    st->made = kvant_calloc((size_t)e->m->n_specs, sizeof *st->made);
    for (int l = 0; st->made && l < e->m->hp.n_layer; l++)
        for (int i = 0, n = is_apart(e, l) ? matrices(e, l, ids) : 0; i < n; i++) {
            const weight_spec *s = &e->m->specs[ids[i]];
            const int pieces = weight_pieces(e->m, s, NULL, NULL);
            most = pieces > most ? pieces : most;
            if (e->m->made)
                KVANT_TRY(make_one(e, ids[i], &st->made[ids[i]], diag));
        }
    st->list = kvant_calloc((size_t)most, sizeof *st->list);
    return st->made && st->list ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "engine: out of memory");
}

static int fill_matrix(kvant_engine *e, int id, int slot, kvant_diag *diag)
{
    engine_stream *st = &e->way.stream;
    engine_place *home = &e->place[st->home];
    const int n = weight_pieces(e->m, &e->m->specs[id], st->made[id], st->list);

    return home->dev->vt->slots->fill(home->dev, &home->weights.w[id], slot, st->list, n, diag);
}

int engine_stream_fill(kvant_engine *e, int l, kvant_diag *diag)
{
    engine_stream *st = &e->way.stream;
    kvant_device *dev = e->place[st->home].dev;
    int ids[MATRICES];

    if (st->last != NO_SLOT)
        KVANT_TRY(dev->vt->slots->used(dev, st->last, diag));
    st->last = st->slot[l];
    for (int i = 0, n = matrices(e, l, ids); i < n; i++)
        KVANT_TRY(fill_matrix(e, ids[i], st->slot[l], diag));
    return KVANT_OK;
}

int engine_stream_takes(kvant_engine *e, int home, int l)
{
    const engine_stream *st = &e->way.stream;

    return st->rows > 0 && e->b.any_prompt && e->b.rows >= st->rows && home == st->home && st->slot[l] != NO_SLOT;
}

/* ---- open, close ---- */

/* Ops of a streamed pass that the device does not run. */
static int check_ops(kvant_engine *e, kvant_diag *diag)
{
    const int rows = e->way.stream.rows;

    e->way.stream.rows = 1;
    int code = engine_sample_program(e, KVANT_PAGE, 1, diag);
    e->way.stream.rows = rows;
    for (int i = 0; code == KVANT_OK && i < e->b.n_ops; i++) {
        kvant_device *dev = e->place[engine_place_of_op(e, i)].dev;
        code = dev->vt->supports(dev, &e->ops[i], diag);
    }
    return code;
}

static int open_all(kvant_engine *e, kvant_diag *diag)
{
    KVANT_TRY(make_rows(e, diag));
    KVANT_TRY(place_layers(e, diag));
    return check_ops(e, diag);
}

int engine_stream_open(kvant_engine *e, int home, int rows, kvant_diag *diag)
{
    engine_stream *st = &e->way.stream;

    memset(st, 0, sizeof *st);
    memset(st->slot, NO_SLOT, sizeof st->slot);
    st->last = NO_SLOT;
    st->home = home;
    st->rows = rows;
    const int code = open_all(e, diag);
    if (code < 0)
        engine_stream_close(e);
    return code;
}

/* Rows that are read from a disk for every prompt would be slower than the CPU. */
static int check_memory(const kvant_engine *e, kvant_diag *diag)
{
    int64_t bytes[MODEL_MAX_LAYERS];
    const int64_t have = mem_available(), want = apart_bytes(e->m, &e->split, bytes);

    if (have < 0 || have >= want)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_ENOMEM, "%.1f MiB of memory for the file's pages wanted, %.1f available",
                      (double)want / 1048576, (double)have / 1048576);
}

int engine_stream_create(kvant_engine *e, kvant_diag *diag)
{
    int home;
    const int rows = engine_stream_rows(e->m, &e->p, &e->split, &home);
    kvant_diag why = { "" };

    if (rows == 0 && rows_wanted(e->m, &e->p, &e->split, &home))
        log_msg(LOG_WARN, "prompts: the CPU computes with its experts: %s has no room for two layers of them beside "
                "the rest", e->split.name[home]);
    if (rows == 0)
        return KVANT_OK;
    int code = check_memory(e, &why);
    if (code == KVANT_OK)
        code = engine_stream_open(e, home, rows, &why);
    if (code == KVANT_OK)
        log_msg(LOG_INFO, "prompts: from %d rows of a pass on %s computes with the CPU's experts", rows,
                e->split.name[home]);
    else if (code == KVANT_ENOMEM || code == KVANT_EUNSUPPORTED)
        log_msg(LOG_WARN, "prompts: the CPU computes with its experts, %s does not: %s", e->split.name[home], why.text);
    else
        return kvant_fail(diag, code, "%s", why.text);
    return KVANT_OK;
}

int engine_stream_about(const kvant_model *m, const kvant_engine_params *params, char *device, size_t cap)
{
    kvant_engine_params p;
    engine_split s;
    int home;

    if (engine_resolve(m, params, &p, NULL) < 0 || engine_split_make(m, &p, &s, NULL) < 0)
        return 0;
    const int rows = engine_stream_rows(m, &p, &s, &home);
    snprintf(device, cap, "%s", rows > 0 ? s.name[home] : "");
    return rows;
}

void engine_stream_close(kvant_engine *e)
{
    engine_stream *st = &e->way.stream;
    engine_place *home = &e->place[st->home];
    int ids[MATRICES];

    if (!st->made)
        return;
    for (int l = 0; l < e->m->hp.n_layer; l++)
        for (int i = 0, n = st->slot[l] != NO_SLOT ? matrices(e, l, ids) : 0; i < n; i++)
            home->dev->vt->slots->drop(home->dev, &home->weights.w[ids[i]]);
    if (st->mem)
        home->dev->vt->free(home->dev, st->mem);
    for (int i = 0; i < e->m->n_specs; i++)
        kvant_free(st->made[i]);
    kvant_free(st->made);
    kvant_free(st->list);
    memset(st, 0, sizeof *st);
}
