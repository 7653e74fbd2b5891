/* added_models.c: what a file of another converter does not say about its added tokens, known by the model.  Owns the
 * rules; a file with kvant.tokenizer.rules says everything itself.
 *
 * A model is known by tokens at their ids, so that a file of any name and any fine-tune is; Phi-3 by its name, too, as
 * llama.cpp has it.  Sources: the published tokenizer.json files. */
#include <ctype.h>
#include <string.h>
#include "text/added/added.h"
#include "text/tokenizer_vocab.h"

typedef struct known_token {
    uint32_t id;
    const char *text;
} known_token;

enum { MOST_TELL = 5, MOST_RANGES = 3 };

static const struct {
    const char *name; /* for people */
    known_token tell[MOST_TELL];
    struct {
        uint32_t first, last;
    } ids[MOST_RANGES]; /* control and user-defined tokens of these ids have `flags` */
    int flags;
} models[] = {
    { "Phi-3, Phi-3.5",
      { { 32000, "<|endoftext|>" }, { 32001, "<|assistant|>" }, { 32007, "<|end|>" }, { 32010, "<|user|>" } },
      { { 2, 2 }, { 32001, 32063 } },
      ADDED_RSTRIP },
    { "Phi-4",
      { { 100257, "<|endoftext|>" }, { 100264, "<|im_start|>" }, { 100265, "<|im_end|>" }, { 100266, "<|im_sep|>" } },
      { { 100256, 100351 } },
      ADDED_LSTRIP | ADDED_RSTRIP },
    { "Phi-4-mini",
      { { 199999, "<|endoftext|>" }, { 200019, "<|assistant|>" }, { 200020, "<|end|>" }, { 200021, "<|user|>" } },
      { { 200019, 200022 }, { 200028, 200028 } },
      ADDED_RSTRIP },
};

static int is_token(const vocab *v, known_token t)
{
    const vocab_token *found = t.id < v->n ? &v->tokens[t.id] : NULL;

    return found && found->len == strlen(t.text) && memcmp(v->text + found->at, t.text, found->len) == 0;
}

static int is_model(const vocab *v, const known_token *tell)
{
    for (int i = 0; i < MOST_TELL && tell[i].text; i++)
        if (!is_token(v, tell[i]))
            return 0;
    return 1;
}

static int can_be_added(const vocab *v, uint32_t id)
{
    return v->tokens[id].kind == VOCAB_CONTROL || v->tokens[id].kind == VOCAB_USER;
}

static void set_flags(vocab *v, uint32_t first, uint32_t last, int flags)
{
    for (uint32_t id = first; id <= last && id < v->n; id++)
        if (can_be_added(v, id))
            v->tokens[id].flags |= (uint8_t)flags;
}

/* A text of the file has one of the words, in any case? */
static int has_word(const gguf *g, const char *key, const char *const *words)
{
    gguf_str name = { "", 0 };

    if (gguf_string(g, key, 0, &name, NULL) < 0)
        return 0;
    for (; *words; words++)
        for (size_t i = 0, n = strlen(*words); i + n <= name.n; i++) {
            size_t k = 0;
            while (k < n && tolower((unsigned char)name.s[i + k]) == (*words)[k])
                k++;
            if (k == n)
                return 1;
        }
    return 0;
}

static void set_one(vocab *v, const char *text, int flags)
{
    const int32_t id = vocab_find(v, text, strlen(text));

    if (id >= 0)
        v->tokens[id].flags = (uint8_t)flags;
}

/* llama.cpp's rule: every special token of a model of that name, but for what begins and ends texts. */
static void known_by_name(vocab *v, const gguf *g)
{
    static const char *const phi3[] = { "phi-3", "phi3", NULL };
    static const char *const without[] = { "<unk>", "<s>", "<|endoftext|>" };

    if (!has_word(g, "general.name", phi3) || !v->raw)
        return;
    set_flags(v, 0, v->n - 1, ADDED_RSTRIP);
    set_one(v, "</s>", ADDED_RSTRIP);
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        set_one(v, without[i], 0);
}

/* The mask of these models takes the blank before it. */
static void known_masks(vocab *v, const gguf *g)
{
    static const char *const jina[] = { "jina-v2", NULL }, *const bert[] = { "modern-bert", NULL };
    gguf_str model = { "", 0 };
    const char *mask = has_word(g, "tokenizer.ggml.pre", jina)   ? "<mask>"
                       : has_word(g, "tokenizer.ggml.pre", bert) ? "[MASK]"
                                                                 : NULL;

    if (!mask && gguf_string(g, "tokenizer.ggml.model", 0, &model, NULL) == KVANT_OK && model.n == 2 &&
        memcmp(model.s, "t5", 2) == 0)
        mask = "<mask>"; /* XLM-R's */
    const int32_t id = mask ? vocab_find(v, mask, strlen(mask)) : -1;
    if (id >= 0 && can_be_added(v, (uint32_t)id))
        v->tokens[id].flags |= ADDED_LSTRIP;
}

void added_known_model(vocab *v, const gguf *g)
{
    known_by_name(v, g);
    known_masks(v, g);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (int k = 0; k < MOST_RANGES && models[i].ids[k].last && is_model(v, models[i].tell); k++)
            set_flags(v, models[i].ids[k].first, models[i].ids[k].last, models[i].flags);
}
