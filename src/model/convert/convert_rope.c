/* convert_rope.c: the tensors of RoPE factors that no checkpoint has: they are computed from config.json. */
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "model/convert/convert_plan.h"

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
    static const char *const names[] = { "factor", "low_freq_factor", "high_freq_factor",
                                         "original_max_position_embeddings" };
    double v[] = { strcmp(p->arch->arch, "exaone4") == 0 ? 16.0 : 8.0, 1.0, 4.0, 8192.0 }, base = 10000.0;
    uint32_t dim;
    float *own;

    for (int i = 0; i < 4; i++) {
        KVANT_TRY(hf_rope_number(p->config, names[i], &v[i], diag));
        if (!(v[i] > 0.0))
            return kvant_fail(diag, KVANT_EFORMAT, "config.json: %s is %g, above 0 wanted", names[i], v[i]);
    }
    KVANT_TRY(hf_rope_number(p->config, "rope_theta", &base, diag));
    KVANT_TRY(convert_head_dim(p->config, &dim, diag));
    if (dim < 2 || dim > 65536)
        return kvant_fail(diag, KVANT_EFORMAT, "config.json: head_dim is %u, 2 to 65536 wanted", dim);
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
    double part = 1.0;

    KVANT_TRY(convert_head_dim(p->config, &dim, diag));
    KVANT_TRY(hf_rope_number(p->config, "partial_rotary_factor", &part, diag));
    const uint32_t n = part > 0.0 && part <= 1.0 && dim <= 65536 ? (uint32_t)(part * dim) / 2 : 0;
    KVANT_TRY(add_list(p, "long_factor", "rope_factors_long.weight", n, diag));
    return add_list(p, "short_factor", "rope_factors_short.weight", n, diag);
}

int convert_plan_rope(convert_plan *p, kvant_diag *diag)
{
    const gjson type = hf_rope(p->config, "rope_type");

    if (p->arch->flags & CONVERT_ROPE_FACTORS && type.n == 8 && memcmp(type.p, "\"llama3\"", 8) == 0)
        return add_llama3(p, diag);
    if (p->arch->flags & CONVERT_ROPE_FACTORS && type.n == 14 && memcmp(type.p, "\"proportional\"", 14) == 0)
        return add_proportional(p, diag);
    if (p->arch->flags & CONVERT_LONG_ROPE && hf_rope(p->config, "long_factor").p)
        return add_long(p, diag);
    return KVANT_OK;
}
