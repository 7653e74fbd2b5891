/* common.c: see common.h.  Owns nothing but the rules that the commands share. */
#include "cli/text/spec.h"
#include "cli/common.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "base/cpu.h"
#include "cli/adapters.h"
#include "cli/overrides.h"
#include "base/file/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/term.h"
#include "devices/device.h"
#include "kvant/format.h"
#include "text/utf8.h"

enum { MAX_TEXT = 1 << 30 };

/* ---- devices ---- */

void each_device(device_see see, void *ctx)
{
    char name[64];

    for (int i = 0; i < kvant_devices_count(); i++)
        for (int index = 0; index < (i ? 64 : 1); index++) {
            const kvant_device_vt *vt = kvant_devices_at(i);
            snprintf(name, sizeof name, i ? "%s:%d" : "%s", vt->name, index);
            if (!device_look(vt, index, name, see, ctx))
                break;
        }
}

static void list_one(void *ctx, const char *name, kvant_device *dev, const char *why)
{
    char text[256];

    if (dev)
        dev->vt->describe(dev, text, sizeof text);
    fprintf((FILE *)ctx, "%-10s %s%s\n", name, dev ? "" : "unavailable: ", dev ? text : why);
}

void list_devices(FILE *f)
{
    each_device(list_one, f);
}

/* ---- model and parameters ---- */

int model_path(const opts *o, const char **path, kvant_diag *diag)
{
    const char *m = opt_str(o, OPT_MODEL);

    if (o->n_pos && opt_given(o, OPT_MODEL) && opt_at(OPT_MODEL) && o->v[OPT_MODEL].origin[0] == '-')
        return kvant_fail(diag, KVANT_EINVAL, "model: found both %s %.60s and %.60s, wanted one",
                          opt_origin(o, OPT_MODEL), m, o->pos[0]);
    *path = o->n_pos ? o->pos[0] : m;
    if (!*path || !**path)
        return kvant_fail(diag, KVANT_EINVAL, "model: found none, wanted -m FILE.gguf");
    return KVANT_OK;
}

/* The text of --chat-template-file, the caller's to free; NULL: not given. */
static int template_text(const opts *o, char **text, kvant_diag *diag)
{
    enum { MOST = 1 << 20 };
    size_t n;

    *text = NULL;
    if (!opt_given(o, OPT_CHAT_TEMPLATE_FILE))
        return KVANT_OK;
    if (opt_given(o, OPT_CHAT_TEMPLATE))
        return kvant_fail(diag, KVANT_EINVAL, "%s and %s: wanted one of them", opt_origin(o, OPT_CHAT_TEMPLATE),
                          opt_origin(o, OPT_CHAT_TEMPLATE_FILE));
    KVANT_TRY(file_read(opt_str(o, OPT_CHAT_TEMPLATE_FILE), MOST, text, &n, diag));
    if (strlen(*text) == n && (strstr(*text, "{{") || strstr(*text, "{%")))
        return KVANT_OK;
    kvant_free(*text);
    return kvant_fail(diag, KVANT_EINVAL, "%s %s: not a Jinja template: found no {{ or {%% in its %zu bytes",
                      opt_origin(o, OPT_CHAT_TEMPLATE_FILE), opt_str(o, OPT_CHAT_TEMPLATE_FILE), n);
}

int open_model(const opts *o, kvant_model **m, kvant_diag *diag)
{
    const char *path;

    KVANT_TRY(model_path(o, &path, diag));
    return open_model_at(o, path, m, diag);
}

int open_model_at(const opts *o, const char *path, kvant_model **m, kvant_diag *diag)
{
    kvant_model_params p = { .size = sizeof(kvant_model_params), .path = path,
                             .chat_template = opt_str(o, OPT_CHAT_TEMPLATE),
                             .rope_freq_dtype = opt_str(o, OPT_ROPE_DTYPE) };
    adapters found = { 0 };
    overrides keys = { 0 };
    char *text;

    KVANT_TRY(template_text(o, &text, diag));
    p.chat_template = text ? text : p.chat_template;
    int code = adapters_from_opts(o, &found, diag);
    p.lora = found.list;
    p.n_lora = found.n;
    if (code == KVANT_OK)
        code = overrides_from_opts(o, &keys, diag);
    p.overrides = (const char *const *)keys.list;
    p.n_overrides = keys.n;
    if ((o->cmd == CMD_RUN || o->cmd == CMD_SERVE) && spec_from_opts(o) == KVANT_SPEC_MTP)
        p.nextn = opt_given(o, OPT_DRAFT_MODEL) ? opt_str(o, OPT_DRAFT_MODEL) : NULL;
    if (code == KVANT_OK)
        code = kvant_model_open(&p, m, diag);
    adapters_free(&found);
    overrides_free(&keys);
    kvant_free(text);
    return code;
}

int threads_of(int64_t given)
{
    return given <= 0 ? cpu_count() : (int)given;
}

/* More threads than CPUs wait for each other at every op: 64 on 2 CPUs take 7 times as long, and no answer depends on
 * their number. */
static int threads_from_opts(const opts *o)
{
    const int given = threads_of(opt_int(o, OPT_THREADS)), most = cpu_count();

    if (given <= most)
        return given;
    log_msg(LOG_WARN, "%s %d: %d threads are used, one for each CPU that this process may use",
            opt_origin(o, OPT_THREADS), given, most);
    return most;
}

static int has(const opts *o, int id)
{
    return opt_takes(opt_at(id), o->cmd);
}

/* -ngl N as the engine has it: 0 is all of them, as auto and all are. */
static int gpu_layers_of(const opts *o)
{
    const int gpu = has(o, OPT_NGL) && !device_is_cpu(opt_str(o, OPT_DEVICE));
    const long n = gpu ? strtol(opt_str(o, OPT_NGL), NULL, 10) : 0;

    return n < 0 ? 0 : n > INT_MAX ? INT_MAX : (int)n;
}

void params_from_opts(const opts *o, kvant_engine_params *p)
{
    *p = kvant_engine_defaults();
    p->device = opt_str(o, OPT_DEVICE);
    p->gpu_layers = gpu_layers_of(o);
    p->split = has(o, OPT_TENSOR_SPLIT) && several_devices(o) ? opt_str(o, OPT_TENSOR_SPLIT) : NULL;
    placement_from_opts(o, p);
    p->compute = opt_is(o, OPT_COMPUTE, "f32") ? KVANT_COMPUTE_F32 : KVANT_COMPUTE_AUTO;
    p->type_layers = opt_str(o, OPT_CTL);
    p->state_type = opt_is(o, OPT_STATE_TYPE, "bf16") ? "bf16" : "f32";
    if (opt_given(o, OPT_QJL_PROJECTION))
        p->qjl_projection = opt_str(o, OPT_QJL_PROJECTION);
    if (has(o, OPT_THREADS))
        p->threads = threads_from_opts(o);
    if (has(o, OPT_UBATCH))
        p->n_ubatch = (int)opt_int(o, OPT_UBATCH);
    if (has(o, OPT_CTX))
        p->n_ctx = (int)opt_int(o, OPT_CTX);
    if (has(o, OPT_CTK)) {
        p->type_k = kvant_format_find(opt_str(o, OPT_CTK))->name;
        p->type_v = kvant_format_find(opt_str(o, OPT_CTV))->name;
    }
    p->full_windows = opt_flag(o, OPT_SWA_FULL);
    if (has(o, OPT_SINK))
        p->kv_sink = (int)opt_int(o, OPT_SINK);
    if (has(o, OPT_TAIL)) {
        p->kv_tail = (int)opt_int(o, OPT_TAIL);
        p->encoder = encoder_of(opt_str(o, OPT_ENCODER));
    }
}

/* ---- texts ---- */

static int read_stdin(char **text, size_t *size, kvant_diag *diag)
{
    size_t cap = 1 << 16, n = 0, got;
    char *buf = kvant_alloc(cap), *bigger;

    while (buf && (got = fread(buf + n, 1, cap - n - 1, stdin)) > 0) {
        n += got;
        if (n + 1 < cap)
            continue;
        bigger = cap < MAX_TEXT ? kvant_realloc(buf, cap, cap * 2) : NULL;
        if (!bigger)
            kvant_free(buf);
        buf = bigger;
        cap *= 2;
    }
    if (!buf)
        return kvant_fail(diag, KVANT_ENOMEM, "standard input: no memory for more than %zu bytes", n);
    if (ferror(stdin)) {
        kvant_free(buf);
        return kvant_fail(diag, KVANT_EIO, "standard input: reading failed");
    }
    buf[n] = 0;
    *text = buf;
    *size = n;
    return KVANT_OK;
}

int check_utf8(const char *what, const char *text, size_t n, kvant_diag *diag)
{
    size_t ok = utf8_valid_prefix((const uint8_t *)text, n);

    if (ok < n)
        return kvant_fail(diag, KVANT_EINVAL, "%.120s: found byte 0x%02x at offset %zu, wanted UTF-8 text", what,
                          (unsigned)(unsigned char)text[ok], ok);
    return KVANT_OK;
}

int read_text(const char *path, char **text, size_t *size, kvant_diag *diag)
{
    char *data;
    size_t n;
    int code;

    if (strcmp(path, "-") == 0)
        KVANT_TRY(read_stdin(&data, &n, diag));
    else
        KVANT_TRY(file_read(path, MAX_TEXT, &data, &n, diag));
    code = n ? check_utf8(path, data, n, diag)
             : kvant_fail(diag, KVANT_EINVAL, "%.120s: found an empty file, wanted text", path);
    if (code != KVANT_OK) {
        kvant_free(data);
        return code;
    }
    *text = data;
    *size = n;
    return KVANT_OK;
}

int tokenize_all(const kvant_model *m, const char *text, size_t size, int flags, int32_t **ids, int *n,
                 kvant_diag *diag)
{
    int cap = size / 3 + 16 > INT32_MAX / 4 ? INT32_MAX / 4 : (int)(size / 3) + 16, code;
    int32_t *v = NULL;

    for (;;) {
        kvant_free(v);
        v = kvant_calloc((size_t)cap, sizeof *v);
        if (!v)
            return kvant_fail(diag, KVANT_ENOMEM, "tokens: no memory for %d of them", cap);
        code = kvant_tokenize(m, text, size, flags, v, cap, n, diag);
        if (code != KVANT_ENOSPC || *n <= cap)
            break;
        cap = *n;
    }
    if (code != KVANT_OK) {
        kvant_free(v);
        return code;
    }
    *ids = v;
    return KVANT_OK;
}

/* ---- cache formats ---- */

int encoder_of(const char *name)
{
    return strcmp(name, "upstream") == 0 ? KVANT_ENCODER_UPSTREAM : KVANT_ENCODER_BEST;
}

const char *encoder_name(int encoder)
{
    return encoder == KVANT_ENCODER_UPSTREAM ? "upstream" : "best";
}

static int parse_pair(const opts *o, char *text, kv_pair *p, kvant_diag *diag)
{
    const kvant_format *k, *v;
    kvant_diag why = { "" };
    char *colon = strchr(text, ':');

    if (colon)
        *colon = 0;
    if (kvant_format_parse(text, &k, &why) != KVANT_OK ||
        kvant_format_parse(colon ? colon + 1 : text, &v, &why) != KVANT_OK)
        return kvant_fail(diag, KVANT_EINVAL, "%s: %.200s", opt_origin(o, OPT_PAIRS), why.text);
    *p = (kv_pair){ k->name, v->name };
    return KVANT_OK;
}

int pairs_from_opts(const opts *o, kv_pair *pairs, int cap, int *n, kvant_diag *diag)
{
    char a[128], b[128];

    *n = 0;
    for (int i = 0; opt_item(o, OPT_PAIRS, i, a, sizeof a); i++) {
        if (*n >= cap)
            return kvant_fail(diag, KVANT_EINVAL, "%s: more than %d pairs", opt_origin(o, OPT_PAIRS), cap);
        KVANT_TRY(parse_pair(o, a, &pairs[(*n)++], diag));
    }
    for (int i = 0; !opt_str(o, OPT_PAIRS) && opt_item(o, OPT_CTK_LIST, i, a, sizeof a); i++)
        for (int j = 0; opt_item(o, OPT_CTV_LIST, j, b, sizeof b); j++) {
            if (*n >= cap)
                return kvant_fail(diag, KVANT_EINVAL, "-ctk, -ctv: more than %d pairs", cap);
            pairs[(*n)++] = (kv_pair){ kvant_format_find(a)->name, kvant_format_find(b)->name };
        }
    return KVANT_OK;
}

int pair_is_wide(const kv_pair *p)
{
    return kvant_format_find(p->k)->flags & kvant_format_find(p->v)->flags & KVANT_FORMAT_WIDE;
}

/* ---- steps ---- */

/* kvant_engine_cancel is one atomic store: safe in a signal handler. */
static void cancel_step(void *engine)
{
    kvant_engine_cancel(engine);
}

/* One piece.  Ctrl-C ends it at the next device pass; a cancel that came after the last pass of an earlier step would
 * hit this one, so what a cancelled step that nobody interrupted left of its piece runs again. */
static int prompt_step(kvant_engine *e, const kvant_item *item, kvant_diag *diag)
{
    int code, before = kvant_seq_length(e, item->seq);

    if (term_interrupted())
        return KVANT_ECANCELED;
    term_on_interrupt(cancel_step, e);
    code = kvant_step(e, item, 1, diag);
    if (code == KVANT_ECANCELED && !term_interrupted()) {
        kvant_item rest = *item;
        int done = kvant_seq_length(e, item->seq) - before;
        rest.tokens += done;
        rest.n -= done;
        code = kvant_step(e, &rest, 1, diag);
    }
    term_on_interrupt(NULL, NULL);
    return code;
}

int feed_prompt(kvant_engine *e, int seq, const int32_t *ids, int n, int piece, int logits, const char *bar,
                kvant_diag *diag)
{
    progress pr;
    int code = KVANT_OK, at = 0;

    piece = (piece + KVANT_PAGE - 1) / KVANT_PAGE * KVANT_PAGE;
    progress_start(&pr, bar ? bar : "", n);
    pr.on &= bar != NULL;
    while (at < n && code == KVANT_OK) {
        int len = piece - kvant_seq_length(e, seq) % KVANT_PAGE; /* ends on the absolute grid */
        len = len < n - at ? len : n - at;
        kvant_item item = { seq, ids + at, len, 1, at + len == n ? logits : KVANT_LOGITS_NONE };
        code = prompt_step(e, &item, diag);
        at += code == KVANT_OK ? len : 0;
        progress_show(&pr, at);
    }
    progress_end(&pr);
    return code == KVANT_ECANCELED ? kvant_fail(diag, code, "stopped after %d of %d prompt tokens", at, n) : code;
}

int put_json(jsonw *w, kvant_diag *diag)
{
    int bad = jsonw_error(w);

    if (!bad)
        puts(w->buf);
    jsonw_free(w);
    return bad ? kvant_fail(diag, KVANT_ENOMEM, "report: out of memory") : KVANT_OK;
}
