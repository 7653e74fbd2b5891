/* fuzz_request.c: request bodies of every route.  The first byte chooses the reader. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "server/request/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static request_env env;

static void open_model(void)
{
    kvant_model_params p = { .size = sizeof(kvant_model_params), .path = "models/novella-hybrid-q8_0.gguf" };
    kvant_model *m;
    kvant_diag diag;

    if (kvant_model_open(&p, &m, &diag) != KVANT_OK) {
        fprintf(stderr, "fuzz_request: %s (run it in the repository's root)\n", diag.text);
        exit(1);
    }
    env = (request_env){ .model = m,
                         .alias = "kvant",
                         .n_ctx = 512,
                         .pool_tokens = 4096,
                         .default_max_tokens = -1,
                         .sampler = kvant_sampler_defaults() };
}

static void check_error(int kind, const api_error *e)
{
    jsonw w;

    if (kind == API_OK)
        return;
    if (api_status(kind) < 400 || api_status(kind) == 500 || !e->message[0])
        abort(); /* a body never makes the server fail, and every refusal says why */
    for (int shape = ERROR_PLAIN; shape <= ERROR_ANTHROPIC; shape++) {
        jsonw_init(&w);
        api_error_json(e, shape, &w);
        if (jsonw_error(&w))
            abort();
        jsonw_free(&w);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    api_error e = { 0 };
    api_request *r = NULL;
    embed_request *em = NULL;
    prompt p = { 0 };
    char *text = NULL, name[65];
    int kind, pieces;
    static const int shapes[4][2] = { { BODY_TEXT, BODY_CHAT },
                                      { BODY_NATIVE, BODY_INFILL },
                                      { BODY_MESSAGES, BODY_MESSAGES },
                                      { BODY_RESPONSES, BODY_RESPONSES } };

    char ignored[REQUEST_IGNORED];

    if (!env.model)
        open_model();
    if (!size)
        return 0;
    const char *body = (const char *)data + 1;
    size--;
    switch (data[0] & 7) {
    case 0:
        kind = data[0] & 8 ? request_parse_rerank(&env, (data[0] >> 4 & 3) % 3, body, size, &em, &e)
                           : request_parse_embed(&env, data[0] >> 4 & 1, body, size, &em, &e);
        break;
    case 1: kind = request_parse_tokenize(&env, body, size, &p, &pieces, ignored, &e); break;
    case 2: kind = request_parse_detokenize(&env, body, size, &p, ignored, &e); break;
    case 3: kind = request_parse_template(&env, body, size, &text, ignored, &e); break;
    case 4: kind = request_parse_filename(body, size, name, &e); break;
    default: kind = request_parse(&env, shapes[data[0] >> 6 & 3][data[0] & 1], body, size, &r, &e); break;
    }
    check_error(kind, &e);
    if (kind == API_OK) {
        request_dispose(r);
        embed_request_dispose(em);
        prompt_free(&p);
        kvant_text_free(text);
    }
    return 0;
}
