/* unread.c: see unread.h.  Owns the walk over keys and tensors, and the messages. */
#include "model/unread/unread.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "text/tokenizer_vocab.h"

#define KVANT_KEY(name, action, neutral, why)      { name, neutral, why, UNREAD_##action, 0 },
#define KVANT_KEY_MORE(name, action, neutral, why) { name, neutral, why, UNREAD_##action, 1 },
static const unread_row keys[] = {
#include "model/unread/keys.def"
};
#undef KVANT_KEY
#undef KVANT_KEY_MORE

#define KVANT_TENSOR(name, action, if_so, why) { name, if_so, why, UNREAD_##action, 0 },
static const unread_row tensors[] = {
#include "model/unread/tensors.def"
};
#undef KVANT_TENSOR

enum { N_KEYS = sizeof keys / sizeof keys[0], N_TENSORS = sizeof tensors / sizeof tensors[0], LIST = 400 };

const unread_row *unread_key_at(int i)
{
    return i >= 0 && i < N_KEYS ? &keys[i] : NULL;
}

const unread_row *unread_tensor_at(int i)
{
    return i >= 0 && i < N_TENSORS ? &tensors[i] : NULL;
}

const unread_row *unread_key_find(const char *key, size_t n)
{
    int number;

    for (int i = 0; i < N_KEYS; i++)
        if (unread_fits(keys[i].name, key, n, &number))
            return &keys[i];
    return NULL;
}

/* Names for one message: the first ones, and how many there were. */
enum { MOST_NAMES = 8 };
typedef struct names {
    char text[LIST];
    size_t n;
    int count, shown;
    const char *why;
} names;

static void add_name(names *l, gguf_str name, const char *value)
{
    char shown[96];

    l->count++;
    vocab_show(name.s, name.n, shown, sizeof shown);
    if (l->shown == MOST_NAMES || l->n + strlen(shown) + strlen(value) + 8 >= sizeof l->text)
        return;
    l->n += (size_t)snprintf(l->text + l->n, sizeof l->text - l->n, "%s%s%s%s", l->shown ? ", " : "", shown,
                             *value ? " = " : "", value);
    l->shown++;
}

/* " and 3 others" */
static const char *others(const names *l, char *buf, size_t cap)
{
    buf[0] = 0;
    if (l->count > l->shown)
        snprintf(buf, cap, " and %d others", l->count - l->shown);
    return buf;
}

/* One list for each reason: reasons are few, and the rows that share one share its text. */
enum { MOST_REASONS = 24 };
typedef struct lists {
    names of[MOST_REASONS];
    int n;
} lists;

static names *list_for(lists *l, const char *why)
{
    for (int i = 0; i < l->n; i++)
        if (strcmp(l->of[i].why, why) == 0)
            return &l->of[i];
    if (l->n == MOST_REASONS)
        return &l->of[MOST_REASONS - 1];
    l->of[l->n] = (names){ .why = why };
    return &l->of[l->n++];
}

/* ---- keys ---- */

static int of_arch(const kvant_model *m, gguf_str key)
{
    const size_t n = strlen(m->arch_name);
    return key.n > n && key.s[n] == '.' && memcmp(key.s, m->arch_name, n) == 0 ? (int)n : -1;
}

static int refuse_key(const kvant_model *m, const gguf_kv *kv, const unread_row *row, kvant_diag *diag)
{
    char key[96], value[96], wanted[120];

    vocab_show(kv->key.s, kv->key.n, key, sizeof key);
    return kvant_fail(diag, KVANT_EUNSUPPORTED,
                      "%s: %s: %s, which kvant does not compute for %s; wanted %s (--override-kv gives a key another "
                      "value)", key, unread_show(kv, value, sizeof value), row->why, m->arch_name,
                      unread_wanted(row->if_so, wanted, sizeof wanted));
}

static int judge_key(const kvant_model *m, const gguf_kv *kv, lists *l, kvant_diag *diag)
{
    static const char unknown[] = "kvant does not know these keys, and does not read them";
    const int at = of_arch(m, kv->key);
    const int skip = at > 0 ? at : 0;
    const unread_row *row = unread_key_find(kv->key.s + skip, kv->key.n - (size_t)skip);
    char value[96];

    if (row && row->action == UNREAD_REFUSED && !unread_is_neutral(m, kv, row->if_so))
        return refuse_key(m, kv, row, diag);
    if (kv->given)
        add_name(list_for(l, "nothing reads these keys of --override-kv"), kv->key, "");
    else if (!row || row->action == UNREAD_READ)
        add_name(list_for(l, unknown), kv->key, "");
    else if (row->action == UNREAD_LOST && !unread_is_neutral(m, kv, row->if_so))
        add_name(list_for(l, row->why), kv->key, kv->count == 1 ? unread_show(kv, value, sizeof value) : "");
    return KVANT_OK;
}

/* ---- tensors ---- */

static int condition_holds(const kvant_model *m, const char *if_so, int block)
{
    char name[64];

    if (strcmp(if_so, "beyond") == 0)
        return block >= m->hp.n_layer && block < m->hp.n_layer + m->n_nextn;
    snprintf(name, sizeof name, "blk.%d.attn_k_b.weight", block);
    return !*if_so || (block >= 0 && gguf_tensor_find(m->file, name) != NULL);
}

static const unread_row *tensor_row(const kvant_model *m, gguf_str name)
{
    for (int i = 0; i < N_TENSORS; i++) {
        int block = -1;
        if (unread_fits(tensors[i].name, name.s, name.n, &block) && condition_holds(m, tensors[i].if_so, block))
            return &tensors[i];
    }
    return NULL;
}

static int refuse_tensors(const kvant_model *m, const names *l, kvant_diag *diag)
{
    char more[32];

    return kvant_fail(diag, KVANT_EUNSUPPORTED,
                      "tensor%s %s%s: not read for %s: %s; wanted a file whose architecture "
                      "has %s",
                      l->count > 1 ? "s" : "", l->text, others(l, more, sizeof more), m->arch_name, l->why,
                      l->count > 1 ? "them" : "it");
}

static int judge_tensors(const kvant_model *m, lists *l, kvant_diag *diag)
{
    names refused = { .why = "without it another model is computed" };

    for (int i = 0; i < gguf_tensor_count(m->file); i++) {
        const gguf_str name = gguf_tensor_at(m->file, i)->name;
        const unread_row *row = gguf_tensor_seen(m->file, i) ? NULL : tensor_row(m, name);
        if (gguf_tensor_seen(m->file, i) || (row && row->action == UNREAD_HARMLESS))
            continue;
        if (row && row->action == UNREAD_LOST) {
            add_name(list_for(l, row->why), name, "");
            continue;
        }
        if (refused.shown < 2)
            add_name(&refused, name, "");
        else
            refused.count++;
        refused.why = row ? row->why : refused.why;
    }
    return refused.count ? refuse_tensors(m, &refused, diag) : KVANT_OK;
}

/* Keys that are read and then lose against the architecture. */
static int judge_overwritten(const kvant_model *m, kvant_diag *diag)
{
    float scale = m->hp.attn_scale;
    char key[64];

    snprintf(key, sizeof key, "%s.attention.scale", m->arch_name);
    KVANT_TRY(gguf_f32(m->file, key, 0, &scale, diag));
    if (fabsf(scale - m->hp.attn_scale) > 1e-4f * m->hp.attn_scale && !m->hp.attention_free)
        return kvant_fail(diag, KVANT_EUNSUPPORTED,
                          "%s: %g, and %s has a scale of its own: %g; wanted that, or no such "
                          "key",
                          key, (double)scale, m->arch_name, (double)m->hp.attn_scale);
    for (int l = 0; l < m->hp.n_layer; l++)
        if (m->hp.no_attn[l] && m->layers[l].is_attn)
            return kvant_fail(diag, KVANT_EUNSUPPORTED,
                              "%s.attention.head_count_kv: 0 in layer %d, and all layers of %s "
                              "have attention; wanted at least 1",
                              m->arch_name, l, m->arch_name);
    return KVANT_OK;
}

int unread_judge(const kvant_model *m, kvant_diag *diag)
{
    lists l = { .n = 0 };
    char more[32];

    if (m->made)
        return KVANT_OK;
    KVANT_TRY(judge_tensors(m, &l, diag));
    KVANT_TRY(judge_overwritten(m, diag));
    for (int i = 0; i < gguf_kv_count(m->file); i++)
        if (!gguf_kv_seen(m->file, i))
            KVANT_TRY(judge_key(m, gguf_kv_at(m->file, i), &l, diag));
    for (int i = 0; i < l.n; i++)
        log_msg(LOG_WARN, "model: %s: %s%s", l.of[i].why, l.of[i].text, others(&l.of[i], more, sizeof more));
    return KVANT_OK;
}
