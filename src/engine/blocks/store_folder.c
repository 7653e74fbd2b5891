/* store_folder.c: see store_folder.h. */
#include "engine/blocks/store_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file/file_out.h"
#include "base/file/folder.h"
#include "base/log.h"
#include "base/mem.h"

enum {
    NAME_BYTES = 2 * PREFIX_ID + 8,
    WAITING_BYTES = 256 << 20, /* more than these wait: a block is not written */
    COUNT_EACH = 64,           /* files, until those of others are counted again */
};
static const int64_t CLOSE_NS = 5000000000; /* arbitrary, not tuned */
static const char ENDING[] = ".kvb";

static void name_of(const unsigned char *id, int what, char out[NAME_BYTES])
{
    for (int i = 0; i < PREFIX_ID; i++)
        snprintf(out + (size_t)(2 * i), 3, "%02x", id[i]);
    snprintf(out + (size_t)(2 * PREFIX_ID), NAME_BYTES - 2 * PREFIX_ID, "%s%s", what == BLOCK_PAGE ? "p" : "s", ENDING);
}

static int is_ours(const char *name)
{
    const size_t hex = strspn(name, "0123456789abcdef");

    return hex == 2 * PREFIX_ID && (name[hex] == 'p' || name[hex] == 's') && strcmp(name + hex + 1, ENDING) == 0;
}

static int is_block(const store_item *it, const unsigned char *id, int what)
{
    return it->what == what && memcmp(it->id, id, PREFIX_ID) == 0;
}

/* 1: the thread writes the file, and will remove it. */
static int is_leaving(store_folder *f, const unsigned char *id, int what)
{
    pthread_mutex_lock(&f->lock);
    const int leaving = f->first && f->first->gone && is_block(f->first, id, what);
    pthread_mutex_unlock(&f->lock);
    return leaving;
}

int store_folder_has(store_folder *f, const unsigned char *id, int what)
{
    char name[NAME_BYTES];

    name_of(id, what, name);
    return f->is_open && faccessat(f->dir, name, R_OK, AT_SYMLINK_NOFOLLOW) == 0 && !is_leaving(f, id, what);
}

static void remove_file(const store_folder *f, const unsigned char *id, int what)
{
    char name[NAME_BYTES];

    name_of(id, what, name);
    unlinkat(f->dir, name, 0);
}

void store_folder_remove(store_folder *f, const unsigned char *id, int what)
{
    if (!f->is_open)
        return;
    pthread_mutex_lock(&f->lock);
    for (store_item *it = f->first; it; it = it->next)
        it->gone |= is_block(it, id, what);
    pthread_mutex_unlock(&f->lock);
    remove_file(f, id, what);
}

/* ---- reading ---- */

static store_key key_of(const store_folder *f, const unsigned char *id, int what)
{
    store_key key = f->key;

    key.block = id;
    key.what = what;
    return key;
}

int store_folder_get(store_folder *f, const unsigned char *id, int what, uint8_t *image)
{
    const store_key key = key_of(f, id, what);
    char name[NAME_BYTES];
    kvant_diag diag = { "" };
    store_file file;

    if (is_leaving(f, id, what))
        return 0;
    name_of(id, what, name);
    int code = store_open(f->kv, &key, STORE_BLOCK, f->dir, name, &file, &diag);
    if (code == KVANT_OK) {
        code = store_load_block(f->kv, &file, what, image, &diag);
        if (code == KVANT_OK && file_poisoned(&file.map))
            code = kvant_fail(&diag, KVANT_EFORMAT, "snapshot: the file was cut while it was read");
        store_close(&file);
    }
    if (code == KVANT_OK)
        utimensat(f->dir, name, NULL, AT_SYMLINK_NOFOLLOW); /* used now */
    if (code == KVANT_EFORMAT) {
        log_msg(LOG_WARN, "--kv-store: %s: %s; the file is removed, its tokens are evaluated again", name, diag.text);
        atomic_fetch_add(&f->damaged, 1);
        remove_file(f, id, what);
    }
    return code == KVANT_OK;
}

/* ---- the size of all files ---- */

typedef struct store_entry {
    char name[NAME_BYTES];
    int64_t bytes, used_ns;
} store_entry;

typedef struct store_listing {
    store_entry *list;
    int n, cap, failed;
    int64_t bytes;
} store_listing;

static void list_file(void *user, int fd, const char *name)
{
    store_listing *l = user;
    struct stat st;

    if (!is_ours(name) || fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
        return;
    if (l->n == l->cap) {
        const int cap = l->cap ? 2 * l->cap : 1024;
        store_entry *more = kvant_realloc(l->list, (size_t)l->cap * sizeof *more, (size_t)cap * sizeof *more);
        l->failed |= !more;
        if (!more)
            return;
        l->list = more;
        l->cap = cap;
    }
    store_entry *x = &l->list[l->n++];
    snprintf(x->name, sizeof x->name, "%s", name);
    x->bytes = st.st_size;
    x->used_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    l->bytes += st.st_size;
}

static int by_use(const void *a, const void *b)
{
    const store_entry *x = a, *y = b;

    return (x->used_ns > y->used_ns) - (x->used_ns < y->used_ns);
}

/* Counts the files; where they are too many bytes the oldest go until a tenth of the room is free. */
static void make_room(store_folder *f, int64_t more)
{
    store_listing l = { .list = NULL };

    folder_each(f->dir, list_file, &l);
    if (f->most > 0 && l.bytes + more > f->most && l.n > 0) {
        qsort(l.list, (size_t)l.n, sizeof *l.list, by_use);
        for (int i = 0; i < l.n && l.bytes + more > f->most - f->most / 10; i++) {
            unlinkat(f->dir, l.list[i].name, 0);
            l.bytes -= l.list[i].bytes;
        }
    }
    f->used = l.bytes;
    f->since = 0;
    kvant_free(l.list);
}

/* ---- the thread ---- */

static void write_one(store_folder *f, const store_item *it)
{
    const store_key key = key_of(f, it->id, it->what);
    const int64_t bytes = store_block_bytes(f->kv, it->what);
    char name[NAME_BYTES];
    kvant_diag diag = { "" };

    if (f->most > 0 && (f->used + bytes > f->most || f->since == COUNT_EACH))
        make_room(f, bytes);
    name_of(it->id, it->what, name);
    if (f->most > 0 && f->used + bytes > f->most) {
        atomic_fetch_add(&f->dropped, 1); /* larger than all room, or others fill it */
    } else if (store_save_block(f->kv, &key, it->image, f->dir, name, &diag) == KVANT_OK) {
        atomic_fetch_add(&f->written, 1);
        f->used += bytes;
        f->since++;
    } else {
        atomic_fetch_add(&f->dropped, 1);
        log_msg(LOG_WARN, "--kv-store: %s", diag.text);
    }
}

/* With the lock held, which it gives up while it writes.  1: time is over, it was not written. */
static int write_first(store_folder *f)
{
    store_item *it = f->first;
    const int late = f->stop && clock_ns() >= f->stop_ns && !it->gone;

    if (!it->gone && !late) {
        pthread_mutex_unlock(&f->lock);
        write_one(f, it);
        pthread_mutex_lock(&f->lock);
        if (it->gone)
            remove_file(f, it->id, it->what);
    }
    f->first = it->next;
    f->last = f->first ? f->last : NULL;
    f->waiting -= (int64_t)store_image_bytes(f->kv, it->what);
    kvant_free(it);
    return late;
}

static void *run(void *user)
{
    store_folder *f = user;
    int late = 0;

    pthread_mutex_lock(&f->lock);
    for (;;) {
        while (!f->first && !f->stop)
            pthread_cond_wait(&f->news, &f->lock);
        if (!f->first)
            break;
        late += write_first(f);
    }
    pthread_mutex_unlock(&f->lock);
    atomic_fetch_add(&f->dropped, (uint64_t)late);
    if (late > 0)
        log_msg(LOG_WARN, "--kv-store: the server ends, and %d blocks are not written: the directory is slow", late);
    return NULL;
}

/* Room among those that wait, and none of them is this one. */
static int may_wait(store_folder *f, const unsigned char *id, int what, size_t n)
{
    pthread_mutex_lock(&f->lock);
    int may = f->waiting + (int64_t)n <= WAITING_BYTES;
    const int full = !may;
    for (const store_item *it = f->first; it && may; it = it->next)
        may = it->gone || !is_block(it, id, what);
    pthread_mutex_unlock(&f->lock);
    if (full)
        atomic_fetch_add(&f->dropped, 1);
    return may;
}

void store_folder_put(store_folder *f, const unsigned char *id, int what, int number)
{
    if (!f->is_open || store_folder_has(f, id, what))
        return;
    const size_t n = store_image_bytes(f->kv, what);
    if (!may_wait(f, id, what, n))
        return;
    store_item *it = kvant_alloc(sizeof *it + n);
    if (!it || store_read_image(f->kv, what, number, it->image, NULL) < 0) {
        kvant_free(it);
        atomic_fetch_add(&f->dropped, 1);
        return;
    }
    it->next = NULL;
    it->what = what;
    it->gone = 0;
    memcpy(it->id, id, PREFIX_ID);
    pthread_mutex_lock(&f->lock);
    if (f->last)
        f->last->next = it;
    else
        f->first = it;
    f->last = it;
    f->waiting += (int64_t)n;
    pthread_cond_signal(&f->news);
    pthread_mutex_unlock(&f->lock);
}

/* ---- open, close ---- */

int store_folder_open(store_folder *f, const kv_cache *kv, const store_key *key, const char *path, int64_t most,
                      kvant_diag *diag)
{
    f->kv = kv;
    f->key = *key;
    f->most = most;
    f->close_ns = CLOSE_NS;
    (void)mkdir(path, 0700); /* it may be there; where it cannot be made, opening says so */
    KVANT_TRY(folder_open(path, &f->dir, diag));
    f->is_open = 1;
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->news, NULL);
    file_out_sweep(f->dir);
    make_room(f, 0);
    if (pthread_create(&f->thread, NULL, run, f) != 0)
        return kvant_fail(diag, KVANT_ENOMEM, "--kv-store: its thread could not be started");
    f->runs = 1;
    log_msg(LOG_INFO, "--kv-store: %lld bytes of prefixes", (long long)f->used);
    return KVANT_OK;
}

void store_folder_close(store_folder *f)
{
    if (f->runs) {
        pthread_mutex_lock(&f->lock);
        f->stop = 1;
        f->stop_ns = clock_ns() + f->close_ns;
        pthread_cond_signal(&f->news);
        pthread_mutex_unlock(&f->lock);
        pthread_join(f->thread, NULL);
    }
    if (f->is_open) {
        pthread_mutex_destroy(&f->lock);
        pthread_cond_destroy(&f->news);
        close(f->dir);
    }
    memset(f, 0, sizeof *f);
}
