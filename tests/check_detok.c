/* check_detok.c: the streaming detokeniser: the Unicode standard's examples, every pair of bytes, random bytes and the
 * token stream of a real vocabulary, all in random pieces. */
#include <stdint.h>
#include "base/rng.h"
#include "support/check.h"
#include "support/random_text.h"
#include "text/detok.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

/* What a whole text gives: U+FFFD per maximal subpart. */
static size_t replace_all(const uint8_t *s, size_t n, char *out)
{
    size_t w = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int k = utf8_decode(s + i, n - i, &cp);
        if (k > 0) {
            memcpy(out + w, s + i, (size_t)k);
            w += (size_t)k;
            i += (size_t)k;
            continue;
        }
        memcpy(out + w, "\xef\xbf\xbd", 3);
        w += 3;
        i += k < 0 ? (size_t)-k : n - i;
    }
    return w;
}

/* Feeds s in the given piece sizes and compares with the whole. */
static void detok_case(const uint8_t *s, size_t n, rng *r)
{
    kvant_detok d = { { 0 }, 0 };
    char whole[2048], got[2048];
    size_t want = replace_all(s, n, whole), w = 0;

    for (size_t at = 0; at < n;) {
        size_t k = 1 + rng_below(r, 4);
        k = k > n - at ? n - at : k;
        int cap = (int)(3 * (k + 3) + 1);
        char *out = check_guarded((size_t)cap, 0);
        int m = detok_push(&d, (const char *)s + at, (int)k, out, cap);
        CHECK(m >= 0 && out[m] == 0 && utf8_valid_prefix((uint8_t *)out, (size_t)m) == (size_t)m, "piece at %zu: %d",
              at, m);
        CHECK(check_guard_ok(out), "write beyond cap");
        memcpy(got + w, out, m > 0 ? (size_t)m : 0);
        w += m > 0 ? (size_t)m : 0;
        check_guard_free(out);
        at += k;
    }
    char tail[8];
    int m = detok_flush(&d, tail, sizeof tail);
    memcpy(got + w, tail, (size_t)m);
    w += (size_t)m;
    CHECK(w == want && memcmp(got, whole, w) == 0, "streamed %zu bytes, whole %zu", w, want);
}

/* Unicode 15, section 3.9, tables 3-8 to 3-11: how many U+FFFD, by someone else. */
static void test_standard(void)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        { "\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", "????????A" },
        { "\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", "????????A" },
        { "\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", "?????A??B" },
        { "\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", "????A" },
    };

    for (int i = 0; i < 4; i++) {
        kvant_detok d = { { 0 }, 0 };
        char out[64], want[64] = "";
        for (const char *p = cases[i].out; *p; p++)
            strcat(want, *p == '?' ? "\xEF\xBF\xBD" : (char[]){ *p, 0 });
        CHECK(detok_push(&d, cases[i].in, 9, out, sizeof out) == (int)strlen(want) && strcmp(out, want) == 0, "case %d",
              i);
        detok_case((const uint8_t *)cases[i].in, 9, &(rng){ 1 });
    }
}

static void test_bytes(void)
{
    rng r = { 23 };
    uint8_t text[512];

    for (uint32_t pair = 0; pair < 65536; pair++)
        detok_case((uint8_t[]){ (uint8_t)(pair >> 8), (uint8_t)pair, 'x' }, 2 + pair % 2, &r);
    for (int i = 0; i < 5000; i++)
        detok_case(text, random_text(&r, (char *)text, sizeof text, 1), &r);
    for (int i = 0; i < 5000; i++) {
        size_t n = 1 + rng_below(&r, 40);
        for (size_t k = 0; k < n; k++)
            text[k] = (uint8_t)(rng_below(&r, 3) ? 0x80 + rng_below(&r, 128) : rng_below(&r, 256));
        detok_case(text, n, &r);
    }
}

/* Through token ids: an NFC text comes back exactly. */
static void test_tokens(void)
{
    gguf *g = NULL;
    tokenizer *t = NULL;
    kvant_diag diag = { "" };
    rng r = { 29 };

    CHECK(gguf_open("tests/golden/tokenizer/novella-vocab.gguf", &g, &diag) == 0 && tokenizer_open(g, &t, &diag) == 0,
          "%s", diag.text);
    for (int i = 0; t && i < 500; i++) {
        char text[512], bytes[256], out[1024], all[2048];
        size_t len = random_text(&r, text, sizeof text, 0), w = 0;
        kvant_detok d = { { 0 }, 0 };
        int32_t ids[512];
        int n = 0, changed = 0;
        CHECK(tokenizer_encode(t, text, len, 0, ids, 512, &n, &diag) == 0, "%s", diag.text);
        for (int k = 0; k < n; k++) {
            int m = detok_push(&d, bytes, tokenizer_bytes(t, ids[k], 0, bytes, sizeof bytes), out, sizeof out);
            CHECK(m >= 0, "push %d", m);
            memcpy(all + w, out, (size_t)m);
            w += (size_t)m;
        }
        for (size_t k = 0; k < len; k++) /* marks, jamo and the Angstrom sign are what NFC may change here */
            changed |= (uint8_t)text[k] == 0xCC || (uint8_t)text[k] == 0xE1 || (uint8_t)text[k] == 0xE2;
        CHECK(d.n_pending == 0 && (changed || (w == len && memcmp(all, text, len) == 0)), "text %d", i);
    }
    tokenizer_close(t);
    gguf_close(g);
}

static void test_errors(void)
{
    kvant_detok d = { { 0 }, 0 }, bad = { { 0 }, 4 };
    char out[16];

    CHECK(detok_push(&d, "\xe4\xb8", 2, out, 16) == 0 && d.n_pending == 2, "half a character is held");
    CHECK(detok_push(&d,
                     "\xad"
                     "ab",
                     3, out, 5) == KVANT_ENOSPC &&
              d.n_pending == 2,
          "no room: unchanged");
    CHECK(detok_push(&d,
                     "\xad"
                     "ab",
                     3, out, 6) == 5 &&
              strcmp(out, "\xe4\xb8\xad"
                          "ab") == 0 &&
              d.n_pending == 0,
          "room again");
    CHECK(detok_push(&d, "", 0, out, 0) == KVANT_ENOSPC && detok_push(&d, "", 0, out, 1) == 0 && out[0] == 0,
          "nothing");
    CHECK(detok_push(&d, "a", -1, out, 16) == KVANT_EINVAL && detok_push(&bad, "a", 1, out, 16) == KVANT_EINVAL,
          "bad arguments");
    CHECK(detok_flush(&bad, out, 16) == KVANT_EINVAL, "bad state");
    CHECK(detok_push(&d, "\xf0\x9f\x91", 3, out, 16) == 0 && detok_flush(&d, out, 3) == KVANT_ENOSPC &&
              d.n_pending == 3,
          "flush without room");
    CHECK(detok_flush(&d, out, 4) == 3 && strcmp(out, "\xef\xbf\xbd") == 0 && detok_flush(&d, out, 4) == 0, "flush");
}

int main(void)
{
    test_standard();
    test_bytes();
    test_tokens();
    test_errors();
    return check_end("check_detok");
}
