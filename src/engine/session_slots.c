/* session_slots.c: sequences parked in slots, and the files they and the prefix cache are saved to. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file/file_out.h"
#include "base/file/folder.h"
#include "base/log.h"
#include "base/mem.h"
#include "cache/kv_image.h"
#include "cache/store.h"
#include "engine/session_impl.h"

int slots_create(kvant_session *s, kvant_diag *diag)
{
    if (!s->p.snapshot_dir)
        return KVANT_OK;
    KVANT_TRY(folder_open(s->p.snapshot_dir, &s->files.folder, diag));
    s->files.is_open = 1;
    const int swept = file_out_sweep(s->files.folder);
    if (swept > 0)
        log_msg(LOG_WARN, "snapshots: removed %d unfinished files of an earlier run", swept);
    return snapshot_identity(s->e, s->files.fingerprint, diag);
}

/* ---- parked sequences ---- */

void slots_free(kvant_session *s)
{
    for (int i = 0; s->parked && i < s->max_seqs; i++)
        slots_drop(s, i);
    if (s->files.is_open)
        close(s->files.folder);
}

int slots_continues(const kvant_session *s, const request *q)
{
    if (q->r.slot < 0 || q->t.n_preempted > 0 || q->t.n_shifts > 0 || (q->r.cache & KVANT_CACHE_NO_READ))
        return 0;
    const parked *p = &s->parked[q->r.slot];
    return p->tokens && p->n < q->r.n_prompt && memcmp(p->share, q->share, PREFIX_SALT) == 0 &&
           memcmp(p->tokens, q->tokens, (size_t)p->n * sizeof *p->tokens) == 0;
}

/* Pages and places go to those who need them at any time (slots_drop_oldest); this is about naming a slot. */
int slots_check_tenant(const kvant_session *s, int slot, const unsigned char *salt, kvant_diag *diag)
{
    const parked *p = &s->parked[slot];
    const int64_t hold = s->p.slot_hold_ns;
    int other = p->tokens && memcmp(p->salt, salt, PREFIX_SALT) != 0 && clock_ns() - p->at_ns < hold;

    for (int i = 0; i < s->n_running && hold > 0; i++)
        other |= s->running[i]->r.slot == slot && memcmp(s->running[i]->r.salt, salt, PREFIX_SALT) != 0;
    if (!other)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EBUSY, "slot %d: another key's; it can be taken %lld s after its last use", slot,
                      (long long)(hold / 1000000000));
}

void slots_drop(kvant_session *s, int slot)
{
    if (!s->parked[slot].tokens)
        return;
    kvant_free(s->parked[slot].tokens);
    s->parked[slot].tokens = NULL;
    kv_seq_free(&s->e->kv, slot);
}

int slots_drop_oldest(kvant_session *s)
{
    int oldest = -1;

    for (int i = 0; i < s->max_seqs; i++)
        if (s->parked[i].tokens && (oldest < 0 || s->parked[i].stamp < s->parked[oldest].stamp))
            oldest = i;
    if (oldest < 0)
        return 0;
    slots_drop(s, oldest);
    return 1;
}

void slots_park(kvant_session *s, request *q)
{
    parked *p = &s->parked[q->seq];

    p->n = request_len(s, q);
    p->bytes = kv_seq_bytes(&s->e->kv, q->seq);
    p->tokens = q->tokens; /* the request ends: its tokens move here */
    q->tokens = NULL;
    memcpy(p->salt, q->r.salt, sizeof p->salt);
    memcpy(p->share, q->share, sizeof p->share);
    p->stamp = ++s->stamp;
    p->at_ns = clock_ns();
    q->seq = -1;
}

/* ---- actions ---- */

typedef struct outcome {
    int n_tokens;
    int64_t bytes;
} outcome;

static store_key key_of(const kvant_session *s, const action *a)
{
    store_key k = { .vocab = s->n_vocab };

    memcpy(k.fingerprint, s->files.fingerprint, sizeof k.fingerprint);
    memcpy(k.salt, a->salt, sizeof k.salt);
    return k;
}

/* The key of one sequence: its adapters change its weights.  share: the salt with them. */
static store_key key_of_sequence(const kvant_session *s, const action *a, const unsigned char *share)
{
    store_key k = key_of(s, a);

    enum { PART = STORE_FINGERPRINT / STORE_PARTS };
    for (int i = 0; i < PART; i++)
        k.fingerprint[STORE_WEIGHTS * PART + i] ^= (unsigned char)(share[i] ^ a->salt[i]);
    return k;
}

/* ---- names and room ---- */

enum { NAME_BYTES = 96 };

/* Makes the prefix of a tenant's sequence names: a piece of its salt, which is a hash of its key, and a sign that
 * clients' names cannot have.  Caches hold everybody's prefixes and belong to nobody; so does all without keys. */
static void tenant_prefix(const action *a, char out[NAME_BYTES])
{
    static const unsigned char none[PREFIX_SALT];
    const unsigned char *b = a->salt;

    out[0] = 0;
    if (a->what <= KVANT_SLOT_ERASE && memcmp(b, none, sizeof none) != 0)
        snprintf(out, NAME_BYTES, "%02x%02x%02x%02x%02x%02x%02x%02x+", b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]);
}

/* The name with its ending; actions were checked when they came in. */
static const char *file_name(const action *a, char out[NAME_BYTES])
{
    tenant_prefix(a, out);
    const size_t n = strlen(out);
    snprintf(out + n, NAME_BYTES - n, "%s.kvs", a->name);
    return out;
}

/* The message does not tell how much the other tenants have. */
static int check_total(const kvant_session *s, const char *file, int64_t more, kvant_diag *diag)
{
    const int64_t most = s->p.snapshot_bytes;
    int64_t bytes = 0;

    if (most == 0)
        return KVANT_OK;
    KVANT_TRY(folder_bytes(s->files.folder, "", file, &bytes, diag));
    if (more <= most - bytes)
        return KVANT_OK;
    return kvant_fail(diag, KVANT_ENOSPC, "save: %lld bytes wanted, all files together may have %lld (--slot-save-total)",
                      (long long)more, (long long)most);
}

/* Room for a file of `more` bytes beside all others; one of its name is replaced. */
static int check_quota(const kvant_session *s, const action *a, const char *file, int64_t more, kvant_diag *diag)
{
    const int64_t most = s->p.snapshot_tenant_bytes;
    int64_t bytes = 0;
    char mine[NAME_BYTES];

    tenant_prefix(a, mine);
    if (mine[0] && most > 0) {
        KVANT_TRY(folder_bytes(s->files.folder, mine, file, &bytes, diag));
        if (more > most - bytes)
            return kvant_fail(diag, KVANT_ENOSPC,
                              "save: %lld bytes wanted, this key's other files have %lld of %lld (--slot-save-quota)",
                              (long long)more, (long long)bytes, (long long)most);
    }
    return check_total(s, file, more, diag);
}

/* ---- slots ---- */

static int check_idle(const kvant_session *s, int slot, kvant_diag *diag)
{
    for (int i = 0; i < s->n_running; i++)
        if (s->running[i]->seq == slot)
            return kvant_fail(diag, KVANT_EBUSY, "slot %d: a request is running in it", slot);
    return KVANT_OK;
}

/* The parked sequence of a slot, if it is this tenant's. */
static int own_parked(const kvant_session *s, const action *a, const parked **out, kvant_diag *diag)
{
    const parked *p = &s->parked[a->slot];

    KVANT_TRY(check_idle(s, a->slot, diag));
    if (!p->tokens || memcmp(p->salt, a->salt, PREFIX_SALT) != 0)
        return kvant_fail(diag, KVANT_ENOENT, "slot %d: nothing of this key is parked in it", a->slot);
    *out = p;
    return KVANT_OK;
}

static int slot_save(kvant_session *s, const action *a, outcome *o, kvant_diag *diag)
{
    const parked *p;
    char name[NAME_BYTES];

    KVANT_TRY(own_parked(s, a, &p, diag));
    const store_key key = key_of_sequence(s, a, p->share);
    KVANT_TRY(check_quota(s, a, file_name(a, name), store_sequence_bytes(&s->e->kv, a->slot), diag));
    o->n_tokens = p->n;
    return store_save_sequence(&s->e->kv, &key, a->slot, p->tokens, s->files.folder, name, &o->bytes, diag);
}

/* Pages for a restored sequence: free ones, idle ones of the index, then those of parked sequences.  The pages promised
 * to running requests stay theirs. */
static int room_for(kvant_session *s, int pages, kvant_diag *diag)
{
    const page_pool *pool = &s->e->kv.pages;

    while (session_room(s) < pages)
        if (!slots_drop_oldest(s))
            return kvant_fail(diag, KVANT_ENOSPC, "snapshot: %d pages wanted, %d can be had", pages, session_room(s));
    if (pages > pool->n_free)
        prefix_evict(&s->prefix, pages - pool->n_free);
    return KVANT_OK;
}

/* The contents of a slot, kept in host memory while a file is loaded over it. */
typedef struct backup {
    parked was; /* tokens NULL: nothing */
    uint8_t *image;
} backup;

static int backup_take(kvant_session *s, int slot, backup *b, kvant_diag *diag)
{
    kv_cache *kv = &s->e->kv;

    *b = (backup){ s->parked[slot], NULL };
    if (!b->was.tokens)
        return KVANT_OK;
    b->image = kvant_alloc(kv_image_bytes(kv, b->was.n));
    if (!b->image)
        return kvant_fail(diag, KVANT_ENOMEM, "slot %d: out of memory to keep what is in it", slot);
    const int code = kv_image_save(kv, slot, b->image, diag);
    if (code < 0) {
        kvant_free(b->image);
        return code;
    }
    s->parked[slot].tokens = NULL;
    kv_seq_free(kv, slot);
    return KVANT_OK;
}

/* The pages it had are free again: nothing that ran in between keeps any. */
static void backup_return(kvant_session *s, int slot, backup *b)
{
    kv_cache *kv = &s->e->kv;
    const int pages = kv_pages_at(kv, b->was.n);

    if (!b->image)
        return;
    kv_seq_take(kv, slot);
    if (room_for(s, pages, NULL) == KVANT_OK && kv_image_load(kv, slot, b->was.n, b->image, NULL) == KVANT_OK) {
        s->parked[slot] = b->was;
    } else {
        kv_seq_free(kv, slot);
        kvant_free(b->was.tokens);
    }
}

static int load_into(kvant_session *s, const action *a, const unsigned char *share, const store_file *f,
                     int32_t *tokens, kvant_diag *diag)
{
    const store_key key = key_of_sequence(s, a, share);
    kv_cache *kv = &s->e->kv;

    KVANT_TRY(room_for(s, store_pages(kv, f), diag));
    kv_seq_take(kv, a->slot);
    const int code = store_load_sequence(kv, &key, f, a->slot, tokens, diag);
    if (code < 0) {
        kv_seq_free(kv, a->slot);
        return code;
    }
    parked *p = &s->parked[a->slot];
    *p = (parked){ .tokens = tokens, .n = f->n_tokens, .stamp = ++s->stamp, .at_ns = clock_ns() };
    p->bytes = kv_seq_bytes(kv, a->slot);
    memcpy(p->salt, a->salt, sizeof p->salt);
    memcpy(p->share, share, sizeof p->share);
    return KVANT_OK;
}

static int replace(kvant_session *s, const action *a, const unsigned char *share, const store_file *f,
                   kvant_diag *diag)
{
    int32_t *tokens = kvant_calloc((size_t)f->n_tokens, sizeof *tokens);
    backup b;
    int code = tokens ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "slot %d: out of memory", a->slot);

    if (code == KVANT_OK)
        code = backup_take(s, a->slot, &b, diag);
    if (code < 0) {
        kvant_free(tokens);
        return code;
    }
    code = load_into(s, a, share, f, tokens, diag);
    if (code < 0) {
        kvant_free(tokens);
        backup_return(s, a->slot, &b);
    } else {
        kvant_free(b.was.tokens);
    }
    kvant_free(b.image);
    return code;
}

/* Clients are told of the name they gave, not of the file's. */
static int open_file(const kvant_session *s, const action *a, const store_key *key, int kind, const char *name,
                     store_file *f, kvant_diag *diag)
{
    const int code = store_open(&s->e->kv, key, kind, s->files.folder, name, f, diag);

    return code == KVANT_ENOENT ? kvant_fail(diag, code, "%s: no such file of this key", a->name) : code;
}

static int slot_restore(kvant_session *s, const action *a, outcome *o, kvant_diag *diag)
{
    unsigned char share[PREFIX_SALT];
    store_file f;
    char name[NAME_BYTES];

    session_lora_share(s, a->salt, share);
    const store_key key = key_of_sequence(s, a, share);
    KVANT_TRY(slots_check_tenant(s, a->slot, a->salt, diag));
    KVANT_TRY(check_idle(s, a->slot, diag));
    KVANT_TRY(open_file(s, a, &key, STORE_SEQUENCE, file_name(a, name), &f, diag));
    o->n_tokens = f.n_tokens;
    o->bytes = (int64_t)f.size;
    const int code = replace(s, a, share, &f, diag);
    store_close(&f);
    return code;
}

static int slot_erase(kvant_session *s, const action *a, outcome *o, kvant_diag *diag)
{
    const parked *p;

    KVANT_TRY(own_parked(s, a, &p, diag));
    o->n_tokens = p->n;
    slots_drop(s, a->slot);
    return KVANT_OK;
}

static int cache_save(kvant_session *s, const action *a, outcome *o, kvant_diag *diag)
{
    const store_key key = key_of(s, a);
    char name[NAME_BYTES];

    KVANT_TRY(check_quota(s, a, file_name(a, name), store_prefix_bytes(&s->prefix), diag));
    o->n_tokens = s->prefix.n_nodes * KVANT_PAGE;
    return store_save_prefix(&s->prefix, &key, s->files.folder, name, &o->bytes, diag);
}

/* Only into free pages that nobody was promised: a restored prefix is worth less than one in use. */
static int cache_restore(kvant_session *s, const action *a, outcome *o, kvant_diag *diag)
{
    const store_key key = key_of(s, a);
    store_file f;
    char name[NAME_BYTES];

    KVANT_TRY(open_file(s, a, &key, STORE_PREFIX, file_name(a, name), &f, diag));
    o->bytes = (int64_t)f.size;
    const int code = store_load_prefix(&s->prefix, &key, &f, &o->n_tokens, diag);
    store_close(&f);
    return code;
}

static int cache_clear(kvant_session *s, const action *a, outcome *o, kvant_diag *diag)
{
    (void)a;
    (void)diag;
    o->n_tokens = s->prefix.n_nodes * KVANT_PAGE;
    prefix_clear(&s->prefix);
    blocks_cleared(s);
    return KVANT_OK;
}

void slots_run(kvant_session *s, action *a)
{
    static int (*const run[])(kvant_session *, const action *, outcome *, kvant_diag *) = {
        [KVANT_SLOT_SAVE] = slot_save,   [KVANT_SLOT_RESTORE] = slot_restore,   [KVANT_SLOT_ERASE] = slot_erase,
        [KVANT_CACHE_SAVE] = cache_save, [KVANT_CACHE_RESTORE] = cache_restore, [KVANT_CACHE_CLEAR] = cache_clear
    };
    const int64_t t0 = clock_ns();
    kvant_diag diag = { "" };
    outcome o = { 0, 0 };
    const int code = run[a->what](s, a, &o, &diag);
    const kvant_slot_result r = { code, code < 0 ? diag.text : "", a->slot, o.n_tokens, o.bytes, clock_ns() - t0 };

    s->step.events++;
    if (a->done)
        a->done(a->user, &r);
    kvant_free(a);
}
