/* shim_share.c: the programs of this process: whoever asks for a text that another thread has compiled, or is about to,
 * gets that one.  Owns the list. */
#include "devices/metal/shim/shim.h"

#include <pthread.h>
#include <string.h>
#include "base/mem.h"
#include "base/sha256.h"

typedef struct shared {
    shim_program program;          /* first: who drops it names it */
    const char *kernel;            /* a text may have several; of the caller, constant */
    uint8_t key[32];               /* of the text */
    int users, ready;
    struct shared *next;
} shared;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static shared *list;

static shared *find(const shared *like)
{
    shared *s = list;

    while (s && (memcmp(s->key, like->key, sizeof s->key) != 0 || strcmp(s->kernel, like->kernel) != 0))
        s = s->next;
    return s;
}

static void take_out(const shared *s)
{
    shared **at = &list;

    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
}

/* Under the lock, which is open while the compiler runs. */
static int make(shared *s, const char *kernel, const char *text, kvant_diag *diag)
{
    s->next = list;
    list = s;
    pthread_mutex_unlock(&lock);
    const int code = shim_program_load(&s->program, kernel, text, diag);
    pthread_mutex_lock(&lock);
    s->ready = 1;
    if (code != KVANT_OK)
        take_out(s);
    pthread_cond_broadcast(&changed);
    return code;
}

static int get(shared **out, shared *fresh, const char *kernel, const char *text, kvant_diag *diag)
{
    shared *s;

    while ((s = find(fresh)) != NULL && !s->ready)
        pthread_cond_wait(&changed, &lock);        /* it may fail, and be gone */
    *out = s ? s : fresh;
    if (!s)
        KVANT_TRY(make(fresh, kernel, text, diag));
    (*out)->users++;
    return KVANT_OK;
}

int shim_program_get(const shim_program **out, const char *kernel, const char *text, kvant_diag *diag)
{
    shared *fresh = kvant_calloc(1, sizeof *fresh), *s = NULL;

    if (!fresh)
        return kvant_fail(diag, KVANT_ENOMEM, "metal-shim: out of memory");
    fresh->kernel = kernel;
    sha256(text, strlen(text), fresh->key);
    pthread_mutex_lock(&lock);
    const int code = get(&s, fresh, kernel, text, diag);
    pthread_mutex_unlock(&lock);
    if (code != KVANT_OK || s != fresh) {
        shim_program_free(&fresh->program);
        kvant_free(fresh);
    }
    *out = code == KVANT_OK ? &s->program : NULL;
    return code;
}

void shim_program_drop(const shim_program *p)
{
    shared *s = (shared *)p;

    pthread_mutex_lock(&lock);
    const int last = --s->users == 0;
    if (last)
        take_out(s);
    pthread_mutex_unlock(&lock);
    if (last) {
        shim_program_free(&s->program);
        kvant_free(s);
    }
}
