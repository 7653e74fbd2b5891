/* generate.c: the engine in its smallest use: a GGUF model, a prompt, greedy text with the cache in a format of your
 * choice.
 *
 *     cc generate.c $(pkg-config --cflags --libs kvant) -o generate && ./generate model.gguf "Once upon a time" 40
 *     tbq4_0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <kvant/engine.h>

enum { MAX_PROMPT = 4096 };

/* Prints every error the same way; 0 if rc is fine. */
static int failed(int rc, const char *what, const kvant_diag *diag)
{
    if (rc)
        fprintf(stderr, "generate: %s: %s\n", what, diag->text);
    return rc != 0;
}

static int generate(kvant_engine *eng, const kvant_model *m, const int32_t *prompt, int n, int count)
{
    kvant_diag diag;
    kvant_detok detok;
    kvant_sampler *sampler;
    kvant_sampler_params sp = kvant_sampler_defaults();
    char text[512];
    int seq, rc;
    int32_t token;
    kvant_item item;

    memset(&item, 0, sizeof item);
    item.tokens = prompt;
    item.n = n;
    item.prompt = 1;
    item.logits = KVANT_LOGITS_LAST;
    memset(&detok, 0, sizeof detok);
    sp.temp = 0;
    if (failed(kvant_sampler_create(&sp, kvant_model_get_info(m)->n_vocab, &sampler, &diag), "sampler", &diag))
        return 1;
    rc = kvant_seq_new(eng, &seq, &diag);
    item.seq = seq;
    for (int i = 0; rc == 0 && i < count; i++) {
        if ((rc = kvant_step(eng, &item, 1, &diag)) != 0)
            break;
        if ((rc = kvant_sampler_pick(sampler, kvant_step_logits(eng, 0, 0), &token, &diag)) != 0)
            break;
        if (kvant_token_is_eog(m, token))
            break;
        if (kvant_detok_push(m, &detok, token, text, sizeof text) > 0)
            fputs(text, stdout);
        item.tokens = &token;
        item.n = 1;
        item.prompt = 0;
    }
    putchar('\n');
    kvant_sampler_free(sampler);
    return failed(rc, "step", &diag);
}

int main(int argc, char **argv)
{
    kvant_diag diag;
    kvant_model *m = NULL;
    kvant_engine *eng = NULL;
    static int32_t ids[MAX_PROMPT];
    int n = 0, status = 1;

    if (argc < 3) {
        fprintf(stderr, "usage: generate MODEL PROMPT [TOKENS [CACHE FORMAT]]\n");
        return 2;
    }
    kvant_model_params mp = kvant_model_defaults();
    mp.path = argv[1];
    if (failed(kvant_model_open(&mp, &m, &diag), argv[1], &diag))
        return 3;
    kvant_engine_params p = kvant_engine_defaults();
    p.n_ctx = 1024;
    p.type_k = p.type_v = argc > 4 ? argv[4] : NULL;
    if (!failed(kvant_tokenize(m, argv[2], strlen(argv[2]), KVANT_TOK_BOS, ids, MAX_PROMPT, &n, &diag), "prompt",
                &diag) &&
        !failed(kvant_engine_create(m, &p, &eng, &diag), "engine", &diag))
        status = generate(eng, m, ids, n, argc > 3 ? atoi(argv[3]) : 32);
    kvant_engine_free(eng);
    kvant_model_close(m);
    return status;
}
