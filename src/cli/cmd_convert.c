/* cmd_convert.c: `kvant convert`: the face of model_convert. */
#include <string.h>
#include <strings.h>
#include "cli/common.h"
#include "cli/term.h"
#include "make/convert/convert.h"
#include "text/pretok.h"

static int on_tensor(void *user, int i, int n)
{
    progress *bar = user;

    if (i == 0)
        progress_start(bar, "convert", n);
    progress_show(bar, i);
    return term_interrupted();
}

static int check_pre(const char *name, kvant_diag *diag)
{
    pretok *p = NULL;

    if (!name)
        return KVANT_OK;
    KVANT_TRY(pretok_open(name, strlen(name), PRETOK_NO_JIT, &p, diag));
    pretok_close(p);
    return KVANT_OK;
}

static int report(const opts *o, const convert_result *r, kvant_diag *diag)
{
    char size[32];
    jsonw w;

    if (!opt_flag(o, OPT_JSON)) {
        printf("%s: %s, %d tensors, %s, %s", o->pos[1], r->arch, r->n_tensors, r->type,
               human_bytes((int64_t)r->bytes, size, sizeof size));
        if (r->n_mtp)
            printf("; %d of its blocks predict%s further tokens (--spec mtp)", r->n_mtp, r->n_mtp == 1 ? "s" : "");
        if (r->n_left_out)
            printf("; %d tensors left out (not of the language model)", r->n_left_out);
        printf("\n");
        return KVANT_OK;
    }
    jsonw_init(&w);
    jsonw_object(&w);
    jsonw_kstr(&w, "file", o->pos[1]);
    jsonw_kstr(&w, "architecture", r->arch);
    jsonw_kstr(&w, "type", r->type);
    jsonw_kint(&w, "n_tensors", r->n_tensors);
    jsonw_kint(&w, "n_left_out", r->n_left_out);
    jsonw_kint(&w, "n_mtp", r->n_mtp);
    jsonw_kint(&w, "bytes", (int64_t)r->bytes);
    jsonw_end(&w);
    const int rc = put_json(&w, diag);
    jsonw_free(&w);
    return rc;
}

int cmd_convert(const opts *o, kvant_diag *diag)
{
    const char *type = opt_str(o, OPT_OUTTYPE);
    convert_params p = { .name = opt_str(o, OPT_MODEL_NAME), .pre = opt_str(o, OPT_PRE_TOKENIZER),
                         .no_mtp = opt_flag(o, OPT_NO_MTP) };
    convert_result r;
    progress bar;

    memset(&bar, 0, sizeof bar);
    if (o->n_pos != 2)
        return kvant_fail(diag, KVANT_EINVAL, "found %d words, wanted FOLDER OUT.gguf", o->n_pos);
    p.type = type && strcasecmp(type, "auto") != 0 ? kvant_wtype_find(type) : NULL;
    KVANT_TRY(check_pre(p.pre, diag));
    term_catch_interrupt();
    const int code = model_convert(o->pos[0], o->pos[1], &p, on_tensor, &bar, &r, diag);
    progress_end(&bar);
    return code == KVANT_OK ? report(o, &r, diag) : code;
}
