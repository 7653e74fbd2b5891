/* cmd_plan.c: `kvant plan`: memory by pair of cache formats and context, and the largest context that fits. */
#include <inttypes.h>
#include <string.h>
#include "base/mem.h"
#include "cli/place/place_show.h"
#include "cli/serve/serve_room.h"
#include "cli/term.h"
#include "cli/text/spec.h"
#include "kvant/format.h"

enum { MAX_LIST = 64 };

typedef struct planner {
    const opts *o;
    kvant_model *m;
    kvant_engine_params p;
    kv_pair *pairs;
    int n_pairs;
    int64_t ctx[MAX_LIST], memory, most; /* what is shown; a limit of the plan beside those of p, -1: none */
    int n_ctx, json, n_shown, name_width;
    jsonw w;
} planner;

static void row_json(planner *l, const kv_pair *pair, const kvant_plan *plan, int largest, int fits)
{
    jsonw_object(&l->w);
    jsonw_kstr(&l->w, "type_k", pair->k);
    jsonw_kstr(&l->w, "type_v", pair->v);
    jsonw_kint(&l->w, "n_ctx", plan->n_ctx);
    jsonw_kint(&l->w, "sequences", plan->max_seqs);
    jsonw_kint(&l->w, "weights", plan->weights);
    jsonw_kint(&l->w, "kv", plan->kv);
    jsonw_kint(&l->w, "window", plan->window);
    jsonw_kint(&l->w, "tail", plan->tail);
    jsonw_kint(&l->w, "state", plan->state);
    jsonw_kint(&l->w, "scratch", plan->scratch);
    jsonw_kint(&l->w, "total", plan->total);
    jsonw_kint(&l->w, "kv_bytes_per_token", plan->kv_bytes_per_token);
    jsonw_kbool(&l->w, "fits", fits);
    jsonw_kint(&l->w, "largest_context", largest);
    jsonw_end(&l->w);
}

/* "tbq4_0", or "f16:tbq4_0" where the sides differ. */
static const char *pair_name(const kv_pair *p, char *buf, size_t cap)
{
    const int same = strcmp(p->k, p->v) == 0;

    snprintf(buf, cap, "%s%s%s", p->k, same ? "" : ":", same ? "" : p->v);
    return buf;
}

/* Columns are as wide as their widest text may be, and the line ends before column 80 unless both sides of a pair have
 * long names: a terminal never wraps it. */
static void row_text(planner *l, const kv_pair *pair, const kvant_plan *plan, int largest, int refit, int fits)
{
    char name[64], kv[32], tail[32], total[32], most[32];

    if (l->n_shown++ == 0)
        printf("%-*s %8s %11s %11s %11s %5s %8s %9s\n", l->name_width, "cache K:V", "context", "KV pages", "exact tail",
               "total", "fits", "B/token", "largest");
    snprintf(most, sizeof most, largest < 0 ? "?" : refit ? "%d+" : "%d", largest);
    printf("%-*s %8d %11s %11s %11s %5s %8" PRId64 " %9s\n", l->name_width, pair_name(pair, name, sizeof name),
           plan->n_ctx, human_bytes(plan->kv + plan->window, kv, sizeof kv), human_bytes(plan->tail, tail, sizeof tail),
           human_bytes(plan->total, total, sizeof total),
           l->memory < 0 ? "?"
           : fits        ? "yes"
                         : "no",
           plan->kv_bytes_per_token, most);
}

/* The largest context is looked for up to 16 M tokens, or the training context if that is more. */
static int show_pair(planner *l, const kv_pair *pair, kvant_diag *diag)
{
    const int most = 1 << 24;
    kvant_engine_params p = l->p;
    int largest;

    p.type_k = pair->k;
    p.type_v = pair->v;
    largest = l->memory < 0 ? -1 : kvant_fit_largest(l->m, &p, most, p.max_seqs, l->most);
    for (int i = 0; i < l->n_ctx; i++) {
        kvant_engine_params placed = p;
        kvant_plan plan;
        placed.n_ctx = p.n_ctx = (int)l->ctx[i];
        const int fits = kvant_fit_whole(l->m, l->most, &placed, &plan, NULL) == KVANT_OK;
        if (!fits)
            KVANT_TRY(kvant_plan_make(l->m, &p, &plan, diag));
        if (l->json)
            row_json(l, pair, &plan, largest, fits);
        else
            row_text(l, pair, &plan, largest, largest >= most, fits);
    }
    return KVANT_OK;
}

static int read_contexts(planner *l, kvant_diag *diag)
{
    int train = kvant_model_get_info(l->m)->n_ctx_train;

    if (opt_given(l->o, OPT_PLAN_CTX))
        return opt_ints(l->o, OPT_PLAN_CTX, l->ctx, MAX_LIST, &l->n_ctx, diag);
    for (int div = 8; div >= 1; div /= 2)
        if (train / div >= 1)
            l->ctx[l->n_ctx++] = train / div;
    return KVANT_OK;
}

/* Without -ctk, -ctv and --pairs: every format on both sides that the heads of all layers allow. */
static int read_pairs(planner *l, kvant_diag *diag)
{
    if (opt_given(l->o, OPT_PAIRS) || opt_given(l->o, OPT_CTK_LIST) || opt_given(l->o, OPT_CTV_LIST))
        return pairs_from_opts(l->o, l->pairs, MAX_PAIRS, &l->n_pairs, diag);
    const kvant_model_info *info = kvant_model_get_info(l->m);
    for (int i = 0; i < kvant_format_count() && l->n_pairs < MAX_PAIRS; i++) {
        const kvant_format *f = kvant_format_at(i);
        const int d[] = { info->d_k, info->d_v, info->d_k_window, info->d_v_window };
        int fits = 1;
        for (int j = 0; j < 4; j++)
            fits &= kvant_format_check(f, d[j], NULL) == KVANT_OK;
        if (fits)
            l->pairs[l->n_pairs++] = (kv_pair){ f->name, f->name };
    }
    return KVANT_OK;
}

/* Engines of `kvant run` and `kvant serve` where nobody says how much they may take. */
static int default_engine(const planner *l, int serve, kvant_engine_params *p, kvant_plan *plan)
{
    const int asked = opt_given(l->o, OPT_PARALLEL);
    kvant_fit_request r = kvant_fit_request_defaults();

    r.memory = l->most;
    r.slots_asked = asked;
    *p = l->p;
    p->type_k = opt_given(l->o, OPT_PAIRS) || opt_given(l->o, OPT_CTK_LIST) ? l->pairs[0].k : "f16";
    p->type_v = opt_given(l->o, OPT_PAIRS) || opt_given(l->o, OPT_CTV_LIST) ? l->pairs[0].v : "f16";
    if (!serve) {
        p->max_seqs = 1;
        p->draft_rows = spec_draft_rows(l->o, 1);
        return kvant_fit_whole(l->m, l->most, p, plan, NULL);
    }
    serve_slots(p, asked ? p->max_seqs : 0);
    p->draft_rows = spec_draft_rows(l->o, p->max_seqs);
    return kvant_fit_shared(l->m, &r, p, plan, NULL, NULL);
}

static void default_json(planner *l, int serve, int code, const kvant_engine_params *p, const kvant_plan *plan)
{
    jsonw_key(&l->w, serve ? "serve" : "run");
    if (code != KVANT_OK) {
        jsonw_null(&l->w);
        return;
    }
    jsonw_object(&l->w);
    jsonw_kint(&l->w, "n_ctx", plan->n_ctx);
    jsonw_kint(&l->w, "sequences", plan->max_seqs);
    jsonw_kint(&l->w, "pool_tokens", serve ? p->pool_tokens : plan->n_ctx);
    jsonw_kint(&l->w, "snapshots", p->snapshots);
    jsonw_kint(&l->w, "total", plan->total);
    jsonw_end(&l->w);
}

static void default_text(int serve, int code, const kvant_engine_params *p, const kvant_plan *plan)
{
    char total[32];

    if (code != KVANT_OK)
        printf("kvant %s: does not fit\n", serve ? "serve" : "run");
    else if (!serve)
        printf("kvant run takes %s (%s:%s): a context of %d\n", human_bytes(plan->total, total, sizeof total),
               p->type_k, p->type_v, plan->n_ctx);
    else
        printf("kvant serve takes %s: %d sequences of at most %d tokens, together %lld\n",
               human_bytes(plan->total, total, sizeof total), plan->max_seqs, plan->n_ctx, (long long)p->pool_tokens);
}

static void show_defaults(planner *l)
{
    for (int serve = 0; serve < 2; serve++) {
        kvant_engine_params p;
        kvant_plan plan;
        const int code = default_engine(l, serve, &p, &plan);
        if (l->json)
            default_json(l, serve, code, &p, &plan);
        else
            default_text(serve, code, &p, &plan);
        if (!serve && code == KVANT_OK)
            place_show(l->o, l->m, &p, l->json ? &l->w : NULL, 0);
    }
}

static void head(planner *l)
{
    const kvant_model_info *info = kvant_model_get_info(l->m);
    char size[32];

    if (l->json) {
        jsonw_object(&l->w);
        jsonw_kstr(&l->w, "model", info->desc);
        jsonw_kint(&l->w, "training_context", info->n_ctx_train);
        jsonw_key(&l->w, "memory");
        if (l->memory < 0)
            jsonw_null(&l->w);
        else
            jsonw_int(&l->w, l->memory);
        jsonw_kint(&l->w, "kv_tail", l->p.kv_tail);
        jsonw_kint(&l->w, "kv_sink", l->p.kv_sink);
        show_defaults(l);
        jsonw_key(&l->w, "rows");
        jsonw_array(&l->w);
        return;
    }
    printf("%s\n%d sequence%s, training context %d, exact tail %d tokens, memory %s\n", info->desc, l->p.max_seqs,
           l->p.max_seqs == 1 ? "" : "s", info->n_ctx_train, l->p.kv_tail,
           l->memory < 0 ? "unknown" : human_bytes(l->memory, size, sizeof size));
    if (l->p.kv_sink > 0)
        printf("the first %d tokens of a sequence are exact too\n", l->p.kv_sink);
    show_defaults(l);
}

/* The rows to come: one plan, and the least and the most work buffers, which differ by pair and context. */
typedef struct plan_range {
    kvant_plan plan;
    int64_t low, high;
} plan_range;

/* Refuses a row that cannot be planned, before anything is printed. */
static int range_of(const planner *l, plan_range *r, kvant_diag *diag)
{
    kvant_engine_params p = l->p;

    *r = (plan_range){ .low = INT64_MAX };
    for (int i = 0; i < l->n_pairs; i++)
        for (int j = 0; j < l->n_ctx; j++) {
            p.type_k = l->pairs[i].k;
            p.type_v = l->pairs[i].v;
            p.n_ctx = (int)l->ctx[j];
            KVANT_TRY(kvant_plan_make(l->m, &p, &r->plan, diag));
            r->low = r->plan.scratch < r->low ? r->plan.scratch : r->low;
            r->high = r->plan.scratch > r->high ? r->plan.scratch : r->high;
        }
    return KVANT_OK;
}

/* Prints the terms that every total has beside the cache. */
static void head_rest(planner *l, const plan_range *r)
{
    const int one = r->low == r->high;
    char a[32], b[32], c[32], d[32], name[64];

    printf("each total has weights %s, state %s, buffers %s%s%s\n\n", human_bytes(r->plan.weights, a, sizeof a),
           human_bytes(r->plan.state, b, sizeof b), human_bytes(r->low, c, sizeof c), one ? "" : " to ",
           one ? "" : human_bytes(r->high, d, sizeof d));
    l->name_width = (int)strlen("cache K:V");
    for (int i = 0; i < l->n_pairs; i++) {
        const int n = (int)strlen(pair_name(&l->pairs[i], name, sizeof name));
        l->name_width = n > l->name_width ? n : l->name_width;
    }
}

static int named_devices(const opts *o)
{
    int n = 1;

    for (const char *s = opt_str(o, OPT_DEVICE); s && (s = strchr(s, ',')); s++)
        n++;
    return n;
}

/* --memory is that of the one device, beside which this machine has its own, or of everything together. */
static void find_memory(planner *l)
{
    const int64_t given = opt_given(l->o, OPT_MEMORY) ? opt_int(l->o, OPT_MEMORY) : -1;
    const int together = given >= 0 && (device_is_host(l->p.device) || several_devices(l->o));

    l->most = together ? given : -1;
    l->memory = given;
    if (together)
        l->p.cpu_experts = l->p.cpu_experts < 0 ? 0 : l->p.cpu_experts;
    else if (given >= 0)
        l->p.device_memory[0] = given;
    if (given < 0)
        engine_memory(&l->p);
    else
        l->p.host_memory = together ? 0 : device_memory(NULL);
    for (int i = 0; given < 0 && i < named_devices(l->o); i++) {
        const int64_t bytes = l->p.device_memory[i];
        l->memory = bytes <= 0 || (i && l->memory < 0) ? -1 : bytes + (i ? l->memory : 0);
    }
}

static int plan_all(planner *l, kvant_diag *diag)
{
    plan_range r;

    params_from_opts(l->o, &l->p);
    l->p.max_seqs = (int)opt_int(l->o, OPT_PARALLEL);
    l->p.draft_rows = spec_draft_rows(l->o, l->p.max_seqs);
    find_memory(l);
    KVANT_TRY(open_model(l->o, &l->m, diag));
    spec_engine(l->o, l->m, &l->p);
    KVANT_TRY(read_contexts(l, diag));
    l->pairs = kvant_calloc(MAX_PAIRS, sizeof *l->pairs);
    if (!l->pairs)
        return kvant_fail(diag, KVANT_ENOMEM, "plan: out of memory");
    KVANT_TRY(read_pairs(l, diag));
    KVANT_TRY(range_of(l, &r, diag));
    head(l);
    if (!l->json && l->n_pairs && l->n_ctx)
        head_rest(l, &r);
    for (int i = 0; i < l->n_pairs; i++)
        KVANT_TRY(show_pair(l, &l->pairs[i], diag));
    if (!l->json)
        return KVANT_OK;
    jsonw_end(&l->w);
    jsonw_end(&l->w);
    return put_json(&l->w, diag);
}

int cmd_plan(const opts *o, kvant_diag *diag)
{
    planner l;

    memset(&l, 0, sizeof l);
    l.o = o;
    l.json = opt_flag(o, OPT_JSON);
    jsonw_init(&l.w);
    int code = plan_all(&l, diag);
    jsonw_free(&l.w);
    kvant_free(l.pairs);
    kvant_model_close(l.m);
    return code;
}
