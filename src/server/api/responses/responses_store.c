/* responses_store.c: see responses_store.h. */
#include "server/api/responses/responses_store.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "base/sha256.h"

typedef struct kept {
    struct kept *next; /* the one that came after it */
    char id[RESPONSE_ID];
    unsigned char salt[32];
    size_t bytes;
    stored_text *parts[STORED_PARTS];
} kept;

typedef struct shelf {
    kept *first, *last;
    size_t bytes;
    int n;
} shelf;

struct response_store {
    pthread_mutex_t lock;
    int n;
    shelf shelves[];
};

/* ---- texts ---- */

stored_text *stored_text_new(char *s, size_t n, size_t bytes)
{
    stored_text *t = kvant_alloc(sizeof *t);

    if (t)
        *t = (stored_text){ .s = s, .n = n, .bytes = bytes, .refs = 1 };
    return t;
}

void stored_text_hold(stored_text *t)
{
    atomic_fetch_add(&t->refs, 1);
}

void stored_text_release(stored_text *t)
{
    if (!t || atomic_fetch_sub(&t->refs, 1) > 1)
        return;
    kvant_free(t->s);
    kvant_free(t);
}

/* ---- the store ---- */

store_owner store_owner_of(int tenant, const char *salt, size_t n)
{
    store_owner o = { .tenant = tenant };

    if (salt && n)
        sha256(salt, n, o.salt);
    return o;
}

static int is_own(const kept *k, const store_owner *o, const char *id)
{
    return strcmp(k->id, id) == 0 && memcmp(k->salt, o->salt, sizeof k->salt) == 0;
}

response_store *response_store_new(int n_tenants)
{
    response_store *s = kvant_calloc(1, sizeof *s + (size_t)n_tenants * sizeof *s->shelves);

    if (!s)
        return NULL;
    pthread_mutex_init(&s->lock, NULL);
    s->n = n_tenants;
    return s;
}

static void free_kept(kept *k)
{
    for (int i = 0; k && i < STORED_PARTS; i++)
        stored_text_release(k->parts[i]);
    kvant_free(k);
}

/* at: what points to it; before: the one before it, or NULL. */
static void drop(shelf *f, kept **at, kept *before)
{
    kept *k = *at;

    *at = k->next;
    if (f->last == k)
        f->last = before;
    f->bytes -= k->bytes;
    f->n--;
    free_kept(k);
}

void response_store_free(response_store *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->n; i++)
        while (s->shelves[i].first)
            drop(&s->shelves[i], &s->shelves[i].first, NULL);
    pthread_mutex_destroy(&s->lock);
    kvant_free(s);
}

stored_text *response_store_get(response_store *s, const store_owner *o, const char *id, int part)
{
    stored_text *t = NULL;

    pthread_mutex_lock(&s->lock);
    for (kept *k = s->shelves[o->tenant].first; k && !t; k = k->next)
        if (is_own(k, o, id))
            stored_text_hold(t = k->parts[part]);
    pthread_mutex_unlock(&s->lock);
    return t;
}

int response_store_drop(response_store *s, const store_owner *o, const char *id)
{
    shelf *f = &s->shelves[o->tenant];
    kept *before = NULL;
    int found = 0;

    pthread_mutex_lock(&s->lock);
    for (kept **at = &f->first; *at && !found; before = *at, at = &(*at)->next)
        if (is_own(*at, o, id)) {
            drop(f, at, before);
            found = 1;
            break;
        }
    pthread_mutex_unlock(&s->lock);
    return found;
}

static stored_text *copy_part(const char *part)
{
    const size_t n = strlen(part);
    char *s = kvant_strndup(part, n);
    stored_text *t = s ? stored_text_new(s, n, n + 1) : NULL;

    if (!t)
        kvant_free(s);
    return t;
}

static kept *copy_parts(const char *const parts[STORED_PARTS])
{
    kept *k = kvant_calloc(1, sizeof *k);

    for (int i = 0; k && i < STORED_PARTS; i++)
        if (!(k->parts[i] = copy_part(parts[i]))) {
            free_kept(k);
            k = NULL;
        }
    return k;
}

int response_store_put(response_store *s, const store_owner *o, const char *id, const char *const parts[STORED_PARTS])
{
    size_t bytes = sizeof(kept);
    shelf *f = &s->shelves[o->tenant];

    for (int i = 0; i < STORED_PARTS; i++)
        bytes += strlen(parts[i]) + 1;
    kept *k = bytes <= RESPONSE_STORE_BYTES ? copy_parts(parts) : NULL;
    if (!k)
        return 0;
    snprintf(k->id, sizeof k->id, "%s", id);
    memcpy(k->salt, o->salt, sizeof k->salt);
    k->bytes = bytes;
    pthread_mutex_lock(&s->lock);
    while (f->first && (f->n >= RESPONSE_STORE_COUNT || f->bytes + bytes > RESPONSE_STORE_BYTES))
        drop(f, &f->first, NULL);
    if (f->last)
        f->last->next = k;
    else
        f->first = k;
    f->last = k;
    f->bytes += bytes;
    f->n++;
    pthread_mutex_unlock(&s->lock);
    return 1;
}
