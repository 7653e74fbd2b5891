/* cmd_eval_needle.c: `kvant eval needle`: a number noted far back must come back digit by digit.
 *
 * Document of L tokens: filler text, six notes as paragraphs of their own, note i as near as a paragraph end allows to
 * (i+.5)/6 of L, and at the end a question about one of the six.  The answer is greedy; a document counts when
 * the first five characters are the five digits.  Seed: names, numbers, the note asked for, the filler's start. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cli/eval/eval.h"
#include "cli/table.h"
#include "cli/term.h"

enum { NOTES = 6, DIGITS = 5, ANSWER_TOKENS = 12, MAX_LIST = 256, NOTE_CAP = 128, SLACK = 2048 };

static const char *const names[NOTES] = { "Marianne", "Edward", "Harriet", "Clara", "Walter", "Tobias" };

typedef struct needle {
    const opts *o;
    kvant_model *m;
    kvant_engine *e;
    int32_t *filler;
    int n_filler;
    unsigned char *para_end; /* filler token i ends a paragraph */
    int32_t *doc;
    int n_doc;
    int64_t lengths[MAX_LIST], seeds[MAX_LIST];
    int n_lengths, n_seeds, max_length;
    jsonw w;
    int json, n_shown;
    double worst;
} needle;

typedef struct needle_doc {
    int order[NOTES], number[NOTES], asked, start;
} needle_doc;

/* ---- documents ---- */

static void make_doc(needle *n, uint64_t seed, int length, needle_doc *d)
{
    rng r = { seed * 7919 + (uint64_t)length };

    for (int i = 0; i < NOTES; i++) {
        int j = (int)rng_below(&r, (uint32_t)i + 1);
        d->order[i] = d->order[j];
        d->order[j] = i;
    }
    for (int i = 0; i < NOTES; i++)
        d->number[i] = 10000 + (int)rng_below(&r, 90000);
    d->asked = (int)(seed % NOTES); /* every depth is asked equally often over consecutive seeds */
    d->start = n->n_filler > length ? (int)rng_below(&r, (uint32_t)(n->n_filler - length)) : 0;
}

static int put_text(needle *n, const char *text, kvant_diag *diag)
{
    int got;

    KVANT_TRY(
        kvant_tokenize(n->m, text, strlen(text), 0, n->doc + n->n_doc, n->max_length + SLACK - n->n_doc, &got, diag));
    n->n_doc += got;
    return KVANT_OK;
}

/* Filler from *at until the document has `until` tokens, and on to the end of the paragraph (at most `slack` more). */
static void put_filler(needle *n, int *at, int until, int slack)
{
    int32_t *doc = n->doc;

    for (int last = 0; n->n_doc < until + slack && (n->n_doc < until || !last);) {
        last = n->para_end[*at];
        doc[n->n_doc++] = n->filler[*at];
        *at = (*at + 1) % n->n_filler;
    }
}

static int build_doc(needle *n, const needle_doc *d, int length, kvant_diag *diag)
{
    char text[NOTE_CAP], question[NOTE_CAP];
    int at = d->start, tail;

    snprintf(question, sizeof question, "\n\n[What is the number of %s? It is ", names[d->order[d->asked]]);
    n->n_doc = 0;
    KVANT_TRY(put_text(n, question, diag)); /* only to know its length */
    tail = n->n_doc;
    n->n_doc = 0;
    if (kvant_token_add_bos(n->m) && kvant_token_bos(n->m) >= 0)
        n->doc[n->n_doc++] = kvant_token_bos(n->m);
    for (int i = 0; i < NOTES; i++) {
        put_filler(n, &at, (int)((i + 0.5) / NOTES * length), length / 32);
        snprintf(text, sizeof text, "[Note: the number of %s is %d.]\n\n", names[d->order[i]], d->number[i]);
        KVANT_TRY(put_text(n, text, diag));
    }
    put_filler(n, &at, length - tail, 0);
    KVANT_TRY(put_text(n, question, diag));
    if (n->n_doc > length + length / 32)
        return kvant_fail(diag, KVANT_EINVAL,
                          "length: found %d, wanted more: six notes and a question take %d tokens of it", length,
                          n->n_doc);
    return KVANT_OK;
}

/* ---- one document ---- */

static int greedy_text(needle *n, int seq, char *out, size_t cap, kvant_diag *diag)
{
    int n_vocab = kvant_model_get_info(n->m)->n_vocab;
    kvant_detok detok = { { 0 }, 0 };
    char piece[512];

    out[0] = 0;
    for (int i = 0; i < ANSWER_TOKENS && strlen(out) < DIGITS + 2; i++) {
        int32_t token = eval_argmax(kvant_step_logits(n->e, 0, 0), n_vocab);
        kvant_item item = { seq, &token, 1, 0, KVANT_LOGITS_LAST };
        if (kvant_token_is_eog(n->m, token))
            break;
        int len = kvant_detok_push(n->m, &detok, token, piece, sizeof piece);
        if (len < 0)
            return kvant_fail(diag, len, "token %d: detokeniser failed", token);
        strncat(out, piece, cap - strlen(out) - 1);
        KVANT_TRY(kvant_step(n->e, &item, 1, diag));
    }
    return KVANT_OK;
}

static int is_right(const char *answer, int number)
{
    char want[16];

    while (*answer == ' ')
        answer++;
    snprintf(want, sizeof want, "%d", number);
    return strncmp(answer, want, DIGITS) == 0 && !isdigit((unsigned char)answer[DIGITS]);
}

static int ask(needle *n, uint64_t seed, int length, int *hit, kvant_diag *diag)
{
    needle_doc d;
    char answer[64];
    int seq;

    if (term_interrupted())
        return kvant_fail(diag, KVANT_ECANCELED, "stopped by Ctrl-C");
    make_doc(n, seed, length, &d);
    KVANT_TRY(build_doc(n, &d, length, diag));
    KVANT_TRY(kvant_seq_new(n->e, &seq, diag));
    KVANT_TRY(feed_prompt(n->e, seq, n->doc, n->n_doc, 2048, KVANT_LOGITS_LAST, NULL, diag));
    KVANT_TRY(greedy_text(n, seq, answer, sizeof answer, diag));
    *hit = is_right(answer, d.number[d.asked]);
    log_msg(LOG_DEBUG, "length %d, seed %llu, note %d: wanted %d, found \"%s\"", length, (unsigned long long)seed,
            d.asked, d.number[d.asked], answer);
    return kvant_seq_free(n->e, seq);
}

/* ---- results ---- */

typedef struct needle_result {
    int length, tokens, right, asked[NOTES], found[NOTES];
    double seconds;
} needle_result;

static void show(needle *n, const needle_result *r)
{
    const kvant_engine_params *p = kvant_engine_get_params(n->e);
    double accuracy = (double)r->right / n->n_seeds;

    if (!n->json) {
        static const char columns[] =
            "K|V|>tail|encoder|>length|>right|>of|>accuracy|by depth, first to last note";
        char depths[32 * NOTES];
        for (int i = 0, used = 0; i < NOTES; i++)
            used += snprintf(depths + used, sizeof depths - (size_t)used, "%s%d/%d", i ? " " : "", r->found[i],
                             r->asked[i]);
        if (n->n_shown == 0)
            table_head(stdout, columns);
        table_row(stdout, columns, "%s|%s|%d|%s|%d|%d|%d|%.3f|%s", p->type_k, p->type_v, p->kv_tail,
                  encoder_name(p->encoder), r->length, r->right, n->n_seeds, accuracy, depths);
        fflush(stdout);
        return;
    }
    jsonw_object(&n->w);
    jsonw_kstr(&n->w, "type_k", p->type_k);
    jsonw_kstr(&n->w, "type_v", p->type_v);
    jsonw_kint(&n->w, "kv_tail", p->kv_tail);
    jsonw_kint(&n->w, "kv_sink", p->kv_sink);
    jsonw_kstr(&n->w, "kv_encoder", encoder_name(p->encoder));
    jsonw_kint(&n->w, "length", r->length);
    jsonw_kint(&n->w, "right", r->right);
    jsonw_kint(&n->w, "documents", n->n_seeds);
    jsonw_knum(&n->w, "accuracy", accuracy);
    jsonw_key(&n->w, "by_note");
    jsonw_array(&n->w);
    for (int i = 0; i < NOTES; i++) {
        jsonw_object(&n->w);
        jsonw_kint(&n->w, "right", r->found[i]);
        jsonw_kint(&n->w, "asked", r->asked[i]);
        jsonw_end(&n->w);
    }
    jsonw_end(&n->w);
    jsonw_knum(&n->w, "seconds", r->seconds);
    jsonw_end(&n->w);
}

static int run_length(needle *n, int length, kvant_diag *diag)
{
    needle_result r;
    progress pr;
    char bar[96];
    const kvant_engine_params *p = kvant_engine_get_params(n->e);
    int64_t t0 = clock_ns();

    memset(&r, 0, sizeof r);
    r.length = length;
    snprintf(bar, sizeof bar, "%s/%s at %d", p->type_k, p->type_v, length);
    progress_start(&pr, bar, n->n_seeds);
    for (int i = 0; i < n->n_seeds; i++) {
        int hit = 0, note = (int)((uint64_t)n->seeds[i] % NOTES);
        KVANT_TRY(ask(n, (uint64_t)n->seeds[i], length, &hit, diag));
        r.right += hit;
        r.asked[note]++;
        r.found[note] += hit;
        progress_show(&pr, i + 1);
    }
    progress_end(&pr);
    r.seconds = (double)(clock_ns() - t0) / 1e9;
    if ((double)r.right / n->n_seeds < n->worst)
        n->worst = (double)r.right / n->n_seeds;
    show(n, &r);
    n->n_shown++;
    return KVANT_OK;
}

static int run_pair(needle *n, const kv_pair *pair, kvant_diag *diag)
{
    kvant_engine_params p;
    int code;

    params_from_opts(n->o, &p);
    p.type_k = pair->k;
    p.type_v = pair->v;
    p.n_ctx = n->max_length + n->max_length / 32 + 2 * ANSWER_TOKENS;
    code = open_engine(n->m, &p, &n->e, diag);
    for (int i = 0; i < n->n_lengths && code == KVANT_OK; i++)
        code = run_length(n, (int)n->lengths[i], diag);
    kvant_engine_free(n->e);
    n->e = NULL;
    return code;
}

/* ---- setup ---- */

static int ends_paragraph(const kvant_model *m, int32_t id)
{
    char text[256];
    int len = kvant_token_bytes(m, id, 0, text, sizeof text);

    return len >= 2 && len <= (int)sizeof text && text[len - 1] == '\n' && text[len - 2] == '\n';
}

static int load_filler(needle *n, kvant_diag *diag)
{
    char path[1024], *text;
    size_t size;
    int code;

    KVANT_TRY(eval_text_path(n->o, path, sizeof path, diag));
    KVANT_TRY(read_text(path, &text, &size, diag));
    code = tokenize_all(n->m, text, size, 0, &n->filler, &n->n_filler, diag);
    kvant_free(text);
    if (code != KVANT_OK)
        return code;
    n->para_end = kvant_calloc((size_t)n->n_filler + 1, 1);
    n->doc = kvant_calloc((size_t)n->max_length + SLACK, sizeof *n->doc);
    if (!n->para_end || !n->doc)
        return kvant_fail(diag, KVANT_ENOMEM, "needle: out of memory");
    if (n->n_filler < 16)
        return kvant_fail(diag, KVANT_EINVAL, "%.120s: found %d tokens of filler, wanted at least 16", path,
                          n->n_filler);
    for (int i = 0; i < n->n_filler; i++)
        n->para_end[i] = (unsigned char)ends_paragraph(n->m, n->filler[i]);
    return KVANT_OK;
}

static int needle_all(needle *n, kvant_diag *diag)
{
    kv_pair *pairs = kvant_calloc(MAX_PAIRS, sizeof *pairs);
    int n_pairs = 0, code = pairs ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "needle: out of memory");

    if (code == KVANT_OK)
        code = pairs_from_opts(n->o, pairs, MAX_PAIRS, &n_pairs, diag);
    if (code == KVANT_OK)
        code = load_filler(n, diag);
    jsonw_object(&n->w);
    jsonw_kstr(&n->w, "model", kvant_model_get_info(n->m)->desc);
    jsonw_key(&n->w, "results");
    jsonw_array(&n->w);
    for (int i = 0; i < n_pairs && code == KVANT_OK; i++)
        code = run_pair(n, &pairs[i], diag);
    jsonw_end(&n->w);
    jsonw_end(&n->w);
    kvant_free(pairs);
    if (code == KVANT_OK && n->json)
        code = put_json(&n->w, diag);
    if (code == KVANT_OK && n->worst < opt_num(n->o, OPT_NEEDLE_GATE))
        code = kvant_fail(diag, KVANT_EGATE, "needle accuracy: found %.3f, wanted at least %.3f", n->worst,
                          opt_num(n->o, OPT_NEEDLE_GATE));
    return code;
}

int cmd_eval_needle(const opts *o, kvant_diag *diag)
{
    needle n;
    int code;

    memset(&n, 0, sizeof n);
    n.o = o;
    n.json = opt_flag(o, OPT_JSON);
    n.worst = 1;
    KVANT_TRY(opt_ints(o, OPT_LENGTHS, n.lengths, MAX_LIST, &n.n_lengths, diag));
    KVANT_TRY(opt_ints(o, OPT_SEEDS, n.seeds, MAX_LIST, &n.n_seeds, diag));
    for (int i = 0; i < n.n_lengths; i++)
        n.max_length = n.lengths[i] > n.max_length ? (int)n.lengths[i] : n.max_length;
    KVANT_TRY(open_model(o, &n.m, diag));
    term_catch_interrupt();
    jsonw_init(&n.w);
    code = needle_all(&n, diag);
    jsonw_free(&n.w);
    kvant_free(n.filler);
    kvant_free(n.para_end);
    kvant_free(n.doc);
    kvant_model_close(n.m);
    return code;
}
