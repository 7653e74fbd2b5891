/* engine.c: creates and frees an engine: device, memory, fused-or-decomposed choice, weights; and the sequence
 * calls. */
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/place/place_stream.h"
#include "engine/place/profile.h"
#include "engine/tensor/tensor.h"

/* ---- memory ---- */

/* The parts that this machine's memory holds; a GPU says itself what it lacks.  The mapped file is not counted: its
 * pages can be dropped and read again. */
static int check_memory(const kvant_engine *e, kvant_diag *diag)
{
    const kvant_engine_params *p = &e->p;
    kvant_plan plan = { 0 }, one;

    for (int i = 0; i < e->split.n; i++) {
        if (strncmp(e->split.name[i], "cpu", 3) != 0)
            continue;
        KVANT_TRY(engine_plan_place(e->m, p, &e->split, i, &one, diag));
        plan.weights += one.weights;
        plan.kv += one.kv + one.window + one.tail;
        plan.state += one.state;
        plan.scratch += one.scratch;
        plan.total += one.total;
    }
    const int64_t have = mem_available(), want = plan.total;
    if (have < 0 || want <= have)
        return KVANT_OK;
    return kvant_fail(
        diag, KVANT_ENOSPC,
        "memory: %.1f MiB wanted (weights %.1f, cache %.1f for %lld tokens, state %.1f, work %.1f), %.1f available",
        (double)want / 1048576, (double)plan.weights / 1048576, (double)plan.kv / 1048576,
        (long long)p->pool_tokens, (double)plan.state / 1048576, (double)plan.scratch / 1048576,
        (double)have / 1048576);
}

/* Lays the inputs out from `base` on with room for the most of each; returns how many values that are. */
static size_t inputs_layout(const kvant_engine *e, int32_t *base, step_inputs *in)
{
    const size_t tokens = (size_t)e->p.n_ubatch, seqs = (size_t)e->p.max_seqs + 1, rank = (size_t)e->m->lora.rank,
                 seals = tokens / KVANT_PAGE + seqs + 1, tables = seqs * (size_t)e->kv.stride,
                 out_rows = (size_t)engine_pass_rows(&e->p), shared = e->m->hp.n_kv_from > 0,
                 mtp = (size_t)e->p.mtp;
    size_t used = 0;

#define STEP_INPUT(name, most, now)                                                                                    \
    in->name = base ? base + used : NULL;                                                                              \
    used += STEP_INPUT_ROOM(most);
#include "engine/step_inputs.def"
#undef STEP_INPUT
    return used;
}

static int create_inputs(kvant_engine *e, kvant_diag *diag)
{
    void *mem;
    const size_t step = inputs_layout(e, NULL, &e->host_in), fold = engine_fold_values(&e->p);
    const size_t n = step > fold ? step : fold;

    e->in_host = kvant_calloc(n, sizeof *e->in_host);
    e->in_sent = kvant_calloc(n, sizeof *e->in_sent);
    if (!e->in_host || !e->in_sent)
        return kvant_fail(diag, KVANT_ENOMEM, "engine: out of memory for step inputs");
    inputs_layout(e, e->in_host, &e->host_in);
    for (int i = 0; i < e->split.n; i++) {
        engine_place *at = &e->place[i];
        KVANT_TRY(at->dev->vt->alloc(at->dev, n * sizeof *at->in_dev, &mem, diag));
        at->in_dev = mem;
        at->in_values = n;
        inputs_layout(e, at->in_dev, &at->in);
    }
    return engine_lora_create(e, diag);
}

static int create_hidden(kvant_engine *e, kvant_diag *diag)
{
    size_t n = (size_t)e->m->hp.n_embd, seqs = (size_t)e->p.max_seqs;

    e->hidden_sum = kvant_calloc(seqs * n, sizeof *e->hidden_sum);
    e->hidden_last = kvant_calloc(seqs * n, sizeof *e->hidden_last);
    e->hidden_rows = kvant_calloc(KVANT_PAGE * n, sizeof *e->hidden_rows);
    e->hidden_sinks = kvant_calloc(seqs, sizeof *e->hidden_sinks);
    if (!e->hidden_sum || !e->hidden_last || !e->hidden_rows || !e->hidden_sinks)
        return kvant_fail(diag, KVANT_ENOMEM, "engine: out of memory for hidden states of %zu sequences", seqs);
    return KVANT_OK;
}

/* Activations of each place, and host memory for the stream between them. */
static int create_scratch(kvant_engine *e, kvant_diag *diag)
{
    build_buffers buf;
    const size_t bytes = build_layout(e->m, e->p.n_ubatch, e->pass_rows, e->p.mtp * e->p.max_seqs, NULL, &buf);
    const size_t host = (size_t)e->p.n_ubatch * engine_crossing_width(e) * sizeof(float);
    const size_t crossings = (size_t)engine_most_crossings(e);
    void *mem;

    e->way.scratch_bytes = bytes;
    for (int i = 0; i < e->split.n; i++) {
        engine_place *at = &e->place[i];
        KVANT_TRY(at->dev->vt->alloc(at->dev, bytes, &mem, diag));
        at->scratch = mem;
        build_layout(e->m, e->p.n_ubatch, e->pass_rows, e->p.mtp * e->p.max_seqs, at->scratch, &at->buf);
    }
    if (e->split.n == 1 || e->split.tensors)
        return KVANT_OK;
    e->way.host = kvant_alloc(host);
    e->cross = kvant_calloc(crossings, sizeof *e->cross);
    e->way.relay = kvant_calloc(2 * crossings + 1, sizeof *e->way.relay); /* a piece, a message each, a piece */
    engine_relay_ready(e);
    KVANT_TRY(engine_reads_create(e, diag));
    if (e->way.host && e->cross && e->way.relay)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_ENOMEM, "engine: out of memory for rows between devices");
}

static int create_outputs(kvant_engine *e, kvant_diag *diag)
{
    size_t seqs = (size_t)e->p.max_seqs, v = (size_t)e->m->hp.n_vocab, bytes;

    if (!size_mul((size_t)e->p.logits_rows, v * sizeof(float), &bytes))
        return kvant_fail(diag, KVANT_EINVAL, "logits rows: %d of %zu values do not fit", e->p.logits_rows, v);
    e->pass_rows = engine_pass_rows(&e->p);
    e->logits = kvant_alloc(bytes);
    e->item_row = kvant_calloc(seqs + 1, sizeof *e->item_row);
    e->item_rows = kvant_calloc(seqs * 9, sizeof *e->item_rows);   /* rows, progress (3 ints), 5 lists of the pass */
    e->item_code = kvant_calloc(seqs, sizeof *e->item_code);
    e->item_draft = kvant_calloc(seqs, sizeof *e->item_draft);
    const size_t rows = (size_t)e->p.logits_rows, tops = (rows + (size_t)e->pass_rows) * KVANT_STEP_TOP;
    e->tokens = kvant_calloc(rows, sizeof *e->tokens);
    e->top = kvant_calloc(tops, sizeof *e->top);
    e->top_ids = kvant_calloc(tops, sizeof *e->top_ids);
    if (!e->logits || !e->item_draft || !e->item_row || !e->item_rows || !e->tokens || !e->top || !e->top_ids ||
        !e->item_code)
        return kvant_fail(diag, KVANT_ENOMEM, "engine: out of memory for logits of %d rows", e->p.logits_rows);
    KVANT_TRY(create_hidden(e, diag));
    KVANT_TRY(engine_mtp_create(e, diag));
    return create_scratch(e, diag);
}

static int create_weights(const kvant_engine *e, engine_place *at, kvant_diag *diag)
{
    size_t n = (size_t)e->m->n_specs;
    engine_weights *w = &at->weights;

    w->w = kvant_calloc(n, sizeof *w->w);
    w->vec = kvant_calloc(n, sizeof *w->vec);
    w->host = kvant_calloc(n, sizeof *w->host);
    if (!w->w || !w->vec || !w->host)
        return kvant_fail(diag, KVANT_ENOMEM, "engine: out of memory for the program");
    for (size_t i = 0; i < n; i++) {
        const weight_spec *s = &e->m->specs[i];
        w->vec[i] = (float *)(void *)at->scratch; /* until weights are loaded: programs of before are not run */
        w->w[i] = (kvant_weight){ .type = s->type, .n_in = s->n_in, .n_out = s->n_out, .n_expert = s->n_expert,
                                  .name = s->name };
    }
    memset(at->fused, 1, sizeof at->fused);
    return KVANT_OK;
}

static int create_program(kvant_engine *e, kvant_diag *diag)
{
    e->max_ops = build_max_ops(e->m);
    e->ops = kvant_calloc((size_t)e->max_ops, sizeof *e->ops);
    if (!e->ops)
        return kvant_fail(diag, KVANT_ENOMEM, "engine: out of memory for the program");
    for (int i = 0; i < e->split.n; i++)
        KVANT_TRY(create_weights(e, &e->place[i], diag));
    return arena_init(&e->args, build_args_bytes(e->m), diag);
}

static void bind_builder(kvant_engine *e)
{
    builder *b = &e->b;
    b->m = e->m;
    b->args = &e->args;
    b->ops = e->ops;
    b->cap_ops = e->max_ops;
    b->compute = e->p.compute;
    b->exact = (build_exact){ e->kv.tail_pages, e->kv.sink_pages };
    b->k = e->kv.k;
    b->v = e->kv.v;
    b->windows_apart = e->kv.window_pages > 0;
    b->states.conv = e->kv.conv;
    b->states.rec = e->kv.state;
    b->states.conv_stride = e->kv.cfg.conv_floats;
    b->states.rec_stride = e->kv.cfg.state_values;
    b->states.rec_type = e->kv.cfg.state_type;
    b->ring = (build_ring){ e->kv.ring, e->kv.cfg.ring_rows, 0, 0, 0, 0 };
}

/* ---- create, free ---- */

static int keep_names(kvant_engine *e, kvant_diag *diag)
{
    const char **fields[] = { &e->p.device, &e->p.type_k, &e->p.type_v, &e->p.state_type };
    const char *layers = e->p.type_layers;
    e->p.type_layers = NULL;       /* ours only once copied: the free below must never see the caller's */
    for (int i = 0; i < 4; i++) {
        if (strlen(*fields[i]) >= sizeof e->names[i])
            return kvant_fail(diag, KVANT_EINVAL, "name \"%.40s...\": wanted fewer than %zu characters", *fields[i],
                              sizeof e->names[i]);
        snprintf(e->names[i], sizeof e->names[i], "%s", *fields[i]);
        *fields[i] = e->names[i];
    }
    if (layers) {
        e->p.type_layers = kvant_strdup(layers);
        if (!e->p.type_layers)
            return kvant_fail(diag, KVANT_ENOMEM, "engine: out of memory");
    }
    return KVANT_OK;
}

static int create_all(kvant_engine *e, kvant_diag *diag)
{
    const kvant_device_config cfg = { .threads = e->p.threads };

    KVANT_TRY(engine_split_make(e->m, &e->p, &e->split, diag));
    e->parted = memcmp(e->split.of, e->split.experts, sizeof e->split.experts) != 0;
    KVANT_TRY(engine_check_room(e->m, &e->p, 0, diag));
    KVANT_TRY(check_memory(e, diag));
    e->p.split = e->p.tensors = NULL;  /* the caller's strings: not kept */
    for (int i = 0; i < e->split.n; i++)
        KVANT_TRY(device_open(e->split.name[i], &cfg, &e->place[i].dev, diag));
    KVANT_TRY(engine_create_cache(e, diag));
    KVANT_TRY(create_inputs(e, diag));
    KVANT_TRY(create_outputs(e, diag));
    KVANT_TRY(create_program(e, diag));
    bind_builder(e);
    KVANT_TRY(tensor_create(e, diag));
    KVANT_TRY(engine_sample_program(e, KVANT_PAGE, 1, diag));
    KVANT_TRY(engine_load_weights(e, diag));
    if (e->way.tensor)
        tensor_ranges(e);
    KVANT_TRY(engine_choose_ops(e, diag));
    return engine_stream_create(e, diag);
}

int kvant_engine_create(kvant_model *m, const kvant_engine_params *p, kvant_engine **out, kvant_diag *diag)
{
    kvant_engine *e = kvant_calloc(1, sizeof *e);
    int code;

    if (!e)
        return kvant_fail(diag, KVANT_ENOMEM, "engine: out of memory");
    e->m = m;
    code = engine_resolve(m, p, &e->p, diag);
    if (code == KVANT_OK)
        code = keep_names(e, diag);
    if (code == KVANT_OK)
        code = create_all(e, diag);
    if (code < 0) {
        kvant_engine_free(e);
        return code;
    }
    *out = e;
    return KVANT_OK;
}

static void free_place(engine_place *at)
{
    void *mem[] = { at->scratch, at->in_dev, at->lora_rows };

    if (!at->dev)
        return;
    for (int i = 0; i < at->n_projections; i++)
        at->dev->vt->free(at->dev, at->projections[i]);
    kvant_free(at->projections);
    for (size_t i = 0; i < sizeof mem / sizeof *mem; i++)
        if (mem[i])
            at->dev->vt->free(at->dev, mem[i]);
    at->dev->vt->close(at->dev);
}

void kvant_engine_free(kvant_engine *e)
{
    if (!e)
        return;
    engine_relay_release(e);
    engine_profile_end(e);
    tensor_free(e);
    engine_stream_close(e);
    engine_free_weights(e);
    kv_destroy(&e->kv);
    kvant_free(e->way.part_heads);
    for (int i = 0; i < e->split.n; i++)
        free_place(&e->place[i]);
    kvant_free(e->way.host);
    kvant_free(e->cross);
    kvant_free(e->way.relay);
    kvant_free(e->way.reads.seen);
    arena_free(&e->args);
    kvant_free(e->ops);
    kvant_free(e->in_host);
    kvant_free(e->in_sent);
    kvant_free(e->logits);
    kvant_free(e->item_row);
    kvant_free(e->item_rows);
    kvant_free(e->tokens);
    kvant_free(e->top);
    kvant_free(e->top_ids);
    kvant_free(e->item_code);
    kvant_free(e->item_draft);
    kvant_free(e->lora_scales);
    kvant_free(e->hidden_sum);
    kvant_free(e->hidden_last);
    kvant_free(e->hidden_rows);
    kvant_free(e->hidden_sinks);
    engine_mtp_free(e);
    kvant_free(e->types);
    kvant_free(e->kinds);
    kvant_free((void *)e->p.type_layers);
    kvant_free(e);
}

/* ---- questions ---- */

const kvant_model *kvant_engine_model(const kvant_engine *e)
{
    return e->m;
}

const kvant_engine_params *kvant_engine_get_params(const kvant_engine *e)
{
    return &e->p;
}

const char *kvant_engine_device(const kvant_engine *e, int i)
{
    return i >= 0 && i < e->split.n ? e->split.name[i] : NULL;
}

void kvant_engine_describe(const kvant_engine *e, char *buf, int cap)
{
    int used = 0;

    for (int i = 0; i < e->split.n && used < cap; i++) {
        int layers = 0, experts = 0;
        for (int l = 0; l <= e->m->hp.n_layer; l++) {
            layers += e->split.of[l] == i;
            experts += l < e->m->hp.n_layer && e->split.experts[l] == i && e->split.of[l] != i;
        }
        if (e->split.tensors)
            used += snprintf(buf + used, (size_t)(cap - used), "%sa part of every layer on ", i ? "; " : "");
        else if (e->split.n > 1 && layers)
            used += snprintf(buf + used, (size_t)(cap - used), "%s%d layers%s", i ? "; " : "", layers,
                             experts ? ", " : " on ");
        if (experts && used < cap)
            used += snprintf(buf + used, (size_t)(cap - used), "%sexperts of %d layers on ", layers ? "" : "; ",
                             experts);
        if (used >= cap)
            break;
        if (used < cap)
            e->place[i].dev->vt->describe(e->place[i].dev, buf + used, cap - used);
        used += (int)strlen(buf + (used < cap ? used : cap - 1));
    }
}

/* ---- sequences ---- */

int kvant_seq_new(kvant_engine *e, int *seq, kvant_diag *diag)
{
    KVANT_TRY(kv_seq_new(&e->kv, seq, diag));
    engine_lora_set(e, *seq, NULL);
    return KVANT_OK;
}

int kvant_seq_free(kvant_engine *e, int seq)
{
    if (!kv_seq_valid(&e->kv, seq))
        return KVANT_EINVAL;
    kv_seq_free(&e->kv, seq);
    return KVANT_OK;
}

int kvant_seq_fork(kvant_engine *e, int src, int *seq, kvant_diag *diag)
{
    int dst, code;

    if (!kv_seq_valid(&e->kv, src) || e->kv.seqs[src].broken)
        return kvant_fail(diag, KVANT_EINVAL, "fork: sequence %d does not exist or failed in an earlier step", src);
    if (!e->kv.late && e->kv.seqs[src].len % KVANT_PAGE && e->kv.pages.n_free < 1)
        return kvant_fail(diag, KVANT_ENOSPC, "fork: none of %d pages is free", e->kv.pages.n);
    KVANT_TRY(kv_seq_new(&e->kv, &dst, diag));
    code = kv_seq_fork(&e->kv, src, dst, diag);
    if (code < 0) {
        kv_seq_free(&e->kv, dst);
        return code;
    }
    engine_lora_copy(e, src, dst);
    *seq = dst;
    return KVANT_OK;
}

int kvant_seq_length(const kvant_engine *e, int seq)
{
    return kv_seq_valid(&e->kv, seq) ? e->kv.seqs[seq].len : KVANT_EINVAL;
}

int kvant_seq_draft_room(const kvant_engine *e, int seq)
{
    const int ring = e->kv.cfg.ring_rows, room = kv_seq_valid(&e->kv, seq) ? kv_draft_room(&e->kv, seq) : KVANT_EINVAL;

    if (room < 0 || kvant_engine_verifies(e, NULL) < 0)
        return room < 0 ? room : 0;
    const int most = e->p.mtp && room > ENGINE_MTP_ROWS - 1 ? ENGINE_MTP_ROWS - 1 : room;
    return ring > 0 && ring - 1 < most ? ring - 1 : most;
}

int kvant_engine_verifies(const kvant_engine *e, kvant_diag *diag)
{
    for (int l = 0; l < e->m->hp.n_layer; l++)
        if (kv_has_state(&e->kv.cfg, l) && e->kv.cfg.ring_rows < 2)
            return kvant_fail(diag, KVANT_EUNSUPPORTED,
                              "drafts: layer %d is recurrent, and draft_rows is %d, wanted at least 2", l,
                              e->kv.cfg.ring_rows);
    return KVANT_OK;
}

int kvant_seq_accept(kvant_engine *e, int seq, int n, kvant_diag *diag)
{
    kv_seq *s = kv_seq_valid(&e->kv, seq) ? &e->kv.seqs[seq] : NULL;

    if (!s || s->broken)
        return kvant_fail(diag, KVANT_EINVAL, "accept: sequence %d does not exist or failed in an earlier step", seq);
    if (n < 0 || n > s->draft)
        return kvant_fail(diag, KVANT_EINVAL, "accept: %d drafts of sequence %d, wanted 0 to %d", n, seq, s->draft);
    s->len += n;
    s->ring_n += e->kv.cfg.ring_rows > 0 ? n : 0;
    s->draft = 0;
    engine_mtp_accept(e, seq, n);
    kv_pass_end(&e->kv, seq, s->len);
    return KVANT_OK;
}

int engine_seq_rewind(kvant_engine *e, int seq, int len)
{
    kv_seq *s = kv_seq_valid(&e->kv, seq) ? &e->kv.seqs[seq] : NULL;

    if (!s || s->broken || len > s->len || (len < s->len && len < s->len / KVANT_PAGE * KVANT_PAGE) ||
        (len < s->len && s->len % KVANT_PAGE == 0))
        return KVANT_EINVAL;
    s->len = len;
    s->draft = s->hold = 0;
    kv_trim(&e->kv, seq);
    return KVANT_OK;
}

void engine_seq_hold(kvant_engine *e, int seq, int len)
{
    e->kv.seqs[seq].hold = len;
}

int64_t kvant_seq_cache_bytes(const kvant_engine *e, int seq)
{
    return kv_seq_valid(&e->kv, seq) ? kv_seq_bytes(&e->kv, seq) : KVANT_EINVAL;
}
