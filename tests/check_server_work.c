/* check_server_work.c: what reading a body costs, and what becomes of it when it may not go on.
 * Bodies of many small parts take time in proportion to their bytes; a text that cannot fit is refused before it is
 * made into tokens; work that is cancelled, late or out of fuel ends; an allocation that fails gives 503 and never
 * another text. */
#include <time.h>
#include "base/thread/guard.h"
#include "base/mem.h"
#include "base/text/sbuf.h"
#include "server/request/request.h"
#include "support/check.h"

static kvant_model *model;
static request_env env;

static double cpu_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A body: head, n times part with commas between them, tail. */
typedef struct shape {
    const char *name;
    int body;
    const char *head, *part, *tail;
} shape;

#define USER "{\"role\":\"user\",\"content\":\"x\"}"
#define TEXT "{\"type\":\"text\",\"text\":\"ab\"}"
static const shape shapes[] = {
    { "parts of a message", BODY_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[", TEXT, "]}]}" },
    { "messages", BODY_CHAT, "{\"messages\":[" USER ",", USER, "]}" },
    { "calls of a message", BODY_CHAT, "{\"messages\":[" USER ",{\"role\":\"assistant\",\"tool_calls\":[",
      "{\"id\":\"a\",\"function\":{\"name\":\"b\",\"arguments\":\"{}\"}}", "]}," USER "]}" },
    { "system of /v1/messages", BODY_MESSAGES, "{\"max_tokens\":1,\"messages\":[" USER "],\"system\":[", TEXT, "]}" },
    { "parts of /v1/messages", BODY_MESSAGES, "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[", TEXT,
      "]}]}" },
    { "a result of /v1/messages", BODY_MESSAGES,
      "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"a\","
      "\"content\":[", TEXT, "]}]}]}" },
    { "a thought of /v1/responses", BODY_RESPONSES, "{\"input\":[" USER ",{\"type\":\"reasoning\",\"content\":[", TEXT,
      "]}," USER "]}" },
    { "parts of /v1/responses", BODY_RESPONSES, "{\"input\":[{\"role\":\"user\",\"content\":[", TEXT, "]}]}" },
    { "items of /v1/responses", BODY_RESPONSES, "{\"input\":[", USER, "]}" },
    { "a prompt of ids", BODY_TEXT, "{\"prompt\":[", "7", "]}" },
    { "a prompt of texts between ids", BODY_TEXT, "{\"prompt\":[7,", "\"ab\",7", "]}" },
    { "a prompt of empty texts", BODY_TEXT, "{\"prompt\":[7,", "\"\"", "]}" },
    { "a prompt of parts", BODY_TEXT, "{\"prompt\":{\"content\":[", TEXT, "]}}" },
    { "bias of texts", BODY_TEXT, "{\"prompt\":\"a\",\"logit_bias\":[", "[\"\",1]", "]}" },
    { "a schema's names", BODY_CHAT, "{\"messages\":[" USER "],\"json_schema\":{\"enum\":[", "\"ab\"", "]}}" },
    { "a tool's names", BODY_CHAT, "{\"messages\":[" USER "],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\","
      "\"parameters\":{\"required\":[", "\"ab\"", "]}}}]}" },
    { "a field that nobody reads", BODY_TEXT, "{\"prompt\":\"a\",\"user\":[", "\"ab\"", "]}" },
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void make(const shape *s, int n, sbuf *b)
{
    sbuf_drop(b, b->n);
    sbuf_puts(b, s->head);
    for (int i = 0; i < n; i++) {
        sbuf_puts(b, i ? "," : "");
        sbuf_puts(b, s->part);
    }
    sbuf_puts(b, s->tail);
}

static int parse(int body, const sbuf *b, api_request **r, api_error *e)
{
    *r = NULL;
    *e = (api_error){ 0 };
    return request_parse(&env, body, b->s, b->n, r, e);
}

static double time_of(const shape *s, int n, sbuf *b)
{
    api_request *r;
    api_error e;

    make(s, n, b);
    const double from = cpu_s();
    if (parse(s->body, b, &r, &e) == API_OK)
        request_dispose(r);
    return cpu_s() - from;
}

/* Four times the parts: a join that copies all of it for each part takes sixteen times as long. */
static void check_linear(void)
{
    const int n = check_sanitized ? 20000 : 100000;
    sbuf b = { 0 };

    for (int i = 0; i < SHAPES; i++) {
        const double one = time_of(&shapes[i], n / 4, &b), four = time_of(&shapes[i], n, &b);
        CHECK(four < 0.2 || four < 9 * one, "%s: %.3f s for %d, %.3f s for %d", shapes[i].name, one, n / 4, four, n);
        CHECK(four < (check_sanitized ? 20 : 4), "%s: %.3f s for %zu bytes", shapes[i].name, four, b.n);
    }
    sbuf_free(&b);
}

/* ---- too long ---- */

/* Where the tokens were counted the message has no "at least". */
static void check_not_tokenised(void)
{
    static const struct {
        int body;
        const char *head, *tail;
    } cases[] = {
        { BODY_TEXT, "{\"prompt\":\"", "\"}" },
        { BODY_TEXT, "{\"prompt\":[1,\"", "\",2]}" },
        { BODY_TEXT, "{\"prompt\":{\"prompt_string\":\"", "\"}}" },
        { BODY_TEXT, "{\"prompt\":{\"content\":[{\"type\":\"text\",\"text\":\"", "\"}]}}" },
        { BODY_TEXT, "{\"prompt\":[\"a\",\"", "\"]}" },
        { BODY_NATIVE, "{\"prompt\":\"", "\"}" },
        { BODY_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"", "\"}]}" },
        { BODY_CHAT, "{\"messages\":[" USER ",{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":\"", "\"}]}" },
        { BODY_MESSAGES, "{\"max_tokens\":1,\"messages\":[" USER "],\"system\":\"", "\"}" },
        { BODY_MESSAGES, "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"", "\"}]}" },
        { BODY_RESPONSES, "{\"input\":\"", "\"}" },
        { BODY_RESPONSES, "{\"input\":\"a\",\"instructions\":\"", "\"}" },
    };
    const int n = 100 * env.n_ctx * env.longest_token / 16;
    sbuf b = { 0 };
    api_request *r;
    api_error e;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sbuf_drop(&b, b.n);
        sbuf_puts(&b, cases[i].head);
        for (int k = 0; k < n; k++)
            sbuf_puts(&b, "lorem ipsum dol ");
        sbuf_puts(&b, cases[i].tail);
        const double from = cpu_s();
        const int kind = parse(cases[i].body, &b, &r, &e);
        const double took = cpu_s() - from;
        CHECK(kind == API_CONTEXT && strstr(e.message, "at least"), "case %zu: kind %d: %s", i, kind, e.message);
        CHECK(took < (check_sanitized ? 10 : 1), "case %zu: %.3f s for %zu bytes", i, took, b.n);
    }
    sbuf_free(&b);
}

/* ---- guards ---- */

static void check_guards(void)
{
    const int64_t second = 1000000000;
    _Atomic int no = 0, yes = 1;
    const struct {
        int64_t cpu, ns;
        const _Atomic int *sign, *too;
        enum guard_why why;
    } cases[] = {
        { 0, 60 * second, NULL, NULL, GUARD_FUEL },        { 60 * second, 0, &no, NULL, GUARD_LATE },
        { 60 * second, 60 * second, &yes, NULL, GUARD_CANCELLED },
        { 60 * second, 60 * second, &no, &yes, GUARD_CANCELLED },
        { 60 * second, 60 * second, &no, &no, GUARD_GOES_ON },
    };
    sbuf b = { 0 };
    api_request *r;
    api_error e;

    for (int i = 0; i < SHAPES; i++)
        for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
            guard g;
            make(&shapes[i], 3000, &b);
            guard_begin(&g, cases[k].cpu, cases[k].ns, cases[k].sign, cases[k].too);
            const int kind = parse(shapes[i].body, &b, &r, &e);
            const enum guard_why why = guard_end();
            CHECK(why == cases[k].why, "%s, guard %zu: ended by %d", shapes[i].name, k, why);
            CHECK((kind == API_UNAVAILABLE) == (why != GUARD_GOES_ON), "%s, guard %zu: kind %d: %s", shapes[i].name, k,
                  kind, e.message);
            request_dispose(r);
        }
    CHECK(!guard_over(), "no guard is left");
    sbuf_free(&b);
}

/* ---- failing allocations ---- */

static int same(const api_request *a, const api_request *b)
{
    int ok = a->n_prompts == b->n_prompts && a->n_stops == b->n_stops && a->sampler.n_bias == b->sampler.n_bias;

    for (int i = 0; ok && i < a->n_prompts; i++)
        ok = a->prompts[i].n == b->prompts[i].n &&
             memcmp(a->prompts[i].ids, b->prompts[i].ids, (size_t)a->prompts[i].n * sizeof(int32_t)) == 0;
    for (int i = 0; ok && i < a->n_stops; i++)
        ok = strcmp(a->stops[i], b->stops[i]) == 0;
    return ok && strcmp(a->ignored, b->ignored) == 0;
}

/* Each allocation of the body fails once: 503, or the same request as with all of them. */
static void fail_each(const char *name, int body, const sbuf *b)
{
    api_request *whole, *r;
    api_error e;
    int kind = API_UNAVAILABLE, refused = 0, other = 0, different = 0;

    CHECK(parse(body, b, &whole, &e) == API_OK, "%s: %s", name, e.message);
    for (int at = 0; whole && at < 4000; at += at < 200 ? 1 : 7) {
        mem_fail_after(at, 0);
        kind = parse(body, b, &r, &e);
        mem_fail_after(-1, 0);
        refused += kind == API_UNAVAILABLE;
        other += kind != API_OK && kind != API_UNAVAILABLE;
        different += kind == API_OK && !same(whole, r);
        request_dispose(r);
    }
    CHECK(refused > 0, "%s: no allocation failed", name);
    CHECK(other == 0, "%s: %d times neither 503 nor taken", name, other);
    CHECK(different == 0, "%s: %d requests of another text", name, different);
    request_dispose(whole);
}

static void check_failures(void)
{
    static const struct {
        int body;
        const char *text;
    } cases[] = {
        { BODY_TEXT, "{\"prompt\":\"0012003400560078009000000000000000000000000000000000000000001234567890\",\"seed\":1}" },
        { BODY_TEXT, "{\"prompt\":[1,\"0012 abcdefghijklmnopqrstuvwxyz 0012 abcdefghijklmnop\",2],\"stop\":[\"0012\",\"ab\"]}" },
        { BODY_TEXT, "{\"prompt\":[\"0012\",\"a longer text, with more than sixteen bytes in it\"]}" },
        { BODY_TEXT, "{\"prompt\":\"a\",\"logit_bias\":{\"7\":1,\"1234\":-100},\"zzz\":1,\"user\":\"somebody\"}" },
        { BODY_NATIVE, "{\"prompt\":\"0012\",\"n_predict\":1,\"response_fields\":[\"content\"],\"samplers\":[\"top_k\"]}" },
        { BODY_CHAT, "{\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":\"0012003400560078\",\"reasoning_content\":"
                     "\"because 0012\"}," USER "]}" },
        { BODY_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[" TEXT "," TEXT ",{\"type\":\"text\",\"text\":"
                     "\"0012\"}]}],\"chat_template_kwargs\":{\"a\":\"0012\"}}" },
        { BODY_CHAT, "{\"messages\":[" USER "],\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\","
                     "\"schema\":{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[\"0012\",\"b\"]}}}}}}" },
        { BODY_MESSAGES, "{\"max_tokens\":1,\"system\":[" TEXT "," TEXT "],\"messages\":[" USER
                         "],\"stop_sequences\":[\"0012\"],\"thinking\":{\"type\":\"disabled\"}}" },
        { BODY_MESSAGES, "{\"max_tokens\":1,\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\","
                         "\"id\":\"a\",\"name\":\"b\",\"input\":{\"c\":\"0012\"}}]},{\"role\":\"user\",\"content\":[{\"type\":"
                         "\"tool_result\",\"tool_use_id\":\"a\",\"content\":[" TEXT "]}]}]}" },
        { BODY_RESPONSES, "{\"input\":\"0012\",\"instructions\":\"0034 0034 0034\",\"metadata\":{\"a\":\"b\"}}" },
        { BODY_RESPONSES, "{\"input\":[" USER ",{\"type\":\"reasoning\",\"content\":[" TEXT "]},{\"type\":\"function_call\","
                          "\"call_id\":\"a\",\"name\":\"b\",\"arguments\":\"{}\"},{\"type\":\"function_call_output\","
                          "\"call_id\":\"a\",\"output\":\"0012\"}]}" },
    };
    sbuf b = { 0 };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sbuf_drop(&b, b.n);
        sbuf_puts(&b, cases[i].text);
        fail_each(cases[i].text, cases[i].body, &b);
    }
    sbuf_free(&b);
}

int main(void)
{
    kvant_model_params p = { .size = sizeof(kvant_model_params), .path = "models/novella-hybrid-q8_0.gguf" };
    kvant_diag diag = { "" };

    CHECK(kvant_model_open(&p, &model, &diag) == KVANT_OK, "%s", diag.text);
    if (!model)
        return check_end("check_server_work");
    env = (request_env){ .model = model,
                         .alias = "alias",
                         .n_ctx = 512,
                         .pool_tokens = 65536,
                         .longest_token = 16,
                         .default_max_tokens = -1,
                         .sampler = kvant_sampler_defaults() };
    check_linear();
    check_not_tokenised();
    check_guards();
    check_failures();
    kvant_model_close(model);
    return check_end("check_server_work");
}
