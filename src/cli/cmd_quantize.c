/* cmd_quantize.c: `kvant quantize`: the face of model_quantize. */
#include <string.h>
#include "base/log.h"
#include "cli/common.h"
#include "cli/term.h"
#include "kvant/wtype.h"
#include "make/quantize.h"

typedef struct quantize_view {
    progress bar;
    jsonw w;
    int json, verbose;
} quantize_view;

static int on_tensor(void *user, const quantize_event *e)
{
    quantize_view *v = user;

    if (e->i == 0)
        progress_start(&v->bar, "quantize", e->n);
    progress_show(&v->bar, e->i);
    log_msg(e->action == QUANTIZE_FALLBACK ? LOG_INFO : LOG_DEBUG, "%d/%d %s: %s -> %s%s%s", e->i + 1, e->n, e->name,
            e->from, e->to, e->note[0] ? ", " : "", e->note);
    if (v->json) {
        jsonw_object(&v->w);
        jsonw_kstr(&v->w, "name", e->name);
        jsonw_kstr(&v->w, "from", e->from);
        jsonw_kstr(&v->w, "to", e->to);
        jsonw_kstr(&v->w, "note", e->note);
        jsonw_kint(&v->w, "in_bytes", (int64_t)e->in_bytes);
        jsonw_kint(&v->w, "out_bytes", (int64_t)e->out_bytes);
        jsonw_end(&v->w);
    }
    return term_interrupted();
}

/* The types that can be written, after what `known` holds. */
static void add_writable(char *known, size_t size)
{
    for (int i = 0; i < kvant_wtype_count(); i++)
        if (kvant_wtype_at(i)->quant) {
            size_t n = strlen(known);
            snprintf(known + n, size - n, "%s%s", n ? " " : "", kvant_wtype_at(i)->name);
        }
}

/* A mixture or a type. */
static int find_wanted(const char *name, quantize_params *p, kvant_diag *diag)
{
    char known[320] = "";
    const kvant_wtype *t = kvant_wtype_find(name);

    p->mix = quantize_mix_find(name);
    p->type = p->mix ? quantize_mix_base(p->mix) : t && t->quant ? t : NULL;
    if (p->type)
        return KVANT_OK;
    for (int i = 0; quantize_mix_at(i); i++) {
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", n ? " " : "", quantize_mix_name(quantize_mix_at(i)));
    }
    add_writable(known, sizeof known);
    return kvant_fail(diag, KVANT_EINVAL, "TYPE: found \"%.40s\"%s, wanted one of %s", name,
                      t ? ", which can be read but not written" : "", known);
}

static int find_type(const char *what, const char *name, const kvant_wtype **out, kvant_diag *diag)
{
    char known[240] = "";
    const kvant_wtype *t = kvant_wtype_find(name);

    add_writable(known, sizeof known);
    if (!t || !t->quant)
        return kvant_fail(diag, KVANT_EINVAL, "%s: found \"%.40s\", wanted one of %s", what, name, known);
    *out = t;
    return KVANT_OK;
}

static int read_params(const opts *o, quantize_params *p, kvant_diag *diag)
{
    memset(p, 0, sizeof *p);
    if (o->n_pos != 3)
        return kvant_fail(diag, KVANT_EINVAL, "found %d words, wanted IN.gguf OUT.gguf TYPE", o->n_pos);
    KVANT_TRY(find_wanted(o->pos[2], p, diag));
    if (opt_str(o, OPT_EMBD_TYPE))
        KVANT_TRY(find_type(opt_origin(o, OPT_EMBD_TYPE), opt_str(o, OPT_EMBD_TYPE), &p->embd_type, diag));
    if (opt_str(o, OPT_OUTPUT_TYPE))
        KVANT_TRY(find_type(opt_origin(o, OPT_OUTPUT_TYPE), opt_str(o, OPT_OUTPUT_TYPE), &p->output_type, diag));
    p->keep_output = opt_flag(o, OPT_LEAVE_OUTPUT);
    p->allow_requantize = opt_flag(o, OPT_REQUANTIZE);
    p->imatrix = opt_str(o, OPT_IMATRIX_IN);
    return KVANT_OK;
}

static int report(quantize_view *v, const char *out, const quantize_result *r, kvant_diag *diag)
{
    char a[32], b[32];

    if (!v->json) {
        printf("%s: %d tensors, %d converted (%d with an importance), %d by a fallback; %s -> %s\n", out, r->n_tensors,
               r->n_converted, r->n_weighted, r->n_fallback, human_bytes((int64_t)r->in_bytes, a, sizeof a),
               human_bytes((int64_t)r->out_bytes, b, sizeof b));
        return KVANT_OK;
    }
    jsonw_end(&v->w);
    jsonw_kstr(&v->w, "file", out);
    jsonw_kint(&v->w, "n_tensors", r->n_tensors);
    jsonw_kint(&v->w, "n_converted", r->n_converted);
    jsonw_kint(&v->w, "n_fallback", r->n_fallback);
    jsonw_kint(&v->w, "n_weighted", r->n_weighted);
    jsonw_kint(&v->w, "in_bytes", (int64_t)r->in_bytes);
    jsonw_kint(&v->w, "out_bytes", (int64_t)r->out_bytes);
    jsonw_end(&v->w);
    return put_json(&v->w, diag);
}

int cmd_quantize(const opts *o, kvant_diag *diag)
{
    quantize_view v;
    quantize_params p;
    quantize_result r;

    memset(&v, 0, sizeof v);
    v.json = opt_flag(o, OPT_JSON);
    KVANT_TRY(read_params(o, &p, diag));
    term_catch_interrupt();
    jsonw_init(&v.w);
    jsonw_object(&v.w);
    jsonw_key(&v.w, "tensors");
    jsonw_array(&v.w);
    int code = model_quantize(o->pos[0], o->pos[1], &p, on_tensor, &v, &r, diag);
    progress_end(&v.bar);
    if (code == KVANT_OK)
        code = report(&v, o->pos[1], &r, diag);
    jsonw_free(&v.w);
    return code;
}
