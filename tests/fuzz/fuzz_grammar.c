/* fuzz_grammar.c: GBNF texts.  What compiles is run over a small vocabulary; every mask is compared with trying
 * the token. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "server/grammar/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N = 270 };
static grammar_vocab *vocab;

static void make_vocab(void)
{
    static char pool[N][4];
    static const char *text[N];
    static int len[N];
    static unsigned char eog[N];
    static const char pairs[14][4] = { "ab", "aa",  "\"a", "{\"", "\":", "\xC3\xA4", "\xE2\x82",
                                       "  ", "\n ", "12",  "tr",  "]}",  "a\"",      "" };

    for (int i = 0; i < N; i++) {
        text[i] = pool[i];
        len[i] = i < 256 ? 1 : (int)strlen(pairs[i - 256]);
        memcpy(pool[i], i < 256 ? (char[]){ (char)i, 0 } : pairs[i - 256], (size_t)len[i]);
    }
    eog[N - 1] = 1;
    if (grammar_vocab_from_list(text, len, eog, N, &vocab, NULL) != KVANT_OK)
        exit(1);
}

/* A token is allowed by the mask exactly when it is accepted. */
static void check_pick(grammar_run *r, const float *logits, uint8_t seed)
{
    int pick = seed * 7 % N, tries = 0;

    while (isinf(logits[pick]) && tries++ < N)
        pick = (pick + 1) % N;
    if (tries <= N && grammar_run_take(r, pick, NULL) != KVANT_OK)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    grammar *g = NULL;
    grammar_run *r = NULL;
    kvant_diag diag = { "" };
    float logits[N];
    int left, complete;

    if (!vocab)
        make_vocab();
    if (grammar_compile((const char *)data, size, &g, &diag) != KVANT_OK) {
        if (!diag.text[0])
            abort();
        return 0;
    }
    if (grammar_run_create(g, vocab, &r, &diag) == KVANT_OK) {
        for (int i = 0; i < 12; i++) {
            memset(logits, 0, sizeof logits);
            int code = grammar_run_try(r, &diag);
            while (code == KVANT_EBUSY)
                code = grammar_run_work(r, &diag);
            if (code != KVANT_OK || grammar_run_apply(r, logits, N, &left, &complete, &diag) != KVANT_OK || complete)
                break;
            check_pick(r, logits, size ? data[(size_t)i % size] : 0);
        }
        grammar_run_free(r);
    }
    grammar_release(g);
    return 0;
}
