/* eval_run.c: texts in chunks and the two paths of the engine over them (eval.h). */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/eval/eval.h"
#include "cli/term.h"

const char *path_name(int path)
{
    return path == PATH_DECODE ? "decode" : "prefill";
}

int eval_paths(const opts *o, int v[2])
{
    v[0] = opt_is(o, OPT_PATH, "decode") ? PATH_DECODE : PATH_PREFILL;
    v[1] = PATH_DECODE;
    return opt_is(o, OPT_PATH, "both") ? 2 : 1;
}

/* ---- text ---- */

int eval_text_path(const opts *o, char *buf, size_t cap, kvant_diag *diag)
{
    const char *dir = getenv("KVANT_MODELS");

    if (opt_str(o, OPT_TEXT)) {
        snprintf(buf, cap, "%s", opt_str(o, OPT_TEXT));
        return KVANT_OK;
    }
    snprintf(buf, cap, "%s/valid.txt", dir && *dir ? dir : "../shared/models");
    if (access(buf, R_OK) != 0)
        return kvant_fail(diag, KVANT_EINVAL, "text: found none (no %.120s), wanted -f FILE", buf);
    return KVANT_OK;
}

static int cut_chunks(const opts *o, eval_text *t, int32_t *ids, int n, kvant_diag *diag)
{
    int64_t want = opt_int(o, OPT_CHUNKS);
    int32_t bos = kvant_token_bos(t->m);

    t->n_ctx = (int)opt_int(o, OPT_EVAL_CTX);
    t->n_chunk = n / t->n_ctx;
    if (want >= 0 && want < t->n_chunk)
        t->n_chunk = (int)want;
    if (want == 0)
        return kvant_fail(diag, KVANT_EINVAL, "%s: found 0, wanted 1 or more, or -1", opt_origin(o, OPT_CHUNKS));
    if (t->n_chunk < 1)
        return kvant_fail(diag, KVANT_EINVAL, "text: found %d tokens, wanted at least one chunk of %d (-c)", n,
                          t->n_ctx);
    t->ids = ids;
    t->first = t->n_ctx / 2;
    t->rows = t->n_ctx - 1 - t->first;
    t->n_vocab = kvant_model_get_info(t->m)->n_vocab;
    for (int i = 0; i < t->n_chunk && bos >= 0 && kvant_token_add_bos(t->m); i++)
        ids[(int64_t)i * t->n_ctx] = bos;
    return KVANT_OK;
}

int eval_text_open(const opts *o, const kvant_model *m, eval_text *t, kvant_diag *diag)
{
    char path[1024], *text;
    size_t size;
    int32_t *ids;
    int n, code;

    memset(t, 0, sizeof *t);
    t->m = m;
    KVANT_TRY(eval_text_path(o, path, sizeof path, diag));
    KVANT_TRY(read_text(path, &text, &size, diag));
    code = tokenize_all(m, text, size, KVANT_TOK_BOS, &ids, &n, diag);
    kvant_free(text);
    if (code != KVANT_OK)
        return code;
    code = cut_chunks(o, t, ids, n, diag);
    if (code != KVANT_OK) {
        kvant_free(ids);
        t->ids = NULL;
    }
    return code;
}

void eval_text_close(eval_text *t)
{
    kvant_free(t->ids);
    t->ids = NULL;
}

int64_t eval_text_rows(const eval_text *t)
{
    return (int64_t)t->n_chunk * t->rows;
}

int32_t eval_target(const eval_text *t, int64_t row)
{
    return t->ids[row / t->rows * t->n_ctx + t->first + row % t->rows + 1];
}

/* ---- the paths ---- */

typedef struct eval_runner {
    kvant_engine *e;
    const eval_text *t;
    eval_row_fn fn;
    void *user;
    int piece;  /* prefill: tokens of a piece whose logits are all kept */
    int n_seqs; /* decode: chunks that run as one batch */
    progress bar;
    int64_t done; /* tokens */
} eval_runner;

static int interrupted(kvant_diag *diag)
{
    return term_interrupted() ? kvant_fail(diag, KVANT_ECANCELED, "stopped by Ctrl-C") : KVANT_OK;
}

/* Pieces of a prompt end on the 64-token grid; logits are kept from the piece in which the first scored row lies. */
static int prefill_chunk(eval_runner *r, int seq, int chunk, kvant_diag *diag)
{
    const eval_text *t = r->t;
    const int32_t *ids = t->ids + (int64_t)chunk * t->n_ctx;
    int silent = t->first / KVANT_PAGE * KVANT_PAGE, end = t->n_ctx - 1;

    for (int at = 0; at < end;) {
        int stop = at < silent ? silent : at + r->piece < end ? at + r->piece : end;
        kvant_item item = { seq, ids + at, stop - at, 1, at < silent ? KVANT_LOGITS_NONE : KVANT_LOGITS_ALL };
        KVANT_TRY(interrupted(diag));
        KVANT_TRY(kvant_step(r->e, &item, 1, diag));
        for (int i = at < silent ? stop : at; i < stop; i++)
            if (i >= t->first)
                KVANT_TRY(
                    r->fn(r->user, (int64_t)chunk * t->rows + i - t->first, kvant_step_logits(r->e, 0, i - at), diag));
        r->done += stop - at;
        at = stop;
        progress_show(&r->bar, r->done);
    }
    return KVANT_OK;
}

static int run_prefill(eval_runner *r, kvant_diag *diag)
{
    int seq;

    for (int c = 0; c < r->t->n_chunk; c++) {
        KVANT_TRY(kvant_seq_new(r->e, &seq, diag));
        KVANT_TRY(prefill_chunk(r, seq, c, diag));
        KVANT_TRY(kvant_seq_free(r->e, seq));
    }
    return KVANT_OK;
}

static int decode_step(eval_runner *r, kvant_item *items, int chunk0, int n, int at, kvant_diag *diag)
{
    const eval_text *t = r->t;

    for (int i = 0; i < n; i++) {
        items[i].tokens = t->ids + (int64_t)(chunk0 + i) * t->n_ctx + at;
        items[i].n = 1;
        items[i].prompt = 0;
        items[i].logits = at >= t->first ? KVANT_LOGITS_LAST : KVANT_LOGITS_NONE;
    }
    KVANT_TRY(interrupted(diag));
    KVANT_TRY(kvant_step(r->e, items, n, diag));
    for (int i = 0; i < n && at >= t->first; i++)
        KVANT_TRY(r->fn(r->user, (int64_t)(chunk0 + i) * t->rows + at - t->first, kvant_step_logits(r->e, i, 0), diag));
    r->done += n;
    progress_show(&r->bar, r->done);
    return KVANT_OK;
}

static int decode_group(eval_runner *r, kvant_item *items, int chunk0, int n, kvant_diag *diag)
{
    for (int i = 0; i < n; i++)
        KVANT_TRY(kvant_seq_new(r->e, &items[i].seq, diag));
    for (int at = 0; at + 1 < r->t->n_ctx; at++)
        KVANT_TRY(decode_step(r, items, chunk0, n, at, diag));
    for (int i = 0; i < n; i++)
        KVANT_TRY(kvant_seq_free(r->e, items[i].seq));
    return KVANT_OK;
}

static int run_decode(eval_runner *r, kvant_diag *diag)
{
    kvant_item *items = kvant_calloc((size_t)r->n_seqs, sizeof *items);
    int code = items ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "eval: no memory for %d sequences", r->n_seqs);

    for (int c = 0; code == KVANT_OK && c < r->t->n_chunk; c += r->n_seqs) {
        int left = r->t->n_chunk - c;
        code = decode_group(r, items, c, left < r->n_seqs ? left : r->n_seqs, diag);
    }
    kvant_free(items);
    return code;
}

/* ---- engine ---- */

enum { LOGIT_BYTES = 64 << 20, MAX_SEQS = 1024 };

/* As many chunks at once as fit in three quarters of the memory. */
static int fit_sequences(kvant_model *m, kvant_engine_params *p, int n_chunk, kvant_diag *diag)
{
    int64_t memory = device_memory(NULL);
    kvant_plan plan;

    p->max_seqs = n_chunk < MAX_SEQS ? n_chunk : MAX_SEQS;
    for (;; p->max_seqs = (p->max_seqs + 1) / 2) {
        p->logits_rows = p->max_seqs;
        KVANT_TRY(kvant_plan_make(m, p, &plan, diag));
        if (memory < 0 || plan.total <= memory - memory / 4 || p->max_seqs == 1)
            return KVANT_OK;
    }
}

static int set_shape(kvant_model *m, const eval_text *t, kvant_engine_params *p, int path, int *piece, kvant_diag *diag)
{
    int64_t rows = LOGIT_BYTES / ((int64_t)t->n_vocab * 4) / KVANT_PAGE * KVANT_PAGE;

    p->n_ctx = t->n_ctx;
    p->pool_tokens = 0;
    *piece = (int)(rows < KVANT_PAGE ? KVANT_PAGE : rows > 512 ? 512 : rows);
    if (path == PATH_DECODE)
        return fit_sequences(m, p, t->n_chunk, diag);
    p->max_seqs = 1;
    p->logits_rows = *piece;
    return KVANT_OK;
}

static void describe_stored(kvant_model *m, const kvant_engine *e, eval_stored *s)
{
    const kvant_engine_params *p = kvant_engine_get_params(e);
    kvant_plan plan;

    s->type_k = kvant_format_find(p->type_k)->name;
    s->type_v = kvant_format_find(p->type_v)->name;
    s->state_type = strcmp(p->state_type, "bf16") == 0 ? "bf16" : "f32"; /* the engine's copy goes with it */
    s->kv_tail = p->kv_tail;
    s->kv_sink = p->kv_sink;
    s->encoder = p->encoder;
    s->bytes_per_token = kvant_plan_make(m, p, &plan, NULL) == KVANT_OK ? plan.kv_bytes_per_token : 0;
}

int eval_run(kvant_model *m, const eval_text *t, const kvant_engine_params *params, int path, const char *bar,
             eval_row_fn fn, void *user, eval_stored *stored, kvant_diag *diag)
{
    kvant_engine_params p = *params;
    eval_runner r;

    memset(&r, 0, sizeof r);
    r.t = t;
    r.fn = fn;
    r.user = user;
    KVANT_TRY(set_shape(m, t, &p, path, &r.piece, diag));
    KVANT_TRY(open_engine(m, &p, &r.e, diag));
    describe_stored(m, r.e, stored);
    r.n_seqs = p.max_seqs;
    progress_start(&r.bar, bar, (int64_t)t->n_chunk * (t->n_ctx - 1));
    int64_t t0 = clock_ns();
    int code = path == PATH_DECODE ? run_decode(&r, diag) : run_prefill(&r, diag);
    stored->seconds = (double)(clock_ns() - t0) / 1e9;
    progress_end(&r.bar);
    kvant_engine_free(r.e);
    return code;
}
