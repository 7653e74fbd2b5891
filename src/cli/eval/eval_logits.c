/* eval_logits.c: see eval_logits.h. */
#include "cli/eval/eval_logits.h"

#include <math.h>
#include <string.h>
#include <unistd.h>
#include "base/file/file.h"
#include "base/file/file_out.h"
#include "base/file/folder.h"
#include "base/mem.h"
#include "base/sha256.h"

enum { VERSION = 1 };

typedef struct logits_head {
    char magic[8];
    uint32_t version, shape[3]; /* n_ctx, n_vocab, n_chunk */
    unsigned char vocab[32], tokens[32];
    char what[EVAL_LOGITS_NAME];
} logits_head;

/* llama.cpp's: the magic and the shape. */
enum { LLAMA_HEAD = 20 };

static size_t ids_bytes(const eval_text *t)
{
    return (size_t)t->n_chunk * (size_t)t->n_ctx * sizeof *t->ids;
}

/* SHA-256 of all tokens, each behind its length. */
static int vocab_hash(const eval_text *t, unsigned char out[32], kvant_diag *diag)
{
    size_t size = 0, at = 0;
    uint8_t *text;

    for (int32_t i = 0; i < t->n_vocab; i++) {
        const int n = kvant_token_bytes(t->m, i, 1, NULL, 0);
        size += sizeof(uint32_t) + (size_t)(n > 0 ? n : 0);
    }
    if (!(text = kvant_alloc(size)))
        return kvant_fail(diag, KVANT_ENOMEM, "eval: no memory for the %d texts of the vocabulary", t->n_vocab);
    for (int32_t i = 0; i < t->n_vocab; i++) {
        const int n = kvant_token_bytes(t->m, i, 1, (char *)text + at + 4, (int)(size - at - 4));
        const uint32_t length = (uint32_t)(n > 0 ? n : 0);
        memcpy(text + at, &length, sizeof length);
        at += sizeof length + length;
    }
    sha256(text, at, out);
    kvant_free(text);
    return KVANT_OK;
}

static void hex8(const unsigned char *hash, char out[17])
{
    for (int i = 0; i < 8; i++)
        snprintf(out + 2 * i, 3, "%02x", hash[i]);
}

/* ---- writing ---- */

static int put_all(file_out *f, const logits_head *h, const eval_text *t, const eval_store *rows, float *row,
                   kvant_diag *diag)
{
    KVANT_TRY(file_out_write(f, h, sizeof *h, diag));
    KVANT_TRY(file_out_write(f, t->ids, ids_bytes(t), diag));
    for (int64_t i = 0; i < rows->rows; i++) {
        KVANT_TRY(eval_store_get(rows, i, row, diag));
        KVANT_TRY(file_out_write(f, row, (size_t)t->n_vocab * sizeof *row, diag));
    }
    return file_out_commit(f, diag);
}

static int put_file(const char *path, const logits_head *h, const eval_text *t, const eval_store *rows, float *row,
                    kvant_diag *diag)
{
    const char *slash = strrchr(path, '/');
    char folder[1024] = ".";
    file_out f;
    int dir, code;

    if (slash)
        snprintf(folder, sizeof folder, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    KVANT_TRY(folder_open(folder, &dir, diag));
    code = file_out_begin(dir, slash ? slash + 1 : path, &f, diag);
    if (code == KVANT_OK) {
        code = put_all(&f, h, t, rows, row, diag);
        file_out_abort(&f);
    }
    close(dir);
    return code;
}

int eval_logits_save(const char *path, const eval_text *t, const eval_store *rows, const char *what, kvant_diag *diag)
{
    logits_head h = { .version = VERSION,
                      .shape = { (uint32_t)t->n_ctx, (uint32_t)t->n_vocab, (uint32_t)t->n_chunk } };
    float *row = kvant_alloc((size_t)t->n_vocab * sizeof *row);
    int code = row ? vocab_hash(t, h.vocab, diag) : kvant_fail(diag, KVANT_ENOMEM, "eval: no memory for a row");

    memcpy(h.magic, "kvantlog", sizeof h.magic);
    snprintf(h.what, sizeof h.what, "%s", what);
    sha256(t->ids, ids_bytes(t), h.tokens);
    if (code == KVANT_OK)
        code = put_file(path, &h, t, rows, row, diag);
    kvant_free(row);
    return code;
}

/* ---- reading ---- */

static int same_shape(const uint32_t shape[3], const eval_text *t)
{
    return shape[0] == (uint32_t)t->n_ctx && shape[1] == (uint32_t)t->n_vocab && shape[2] == (uint32_t)t->n_chunk;
}

/* The file is of this text: as many tokens, and the same ones.  llama.cpp writes the first token of a chunk as the
 * text has it and evaluates BOS in its place. */
static int check_text(const char *path, const uint8_t *ids, const uint32_t shape[3], const eval_text *t, int llama,
                      kvant_diag *diag)
{
    if (!same_shape(shape, t))
        return kvant_fail(diag, KVANT_EINVAL,
                          "--base-logits %.80s: %u chunks of %u tokens of a vocabulary of %u found, wanted %d of %d of %d "
                          "(-f, -c, --chunks)",
                          path, shape[2], shape[0], shape[1], t->n_chunk, t->n_ctx, t->n_vocab);
    for (int64_t i = 0; i < (int64_t)t->n_chunk * t->n_ctx; i++) {
        int32_t id;
        memcpy(&id, ids + (size_t)i * sizeof id, sizeof id);
        if (id != t->ids[i] && !(llama && i % t->n_ctx == 0))
            return kvant_fail(diag, KVANT_EINVAL, "--base-logits %.80s: token %lld is %d, wanted %d: it is of another text",
                              path, (long long)i, (int)id, (int)t->ids[i]);
    }
    return KVANT_OK;
}

static int wrong_hash(const char *path, const char *of, const unsigned char *found, const unsigned char *wanted,
                      kvant_diag *diag)
{
    char a[17], b[17];

    hex8(found, a);
    hex8(wanted, b);
    return kvant_fail(diag, KVANT_EINVAL, "--base-logits %.80s: SHA-256 of the %s: found %s..., wanted %s...", path, of,
                      a, b);
}

static int wrong_size(const char *path, size_t found, size_t wanted, kvant_diag *diag)
{
    return kvant_fail(diag, KVANT_EFORMAT, "--base-logits %.80s: %zu bytes found, wanted %zu", path, found, wanted);
}

static int load_own(const char *path, const mapped_file *f, const eval_text *t, eval_row_fn fn, void *user, char *what,
                    kvant_diag *diag)
{
    const size_t row = (size_t)t->n_vocab * sizeof(float), rows = (size_t)eval_text_rows(t);
    const size_t begin = sizeof(logits_head) + ids_bytes(t);
    unsigned char vocab[32], tokens[32];
    logits_head h;

    if (f->size < sizeof h)
        return wrong_size(path, f->size, sizeof h, diag);
    memcpy(&h, f->data, sizeof h);
    h.what[sizeof h.what - 1] = 0;
    if (h.version != VERSION)
        return kvant_fail(diag, KVANT_EFORMAT, "--base-logits %.80s: version %u found, wanted %d", path, h.version,
                          VERSION);
    KVANT_TRY(vocab_hash(t, vocab, diag));
    if (h.shape[1] == (uint32_t)t->n_vocab && memcmp(h.vocab, vocab, sizeof vocab) != 0)
        return wrong_hash(path, "vocabulary", h.vocab, vocab, diag);
    if (same_shape(h.shape, t) && f->size != begin + rows * row)
        return wrong_size(path, f->size, begin + rows * row, diag);
    KVANT_TRY(check_text(path, f->data + sizeof h, h.shape, t, 0, diag));
    sha256(f->data + sizeof h, ids_bytes(t), tokens);
    if (memcmp(h.tokens, tokens, sizeof tokens) != 0)
        return wrong_hash(path, "tokens", h.tokens, tokens, diag);
    snprintf(what, EVAL_LOGITS_NAME, "%s", h.what);
    for (size_t i = 0; i < rows; i++)
        KVANT_TRY(fn(user, (int64_t)i, (const float *)(const void *)(f->data + begin + i * row), diag));
    return KVANT_OK;
}

/* One row of llama.cpp's: at[0..1] scale and least as f32, then the codes. */
static void llama_row(const uint8_t *at, float *out, int n)
{
    float scale, least;

    memcpy(&scale, at, sizeof scale);
    memcpy(&least, at + 4, sizeof least);
    for (int i = 0; i < n; i++) {
        uint16_t q;
        memcpy(&q, at + 8 + 2 * (size_t)i, sizeof q);
        out[i] = q ? scale * (float)q + least : -INFINITY;
    }
}

static int load_llama(const char *path, const mapped_file *f, const eval_text *t, eval_row_fn fn, void *user,
                      kvant_diag *diag)
{
    const size_t row = 8 + 2 * (size_t)((t->n_vocab + 1) / 2 * 2), rows = (size_t)eval_text_rows(t);
    const size_t begin = LLAMA_HEAD + ids_bytes(t);
    uint32_t shape[3];
    float *x;
    int code = KVANT_OK;

    if (f->size < LLAMA_HEAD)
        return wrong_size(path, f->size, LLAMA_HEAD, diag);
    memcpy(shape, f->data + 8, sizeof shape);
    if (same_shape(shape, t) && f->size != begin + rows * row)
        return wrong_size(path, f->size, begin + rows * row, diag);
    KVANT_TRY(check_text(path, f->data + LLAMA_HEAD, shape, t, 1, diag));
    if (!(x = kvant_alloc((size_t)t->n_vocab * sizeof *x)))
        return kvant_fail(diag, KVANT_ENOMEM, "eval: no memory for a row");
    for (size_t i = 0; i < rows && code == KVANT_OK; i++) {
        llama_row(f->data + begin + i * row, x, t->n_vocab);
        code = fn(user, (int64_t)i, x, diag);
    }
    kvant_free(x);
    return code;
}

int eval_logits_load(const char *path, const eval_text *t, eval_row_fn fn, void *user, char *what, kvant_diag *diag)
{
    mapped_file f;
    int code;

    KVANT_TRY(file_map(path, &f, diag));
    snprintf(what, EVAL_LOGITS_NAME, "llama.cpp, log-probabilities in 16 bits");
    if (f.size >= 8 && memcmp(f.data, "kvantlog", 8) == 0)
        code = load_own(path, &f, t, fn, user, what, diag);
    else if (f.size >= 8 && memcmp(f.data, "_logits_", 8) == 0)
        code = load_llama(path, &f, t, fn, user, diag);
    else
        code = kvant_fail(diag, KVANT_EFORMAT,
                          "--base-logits %.80s: found neither \"kvantlog\" (--save-logits) nor \"_logits_\" (llama.cpp) at "
                          "its head",
                          path);
    if (code == KVANT_OK && file_poisoned(&f))
        code = kvant_fail(diag, KVANT_EIO, "--base-logits %.80s: became shorter while it was read", path);
    file_unmap(&f);
    return code;
}
