/* check_jsonw: the JSON writer, the log's escapes and the trace file. */
#include <pthread.h>
#include "base/clock.h"
#include "base/text/jsonw.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/trace.h"
#include "support/check.h"
#include "support/json.h"

static void expect(jsonw *w, const char *want)
{
    CHECK(!jsonw_error(w) && w->buf && strcmp(w->buf, want) == 0, "got %s, want %s", w->buf ? w->buf : "(null)", want);
    CHECK(w->buf && json_valid(w->buf, w->len), "not JSON: %s", w->buf ? w->buf : "(null)");
    jsonw_free(w);
}

static void test_values(void)
{
    jsonw w;

    jsonw_init(&w);
    jsonw_object(&w);
    jsonw_kstr(&w, "a", "x");
    jsonw_kint(&w, "big", INT64_MIN);
    jsonw_knum(&w, "n", 0.1);
    jsonw_knum(&w, "nan", NAN);
    jsonw_knum(&w, "inf", -INFINITY);
    jsonw_kbool(&w, "t", 7);
    jsonw_kstr(&w, "null", NULL);
    jsonw_key(&w, "list");
    jsonw_array(&w);
    jsonw_int(&w, 1);
    jsonw_array(&w);
    jsonw_end(&w);
    jsonw_object(&w);
    jsonw_end(&w);
    jsonw_raw(&w, "2.5");
    jsonw_bool(&w, 0);
    jsonw_end(&w);
    jsonw_kint(&w, "z", 1);
    jsonw_end(&w);
    expect(&w, "{\"a\":\"x\",\"big\":-9223372036854775808,\"n\":0.1,\"nan\":null,\"inf\":null,\"t\":true,\"null\":null,"
               "\"list\":[1,[],{},2.5,false],\"z\":1}");
}

static void test_strings(void)
{
    jsonw w;

    jsonw_init(&w);
    jsonw_str(&w, "q\" b\\ n\n t\t\r\b\f \x01 \x7f / \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80");
    expect(&w, "\"q\\\" b\\\\ n\\n t\\t\\r\\b\\f \\u0001 \\u007f / \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80\"");
    jsonw_init(&w); /* overlong, surrogate, above U+10FFFF, lone continuation, cut at the end */
    jsonw_strn(&w, "\xC0\xAF|\xED\xA0\x80|\xF4\x90\x80\x80|\x80|\xE2\x82", 16);
#define R "\xEF\xBF\xBD"
    expect(&w, "\"" R R "|" R R R "|" R R R R "|" R "|" R R "\"");
#undef R
    jsonw_init(&w);
    jsonw_strn(&w, "a\0b", 3);
    expect(&w, "\"a\\u0000b\"");
}

/* Every byte string gives valid JSON, whatever it holds. */
static void test_random_bytes(void)
{
    rng r = { 11 };
    char text[64];

    for (int i = 0; i < 20000; i++) {
        jsonw w;
        size_t n = rng_below(&r, sizeof text);
        for (size_t j = 0; j < n; j++)
            text[j] = (char)(rng_u64(&r) >> (j % 3 ? 57 : 56));
        jsonw_init(&w);
        jsonw_strn(&w, text, n);
        if (jsonw_error(&w) || !json_valid(w.buf, w.len))
            CHECK(0, "case %d is not JSON: %s", i, w.buf);
        jsonw_free(&w);
    }
    CHECK(json_valid("[1,-0.5e+3,\"\\u00ff\"]", 20), "the reader refuses JSON");
    static const char *const bad[] = { "",         "[1,]", "{\"a\" 1}", "01",    "1.",
                                       "\"\x01\"", "nan",  "[1] 2",     "{a:1}", "\"\xff\"" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK(!json_valid(bad[i], strlen(bad[i])), "the reader accepts %s", bad[i]);
}

static void test_misuse(void)
{
    jsonw w;

    jsonw_init(&w);
    jsonw_object(&w);
    jsonw_int(&w, 1); /* a value without a key */
    CHECK(jsonw_error(&w), "value without key");
    jsonw_free(&w);
    jsonw_init(&w);
    jsonw_array(&w);
    jsonw_key(&w, "k");
    CHECK(jsonw_error(&w), "key in an array");
    jsonw_free(&w);
    jsonw_init(&w);
    jsonw_end(&w);
    CHECK(jsonw_error(&w), "end of nothing");
    jsonw_free(&w);
    jsonw_init(&w);
    for (int i = 0; i < 65; i++)
        jsonw_array(&w);
    CHECK(jsonw_error(&w), "65 levels");
    jsonw_free(&w);
}

static void test_no_memory(void)
{
    for (long n = 0; n < 4; n++) {
        jsonw w;
        jsonw_init(&w);
        mem_fail_after(n, 0);
        jsonw_array(&w);
        for (int i = 0; i < 1000; i++)
            jsonw_int(&w, i);
        jsonw_end(&w);
        mem_fail_after(-1, 0);
        CHECK(jsonw_error(&w), "allocation %ld failed and nobody noticed", n);
        jsonw_free(&w);
    }
}

static char last_text[2048];
static int last_level;

static void sink(void *user, int level, const char *text)
{
    (*(int *)user)++;
    last_level = level;
    snprintf(last_text, sizeof last_text, "%s", text);
}

static void test_log(void)
{
    int calls = 0;
    char longtext[3000];

    log_msg(LOG_ERROR, "nobody listens");
    log_set_sink(sink, &calls, LOG_INFO);
    log_msg(LOG_DEBUG, "too fine");
    CHECK(calls == 0, "%d calls", calls);
    log_msg(LOG_WARN, "x %d\n\x1b[31m\t\xC2\x9b\xC3\xA9", 5);
    CHECK(calls == 1 && last_level == LOG_WARN, "%d calls, level %d", calls, last_level);
    CHECK(strcmp(last_text, "x 5\\n\\x1b[31m\\t\\x9b\xC3\xA9") == 0, "got %s", last_text);
    memset(longtext, '\x01', sizeof longtext - 1);
    longtext[sizeof longtext - 1] = 0;
    log_msg(LOG_ERROR, "%s", longtext);
    CHECK(strlen(last_text) > 1000 && strlen(last_text) < 1600, "length %zu", strlen(last_text));
    log_set_sink(NULL, NULL, 0);
    log_msg(LOG_ERROR, "gone");
    CHECK(calls == 2, "%d calls", calls);
}

static void *spans(void *arg)
{
    for (int i = 0; i < 500; i++) {
        int64_t t0 = clock_ns();
        trace_span("matmul \"q\"", *(int *)arg, t0, clock_ns());
    }
    return NULL;
}

static void test_trace(void)
{
    char path[] = "/tmp/kvant_trace_XXXXXX", *data = malloc(1 << 20);
    int fd = mkstemp(path), ids[2] = { 0, 1 };
    pthread_t t[2];
    kvant_diag d = { "" };

    (void)fd;
    trace_span("off", 0, 0, 1);
    CHECK(!trace_on() && trace_close(&d) == KVANT_OK, "closing nothing");
    CHECK(trace_open("/nonexistent/dir/x", &d) == KVANT_EIO && strstr(d.text, "/nonexistent"), "%s", d.text);
    CHECK(trace_open(path, &d) == KVANT_OK && trace_on(), "%s", d.text);
    CHECK(trace_open(path, &d) == KVANT_EBUSY, "two traces at once");
    for (int i = 0; i < 2; i++)
        pthread_create(&t[i], NULL, spans, &ids[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    CHECK(trace_close(&d) == KVANT_OK && !trace_on(), "%s", d.text);
    FILE *f = fopen(path, "r");
    size_t n = fread(data, 1, (1 << 20) - 1, f);
    data[n] = 0;
    fclose(f);
    CHECK(json_valid(data, n), "trace is not JSON");
    CHECK(json_num(data, "traceEvents.999.dur") >= 0.0, "1000 events wanted");
    remove(path);
    CHECK(trace_open("/dev/full", &d) == KVANT_OK, "%s", d.text);
    for (int i = 0; i < 1000; i++)
        trace_span("x", 0, 0, 1);
    CHECK(trace_close(&d) == KVANT_EIO, "a full disk must be an error");
    free(data);
}

int main(void)
{
    test_values();
    test_strings();
    test_random_bytes();
    test_misuse();
    test_no_memory();
    test_log();
    test_trace();
    return check_end("check_jsonw");
}
