/* fuzz_snapshot.c: snapshot files from an adversary who can also compute checksums.
 *
 * Input: the first byte chooses; bit 0: sequence or prefix cache; bit 1: the rest is the file itself, else it is a list
 * of edits of 8 bytes applied to a good file: [operation][offset, 3 bytes][value, 4 bytes]; bit 2: the checksums are
 * made right again afterwards; bit 3: a cache of page scope (ptcq2) in place of one of rows (tbq4_0).  Whatever is
 * accepted is loaded into a live engine; a sequence also decodes a token, which reads all its pages.  It must leave no
 * page, tail page, snapshot or sequence behind once it is dropped. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file/file.h"
#include "base/file/folder.h"
#include "base/mem.h"
#include "cache/store.h"
#include "engine/engine.h"
#include "support/snapshot_fix.h"

enum { PROMPT = 70, EDIT = 8 };

/* An engine, and its good files: a sequence and a prefix cache. */
typedef struct rig {
    kvant_engine *engine;
    prefix_index prefix;
    struct {
        char *data;
        size_t n;
    } good[2];
} rig;

static kvant_model *model;
static rig rigs[2];
static store_key key;
static int32_t tokens[1024];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static void must(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "fuzz_snapshot: %s\n", what);
    abort();
}

static void make_good(rig *r)
{
    kvant_engine *engine = r->engine;
    prefix_index *prefix = &r->prefix;
    char dir[] = "/tmp/kvant-fuzz-XXXXXX", path[64];
    int64_t size;
    int seq, snap, folder = -1;

    must(mkdtemp(dir) != NULL && folder_open(dir, &folder, NULL) == 0, "mkdtemp");
    for (int i = 0; i < PROMPT; i++)
        tokens[i] = i * 7 % 256;
    must(kvant_seq_new(engine, &seq, NULL) == 0, "sequence");
    const kvant_item first = { seq, tokens, 64, 1, 0 }, rest = { seq, tokens + 64, PROMPT - 64, 1, 0 };
    must(kvant_step(engine, &first, 1, NULL) == 0, "step");
    snap = prefix_take_snap(prefix);
    must(snap >= 0 && kv_snapshot_save(&engine->kv, seq, snap, NULL) == 0, "snapshot");
    must(kvant_step(engine, &rest, 1, NULL) == 0, "step");
    const prefix_snap at = { 1, snap };
    prefix_insert(prefix, key.salt, tokens, seq, 1, &at, 1);
    must(store_save_sequence(&engine->kv, &key, seq, tokens, folder, "0", &size, NULL) == 0, "save");
    must(store_save_prefix(prefix, &key, folder, "1", &size, NULL) == 0, "save");
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%d", dir, i);
        must(file_read(path, 1 << 24, &r->good[i].data, &r->good[i].n, NULL) == 0, "read");
        unlink(path);
    }
    close(folder);
    rmdir(dir);
    prefix_clear(prefix);
    kvant_seq_free(engine, seq);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const kvant_model_params mp = { .size = sizeof(kvant_model_params), .path = "tests/golden/tiny/qwen35moe.gguf" };
    kvant_engine_params ep = kvant_engine_defaults();
    kvant_diag d = { "" };

    (void)argc;
    (void)argv;
    ep.threads = 1;
    ep.max_seqs = 2;
    ep.n_ctx = 320;
    ep.n_ubatch = 128;
    ep.snapshots = 3;
    ep.kv_tail = 128;
    must(kvant_model_open(&mp, &model, &d) == 0, d.text);
    key.vocab = kvant_model_get_info(model)->n_vocab;
    for (int i = 0; i < 2; i++) {
        ep.type_k = ep.type_v = i ? "ptcq2" : "tbq4_0";
        must(kvant_engine_create(model, &ep, &rigs[i].engine, &d) == 0, d.text);
        must(prefix_create(&rigs[i].prefix, &rigs[i].engine->kv, &d) == 0, d.text);
        make_good(&rigs[i]);
    }
    return 0;
}

static size_t edit(uint8_t *file, size_t n, const uint8_t *e)
{
    const size_t at = ((size_t)e[1] | (size_t)e[2] << 8 | (size_t)e[3] << 16) % n;
    const size_t other = ((size_t)e[4] | (size_t)e[5] << 8 | (size_t)e[6] << 16) % n,
                 room = n - (at > other ? at : other);

    switch (e[0] % 5) {
    case 0: file[at] = e[4]; break;
    case 1: file[at] ^= (uint8_t)(1 << e[4] % 8); break;
    case 2: memcpy(file + at, e + 4, n - at < 4 ? n - at : 4); break;
    case 3: return at + 1;
    default: memmove(file + at, file + other, room < (size_t)e[7] * 16 ? room : (size_t)e[7] * 16); break;
    }
    return n;
}

/* What was loaded is read by a row of each layer; a refusal (numbers that are not finite) is one. */
static void decode(kvant_engine *engine, int seq)
{
    const int32_t next = 7;
    const kvant_item one = { seq, &next, 1, 0, KVANT_LOGITS_LAST };

    kvant_step(engine, &one, 1, NULL);
}

static void load(rig *r, int kind, const uint8_t *file, size_t n)
{
    kvant_engine *engine = r->engine;
    const kv_cache *kv = &engine->kv;
    store_file f;
    int seq, loaded;

    if (store_open_bytes(kv, &key, kind, file, n, &f, NULL) < 0)
        return;
    if (kind == STORE_PREFIX) {
        must(store_load_prefix(&r->prefix, &key, &f, &loaded, NULL) == 0, "a checked prefix cache did not load");
        prefix_clear(&r->prefix);
    } else {
        must(kvant_seq_new(engine, &seq, NULL) == 0, "sequence");
        if (store_pages(kv, &f) <= kv->pages.n_free) {
            must(store_load_sequence(&engine->kv, &key, &f, seq, tokens, NULL) == 0, "a checked sequence did not load");
            decode(engine, seq);
        }
        kvant_seq_free(engine, seq);
    }
    store_close(&f);
    must(kv->pages.n_free == kv->pages.n && kv->tails.n_free == kv->tails.n && kv->snaps.n_free == kv->snaps.n,
         "something is left");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 1)
        return 0;
    const int which = data[0] & 1, raw = data[0] >> 1 & 1, fix = data[0] >> 2 & 1;
    rig *r = &rigs[data[0] >> 3 & 1];
    size_t size = raw ? n - 1 : r->good[which].n;
    uint8_t *file = kvant_alloc(size + 1);
    if (!file)
        return 0;
    memcpy(file, raw ? (const char *)data + 1 : r->good[which].data, size);
    for (size_t at = 1; !raw && at + EDIT <= n && at < 1 + 16 * EDIT; at += EDIT)
        size = edit(file, size, data + at);
    if (fix)
        snapshot_fix(file, size);
    load(r, which ? STORE_PREFIX : STORE_SEQUENCE, file, size);
    kvant_free(file);
    return 0;
}
