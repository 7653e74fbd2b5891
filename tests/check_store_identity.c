/* check_store_identity.c: which snapshot files are taken (A8): the same tensors under other hyperparameters, another
 * tokenizer, another encoder or compute mode are refused by name; whose they are (A13): each byte of the salt counts;
 * that a save reaches the disk before anybody is told so (A13); and that two processes on one folder leave each other's
 * files alone (A12). */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file/file.h"
#include "base/file/file_out.h"
#include "base/file/folder.h"
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

/* The file of tenant a under the name that the same name has for another tenant. */
static void give_away(const unsigned char *salt)
{
    char from[128], to[128];

    for (int i = 0; i < 2; i++) {
        char *path = i ? to : from;
        int n = snprintf(path, sizeof from, "%s/", dir);
        for (int k = 0; k < 8; k++)
            n += snprintf(path + n, sizeof from - (size_t)n, "%02x", (i ? salt : salt_a)[k]);
        snprintf(path + n, sizeof from - (size_t)n, "+one.kvs");
    }
    CHECK(strcmp(from, to) == 0 || link(from, to) == 0, "link %s %s", from, to);
}

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
        if (i < 8) {
            const reply none = store_act(&r, KVANT_SLOT_RESTORE, 2, "one", other);
            CHECK(none.r.code == KVANT_ENOENT, "A11 byte %d of the salt: %s", i, none.text);
        }
        give_away(other);
        const reply file = store_act(&r, KVANT_SLOT_RESTORE, 2, "one", other);
        CHECK(file.r.code == KVANT_EFORMAT && strstr(file.text, "another key"), "A13 byte %d of the salt: %s", i,
              file.text);
        CHECK(store_act(&r, KVANT_SLOT_SAVE, 1, "x", other).r.code == KVANT_ENOENT, "A13 byte %d: save", i);
        CHECK(store_act(&r, KVANT_SLOT_ERASE, 1, "", other).r.code == KVANT_ENOENT, "A13 byte %d: erase", i);
    }
    CHECK(store_act(&r, KVANT_SLOT_RESTORE, 2, "one", salt_a).r.code == KVANT_OK, "the salt itself");
    serve_close(&r);
}

/* ---- B1: whose a slot is ---- */

static void check_hold(int64_t hold_ns)
{
    static const unsigned char salt_b[16] = "tenant b";
    static serve_out out;
    kvant_session_params sp = session_params();
    int32_t prompt[80];
    serve_rig r;

    sp.slot_hold_ns = hold_ns;
    serve_tokens(prompt, 80, 4);
    if (!serve_open(&r, "tests/golden/tiny/llama.gguf", engine_params(), sp))
        return;
    kvant_request mine = store_request(prompt, 70, 1, 1, salt_a), other = store_request(prompt, 60, 1, 1, salt_b);
    serve_one(&r, &mine, &out);
    const reply file = store_act(&r, KVANT_SLOT_RESTORE, 1, "absent", salt_b);
    serve_one(&r, &other, &out);
    const int refused = out.finish == KVANT_FINISH_ERROR && out.code == KVANT_EBUSY && strstr(out.text, "another key");
    CHECK(refused == (hold_ns > 1) && file.r.code == (hold_ns > 1 ? KVANT_EBUSY : KVANT_ENOENT), "B1 hold %lld: %s, %s",
          (long long)hold_ns, out.text, file.text);
    mine = store_request(prompt, 80, 1, 1, salt_a);
    serve_one(&r, &mine, &out);
    CHECK(out.finish == KVANT_FINISH_LENGTH || hold_ns == 1, "B1 its own slot");
    CHECK(out.n_cached == (hold_ns > 1 ? 70 : 64), "B1 hold %lld: %d cached", (long long)hold_ns, out.n_cached);
    serve_close(&r);
}

/* ---- A12: two processes on one folder ---- */

static void check_sweep(void)
{
    file_out f;
    int ready[2], folder = -1, status;
    char c;

    CHECK(folder_open(dir, &folder, NULL) == KVANT_OK && pipe(ready) == 0, "folder and pipe");
    const pid_t child = fork();
    if (child == 0) { /* a writer in the middle of a file */
        if (file_out_begin(folder, "other.kvs", &f, NULL) != KVANT_OK || write(ready[1], "x", 1) != 1)
            _exit(1);
        pause();
        _exit(0);
    }
    CHECK(child > 0 && read(ready[0], &c, 1) == 1, "the other process has its file");
    CHECK(file_out_sweep(folder) == 0, "A12 the file of a living writer was swept away");
    kill(child, SIGKILL);
    CHECK(waitpid(child, &status, 0) == child, "wait");
    CHECK(file_out_sweep(folder) == 1, "A12 what a dead writer left stays");
    CHECK(file_out_begin(folder, "own.kvs", &f, NULL) == KVANT_OK && file_out_sweep(folder) == 0, "A12 our own");
    CHECK(file_out_write(&f, "x", 1, NULL) == KVANT_OK && file_out_commit(&f, NULL) == KVANT_OK, "commit");
    CHECK(faccessat(folder, "own.kvs", F_OK, 0) == 0, "the file is there");
    close(ready[0]);
    close(ready[1]);
    close(folder);
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
    check_sweep();
    check_hold(60000000000);
    check_hold(1);
    check_hold(0);
    snprintf(command, sizeof command, "rm -r %s", dir);
    CHECK(system(command) == 0, "rm");
    return check_end("check_store_identity");
}
