/* convert_rope.c: how positions turn: the keys of rope_parameters, and the tensors of RoPE factors that no checkpoint
 * has: they are computed from config.json. */
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "make/convert/convert_plan.h"
#include "make/convert/fields/hf_fields.h"
#include "model/gguf/gguf.h"

enum rope_type { NONE, LINEAR, YARN, LONG, LLAMA3, PROPORTIONAL };

/* ---- the values ---- */

/* Classes whose RoPE differs by kind of layer take nothing from rope_parameters without full_attention, and nothing
 * from "type" of rope_scaling; the others nothing from one with it.  A file that has them so means something else than
 * it gets. */
static int check_kinds(const hf_config *c, kvant_diag *diag)
{
    const char *name = c->text_cls->name;
    const int kinds = strcmp(name, "Gemma3TextConfig") == 0 || strcmp(name, "Olmo3Config") == 0;
    const int nested = gjson_get(c->rope, "full_attention").p || gjson_get(c->rope, "sliding_attention").p;
    const int scaling = c->rope.p && hf_find(c, "rope_scaling").p == c->rope.p;

    if (!c->rope.p || strncmp(name, "Gemma4", 6) == 0)
        return KVANT_OK;
    if (kinds ? scaling ? gjson_get(c->rope, "rope_type").p && !nested
                        : gjson_get(c->rope, "full_attention").p && !gjson_get(c->rope, "rope_type").p
              : !nested)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EUNSUPPORTED,
                      "config.json: %s: %s wanted (%s); Transformers does not read it as it is",
                      scaling ? "rope_scaling" : "rope_parameters",
                      !kinds    ? "one for all layers"
                      : scaling ? "rope_type"
                                : "full_attention and sliding_attention",
                      name);
}

static int read_type(const hf_config *c, enum rope_type *type, kvant_diag *diag)
{
    static const struct {
        const char *name;
        enum rope_type type;
    } names[] = { { "default", NONE }, { "mrope", NONE },   { "linear", LINEAR }, { "yarn", YARN },
                  { "longrope", LONG }, { "llama3", LLAMA3 }, { "proportional", PROPORTIONAL } };
    const gjson v = hf_rope(c, "rope_type"), swa = gjson_at(c->rope, "sliding_attention.rope_type");
    const int phi = strcmp(c->text_cls->name, "Phi3Config") == 0, gemma4 = strncmp(c->text_cls->name, "Gemma4", 6) == 0;

    if (swa.p && !hf_is_word(swa, "default"))
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "config.json: rope_type of sliding_attention is %.*s, default wanted",
                          hf_shown(swa), swa.p);
    *type = NONE;
    KVANT_TRY(check_kinds(c, diag));
    if (gemma4 && !hf_is_word(v, "proportional"))
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "config.json: rope_type of full_attention is %.*s, proportional wanted",
                          v.p ? hf_shown(v) : 4, v.p ? v.p : "none");
    if (!v.p)
        return KVANT_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (hf_is_word(v, names[i].name)) {
            *type = names[i].type;
            if (*type == PROPORTIONAL && !gemma4)
                break;
            *type = phi && *type == YARN ? LONG : *type; /* as Transformers does */
            return KVANT_OK;
        }
    *type = LONG;
    if (phi && hf_is_word(v, "su"))
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EUNSUPPORTED, "config.json: rope_type %.*s, one of default linear yarn longrope llama3 "
                      "wanted", hf_shown(v), v.p);
}

static int read_original(const hf_config *c, uint32_t *n, kvant_diag *diag)
{
    const gjson said = hf_rope(c, "original_max_position_embeddings");

    KVANT_TRY(said.p ? hf_to_u32(said, "original_max_position_embeddings", n, diag)
                     : hf_u32(c, "max_position_embeddings", 1, n, diag));
    return *n >= 2 ? KVANT_OK
                   : kvant_fail(diag, KVANT_EFORMAT,
                                "config.json: original_max_position_embeddings is %u, 2 or more wanted", *n);
}

/* "factor", or by how much the context is longer than the original one. */
static int read_factor(const hf_config *c, int required, double *f, kvant_diag *diag)
{
    uint32_t most = 0, original = 1;

    if (hf_rope(c, "factor").p || required) {
        KVANT_TRY(hf_to_number(hf_rope(c, "factor"), "config.json: \"factor\" of rope_parameters", f, diag));
    } else {
        KVANT_TRY(hf_u32(c, "max_position_embeddings", 1, &most, diag));
        KVANT_TRY(read_original(c, &original, diag));
        *f = (double)most / original;
    }
    return *f > 0.0 && *f <= 1e6
               ? KVANT_OK
               : kvant_fail(diag, KVANT_EFORMAT, "config.json: factor is %g, above 0 up to 1e6 wanted", *f);
}

static double mscale(double factor, double weight)
{
    return factor <= 1.0 ? 1.0 : 0.1 * weight * log(factor) + 1.0;
}

int convert_put_rotated(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    uint32_t dim;

    KVANT_TRY(convert_rotated(c, 1, &dim, diag));
    gguf_keys_u32(k, ".rope.dimension_count", dim);
    return KVANT_OK;
}

/* Reads how many values of a head are rotated. */
int convert_rotated(const hf_config *c, int partial, uint32_t *dim, kvant_diag *diag)
{
    double part = 1.0;
    uint32_t rotary = 0;

    if (hf_find(c, "qk_rope_head_dim").p)
        return hf_u32(c, "qk_rope_head_dim", 1, dim, diag);
    KVANT_TRY(convert_head_dim(c, dim, diag));
    if (partial && hf_find(c, "rotary_dim").p) {
        KVANT_TRY(hf_u32(c, "rotary_dim", 1, &rotary, diag));
        part = *dim ? (double)rotary / *dim : 0.0;
    }
    KVANT_TRY(hf_rope_number(c, "partial_rotary_factor", &part, diag));
    if (!(part > 0.0 && part <= 1.0))
        return kvant_fail(diag, KVANT_EFORMAT, "config.json: partial_rotary_factor is %g, above 0 up to 1 wanted", part);
    if (part != 1.0 && !partial)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "config.json: partial_rotary_factor is %g, 1 wanted (%s)", part,
                          c->text_cls->name);
    if (*dim < 2 || *dim > 65536)
        return kvant_fail(diag, KVANT_EFORMAT, "config.json: head_dim is %u, 2 to 65536 wanted", *dim);
    *dim = (uint32_t)(part * *dim);
    return KVANT_OK;
}

/* ---- keys ---- */

/* By how much sines grow, if it is not what a reader of the file makes of the factor. */
static int put_attention_factor(const convert_arch *a, const hf_config *c, double f, gguf_keys *k, kvant_diag *diag)
{
    const int latent = (a->flags & CONVERT_KV_ONE) != 0;
    double all = 0.0, one = 0.0, said = 0.0;

    KVANT_TRY(hf_rope_number(c, "mscale", &one, diag));
    KVANT_TRY(hf_rope_number(c, "mscale_all_dim", &all, diag));
    KVANT_TRY(hf_rope_number(c, hf_rope(c, "attention_factor").p ? "attention_factor" : "attn_factor", &said, diag));
    const double sines = said != 0.0                ? said
                         : one != 0.0 && all != 0.0 ? mscale(f, one) / mscale(f, all)
                                                    : mscale(f, 1.0);
    if (latent && all != 0.0)      /* the scores grow, and the sines may not */
        return sines == 1.0 ? KVANT_OK
                            : kvant_fail(diag, KVANT_EUNSUPPORTED,
                                         "config.json: mscale %g, mscale_all_dim %g, "
                                         "attention_factor %g: equal ones, or no attention_factor, wanted",
                                         one, all, said);
    if (said == 0.0 && one == 1.0 && all != 0.0)
        gguf_keys_f32(k, ".rope.scaling.yarn_log_multiplier", all);
    else if (said != 0.0 || sines != mscale(f, 1.0))
        gguf_keys_f32(k, ".rope.scaling.yarn_attn_factor", sines);
    return KVANT_OK;
}

static int put_optional(const hf_config *c, const char *from, const char *key, gguf_keys *k, kvant_diag *diag)
{
    double v = 0.0;

    KVANT_TRY(hf_rope_number(c, from, &v, diag));
    if (v != 0.0)
        gguf_keys_f32(k, key, v);
    return KVANT_OK;
}

static int put_yarn(const convert_arch *a, const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    static const char *const exact[] = { "GptOssConfig", NULL };   /* readers do not round its range */
    const int whole = strcmp(c->text_cls->name, exact[0]) != 0;
    const gjson cut = hf_rope(c, "truncate");
    uint32_t n = 0;
    double f = 1.0;

    if ((!cut.p || *cut.p == 't') != whole)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "config.json: truncate of rope_parameters is %.*s, %s wanted",
                          cut.p ? hf_shown(cut) : 4, cut.p ? cut.p : "true", whole ? "true" : "false");
    KVANT_TRY(read_factor(c, 0, &f, diag));
    gguf_keys_str(k, ".rope.scaling.type", "yarn", 4);
    gguf_keys_f32(k, ".rope.scaling.factor", f);
    KVANT_TRY(read_original(c, &n, diag));
    gguf_keys_u32(k, ".rope.scaling.original_context_length", n);
    KVANT_TRY(put_optional(c, "beta_fast", ".rope.scaling.yarn_beta_fast", k, diag));
    KVANT_TRY(put_optional(c, "beta_slow", ".rope.scaling.yarn_beta_slow", k, diag));
    return put_attention_factor(a, c, f, k, diag);
}

static int put_long(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    uint32_t n = 0;
    double f = 1.0, said = 0.0;

    KVANT_TRY(read_original(c, &n, diag));
    KVANT_TRY(read_factor(c, 0, &f, diag));
    KVANT_TRY(hf_rope_number(c, "attention_factor", &said, diag));
    gguf_keys_str(k, ".rope.scaling.type", "longrope", 8);
    gguf_keys_u32(k, ".rope.scaling.original_context_length", n);
    gguf_keys_f32(k, ".rope.scaling.attn_factor", said > 0.0 ? said : f > 1.0 ? sqrt(1.0 + log(f) / log(n)) : 1.0);
    return KVANT_OK;
}

static int put_scaling(const convert_arch *a, const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    enum rope_type type;
    double f = 1.0;

    KVANT_TRY(read_type(c, &type, diag));
    if (type == YARN)
        return put_yarn(a, c, k, diag);
    if (type == LONG)
        return put_long(c, k, diag);
    if (type != LINEAR)
        return KVANT_OK;
    KVANT_TRY(read_factor(c, 1, &f, diag));
    gguf_keys_str(k, ".rope.scaling.type", "linear", 6);
    gguf_keys_f32(k, ".rope.scaling.factor", f);
    return KVANT_OK;
}

/* Four of them: time, height, width and what is behind them. */
static int put_mrope(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    const gjson list = hf_rope(c, "mrope_section");
    int32_t sections[4] = { 0 };
    gjson it = { NULL, 0 };
    double v = 0.0;

    if (!list.p)
        return KVANT_OK;
    for (int i = 0; i < 4 && gjson_next(list, &it); i++) {
        KVANT_TRY(hf_to_number(it, "config.json: a value of \"mrope_section\"", &v, diag));
        if (!(v >= 0.0 && v <= 65536.0))
            return kvant_fail(diag, KVANT_EFORMAT, "config.json: mrope_section has %g, 0 to 65536 wanted", v);
        sections[i] = (int32_t)v;
    }
    gguf_keys_array(k, ".rope.dimension_sections", GGUF_I32, 4);
    gguf_keys_put(k, sections, sizeof sections);
    return KVANT_OK;
}

int convert_put_rope(const convert_arch *a, const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    double theta = 10000.0, local = 0.0;
    uint32_t dim;
    gjson swa = gjson_at(c->rope, "sliding_attention.rope_theta");

    if (!(a->flags & CONVERT_BY_WINDOW))
        KVANT_TRY(convert_rotated(c, (a->flags & CONVERT_PARTIAL) != 0, &dim, diag));
    KVANT_TRY(put_scaling(a, c, k, diag));
    if (a->flags & CONVERT_MROPE)
        KVANT_TRY(put_mrope(c, k, diag));
    KVANT_TRY(hf_rope_number(c, "rope_theta", &theta, diag));
    gguf_keys_f32(k, ".rope.freq_base", theta);
    if (!swa.p)
        swa = hf_find(c, "rope_local_base_freq");
    if (!swa.p && strcmp(c->text_cls->name, "Olmo3Config") == 0)
        swa = gjson_get(c->defaults, "rope_theta"); /* the file's is that of full attention alone */
    if (!swa.p)
        return KVANT_OK;
    KVANT_TRY(hf_to_number(swa, "config.json: rope_theta of sliding_attention", &local, diag));
    if (local == theta && strcmp(c->text_cls->name, "Olmo3Config") == 0)
        return KVANT_OK;
    gguf_keys_f32(k, ".rope.freq_base_swa", local);
    return KVANT_OK;
}

/* ---- tensors ---- */

static int add_own(convert_plan *p, const char *name, int64_t n, float **own, kvant_diag *diag)
{
    convert_item *it = NULL;

    KVANT_TRY(convert_plan_add(p, name, 1, &n, &it, diag));
    *own = it->own = kvant_calloc((size_t)n, sizeof **own);
    return *own ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "%s: out of memory", name);
}

/* By how much Llama 3.1 slows a frequency down: not at all above high, by factor below low, in between smoothly.
 * In f32, and with a / b as 1 / b * a, as the field's converter has it: the same bits. */
static float llama3_factor(float freq, const double *v)
{
    const double factor = v[0], low = v[1], high = v[2], original = v[3];
    const float wave = 1.0f / freq * 6.283185307179586f;

    if (wave < (float)(original / high))
        return 1.0f;
    if (wave > (float)(original / low))
        return (float)factor;
    const float smooth = (1.0f / wave * (float)original - (float)low) / (float)(high - low);
    return 1.0f / ((1.0f - smooth) / (float)factor + smooth);
}

static int add_llama3(convert_plan *p, kvant_diag *diag)
{
    static const char *const names[] = { "factor", "low_freq_factor", "high_freq_factor" };
    double v[4] = { 0.0 }, base = 10000.0;
    uint32_t dim, original = 0;
    float *own;

    for (int i = 0; i < 3; i++) {
        KVANT_TRY(hf_rope_number(p->config, names[i], &v[i], diag));
        if (!(v[i] > 0.0))
            return kvant_fail(diag, KVANT_EFORMAT, "config.json: %s is %g, above 0 wanted", names[i], v[i]);
    }
    KVANT_TRY(read_original(p->config, &original, diag));
    v[3] = original;
    KVANT_TRY(hf_rope_number(p->config, "rope_theta", &base, diag));
    KVANT_TRY(convert_rotated(p->config, (p->arch->flags & CONVERT_PARTIAL) != 0, &dim, diag));
    KVANT_TRY(add_own(p, "rope_freqs.weight", (dim + 1) / 2, &own, diag));
    for (uint32_t i = 0; i < dim; i += 2)
        own[i / 2] = llama3_factor(1.0f / powf((float)base, (float)i / (float)dim), v);
    return KVANT_OK;
}

/* The first pairs turn as those of a whole head; the frequencies of the others are divided until they do not. */
static int add_proportional(convert_plan *p, kvant_diag *diag)
{
    double part = 1.0;
    uint32_t dim;
    float *own;

    KVANT_TRY(convert_full_head_dim(p->config, &dim, diag));
    KVANT_TRY(hf_rope_number(p->config, "partial_rotary_factor", &part, diag));
    if (!(part > 0.0 && part <= 1.0))
        return kvant_fail(diag, KVANT_EFORMAT, "config.json: partial_rotary_factor is %g, above 0 up to 1 wanted", part);
    KVANT_TRY(add_own(p, "rope_freqs.weight", dim / 2, &own, diag));
    for (uint32_t i = 0; i < dim / 2; i++)
        own[i] = i < (uint32_t)(part * dim / 2) ? 1.0f : 1e30f;
    return KVANT_OK;
}

static int add_list(convert_plan *p, const char *from, const char *name, uint32_t want, kvant_diag *diag)
{
    const gjson list = hf_rope(p->config, from);
    gjson it = { NULL, 0 };
    uint32_t n = 0;
    float *own;
    double v;

    KVANT_TRY(add_own(p, name, want ? want : 1, &own, diag));
    for (; gjson_next(list, &it); n++) {
        KVANT_TRY(hf_to_number(it, from, &v, diag));
        if (n < want)
            own[n] = (float)v;
    }
    return n == want && n ? KVANT_OK
                          : kvant_fail(diag, KVANT_EFORMAT, "config.json: %s has %u values, %u wanted", from, n, want);
}

static int add_long(convert_plan *p, kvant_diag *diag)
{
    uint32_t dim;

    KVANT_TRY(convert_rotated(p->config, (p->arch->flags & CONVERT_PARTIAL) != 0, &dim, diag));
    KVANT_TRY(add_list(p, "long_factor", "rope_factors_long.weight", dim / 2, diag));
    return add_list(p, "short_factor", "rope_factors_short.weight", dim / 2, diag);
}

int convert_plan_rope(convert_plan *p, kvant_diag *diag)
{
    enum rope_type type;

    KVANT_TRY(read_type(p->config, &type, diag));
    if (type == LLAMA3)
        return add_llama3(p, diag);
    if (type == PROPORTIONAL)
        return add_proportional(p, diag);
    return type == LONG ? add_long(p, diag) : KVANT_OK;
}
