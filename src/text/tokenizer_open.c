/* tokenizer_open.c: a tokenizer from the tokenizer.ggml.* keys of a file.  Owns which keys there are and what they may
 * say. */
#include <string.h>
#include "base/log.h"
#include "base/mem.h"
#include "text/pretok_table.h"
#include "text/tokenizer_parts.h"

enum { MODEL_BYTES, MODEL_GEMMA4, MODEL_SCORES, MODEL_UNIGRAM, N_MODELS };
static const char *const model_names[N_MODELS] = { "gpt2", "gemma4", "llama", "t5" };

static int read_model(const gguf *g, int *model, kvant_diag *diag)
{
    gguf_str name = { "", 0 };
    char shown[48];

    KVANT_TRY(gguf_string(g, "tokenizer.ggml.model", 1, &name, diag));
    for (*model = 0; *model < N_MODELS; (*model)++)
        if (strlen(model_names[*model]) == name.n && memcmp(model_names[*model], name.s, name.n) == 0)
            return KVANT_OK;
    return kvant_fail(diag, KVANT_EFORMAT,
                      "tokenizer.ggml.model: '%s', want gpt2 (byte-level BPE), gemma4 (BPE of characters), llama "
                      "(SentencePiece BPE) or t5 (SentencePiece unigram)",
                      vocab_show(name.s, name.n, shown, sizeof shown));
}

static int read_pre(tokenizer *t, const gguf *g, int model, kvant_diag *diag)
{
    static const char key[] = "tokenizer.ggml.pre";
    static const char advice[] =
        "texts are cut by llama.cpp's default rule, which may give other tokens than the model was "
        "trained on; --override-kv tokenizer.ggml.pre=str:NAME names the right one";
    gguf_str pre = { "default", 7 };
    char shown[48];

    if (model == MODEL_SCORES || model == MODEL_UNIGRAM)
        return KVANT_OK;
    const int said = gguf_find(g, key) != NULL;
    KVANT_TRY(gguf_string(g, key, 0, &pre, diag));
    if (model == MODEL_GEMMA4)
        return pretok_open("gemma4", 6, 0, &t->pre, diag);
    const int known = pretok_row_find(pre.s, pre.n) != NULL;
    if (!said)
        log_msg(LOG_WARN, "%s: absent; %s", key, advice);
    else if (!known || (pre.n == 7 && memcmp(pre.s, "default", 7) == 0))
        log_msg(LOG_WARN, "%s: '%s'%s; %s", key, vocab_show(pre.s, pre.n, shown, sizeof shown),
                known ? "" : " is not a known pre-tokenizer", advice);
    return pretok_open(known ? pre.s : "default", known ? pre.n : 7, 0, &t->pre, diag);
}

/* Tokenizers of Mistral's third version put the space before the text alone (legacy = false), which
 * tokenizer.ggml.add_space_prefix cannot say: known by where their control tokens are. */
static int is_mistral3(const vocab *v)
{
    return vocab_find(v, "[INST]", 6) == 3 && vocab_find(v, "[/INST]", 7) == 4 &&
           vocab_find(v, "[TOOL_CALLS]", 12) == 5;
}

static int read_mode(tokenizer *t, const gguf *g, kvant_diag *diag)
{
    static const char *const names[] = { "replace", "prepend", "always", "first", "never", "begin" };
    gguf_str mode = { "", 0 };
    char shown[32];

    if (!gguf_find(g, "kvant.tokenizer.spaces"))
        return KVANT_OK;
    KVANT_TRY(gguf_string(g, "kvant.tokenizer.spaces", 1, &mode, diag));
    for (int i = 0; i < 6; i++)
        if (strlen(names[i]) == mode.n && memcmp(names[i], mode.s, mode.n) == 0) {
            t->spaces = (enum spaces_mode)i;
            return KVANT_OK;
        }
    return kvant_fail(diag, KVANT_EFORMAT,
                      "kvant.tokenizer.spaces: '%s', want replace, prepend, always, first, never or begin",
                      vocab_show(mode.s, mode.n, shown, sizeof shown));
}

/* The key of the space before a text; only vocabularies with scores have one unless it says no. */
static int read_spaces(tokenizer *t, const gguf *g, int model, kvant_diag *diag)
{
    int squeeze = 0, prefix = model == MODEL_SCORES;

    if (!t->v.raw)
        return read_mode(t, g, diag);
    KVANT_TRY(gguf_bool(g, "tokenizer.ggml.add_space_prefix", 0, &prefix, diag));
    t->spaces = !prefix ? SPACES_REPLACE : is_mistral3(&t->v) ? SPACES_BEGIN : SPACES_PREPEND;
    KVANT_TRY(read_mode(t, g, diag));
    KVANT_TRY(gguf_bool(g, "kvant.tokenizer.split_spaces", 0, &t->s.cut_each, diag));
    KVANT_TRY(gguf_bool(g, "tokenizer.ggml.remove_extra_whitespaces", 0, &squeeze, diag));
    t->u.squeeze = squeeze;
    return model == MODEL_SCORES ? charsmap_read(&t->u.map, g, diag) : KVANT_OK;
}

/* Ids of "left right" and of both joined; 0: the line is no merge of tokens. */
static int merge_ids(const tokenizer *t, gguf_str line, char *joined, uint32_t ids[3])
{
    const char *space = line.n > 1 ? memchr(line.s + 1, ' ', line.n - 1) : NULL;

    if (!space || space + 1 == line.s + line.n || memchr(space + 1, ' ', line.n - 1 - (size_t)(space - line.s)))
        return 0;
    if (line.n - 1 > t->v.longest)
        return 0;
    size_t left = (size_t)(space - line.s), right = line.n - left - 1;
    memcpy(joined, line.s, left);
    memcpy(joined + left, space + 1, right);
    int32_t found[3] = { vocab_find(&t->v, joined, left), vocab_find(&t->v, space + 1, right),
                         vocab_find(&t->v, joined, left + right) };
    for (int i = 0; i < 3; i++) {
        if (found[i] < 0)
            return 0;
        ids[i] = (uint32_t)found[i];
    }
    return 1;
}

/* A merge of what is no token, or one that was there before, is left out and counted in *left_out: such a symbol could
 * never come out as one. */
static int add_merge(tokenizer *t, uint32_t i, gguf_str line, char *joined, int *left_out, kvant_diag *diag)
{
    const char *key = "tokenizer.ggml.merges";
    char shown[80];
    uint32_t ids[3], rank;

    if (!merge_ids(t, line, joined, ids)) {
        if ((*left_out)++ == 0)
            log_msg(LOG_DEBUG, "%s[%u]: '%s', left out: not two tokens, a space between, and their joint text", key, i,
                    vocab_show(line.s, line.n, shown, sizeof shown));
        return KVANT_OK;
    }
    for (int j = 0; j < 3; j++)
        if (vocab_is_format(&t->v, (int32_t)ids[j]))
            return KVANT_OK; /* left out: these never come out of text */
    t->v.tokens[ids[2]].made = 1;
    if (bpe_add(&t->b, ids[0], ids[1], ids[2], &rank) == KVANT_OK)
        return KVANT_OK;
    if (rank == UINT32_MAX)
        return kvant_fail(diag, KVANT_EFORMAT, "%s[%u]: '%s' collides with others beyond chance", key, i,
                          vocab_show(line.s, line.n, shown, sizeof shown));
    ++*left_out; /* there twice: the first one counts */
    return KVANT_OK;
}

/* Some files carry a few merges too many, and their readers take them.  If most are, the list is of another
 * vocabulary, and every text would come out wrong. */
static int judge_left_out(int left_out, int n, kvant_diag *diag)
{
    if (left_out > n / 2)
        return kvant_fail(
            diag, KVANT_EFORMAT,
            "tokenizer.ggml.merges: %d of %d name texts that are no tokens or repeat others, want at most "
            "half",
            left_out, n);
    if (left_out)
        log_msg(LOG_WARN,
                "tokenizer.ggml.merges: %d of %d name texts that are no tokens or repeat others, and are left "
                "out",
                left_out, n);
    return KVANT_OK;
}

static int read_merges(tokenizer *t, const gguf *g, kvant_diag *diag)
{
    enum { MAX_MERGES = 1 << 24 }; /* files with all splits of each token have up to 10 merges a token */
    gguf_iter it;
    gguf_str line;
    int n = 0, err, left_out = 0;
    uint32_t i = 0;

    KVANT_TRY(gguf_strings(g, "tokenizer.ggml.merges", 1, &it, &n, diag));
    if (n < 0 || n > MAX_MERGES)
        return kvant_fail(diag, KVANT_EFORMAT, "tokenizer.ggml.merges: %d merges, want 0 to %d", n, MAX_MERGES);
    KVANT_TRY(bpe_init(&t->b, (uint32_t)n, diag));
    char *joined = kvant_alloc((size_t)t->v.longest + 1);
    if (!joined)
        return kvant_fail(diag, KVANT_ENOMEM, "tokenizer.ggml.merges: out of memory");
    for (err = KVANT_OK; err == 0 && i < (uint32_t)n && gguf_next(&it, &line); i++)
        err = add_merge(t, i, line, joined, &left_out, diag);
    kvant_free(joined);
    if (err == KVANT_OK)
        err = judge_left_out(left_out, n, diag);
    return err < 0 ? err : bpe_finish(&t->b, t->v.n, diag);
}

/* The i-th id of a key, -1 where it is no token's: writers say so with -1, its bits, or the size of the vocabulary. */
static int read_id(const tokenizer *t, const gguf_kv *kv, const char *key, uint64_t i, int32_t *id, kvant_diag *diag)
{
    int64_t v = 0;

    *id = -1;
    if (!kv || i >= kv->count)
        return KVANT_OK;
    if ((kv->type == GGUF_ARRAY ? kv->elem : kv->type) == GGUF_U64 && !gguf_integer_at(kv, i, &v))
        v = -1; /* as its bits */
    else if (kv->type == GGUF_STRING || !gguf_integer_at(kv, i, &v))
        return kvant_fail(diag, KVANT_EFORMAT, "%s: no integer, want the id of a token below %u", key, t->v.n);
    if (v < 0 || v >= (int64_t)t->v.n)
        log_msg(LOG_WARN, "%s: %lld is ignored, the vocabulary has %u tokens", key, (long long)v, t->v.n);
    else
        *id = (int32_t)v;
    return KVANT_OK;
}

/* One id or several: each ends an answer.  *first: the first that is a token. */
static int read_ends(tokenizer *t, const gguf *g, const char *key, int32_t *first, kvant_diag *diag)
{
    enum { MOST_ENDS = 1024 };
    const gguf_kv *kv = gguf_find(g, key);
    int32_t id;

    if (kv && kv->count > MOST_ENDS)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %llu ids, want at most %d", key, (unsigned long long)kv->count,
                          MOST_ENDS);
    for (uint64_t i = 0; kv && i < kv->count; i++) {
        KVANT_TRY(read_id(t, kv, key, i, &id, diag));
        if (id >= 0)
            t->v.tokens[id].eog = 1;
        *first = *first < 0 ? id : *first;
    }
    return KVANT_OK;
}

static int read_one(const tokenizer *t, const gguf *g, const char *key, int32_t *id, kvant_diag *diag)
{
    return read_id(t, gguf_find(g, key), key, 0, id, diag);
}

/* SentencePiece's own numbers, where a file does not say (or says what no token is) and the token is a special one. */
static int32_t usual_id(const tokenizer *t, int32_t id, int32_t usual)
{
    if (id >= 0 || t->pre || t->is_unigram || usual >= (int32_t)t->v.n || !vocab_is_control(&t->v, usual))
        return id;
    return usual;
}

static int read_named_ids(tokenizer *t, const gguf *g, kvant_diag *diag)
{
    /* In a text that is filled in, padding and the mark of the next file end the answer. */
    static const char *const ends[] = { "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id",
                                        "tokenizer.ggml.fim_pad_token_id", "tokenizer.ggml.fim_rep_token_id",
                                        "tokenizer.ggml.fim_sep_token_id" };
    static const char *const others[] = { "tokenizer.ggml.padding_token_id",   "tokenizer.ggml.fim_pre_token_id",
                                          "tokenizer.ggml.fim_suf_token_id",   "tokenizer.ggml.fim_mid_token_id",
                                          "tokenizer.ggml.seperator_token_id", "tokenizer.ggml.mask_token_id",
                                          "tokenizer.ggml.cls_token_id" };
    int32_t id = -1;

    t->eos = -1;
    KVANT_TRY(read_one(t, g, "tokenizer.ggml.bos_token_id", &t->bos, diag));
    KVANT_TRY(read_one(t, g, "tokenizer.ggml.unknown_token_id", &t->unk, diag));
    KVANT_TRY(read_ends(t, g, "tokenizer.ggml.eos_token_id", &t->eos, diag));
    KVANT_TRY(read_ends(t, g, "tokenizer.ggml.eos_token_ids", &t->eos, diag));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        KVANT_TRY(read_one(t, g, others[i], &id, diag));
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        KVANT_TRY(read_ends(t, g, ends[i], &id, diag));
    t->bos = usual_id(t, t->bos, 1);
    t->unk = usual_id(t, t->unk, 0);
    t->eos = usual_id(t, t->eos, 2);
    if (t->eos >= 0)
        t->v.tokens[t->eos].eog = 1;
    return KVANT_OK;
}

/* Models whose texts begin with several tokens (GLM: [gMASK]<sop>). */
static int read_prefix(tokenizer *t, const gguf *g, kvant_diag *diag)
{
    enum { MOST = sizeof t->prefix / sizeof t->prefix[0] };

    KVANT_TRY(gguf_i32s(g, "kvant.tokenizer.prefix", 0, t->prefix, MOST, &t->n_prefix, diag));
    for (int i = 0; i < t->n_prefix; i++)
        if (t->prefix[i] < 0 || (uint32_t)t->prefix[i] >= t->v.n)
            return kvant_fail(diag, KVANT_EFORMAT, "kvant.tokenizer.prefix[%d]: %d, want below %u tokens", i,
                              t->prefix[i], t->v.n);
    return KVANT_OK;
}

/* A token that is to be added and that the vocabulary lacks is left out. */
static int said_of(int add, int32_t id, const char *name)
{
    if (add && id < 0)
        log_msg(LOG_WARN, "tokenizer.ggml.add_%s_token: true is ignored, tokenizer.ggml.%s_token_id is absent or no "
                "token's; --override-kv tokenizer.ggml.%s_token_id=int:N names it", name, name, name);
    return add && id >= 0;
}

static int read_ids(tokenizer *t, const gguf *g, kvant_diag *diag)
{
    KVANT_TRY(read_named_ids(t, g, diag));
    t->add_bos = (t->pre ? pretok_add_bos(t->pre) : !t->is_unigram) && t->bos >= 0;
    KVANT_TRY(gguf_bool(g, "tokenizer.ggml.add_bos_token", 0, &t->add_bos, diag));
    t->add_bos = said_of(t->add_bos, t->bos, "bos");
    KVANT_TRY(read_prefix(t, g, diag));
    KVANT_TRY(gguf_bool(g, "tokenizer.ggml.add_eos_token", 0, &t->add_eos, diag));
    t->add_eos = said_of(t->add_eos, t->eos, "eos");
    return KVANT_OK;
}

/* Reads the keys of kvant's own converter, which say more than the field's. */
static int read_rules(tokenizer *t, const gguf *g, kvant_diag *diag)
{
    int said = 0;

    KVANT_TRY(normal_read(&t->change, g, &said, diag));
    t->nfc = t->pre && pretok_nfc(t->pre) && !said;
    t->ignore_merges = t->pre && pretok_ignore_merges(t->pre);
    t->fuse_unk = 1;
    KVANT_TRY(gguf_bool(g, "kvant.tokenizer.ignore_merges", 0, &t->ignore_merges, diag));
    KVANT_TRY(gguf_bool(g, "kvant.tokenizer.fuse_unk", 0, &t->fuse_unk, diag));
    KVANT_TRY(added_read(&t->v, g, diag));
    added_mark(&t->v, g);
    return KVANT_OK;
}

/* If tokens are looked for in the normalised text, NFC and the spaces belong to the first changes of a text. */
static int settle_changes(tokenizer *t, kvant_diag *diag)
{
    int any = 0;

    for (uint32_t i = 0; i < t->v.n; i++)
        any |= t->v.tokens[i].flags & ADDED_NORMALIZED;
    if (any && t->nfc && normal_add(&t->change, NORMAL_NFC, "", 0, "", 0) == KVANT_OK)
        t->nfc = 0;
    if (!any || !t->v.raw || t->is_unigram || (t->spaces != SPACES_PREPEND && t->spaces != SPACES_REPLACE))
        return KVANT_OK;
    if ((t->spaces == SPACES_PREPEND && normal_add(&t->change, NORMAL_PREPEND, SPM_SPACE, 3, "", 0) < 0) ||
        normal_add(&t->change, NORMAL_REPLACE, " ", 1, SPM_SPACE, 3) < 0)
        return kvant_fail(diag, KVANT_EFORMAT, "kvant.tokenizer.normalizers: more than %d steps", NORMAL_MOST - 2);
    t->spaces = SPACES_REPLACE;
    return KVANT_OK;
}

static int read_all(tokenizer *t, const gguf *g, int rows, kvant_diag *diag)
{
    int model, by_rank = 0;

    KVANT_TRY(read_model(g, &model, diag));
    KVANT_TRY(read_pre(t, g, model, diag));
    KVANT_TRY(vocab_open(&t->v, g, !t->pre || pretok_raw(t->pre), rows, diag));
    KVANT_TRY(read_spaces(t, g, model, diag));
    KVANT_TRY(read_rules(t, g, diag));
    KVANT_TRY(gguf_bool(g, "kvant.tokenizer.by_rank", 0, &by_rank, diag));
    if (t->v.raw)
        spm_find_cuts(&t->s, &t->v);
    t->is_unigram = model == MODEL_UNIGRAM;
    KVANT_TRY(t->is_unigram                       ? unigram_read(&t->u, &t->v, g, diag)
              : model == MODEL_SCORES && !by_rank ? spm_merges(&t->s, &t->b, &t->v, g, diag)
                                                  : read_merges(t, g, diag));
    KVANT_TRY(settle_changes(t, diag));
    KVANT_TRY(vocab_finish(&t->v, &t->change, diag));
    if (t->is_unigram)
        KVANT_TRY(unigram_finish(&t->u, &t->v, diag));
    return read_ids(t, g, diag);
}

int tokenizer_open(const gguf *g, tokenizer **out, kvant_diag *diag)
{
    return tokenizer_open_rows(g, 0, out, diag);
}

int tokenizer_open_rows(const gguf *g, int rows, tokenizer **out, kvant_diag *diag)
{
    tokenizer *t = kvant_calloc(1, sizeof *t);

    if (!t)
        return kvant_fail(diag, KVANT_ENOMEM, "tokenizer: out of memory");
    const int err = read_all(t, g, rows, diag);
    if (err < 0) {
        tokenizer_close(t);
        return err;
    }
    *out = t;
    return KVANT_OK;
}

void tokenizer_close(tokenizer *t)
{
    if (!t)
        return;
    vocab_close(&t->v);
    bpe_free(&t->b);
    spm_free(&t->s);
    unigram_free(&t->u);
    pretok_close(t->pre);
    kvant_free(t);
}
