/* convert_window.c: which layers see a window of positions only.  Owns the rules by which Transformers' classes say it,
 * and the keys: attention.sliding_window, and attention.sliding_window_pattern, a flag for each layer. */
#include <string.h>
#include "base/mem.h"
#include "make/convert/convert_arch.h"
#include "make/convert/fields/hf_fields.h"
#include "model/gguf/gguf.h"

enum { MOST_LAYERS = 4096 };

/* Layers that have the window where layer_types does not say. */
enum rule {
    ALL,       /* every one, layer_types or not */
    TYPED,     /* every one where layer_types does not say: with it AutoModel takes Ministral's class, but not inside */
    FROM_MAX,  /* from max_window_layers on */
    BELOW_MAX, /* every second one below max_window_layers */
    EVERY,     /* all but each n-th, by sliding_window_pattern or the number of the table */
    NO_ROPE,   /* every fourth, which has no RoPE */
};

/* The file's reader assumes one of these windows when there is no pattern. */
enum { SAY_NONE, SAY_ALWAYS, SAY_DIFFERENT };

typedef struct window_rule {
    const char *cls;
    enum rule rule;
    unsigned every;
    int asked; /* only with use_sliding_window */
    int pattern;
} window_rule;

static const window_rule rules[] = {
    { "MistralConfig", TYPED, 0, 0, SAY_NONE },      { "MixtralConfig", ALL, 0, 0, SAY_NONE },
    { "Ministral3Config", ALL, 0, 0, SAY_NONE },     { "Qwen3MoeConfig", ALL, 0, 1, SAY_NONE },
    { "Qwen2Config", FROM_MAX, 0, 1, SAY_NONE },     { "Qwen3Config", FROM_MAX, 0, 1, SAY_NONE },
    { "Qwen2MoeConfig", BELOW_MAX, 0, 1, SAY_NONE }, { "Dots1Config", FROM_MAX, 0, 0, SAY_NONE },
    { "SmolLM3Config", NO_ROPE, 4, 1, SAY_NONE },    { "Gemma2Config", EVERY, 2, 0, SAY_DIFFERENT },
    { "Gemma3TextConfig", EVERY, 6, 0, SAY_DIFFERENT }, { "GptOssConfig", EVERY, 2, 0, SAY_DIFFERENT },
    { "Olmo3Config", EVERY, 4, 0, SAY_ALWAYS },      { "Exaone4Config", EVERY, 4, 0, SAY_ALWAYS },
};

typedef struct windows {
    uint32_t size, layers, n; /* n: layers with a window */
    uint8_t *flags;
    int usual; /* they are what the rule gives */
} windows;

static int by_rule(const window_rule *r, uint32_t l, uint32_t most, uint32_t every)
{
    switch (r->rule) {
    case FROM_MAX: return l >= most;
    case BELOW_MAX: return (l + 1) % 2 != 0 && l < most;
    case EVERY: return every == 0 || (l + 1) % every != 0;
    case NO_ROPE: return (l + 1) % every == 0;
    default: return 1;
    }
}

/* The flag of an entry of layer_types. */
static int typed(gjson type, uint8_t *flag, kvant_diag *diag)
{
    *flag = (uint8_t)hf_is_word(type, "sliding_attention");
    if (*flag || hf_is_word(type, "full_attention"))
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EUNSUPPORTED,
                      "config.json: layer_types has %.*s, full_attention or sliding_attention wanted", hf_shown(type), type.p);
}

static int fill(const hf_config *c, const window_rule *r, windows *w, kvant_diag *diag)
{
    const int unread = r->rule == ALL || (r->rule == TYPED && c->inner.p);
    const gjson types = unread ? (gjson){ NULL, 0 } : hf_find(c, "layer_types");
    uint32_t most = 0, every = r->every, n = 0;
    gjson it = { NULL, 0 };

    while (gjson_next(types, &it))
        n++;
    if (types.p && n != w->layers)
        return kvant_fail(diag, KVANT_EFORMAT, "config.json: layer_types has %u entries, num_hidden_layers is %u", n,
                          w->layers);
    KVANT_TRY(hf_u32(c, "max_window_layers", 0, &most, diag));
    if (r->rule == EVERY && !types.p)
        KVANT_TRY(hf_u32(c, "sliding_window_pattern", 0, &every, diag));
    w->usual = 1;
    it = (gjson){ NULL, 0 };
    for (uint32_t l = 0; l < w->layers; l++) {
        w->flags[l] = (uint8_t)by_rule(r, l, most, every);
        if (gjson_next(types, &it))
            KVANT_TRY(typed(it, &w->flags[l], diag));
        w->usual &= w->flags[l] == by_rule(r, l, most, r->every);
        w->n += w->flags[l];
    }
    return KVANT_OK;
}

static int read_size(const hf_config *c, const window_rule *r, windows *w, kvant_diag *diag)
{
    KVANT_TRY(hf_u32(c, "num_hidden_layers", 1, &w->layers, diag));
    if (w->layers > MOST_LAYERS)
        return kvant_fail(diag, KVANT_EFORMAT, "config.json: num_hidden_layers is %u, up to %d wanted", w->layers,
                          MOST_LAYERS);
    if (r->asked && !hf_is_true(c, "use_sliding_window"))
        return KVANT_OK;
    KVANT_TRY(hf_u32(c, "sliding_window", 0, &w->size, diag));
    if (w->size == 0 && hf_find(c, "sliding_window").p)
        return kvant_fail(diag, KVANT_EFORMAT, "config.json: sliding_window is 0, null or a number above 0 wanted");
    return KVANT_OK;
}

static void put(const window_rule *r, const windows *w, gguf_keys *k)
{
    gguf_keys_u32(k, ".attention.sliding_window", w->size);
    if (r->pattern == SAY_DIFFERENT && w->usual)
        return;
    gguf_keys_array(k, ".attention.sliding_window_pattern", GGUF_BOOL, w->layers);
    gguf_keys_put(k, w->flags, w->layers);
}

int convert_put_window(const hf_config *c, gguf_keys *k, kvant_diag *diag)
{
    const window_rule *r = NULL;
    windows w = { 0 };

    for (size_t i = 0; !r && i < sizeof rules / sizeof *rules; i++)
        r = strcmp(rules[i].cls, c->text_cls->name) == 0 ? &rules[i] : NULL;
    if (!r)
        return KVANT_OK;
    KVANT_TRY(read_size(c, r, &w, diag));
    w.flags = kvant_calloc(w.layers + 1, 1);
    int rc = w.flags ? fill(c, r, &w, diag)
                     : kvant_fail(diag, KVANT_ENOMEM, "convert: no memory for %u layers", w.layers);
    if (rc == KVANT_OK && w.size > 0 && (w.n > 0 || r->pattern == SAY_ALWAYS))
        put(r, &w, k);
    else if (rc == KVANT_OK && w.size == 0 && w.n > 0 && r->rule != ALL && hf_find(c, "layer_types").p)
        rc = kvant_fail(diag, KVANT_EUNSUPPORTED, "config.json: layer_types has sliding_attention, but sliding_window is "
                        "%s", r->asked && !hf_is_true(c, "use_sliding_window") ? "off (use_sliding_window)" : "null");
    kvant_free(w.flags);
    return rc;
}
