/* rope_scaling.c: how positions turn: the keys of RoPE and of its scalings, and the frequencies that come of them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "model/model.h"

/* An optional number, in lo..hi where it is there. */
static int read_number(const gguf *g, const char *arch, const char *suffix, float lo, float hi, float *v,
                       kvant_diag *diag)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", arch, suffix);
    KVANT_TRY(gguf_f32(g, key, 0, v, diag));
    if (!(*v >= lo && *v <= hi))
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %g, wanted %g to %g", key, (double)*v, (double)lo, (double)hi);
    return KVANT_OK;
}

static float yarn_mscale(float factor, float weight)
{
    return factor <= 1.0f ? 1.0f : 0.1f * weight * logf(factor) + 1.0f;
}

/* YaRN: frequencies between those of the trained context and those of it stretched; the sines grow by mscale. */
static int read_yarn(const gguf *g, const char *arch, hparams *hp, kvant_diag *diag)
{
    float ext = 1.0f, log_mul = 0.0f, attn = 0.0f;

    hp->rope.yarn_factor = hp->rope.linear;
    hp->rope.linear = 1.0f;
    hp->rope.yarn_fast = 32.0f;
    hp->rope.yarn_slow = 1.0f;
    KVANT_TRY(read_number(g, arch, "rope.scaling.yarn_beta_fast", 1e-3f, 1e6f, &hp->rope.yarn_fast, diag));
    KVANT_TRY(read_number(g, arch, "rope.scaling.yarn_beta_slow", 1e-3f, 1e6f, &hp->rope.yarn_slow, diag));
    KVANT_TRY(read_number(g, arch, "rope.scaling.yarn_log_multiplier", 0.0f, 1e3f, &log_mul, diag));
    KVANT_TRY(read_number(g, arch, "rope.scaling.yarn_attn_factor", 0.0f, 1e3f, &attn, diag));
    KVANT_TRY(read_number(g, arch, "rope.scaling.yarn_ext_factor", 1.0f, 1.0f, &ext, diag));
    hp->rope.mscale *= attn > 0 ? attn : yarn_mscale(hp->rope.yarn_factor, 1.0f);
    if (log_mul > 0 && attn == 0)
        hp->rope.mscale /= yarn_mscale(hp->rope.yarn_factor, log_mul);
    return KVANT_OK;
}

static int is_text(gguf_str s, const char *text)
{
    return s.n == strlen(text) && memcmp(s.s, text, s.n) == 0;
}

static int read_original_context(const gguf *g, const char *arch, hparams *hp, kvant_diag *diag)
{
    char key[96];
    uint32_t n = (uint32_t)hp->n_ctx_train;
    snprintf(key, sizeof key, "%s.rope.scaling.original_context_length", arch);
    KVANT_TRY(gguf_u32(g, key, 0, &n, diag));
    if (n < 1 || n > 1u << 28)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %u, wanted 1 to %d", key, n, 1 << 28);
    hp->rope.n_ctx_orig = (int)n;
    return KVANT_OK;
}

/* The factor counts where no type is said too: files of 2023 have it alone.  0: none. */
static int read_factor(const gguf *g, const char *arch, int yarn, hparams *hp, kvant_diag *diag)
{
    float factor = 0.0f;

    KVANT_TRY(read_number(g, arch, "rope.scaling.factor", 0.0f, 1e6f, &factor, diag));
    hp->rope.linear = factor > 0.0f ? factor : 1.0f;
    if (hp->rope.linear < 1e-3f || (yarn && !(factor > 0.0f)))
        return kvant_fail(diag, KVANT_EFORMAT, "%s.rope.scaling.factor: %g, wanted 0.001 to 1e6", arch, (double)factor);
    return KVANT_OK;
}

/* LongRoPE has no numbers here: its factors are tensors. */
int read_rope_scaling(const gguf *g, const char *arch, hparams *hp, kvant_diag *diag)
{
    char key[96];
    gguf_str type = { "linear", 6 };

    hp->rope.linear = 1.0f;
    hp->rope.mscale = 1.0f;
    KVANT_TRY(read_original_context(g, arch, hp, diag));
    KVANT_TRY(read_number(g, arch, "rope.scaling.attn_factor", 1e-3f, 1e3f, &hp->rope.mscale, diag));
    snprintf(key, sizeof key, "%s.rope.scaling.type", arch);
    KVANT_TRY(gguf_string(g, key, 0, &type, diag));
    const int linear = is_text(type, "linear"), yarn = is_text(type, "yarn"), none = is_text(type, "none");
    if (is_text(type, "longrope"))
        return KVANT_OK;
    if (!linear && !yarn && !none)
        return kvant_fail(diag, KVANT_EUNSUPPORTED,
                          "%s: \"%.*s\" is not supported; wanted none, linear, yarn or longrope", key,
                          (int)(type.n < 40 ? type.n : 40), type.s);
    KVANT_TRY(read_factor(g, arch, yarn, hp, diag));
    if (none)
        hp->rope.linear = 1.0f;
    return yarn ? read_yarn(g, arch, hp, diag) : KVANT_OK;
}

int request_rope_factors(kvant_model *m, kvant_diag *diag)
{
    hparams *hp = &m->hp;
    const int n = hp->n_rot / 2;
    KVANT_TRY(weight_vector(m, "rope_freqs.weight", n, WEIGHT_OPTIONAL, &hp->rope.freqs, diag));
    KVANT_TRY(weight_vector(m, "rope_factors_long.weight", n, WEIGHT_OPTIONAL, &hp->rope.long_factors, diag));
    const int optional = hp->rope.long_factors < 0 ? WEIGHT_OPTIONAL : WEIGHT_REQUIRED;
    KVANT_TRY(weight_vector(m, "rope_factors_short.weight", n, optional, &hp->rope.short_factors, diag));
    if (hp->rope.short_factors >= 0 && hp->rope.long_factors < 0)
        return kvant_fail(diag, KVANT_EFORMAT, "tensor rope_factors_long.weight: missing, beside rope_factors_short");
    return KVANT_OK;
}

int rope_is_long(const hparams *hp, int n_ctx)
{
    return hp->rope.long_factors >= 0 && n_ctx > hp->rope.n_ctx_orig;
}

/* The pair of dimensions that turns `turns` times over the original context. */
static float yarn_dimension(const hparams *hp, float turns)
{
    const float pi = 3.14159265358979323846f;
    return (float)hp->n_rot * logf((float)hp->rope.n_ctx_orig / (turns * 2.0f * pi)) / (2.0f * logf(hp->rope.base));
}

/* How much of pair i's frequency is stretched: 0 below, 1 above, a ramp between the two. */
static float yarn_stretched(const hparams *hp, int i)
{
    const float fast = yarn_dimension(hp, hp->rope.yarn_fast), slow = yarn_dimension(hp, hp->rope.yarn_slow);
    const float low = fmaxf(0.0f, hp->rope.yarn_exact ? fast : floorf(fast));
    const float high = fminf((float)(hp->n_rot - 1), hp->rope.yarn_exact ? slow : ceilf(slow));
    const float ramp = ((float)i - low) / fmaxf(0.001f, high - low);
    return fminf(1.0f, fmaxf(0.0f, ramp));
}

/* In f32 like the reference implementation: 1 / base^(2i/n). */
void rope_frequencies(const kvant_model *m, int n_ctx, float *inv_freq)
{
    const hparams *hp = &m->hp;
    const int long_or_short = rope_is_long(hp, n_ctx) ? hp->rope.long_factors : hp->rope.short_factors;
    const int id = hp->rope.freqs >= 0 ? hp->rope.freqs : long_or_short;
    float factor[MODEL_MAX_HEAD_DIM];

    if (id >= 0)
        weight_copy_f32(m, &m->specs[id], factor);
    for (int i = 0; i < hp->n_rot / 2; i++) {
        float f = 1.0f / powf(hp->rope.base, (float)(2 * i) / (float)hp->n_rot) / hp->rope.linear;
        if (hp->rope.yarn_factor > 0) {
            const float part = yarn_stretched(hp, i);
            f = f / hp->rope.yarn_factor * part + f * (1.0f - part);
        }
        f = hp->rope.bf16 ? bf16_to_f32(f32_to_bf16(f)) : f;
        inv_freq[i] = id >= 0 ? f / factor[i] : f;
    }
}

/* Layers with a window have one number of rotated values. */
int rope_window_rot(const hparams *hp)
{
    for (int l = 0; l < hp->n_layer; l++)
        if (hp->windowed[l])
            return hp->layer[l].n_rot;
    return hp->n_rot;
}

void rope_window_frequencies(const kvant_model *m, const float *others, float *inv_freq)
{
    const hparams *hp = &m->hp;
    const int n_rot = rope_window_rot(hp);

    for (int i = 0; i < n_rot / 2; i++)
        inv_freq[i] = hp->rope.base_window > 0 ? 1.0f / powf(hp->rope.base_window, (float)(2 * i) / (float)n_rot)
                                               : others[i];
}
