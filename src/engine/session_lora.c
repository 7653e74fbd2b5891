/* session_lora.c: adapters of requests.  Keys and values made with an adapter serve nobody who has it otherwise: what
 * is shared, or lies in a slot, goes by a salt that has the content of the adapters and their scales in it. */
#include <string.h>

#include "base/mem.h"
#include "base/sha256.h"
#include "engine/session_impl.h"

/* Hashes everything that an adapter's products depend on: alpha, names, shapes, types and values. */
static void digest(const lora_file *f, unsigned char out[32])
{
    struct {
        unsigned char before[32], name[32], data[32];
        int64_t ne[4];
        int32_t type;
        float alpha;
    } one = { .alpha = f->alpha };

    for (int i = 0; i < gguf_tensor_count(f->file); i++) {
        const gguf_tensor *t = gguf_tensor_at(f->file, i);
        memcpy(one.before, out, sizeof one.before);
        sha256(t->name.s, t->name.n, one.name);
        sha256(t->data, t->bytes, one.data);
        memcpy(one.ne, t->ne, sizeof one.ne);
        one.type = t->type;
        sha256(&one, sizeof one, out);
    }
}

int session_lora_create(kvant_session *s, kvant_diag *diag)
{
    const lora_set *set = &s->e->m->lora;
    const size_t n = (size_t)set->n;

    if (n == 0)
        return KVANT_OK;
    s->lora.scales = kvant_calloc(n, sizeof *s->lora.scales);
    s->lora.digest = kvant_calloc(n, sizeof *s->lora.digest);
    if (!s->lora.scales || !s->lora.digest)
        return kvant_fail(diag, KVANT_ENOMEM, "session: out of memory for %zu adapters", n);
    for (size_t i = 0; i < n; i++) {
        s->lora.scales[i] = set->files[i].scale;
        digest(&set->files[i], s->lora.digest[i]);
    }
    return KVANT_OK;
}

/* The salt itself where no adapter is on. */
static void share_of(const kvant_session *s, const unsigned char *salt, const float *scales, unsigned char *out)
{
    unsigned char text[KVANT_LORA_FILES * 36 + PREFIX_SALT], hash[32];
    size_t used = PREFIX_SALT;

    memcpy(text, salt, PREFIX_SALT);
    for (int i = 0; i < s->e->m->lora.n; i++) {
        if (scales[i] == 0.0f)
            continue;
        memcpy(text + used, s->lora.digest[i], 32);
        memcpy(text + used + 32, &scales[i], 4);
        used += 36;
    }
    memcpy(out, salt, PREFIX_SALT);
    if (used == PREFIX_SALT)
        return;
    sha256(text, used, hash);
    memcpy(out, hash, PREFIX_SALT);
}

void session_lora_join(kvant_session *s, request *q, int without)
{
    for (int i = 0; without && i < s->e->m->lora.n; i++)
        q->lora[i] = s->lora.scales[i];
    share_of(s, q->r.salt, q->lora, q->share);
}

void session_lora_share(kvant_session *s, const unsigned char *salt, unsigned char *out)
{
    pthread_mutex_lock(&s->lock);
    share_of(s, salt, s->lora.scales, out);
    pthread_mutex_unlock(&s->lock);
}

int kvant_session_set_lora(kvant_session *s, const float *scales, int n, kvant_diag *diag)
{
    if (n != s->e->m->lora.n)
        return kvant_fail(diag, KVANT_EINVAL, "adapters: %d scales, the model has %d", n, s->e->m->lora.n);
    KVANT_TRY(engine_lora_check(s->e->m, scales, "adapters", diag));
    pthread_mutex_lock(&s->lock);
    if (n > 0)
        memcpy(s->lora.scales, scales, (size_t)n * sizeof *scales);
    pthread_mutex_unlock(&s->lock);
    return KVANT_OK;
}

int kvant_session_get_lora(kvant_session *s, float *scales, int cap)
{
    const int n = s->e->m->lora.n;

    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < n && i < cap; i++)
        scales[i] = s->lora.scales[i];
    pthread_mutex_unlock(&s->lock);
    return n;
}
