/* response_store.c: see response_store.h. */
#include "server/request/response_store.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"

typedef struct kept {
    struct kept *next; /* the one that came after it */
    char id[RESPONSE_ID];
    size_t bytes;
    char *parts[STORED_PARTS];
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
        kvant_free(k->parts[i]);
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

char *response_store_get(response_store *s, int tenant, const char *id, int part)
{
    char *copy = NULL;

    pthread_mutex_lock(&s->lock);
    for (kept *k = s->shelves[tenant].first; k && !copy; k = k->next)
        if (strcmp(k->id, id) == 0)
            copy = kvant_strdup(k->parts[part]);
    pthread_mutex_unlock(&s->lock);
    return copy;
}

int response_store_drop(response_store *s, int tenant, const char *id)
{
    shelf *f = &s->shelves[tenant];
    kept *before = NULL;
    int found = 0;

    pthread_mutex_lock(&s->lock);
    for (kept **at = &f->first; *at && !found; before = *at, at = &(*at)->next)
        if (strcmp((*at)->id, id) == 0) {
            drop(f, at, before);
            found = 1;
            break;
        }
    pthread_mutex_unlock(&s->lock);
    return found;
}

static kept *copy_parts(const char *const parts[STORED_PARTS])
{
    kept *k = kvant_calloc(1, sizeof *k);

    for (int i = 0; k && i < STORED_PARTS; i++)
        if (!(k->parts[i] = kvant_strdup(parts[i]))) {
            free_kept(k);
            k = NULL;
        }
    return k;
}

int response_store_put(response_store *s, int tenant, const char *id, const char *const parts[STORED_PARTS])
{
    size_t bytes = sizeof(kept);
    shelf *f = &s->shelves[tenant];

    for (int i = 0; i < STORED_PARTS; i++)
        bytes += strlen(parts[i]) + 1;
    kept *k = bytes <= RESPONSE_STORE_BYTES ? copy_parts(parts) : NULL;
    if (!k)
        return 0;
    snprintf(k->id, sizeof k->id, "%s", id);
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
