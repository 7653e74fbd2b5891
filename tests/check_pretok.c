/* check_pretok.c: where pieces end, against golden offsets of another implementation, with and without JIT; limits; NFC
 * against utf8proc's own. */
#include <pthread.h>
#include <utf8proc.h>
#include "base/mem.h"
#include "base/rng.h"
#include "support/check.h"
#include "support/random_text.h"
#include "support/text_file.h"
#include "text/pretok.h"
#include "text/utf8.h"

/* One name for each row of the table. */
static const char *pres[64];
static int n_pres;

static void list_pres(void)
{
    for (int i = 0; pretok_known(i); i++) {
        pretok *p = NULL;
        const char *name = pretok_known(i);
        CHECK(pretok_open(name, strlen(name), PRETOK_NO_JIT, &p, NULL) == 0, "%s", name);
        if (strcmp(pretok_name(p), name) == 0 && n_pres < 64)
            pres[n_pres++] = name;
        pretok_close(p);
    }
    CHECK(n_pres > 30 && n_pres < 64, "%d rows", n_pres);
}

/* Where pieces end, with and without JIT, against another implementation. */
static void test_pieces(void)
{
    size_t n;
    char *file = text_file_read("tests/golden/tokenizer/pieces.tsv", &n), *save = NULL;
    int cases = 0;

    for (char *line = strtok_r(file, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (*line == '#')
            continue;
        char *hex = strchr(line, '\t'), *p = hex ? strchr(hex + 1, '\t') : NULL;
        if (!p)
            break;
        *hex++ = 0;
        *p++ = 0;
        char *text = malloc(strlen(hex) / 2 + 1);
        size_t len = (size_t)text_from_hex(hex, strlen(hex), text), end = 0;
        for (int jit = 0; jit < 2; jit++) {
            pretok *pre = NULL;
            pretok_scan *s = NULL;
            const char *q = p;
            CHECK(pretok_open(line, strlen(line), jit ? 0 : PRETOK_NO_JIT, &pre, NULL) == 0, "%s", line);
            CHECK(pretok_scan_open(pre, &s, NULL) == 0, "scan");
            pretok_scan_limits(s, len);
            for (size_t at = 0; at < len; at = end) {
                size_t want = (size_t)strtol(q, (char **)&q, 10);
                if (pretok_next(s, text, len, at, &end, NULL) < 0 || end != want) {
                    CHECK(0, "%s, text %s: a piece from %zu ends at %zu, want %zu", line, hex, at, end, want);
                    break;
                }
            }
            pretok_scan_close(s);
            pretok_close(pre);
        }
        free(text);
        cases++;
    }
    CHECK(cases > 500, "%d cases", cases);
    free(file);
}

static void expect_ends(const char *pre, const char *text, const size_t *want)
{
    pretok *p = NULL;
    pretok_scan *s = NULL;
    const size_t len = strlen(text);

    CHECK(pretok_open(pre, strlen(pre), 0, &p, NULL) == 0 && pretok_scan_open(p, &s, NULL) == 0, "%s", pre);
    for (size_t at = 0, end = 0; at < len; at = end) {
        CHECK(pretok_next(s, text, len, at, &end, NULL) == 0 && end == *want,
              "%s '%s': a piece from %zu ends at %zu, want %zu", pre, text, at, end, *want);
        if (end != *want++)
            break;
    }
    pretok_scan_close(s);
    pretok_close(p);
}

/* Digits in threes from the right; behind a letter from the left. */
static void test_threes(void)
{
    expect_ends("superbpe", "a1234567b12 \xd9\xa1\xd9\xa2\xd9\xa3\xd9\xa4",
                (const size_t[]){ 1, 2, 5, 8, 9, 11, 12, 14, 20 });
    expect_ends("superbpe", "123456", (const size_t[]){ 3, 6 });
    expect_ends("tiny_aya", "1234567 1234a 12", (const size_t[]){ 1, 4, 7, 8, 11, 12, 13, 14, 16 });
}

static void test_interpreter(void)
{
    rng r = { 5 };
    char text[512];
    int jit = 0;

    for (int p = 0; p < n_pres; p++) {
        pretok *a = NULL, *b = NULL;
        pretok_scan *sa = NULL, *sb = NULL;
        CHECK(pretok_open(pres[p], strlen(pres[p]), 0, &a, NULL) == 0, "open");
        CHECK(pretok_open(pres[p], strlen(pres[p]), PRETOK_NO_JIT, &b, NULL) == 0, "open");
        CHECK(!pretok_has_jit(b), "the interpreter was asked for");
        jit += pretok_has_jit(a);
        CHECK(pretok_scan_open(a, &sa, NULL) == 0 && pretok_scan_open(b, &sb, NULL) == 0, "scan");
        for (int i = 0; i < 500; i++) {
            size_t len = random_text(&r, text, sizeof text, 0), ea = 0, eb = 0;
            int same = 1;
            for (size_t at = 0; at < len && same; at = ea)
                same = pretok_next(sa, text, len, at, &ea, NULL) == 0 &&
                       pretok_next(sb, text, len, at, &eb, NULL) == 0 && ea == eb;
            CHECK(same, "%s: text %d: the JIT ends a piece at %zu, the interpreter at %zu", pres[p], i, ea, eb);
        }
        pretok_scan_close(sa);
        pretok_scan_close(sb);
        pretok_close(a);
        pretok_close(b);
    }
    printf("pre-tokenizers: %d of %d with JIT\n", jit, n_pres);
}

static void test_limits(void)
{
    enum { N = 100000 };
    char *spaces = malloc(N);
    kvant_diag diag;

    memset(spaces, ' ', N);
    spaces[N - 1] = 'a';
    for (int jit = 0; jit < 2; jit++) {
        pretok *p = NULL;
        pretok_scan *s = NULL;
        size_t end = 77;
        pretok_open("qwen35", 6, jit ? 0 : PRETOK_NO_JIT, &p, NULL);
        pretok_scan_open(p, &s, NULL);
        if (!pretok_has_jit(p)) { /* the JIT counts entries, not steps: nothing to hit in these patterns */
            pretok_scan_limits_raw(s, 1000, 1000, 1000);
            int err = pretok_next(s, spaces, N, 0, &end, &diag);
            CHECK(err == KVANT_EINVAL && end == 77 && strstr(diag.text, "limit"), "err %d, end %zu: %s", err, end,
                  diag.text);
        }
        pretok_scan_limits(s, N);
        CHECK(pretok_next(s, spaces, N, 0, &end, &diag) == 0 && end == N - 2, "end %zu: %s", end, diag.text);
        pretok_scan_close(s);
        pretok_close(p);
    }
    free(spaces);
}

/* 256 KiB of one class through the interpreter on a 64 KiB stack. */
static void *small_stack(void *arg)
{
    enum { N = 1 << 18 };
    const char *const units[] = { " ", "Z", "\n", ".", "7", "\xe4\xb8\xad", "\xcc\x81", " \n" };
    char *text = malloc(N);
    (void)arg;

    for (int c = 0; c < n_pres * 8; c++) {
        const char *unit = units[c / n_pres];
        size_t k = strlen(unit), len = N / k * k, end = 0;
        pretok *p = NULL;
        pretok_scan *s = NULL;
        kvant_diag diag = { "" };
        for (size_t i = 0; i < len; i++)
            text[i] = unit[i % k];
        CHECK(pretok_open(pres[c % n_pres], strlen(pres[c % n_pres]), PRETOK_NO_JIT, &p, &diag) == 0, "%s", diag.text);
        CHECK(pretok_scan_open(p, &s, &diag) == 0, "%s", diag.text);
        pretok_scan_limits(s, len);
        for (size_t at = 0; at < len; at = end)
            if (pretok_next(s, text, len, at, &end, &diag) < 0)
                break;
        CHECK(end == len, "%s, '%s': stopped at %zu: %s", pres[c % n_pres], unit, end, diag.text);
        pretok_scan_close(s);
        pretok_close(p);
    }
    free(text);
    return NULL;
}

static void test_stack(void)
{
    const size_t stack = check_sanitized ? 512 * 1024 : 64 * 1024; /* instrumented frames are larger */
    pthread_attr_t attr;
    pthread_t th;

    pthread_attr_init(&attr);
    CHECK(pthread_attr_setstacksize(&attr, stack) == 0, "stack size");
    int err = pthread_create(&th, &attr, small_stack, NULL);
    CHECK(err == 0, "pthread_create: %d", err);
    if (err == 0)
        pthread_join(th, NULL);
    pthread_attr_destroy(&attr);
}

static void test_names(void)
{
    kvant_diag diag;
    pretok *p = NULL;
    int n = 0;

    for (; pretok_known(n); n++) {
        CHECK(pretok_open(pretok_known(n), strlen(pretok_known(n)), 0, &p, &diag) == 0, "%s", diag.text);
        pretok_close(p);
    }
    CHECK(n >= 80, "%d names", n);
    CHECK(pretok_open("tekken\x1b", 7, 0, &p, &diag) == KVANT_EFORMAT && strstr(diag.text, "'tekken?'") &&
              strstr(diag.text, "qwen35"),
          "%s", diag.text);
}

static void test_nfc(void)
{
    static const uint32_t ranges[][2] = { { 0x20, 0x2FF },      { 0x300, 0x36F },     { 0x370, 0x5FF },
                                          { 0x900, 0xDFF },     { 0x1100, 0x11FF },   { 0x1E00, 0x1FFF },
                                          { 0x2000, 0x2130 },   { 0x3040, 0x3100 },   { 0xAC00, 0xD7A3 },
                                          { 0xF900, 0xFB4F },   { 0x11080, 0x11360 }, { 0x1D15E, 0x1D1C0 },
                                          { 0x2F800, 0x2FA1D }, { 0x1F300, 0x1F64F }, { 0x316, 0x316 },
                                          { 0x301, 0x301 } };
    const uint32_t n_ranges = sizeof ranges / sizeof ranges[0];
    rng r = { 3 };
    pretok_buf buf = { 0 };
    uint8_t text[4 * 4096];
    int changed = 0;

    for (int i = 0; i < 20000; i++) {
        size_t n = 0;
        uint32_t first = rng_below(&r, n_ranges), second = rng_below(&r, n_ranges),
                 count = i % 500 ? 1 + rng_below(&r, 12) : 3000;
        for (uint32_t k = 0; k < count; k++) {
            const uint32_t *g = ranges[rng_below(&r, 4) ? first : second];
            n += (size_t)utf8_encode(g[0] + rng_below(&r, g[1] - g[0] + 1), text + n);
        }
        const char *out;
        size_t out_len;
        utf8proc_uint8_t *want = NULL;
        utf8proc_ssize_t want_len = utf8proc_map(text, (utf8proc_ssize_t)n, &want, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        CHECK(pretok_to_nfc(&buf, (char *)text, n, &out, &out_len, NULL) == 0, "nfc");
        CHECK((size_t)want_len == out_len && memcmp(want, out, out_len) == 0, "case %d: %zu bytes, utf8proc %zd", i,
              out_len, (ssize_t)want_len);
        changed += out_len != n || memcmp(out, text, n) != 0;
        free(want);
    }
    CHECK(changed > 1000, "only %d texts changed", changed);
    pretok_buf_free(&buf);
}

int main(void)
{
    list_pres();
    test_pieces();
    test_threes();
    test_interpreter();
    test_limits();
    test_stack();
    test_names();
    test_nfc();
    return check_end("check_pretok");
}
