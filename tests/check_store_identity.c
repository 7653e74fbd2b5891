/* check_store_identity.c: which snapshot files are taken (A8): the same tensors under other hyperparameters, another
 * tokenizer, another encoder or compute mode are refused by name; whose they are (A13): each byte of the salt counts;
 * and that a save reaches the disk before anybody is told so (A13). */
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "support/check.h"
#include "support/store_rig.h"

static const unsigned char salt_a[16] = "tenant a 0123456";
static char dir[64];

static kvant_engine_params engine_params(void)
{
    kvant_engine_params p = kvant_engine_defaults();
    p.type_k = p.type_v = "tbq4_0";
    p.threads = 1;
    p.max_seqs = 4;
    p.n_ctx = 256;
    p.pool_tokens = 16 * 64;
    p.snapshots = 4;
    return p;
}

static kvant_session_params session_params(void)
{
    kvant_session_params p = kvant_session_defaults();
    p.ladder = 64;
    p.snapshot_dir = dir;
    return p;
}

/* One sequence of 100 tokens in slot 1, saved as "one", and the prefix cache as "all". */
static void save_both(serve_rig *r)
{
    static serve_out out;
    int32_t prompt[100];

    serve_tokens(prompt, 100, 3);
    kvant_request q = store_request(prompt, 100, 1, 1, salt_a);
    serve_one(r, &q, &out);
    const reply one = store_act(r, KVANT_SLOT_SAVE, 1, "one", salt_a);
    CHECK(one.r.code == KVANT_OK, "save: %s", one.text);
    const reply all = store_act(r, KVANT_CACHE_SAVE, 0, "all", salt_a);
    CHECK(all.r.code == KVANT_OK && all.r.n_tokens == 64, "save: %s", all.text);
}

/* wanted NULL: both files are taken. */
static void try_both(const char *path, kvant_engine_params ep, const char *wanted, const char *what)
{
    const struct {
        int action;
        const char *name;
    } files[] = { { KVANT_SLOT_RESTORE, "one" }, { KVANT_CACHE_RESTORE, "all" } };
    serve_rig r;

    if (!serve_open(&r, path, ep, session_params()))
        return;
    for (int i = 0; i < 2; i++) {
        const reply a = store_act(&r, files[i].action, 2, files[i].name, salt_a);
        if (wanted)
            CHECK(a.r.code == KVANT_EFORMAT && strstr(a.text, wanted), "A8 %s, %s: %s \"%s\", wanted \"%s\"", what,
                  files[i].name, kvant_error_name(a.r.code), a.text, wanted);
        else
            CHECK(a.r.code == KVANT_OK, "A8 %s, %s: %s", what, files[i].name, a.text);
    }
    serve_close(&r);
}

/* ---- A8: the same tensors, another key ---- */

/* The model file with `n` bytes of a key's value changed, as changed.gguf.  skip: from the end of the key's name. */
static int change_key(const char *path, const char *key, size_t skip, const void *value, size_t n, char *out,
                      size_t cap)
{
    char *data = NULL;
    size_t size = 0, found = 0;

    snprintf(out, cap, "%s/changed.gguf", dir);
    if (file_read(path, 1 << 24, &data, &size, NULL) < 0)
        return 0;
    for (size_t at = 0; at + strlen(key) + skip + n <= size && !found; at++)
        if (memcmp(data + at, key, strlen(key)) == 0)
            found = at + strlen(key) + skip;
    if (found && value)
        memcpy(data + found, value, n);
    FILE *f = found ? fopen(out, "wb") : NULL;
    const int ok = f && fwrite(data, 1, size, f) == size;
    kvant_free(data);
    return f && fclose(f) == 0 && ok;
}

static void check_keys(const char *arch)
{
    enum { SCALAR = 4, TEXT = 4 + 8 }; /* the type; of a string its length too */
    const float base = 20000, eps = 1e-3f;
    const uint32_t rot = 8, token = 270;
    const struct {
        const char *key;
        int of_arch;
        size_t skip;
        const void *value;
        size_t n;
        const char *wanted;
    } cases[] = { { "rope.freq_base", 1, SCALAR, &base, 4, "hyperparameters" },
                  { "attention.layer_norm_rms_epsilon", 1, SCALAR, &eps, 4, "hyperparameters" },
                  { "rope.dimension_count", 1, SCALAR, &rot, 4, "hyperparameters" },
                  { "tokenizer.ggml.eos_token_id", 0, SCALAR, &token, 4, "tokenizer" },
                  { "tokenizer.ggml.pre", 0, TEXT, "gpt-2", 0, NULL }, /* nothing is changed */
                  { "general.name", 0, TEXT, "T", 1, NULL } };
    char path[96], key[96], changed[96];
    serve_rig r;

    snprintf(path, sizeof path, "tests/golden/tiny/%s.gguf", arch);
    if (!serve_open(&r, path, engine_params(), session_params()))
        return;
    save_both(&r);
    serve_close(&r);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(key, sizeof key, "%s%s%s", cases[i].of_arch ? arch : "", cases[i].of_arch ? "." : "", cases[i].key);
        if (!change_key(path, key, cases[i].skip, cases[i].value, cases[i].n, changed, sizeof changed))
            CHECK(0, "%s: no key %s", path, key);
        else
            try_both(changed, engine_params(), cases[i].wanted, key);
    }
    kvant_engine_params ep = engine_params();
    ep.encoder = KVANT_ENCODER_UPSTREAM;
    try_both(path, ep, "other arithmetic", "encoder");
    ep = engine_params();
    ep.compute = KVANT_COMPUTE_F32;
    try_both(path, ep, "other arithmetic", "compute");
}

/* A token's text in the file's vocabulary, of the same length. */
static void check_token_text(void)
{
    const char *path = "tests/golden/tiny/qwen3moe.gguf";
    char changed[96];

    if (change_key(path, "tokenizer.ggml.tokens", 4 + 4 + 8 + 8, "\"", 1, changed, sizeof changed))
        try_both(changed, engine_params(), "tokenizer", "first token's text");
    else
        CHECK(0, "%s: no tokens", path);
}

/* ---- A13: every byte of the salt ---- */

static void check_salt_bytes(void)
{
    serve_rig r;

    if (!serve_open(&r, "tests/golden/tiny/qwen35.gguf", engine_params(), session_params()))
        return;
    save_both(&r);
    for (int i = 0; i < 16; i++) {
        unsigned char other[16];
        memcpy(other, salt_a, 16);
        other[i] ^= 1;
        const reply file = store_act(&r, KVANT_SLOT_RESTORE, 2, "one", other);
        CHECK(file.r.code == KVANT_EFORMAT && strstr(file.text, "another key"), "A13 byte %d of the salt: %s", i,
              file.text);
        CHECK(store_act(&r, KVANT_SLOT_SAVE, 1, "x", other).r.code == KVANT_ENOENT, "A13 byte %d: save", i);
        CHECK(store_act(&r, KVANT_SLOT_ERASE, 1, "", other).r.code == KVANT_ENOENT, "A13 byte %d: erase", i);
    }
    CHECK(store_act(&r, KVANT_SLOT_RESTORE, 2, "one", salt_a).r.code == KVANT_OK, "the salt itself");
    serve_close(&r);
}

/* ---- A13: what reaches the disk, and when ---- */

enum { CALL_SYNC_FILE = 1, CALL_RENAME, CALL_SYNC_FOLDER };
static int calls[16], n_calls;

/* The program's own definitions come before the C library's. */
int fsync(int fd)
{
    struct stat st;

    if (n_calls < 16 && fstat(fd, &st) == 0)
        calls[n_calls++] = S_ISDIR(st.st_mode) ? CALL_SYNC_FOLDER : CALL_SYNC_FILE;
    return (int)syscall(SYS_fsync, fd);
}

int renameat(int from, const char *old, int to, const char *name)
{
    if (n_calls < 16)
        calls[n_calls++] = CALL_RENAME;
    return (int)syscall(SYS_renameat2, from, old, to, name, 0);
}

static void check_sync(void)
{
    serve_rig r;

    if (!serve_open(&r, "tests/golden/tiny/llama.gguf", engine_params(), session_params()))
        return;
    save_both(&r);
    n_calls = 0;
    CHECK(store_act(&r, KVANT_CACHE_SAVE, 0, "synced", salt_a).r.code == KVANT_OK, "save");
    CHECK(n_calls == 3 && calls[0] == CALL_SYNC_FILE && calls[1] == CALL_RENAME && calls[2] == CALL_SYNC_FOLDER,
          "A13 a save made %d calls (%d %d %d), wanted fsync, rename, fsync of the folder", n_calls, calls[0], calls[1],
          calls[2]);
    serve_close(&r);
}

int main(void)
{
    char command[128];

    snprintf(dir, sizeof dir, "/tmp/kvant-identity-XXXXXX");
    CHECK(mkdtemp(dir) != NULL, "mkdtemp");
    check_keys("qwen35");
    check_keys("qwen3moe");
    check_token_text();
    check_salt_bytes();
    check_sync();
    snprintf(command, sizeof command, "rm -r %s", dir);
    CHECK(system(command) == 0, "rm");
    return check_end("check_store_identity");
}
