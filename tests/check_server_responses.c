/* check_server_responses.c: bodies of /v1/responses: the prompt that a chat of the same words has, refusals that name
 * the field; and what is kept of earlier ones. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "server/request/request.h"
#include "server/api/responses/responses_store.h"
#include "support/check.h"

static request_env env;

static api_request *parse(int shape, const char *body, api_error *e)
{
    api_request *r = NULL;

    memset(e, 0, sizeof *e);
    request_parse(&env, shape, body, strlen(body), &r, e);
    return r;
}

/* A body, and one of a chat that says the same. */
static void check_same(const char *body, const char *chat)
{
    api_error e;
    api_request *a = parse(BODY_RESPONSES, body, &e);

    CHECK(a, "%s: %s", body, e.message);
    api_request *b = parse(BODY_CHAT, chat, &e);
    CHECK(b, "%s: %s", chat, e.message);
    CHECK(a && b && a->prompts[0].n == b->prompts[0].n &&
              memcmp(a->prompts[0].ids, b->prompts[0].ids, (size_t)a->prompts[0].n * 4) == 0,
          "%s: another prompt", body);
    request_dispose(a);
    request_dispose(b);
}

#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"

static void check_bodies(void)
{
    check_same("{\"input\":\"a b\"}", "{\"messages\":[" USER("a b") "]}");
    check_same("{\"input\":[" USER("a") "],\"instructions\":\"s\"}",
               "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"}," USER("a") "]}");
    check_same("{\"input\":[" USER("a") ",{\"type\":\"reasoning\",\"summary\":[]},{\"type\":\"message\",\"role\":"
               "\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"b\"},{\"type\":\"refusal\","
               "\"refusal\":\"c\"}]}," USER("d") "]}",
               "{\"messages\":[" USER("a") ",{\"role\":\"assistant\",\"content\":\"b\\nc\"}," USER("d") "]}");
    check_same("{\"input\":\"e\",\"previous_response_id\":\"resp_1\"}",
               "{\"messages\":[" USER("a") ",{\"role\":\"assistant\",\"content\":\"b\"}," USER("e") "]}");
}

static void check_settings(void)
{
    api_error e;
    api_request *r = parse(BODY_RESPONSES,
                           "{\"input\":\"a\",\"max_output_tokens\":7,\"temperature\":0.25,\"store\":false,"
                           "\"truncation\":\"auto\",\"include\":[],\"metadata\":{\"a\":\"b\"}}",
                           &e);

    CHECK(r && r->max_tokens == 7 && r->responses && !r->responses->store && r->ignored[0] == 0, "%s", e.message);
    CHECK(r && strcmp(r->responses->told[2], "{\"a\":\"b\"}") == 0 && strcmp(r->responses->told[6], "0.25") == 0 &&
              strcmp(r->responses->told[10], "0.95") == 0 && strcmp(r->responses->told[11], "\"auto\"") == 0,
          "what is told again");
    request_dispose(r);
}

static void check_refusals(void)
{
    static const char *const bad[][2] = {
        { "{}", "input" },
        { "{\"input\":[{\"type\":\"reasoning\",\"content\":7}]}", "messages" },
        { "{\"input\":[{\"type\":\"message\",\"role\":\"user\"}]}", "input" },
        { "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\"}]}]}", "input" },
        { "{\"input\":[{\"type\":\"function_call\",\"call_id\":\"a\",\"name\":\"b\"}]}", "input" },
        { "{\"input\":[{\"type\":\"function_call_output\",\"output\":\"b\"}]}", "input" },
        { "{\"input\":[{\"type\":\"function_call_output\",\"call_id\":\"a\"}]}", "input" },
        { "{\"input\":\"a\",\"previous_response_id\":\"resp_2\"}", "previous_response_id" },
        { "{\"input\":\"a\",\"tools\":7}", "tools" },
        { "{\"input\":\"a\",\"tools\":[7]}", "tools" },
        { "{\"input\":\"a\",\"tool_choice\":{\"type\":\"function\"}}", "tool_choice" },
        { "{\"input\":\"a\",\"text\":{\"format\":{\"type\":\"json_schema\"}}}", "response_format" },
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        api_error e;
        api_request *r = parse(BODY_RESPONSES, bad[i][0], &e);
        CHECK(!r && api_status(e.kind) == 400 && strcmp(e.param, bad[i][1]) == 0, "%s: %s: %s", bad[i][0], e.param,
              e.message);
        request_dispose(r);
    }
}

/* The oldest go when a tenant has too many bytes; one that is too large is not kept and drops none. */
static int put(response_store *s, int tenant, const char *id, const char *messages)
{
    const char *const parts[STORED_PARTS] = { messages, "{}", "i\t{}\n" };
    const store_owner o = { .tenant = tenant };

    return response_store_put(s, &o, id, parts);
}

static stored_text *get(response_store *s, int tenant, const char *id, int part)
{
    const store_owner o = { .tenant = tenant };

    return response_store_get(s, &o, id, part);
}

static int drop(response_store *s, int tenant, const char *id)
{
    const store_owner o = { .tenant = tenant };

    return response_store_drop(s, &o, id);
}

static void check_store(void)
{
    enum { HALF = RESPONSE_STORE_BYTES / 2 - 1000 };
    response_store *s = response_store_new(2);
    char *text = kvant_alloc(RESPONSE_STORE_BYTES + 1);

    memset(text, 'x', RESPONSE_STORE_BYTES);
    text[RESPONSE_STORE_BYTES] = 0;
    CHECK(!put(s, 0, "large", text), "more than a tenant may have");
    text[HALF] = 0;
    CHECK(put(s, 0, "a", text) && put(s, 0, "b", text) && put(s, 1, "other", "[]") && put(s, 0, "c", text), "kept");
    for (int i = 0; i < 4; i++) {
        static const char *const ids[] = { "a", "b", "c", "other" };
        stored_text *got = get(s, 0, ids[i], STORED_MESSAGES);
        CHECK((got != NULL) == (i == 1 || i == 2) && (!got || got->n == HALF), "%s", ids[i]);
        stored_text_release(got);
    }
    stored_text *got = get(s, 1, "other", STORED_INPUT);
    CHECK(got && strcmp(got->s, "i\t{}\n") == 0, "another tenant's");
    CHECK(drop(s, 1, "other") && got && strcmp(got->s, "i\t{}\n") == 0, "who holds a text has it after it was dropped");
    stored_text_release(got);
    CHECK(drop(s, 0, "c") && !drop(s, 0, "c") && !drop(s, 0, "other"), "dropped, once, and by its own tenant alone");
    CHECK(put(s, 0, "d", text) && drop(s, 0, "b") && drop(s, 0, "d"), "the last again");
    CHECK(put(s, 0, "e", "[]") && (got = get(s, 0, "e", STORED_RESPONSE)), "after all were dropped");
    CHECK(got && strcmp(got->s, "{}") == 0, "%s", got ? got->s : "");
    stored_text_release(got);
    kvant_free(text);
    response_store_free(s);
    response_store_free(NULL);
}

/* A response of a conversation with a cache_salt is for those who know the salt. */
static void check_salts(void)
{
    static const char *const salts[] = { NULL, "", "a", "b", "aa", "A", "a ", "0", "with more than sixteen bytes" };
    enum { SALTS = sizeof salts / sizeof salts[0] };
    const char *const parts[STORED_PARTS] = { "[]", "{}", "" };
    response_store *s = response_store_new(1);

    for (int i = 0; i < SALTS; i++) {
        const store_owner o = store_owner_of(0, salts[i], salts[i] ? strlen(salts[i]) : 0);
        CHECK(response_store_put(s, &o, "id", parts), "salt %d", i);
        for (int k = 0; k < SALTS; k++) {
            const store_owner other = store_owner_of(0, salts[k], salts[k] ? strlen(salts[k]) : 0);
            stored_text *t = response_store_get(s, &other, "id", STORED_MESSAGES);
            const int same = i == k || (i < 2 && k < 2);
            CHECK((t != NULL) == same, "of salt %d, asked for with %d", i, k);
            stored_text_release(t);
            CHECK(same || !response_store_drop(s, &other, "id"), "of salt %d, dropped with %d", i, k);
        }
        CHECK(response_store_drop(s, &o, "id"), "salt %d", i);
    }
    response_store_free(s);
}

int main(void)
{
    const kvant_model_params p = { .size = sizeof(kvant_model_params), .path = "models/novella-hybrid-q8_0.gguf" };
    kvant_model *model = NULL;
    kvant_diag diag = { "" };

    CHECK(kvant_model_open(&p, &model, &diag) == KVANT_OK, "%s", diag.text);
    env = (request_env){ .model = model,
                         .alias = "alias",
                         .n_ctx = 2048,
                         .pool_tokens = 65536,
                         .default_max_tokens = -1,
                         .sampler = kvant_sampler_defaults(),
                         .responses = response_store_new(1) };
    put(env.responses, 0, "resp_1", "[" USER("a") ",{\"role\":\"assistant\",\"content\":\"b\"}]");
    if (model) {
        check_bodies();
        check_settings();
        check_refusals();
    }
    check_store();
    check_salts();
    response_store_free(env.responses);
    kvant_model_close(model);
    return check_end("check_server_responses");
}
