/* inspect_file.c: the sections of `kvant inspect` about a model file: summary, keys, tensors, types of weights. */
#include <inttypes.h>
#include <string.h>
#include "base/half.h"
#include "cli/inspect/inspect.h"
#include "cli/term.h"
#include "kvant/kvant.h"

enum { SHOWN = 6, TEXT_CAP = 72, KEY_CAP = 256 };

/* Text of a file on a terminal or in a table: one line, no control characters. */
static void put_clean(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        putchar((unsigned char)s[i] < 0x20 || s[i] == 0x7F ? ' ' : s[i]);
}

/* ---- summary ---- */

static void summary_json(inspect *s, const kvant_model_info *i, const char *family)
{
    jsonw_kstr(&s->w, "architecture", i->arch);
    jsonw_kstr(&s->w, "name", i->name);
    jsonw_kstr(&s->w, "description", i->desc);
    jsonw_kint(&s->w, "parameters", i->n_params);
    jsonw_kint(&s->w, "weight_bytes", i->weight_bytes);
    jsonw_kint(&s->w, "layers", i->n_layer);
    jsonw_kint(&s->w, "attention_layers", i->n_attn_layers);
    jsonw_kint(&s->w, "gdn_layers", i->n_gdn_layers);
    jsonw_kint(&s->w, "mtp_blocks", i->n_mtp);
    jsonw_kint(&s->w, "window_layers", i->n_window_layers);
    jsonw_kint(&s->w, "window", i->window);
    jsonw_kint(&s->w, "shared_layers", i->n_shared_layers);
    jsonw_kint(&s->w, "embedding", i->n_embd);
    jsonw_kint(&s->w, "vocabulary", i->n_vocab);
    jsonw_kint(&s->w, "training_context", i->n_ctx_train);
    jsonw_kint(&s->w, "heads", i->n_head);
    jsonw_kint(&s->w, "kv_heads", i->n_head_kv);
    jsonw_kint(&s->w, "d_k", i->d_k);
    jsonw_kint(&s->w, "d_v", i->d_v);
    jsonw_kint(&s->w, "kv_heads_window", i->n_head_kv_window);
    jsonw_kint(&s->w, "d_k_window", i->d_k_window);
    jsonw_kint(&s->w, "d_v_window", i->d_v_window);
    jsonw_kint(&s->w, "experts", i->n_expert);
    jsonw_kint(&s->w, "experts_used", i->n_expert_used);
    jsonw_kint(&s->w, "state_bytes", i->state_bytes);
    jsonw_kstr(&s->w, "chat_template", family);
}

static void summary_text(const kvant_model_info *i, const char *family, int from_file)
{
    char a[32], b[32], c[32];

    printf("model        %s (architecture %s), %s parameters, weights %s\n", i->desc, i->arch,
           human_count(i->n_params, a, sizeof a), human_bytes(i->weight_bytes, b, sizeof b));
    printf("layers       %d: %d with attention, %d recurrent", i->n_layer, i->n_attn_layers, i->n_gdn_layers);
    if (i->n_mtp)
        printf(", a block that predicts further tokens (--spec mtp)");
    if (i->n_shared_layers)
        printf(", %d with attention over an earlier layer's K and V", i->n_shared_layers);
    putchar('\n');
    printf("attention    %d heads, %d KV heads, head size %d (K) %d (V)\n", i->n_head, i->n_head_kv, i->d_k, i->d_v);
    if (i->n_window_layers)
        printf("windows      %d layers see the last %d tokens; %d KV heads, head size %d (K) %d (V)\n", i->n_window_layers,
               i->window, i->n_head_kv_window, i->d_k_window, i->d_v_window);
    if (i->n_gdn_layers && i->gdn_hv == 0)
        printf("recurrent    conv %d; state %s per sequence\n", i->conv_k, human_bytes(i->state_bytes, c, sizeof c));
    else if (i->n_gdn_layers)
        printf("recurrent    %d key heads of %d, %d value heads of %d, conv %d; state %s per sequence\n", i->gdn_hk,
               i->gdn_dk, i->gdn_hv, i->gdn_dv, i->conv_k, human_bytes(i->state_bytes, c, sizeof c));
    if (i->n_expert)
        printf("experts      %d, %d used per token\n", i->n_expert, i->n_expert_used);
    printf("vocabulary   %d tokens, embedding %d, training context %d\n", i->n_vocab, i->n_embd, i->n_ctx_train);
    printf("chat         %s%s\n", family ? family : "a template that cannot be used (--chat-template chooses another)",
           family && !from_file ? " (assumed: the file has no template)" : "");
}

/* A file whose architecture kvant does not know can still be looked into: the reason is printed instead. */
void inspect_summary(inspect *s)
{
    kvant_model *m = NULL;
    kvant_diag why = { "" };
    char size[32];
    int from_file = 0;
    const char *family = NULL;

    int code = open_model(s->o, &m, &why);
    if (code == KVANT_OK)
        family = kvant_chat_family(m, &from_file);
    if (family && strcmp(family, "unknown") == 0)
        family = NULL;
    inspect_section(s, "Summary", "summary");
    if (s->json) {
        jsonw_object(&s->w);
        jsonw_kstr(&s->w, "file", s->path);
        jsonw_kint(&s->w, "file_bytes", gguf_file_bytes(s->g));
        jsonw_kint(&s->w, "gguf_version", gguf_version(s->g));
        jsonw_kint(&s->w, "keys", gguf_kv_count(s->g));
        jsonw_kint(&s->w, "tensors", gguf_tensor_count(s->g));
        jsonw_kbool(&s->w, "runs", code == KVANT_OK);
        jsonw_kstr(&s->w, "why_not", code == KVANT_OK ? NULL : why.text);
        if (code == KVANT_OK)
            summary_json(s, kvant_model_get_info(m), family);
        jsonw_end(&s->w);
    } else {
        printf("file         %s: GGUF version %d, %s, %d keys, %d tensors\n", s->path, gguf_version(s->g),
               human_bytes(gguf_file_bytes(s->g), size, sizeof size), gguf_kv_count(s->g), gguf_tensor_count(s->g));
        if (code == KVANT_OK)
            summary_text(kvant_model_get_info(m), family, from_file);
        else
            printf("model        kvant cannot run it: %s\n", why.text);
    }
    kvant_model_close(m);
}

/* ---- keys ---- */

static const char *const kv_types[] = { "u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64" };

static const char *kv_type_name(int t)
{
    return t >= 0 && t < (int)(sizeof kv_types / sizeof kv_types[0]) ? kv_types[t] : "?";
}

static int scalar_bytes(int type)
{
    static const int bytes[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };
    return type >= 0 && type < (int)(sizeof bytes / sizeof bytes[0]) ? bytes[type] : 0;
}

/* A little-endian number of a GGUF file as JSON text; it may be unaligned. */
static void scalar_text(int type, const uint8_t *p, char *buf, size_t cap)
{
    uint64_t u = 0;
    int n = scalar_bytes(type), is_signed = type == GGUF_I8 || type == GGUF_I16 || type == GGUF_I32 || type == GGUF_I64;
    double d;

    for (int i = 0; i < n; i++)
        u |= (uint64_t)p[i] << (8 * i);
    if (type == GGUF_BOOL) {
        snprintf(buf, cap, "%s", u ? "true" : "false");
    } else if (type == GGUF_F32) {
        snprintf(buf, cap, "%.9g", (double)bits_f32((uint32_t)u));
    } else if (type == GGUF_F64) {
        memcpy(&d, &u, sizeof d);
        snprintf(buf, cap, "%.17g", d);
    } else if (is_signed) {
        int64_t v = n == 8 ? (int64_t)u : (int64_t)(u << (64 - 8 * n)) >> (64 - 8 * n);
        snprintf(buf, cap, "%" PRId64, v);
    } else {
        snprintf(buf, cap, "%" PRIu64, u);
    }
}

/* inf and nan are no JSON numbers. */
static void put_scalar_json(jsonw *w, const char *text)
{
    if (strpbrk(text, "nN") && strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
        jsonw_null(w);
    else
        jsonw_raw(w, text);
}

static void array_numbers(inspect *s, const gguf_kv *kv, int shown)
{
    char text[48];

    for (int i = 0; i < shown; i++) {
        scalar_text(kv->elem, kv->value + (size_t)i * (size_t)scalar_bytes(kv->elem), text, sizeof text);
        if (s->json)
            put_scalar_json(&s->w, text);
        else
            printf("%s%s", i ? ", " : "", text);
    }
}

static void array_strings(inspect *s, const char *key, int shown)
{
    gguf_iter it;
    gguf_str v;
    int n;

    if (gguf_strings(s->g, key, 1, &it, &n, NULL) != KVANT_OK)
        return;
    for (int i = 0; i < shown && gguf_next(&it, &v); i++) {
        if (s->json) {
            jsonw_strn(&s->w, v.s, v.n);
            continue;
        }
        printf("%s\"", i ? ", " : "");
        put_clean(v.s, v.n < 16 ? v.n : 16);
        putchar('"');
    }
}

static void array_value(inspect *s, const gguf_kv *kv, const char *key)
{
    int shown = kv->count < SHOWN ? (int)kv->count : SHOWN;

    if (s->json) {
        jsonw_kstr(&s->w, "element", kv_type_name(kv->elem));
        jsonw_kint(&s->w, "count", (int64_t)kv->count);
        jsonw_key(&s->w, "first");
        jsonw_array(&s->w);
    } else {
        printf("%s x %" PRIu64 ": ", kv_type_name(kv->elem), kv->count);
    }
    if (kv->elem == GGUF_STRING)
        array_strings(s, key, shown);
    else if (scalar_bytes(kv->elem))
        array_numbers(s, kv, shown);
    if (s->json)
        jsonw_end(&s->w);
    else
        printf("%s\n", kv->count > (uint64_t)shown ? ", ..." : "");
}

static void string_value(inspect *s, const char *key)
{
    gguf_str v = { "", 0 };

    if (gguf_string(s->g, key, 1, &v, NULL) != KVANT_OK)
        v = (gguf_str){ "", 0 };
    if (s->json) {
        jsonw_key(&s->w, "value");
        jsonw_strn(&s->w, v.s, v.n);
        return;
    }
    put_clean(v.s, v.n < TEXT_CAP ? v.n : TEXT_CAP);
    if (v.n > TEXT_CAP)
        printf("... (%zu bytes)", v.n);
    putchar('\n');
}

static void show_key(inspect *s, const gguf_kv *kv)
{
    char key[KEY_CAP], text[48];

    snprintf(key, sizeof key, "%.*s", (int)(kv->key.n < KEY_CAP ? kv->key.n : KEY_CAP - 1), kv->key.s);
    if (s->json) {
        jsonw_object(&s->w);
        jsonw_kstr(&s->w, "key", key);
        jsonw_kstr(&s->w, "type", kv_type_name(kv->type));
    } else {
        put_clean(key, strlen(key));
        printf("%*s%-7s", strlen(key) < 44 ? 44 - (int)strlen(key) : 1, "", kv_type_name(kv->type));
    }
    if (kv->type == GGUF_ARRAY) {
        array_value(s, kv, key);
    } else if (kv->type == GGUF_STRING) {
        string_value(s, key);
    } else {
        scalar_text(kv->type, kv->value, text, sizeof text);
        if (s->json)
            jsonw_key(&s->w, "value");
        if (s->json)
            put_scalar_json(&s->w, text);
        else
            puts(text);
    }
    if (s->json)
        jsonw_end(&s->w);
}

void inspect_keys(inspect *s)
{
    inspect_section(s, "Keys", "keys");
    if (s->json)
        jsonw_array(&s->w);
    for (int i = 0; i < gguf_kv_count(s->g); i++)
        show_key(s, gguf_kv_at(s->g, i));
    if (s->json)
        jsonw_end(&s->w);
}

/* ---- tensors and types ---- */

static const char *type_name(int id)
{
    const char *name = "?";
    int block, bytes;

    kvant_ggml_type_info(id, &name, &block, &bytes);
    return name;
}

static void show_tensor(inspect *s, const gguf_tensor *t)
{
    if (!s->json) {
        put_clean(t->name.s, t->name.n);
        printf("%*s%-8s %12zu B  [", t->name.n < 44 ? 44 - (int)t->name.n : 1, "", type_name(t->type), t->bytes);
        for (int d = 0; d < t->n_dims; d++)
            printf("%s%" PRId64, d ? ", " : "", t->ne[d]);
        printf("]\n");
        return;
    }
    jsonw_object(&s->w);
    jsonw_key(&s->w, "name");
    jsonw_strn(&s->w, t->name.s, t->name.n);
    jsonw_kstr(&s->w, "type", type_name(t->type));
    jsonw_kint(&s->w, "bytes", (int64_t)t->bytes);
    jsonw_kint(&s->w, "shard", t->shard);
    jsonw_key(&s->w, "shape");
    jsonw_array(&s->w);
    for (int d = 0; d < t->n_dims; d++)
        jsonw_int(&s->w, t->ne[d]);
    jsonw_end(&s->w);
    jsonw_end(&s->w);
}

void inspect_tensors(inspect *s)
{
    inspect_section(s, "Tensors (fastest dimension first)", "tensors");
    if (s->json)
        jsonw_array(&s->w);
    for (int i = 0; i < gguf_tensor_count(s->g); i++)
        show_tensor(s, gguf_tensor_at(s->g, i));
    if (s->json)
        jsonw_end(&s->w);
}

enum { MAX_TYPE = 256 };

void inspect_types(inspect *s)
{
    int count[MAX_TYPE] = { 0 };
    int64_t bytes[MAX_TYPE] = { 0 };
    char size[32];

    for (int i = 0; i < gguf_tensor_count(s->g); i++) {
        const gguf_tensor *t = gguf_tensor_at(s->g, i);
        count[t->type & (MAX_TYPE - 1)]++;
        bytes[t->type & (MAX_TYPE - 1)] += (int64_t)t->bytes;
    }
    inspect_section(s, "Weight types", "types");
    if (s->json)
        jsonw_array(&s->w);
    for (int i = 0; i < MAX_TYPE; i++) {
        if (!count[i])
            continue;
        if (!s->json) {
            printf("%-8s %6d tensors  %12s%s\n", type_name(i), count[i], human_bytes(bytes[i], size, sizeof size),
                   kvant_wtype_by_id(i) ? "" : "  (kvant cannot multiply with it)");
            continue;
        }
        jsonw_object(&s->w);
        jsonw_kstr(&s->w, "type", type_name(i));
        jsonw_kint(&s->w, "tensors", count[i]);
        jsonw_kint(&s->w, "bytes", bytes[i]);
        jsonw_kbool(&s->w, "supported", kvant_wtype_by_id(i) != NULL);
        jsonw_end(&s->w);
    }
    if (s->json)
        jsonw_end(&s->w);
}
