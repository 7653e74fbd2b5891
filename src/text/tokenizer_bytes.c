/* tokenizer_bytes.c: the bytes that a token's text stands for: GPT-2's alphabet of bytes, tokens of a single byte, and
 * the sign for a space. */
#include "text/tokenizer_vocab.h"

#include <string.h>
#include "base/text/hex.h"
#include "text/utf8.h"

/* ---- the byte alphabet ---- */

static int is_plain(uint32_t b)
{
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
}

/* The bytes that are not printable take U+0100 on, in order. */
static uint32_t byte_to_cp(uint8_t byte)
{
    if (is_plain(byte))
        return byte;
    return 0x100u + (byte <= 32 ? byte : byte < 161 ? byte - 127u + 33u : 67u);
}

static int cp_to_byte(uint32_t cp)
{
    if (cp < 0x100)
        return is_plain(cp) ? (int)cp : -1;
    if (cp > 0x100 + 67)
        return -1;
    uint32_t k = cp - 0x100;
    return (int)(k <= 32 ? k : k < 67 ? k - 33 + 127 : 173);
}

int vocab_alphabet(uint8_t byte, char *out)
{
    return utf8_encode(byte_to_cp(byte), (uint8_t *)out);
}

/* ---- texts of tokens ---- */

int vocab_byte(const vocab *v, const vocab_token *t)
{
    const char *s = v->text + t->at;

    if (t->len != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>' || hex_digit(s[3]) < 0 || hex_digit(s[4]) < 0)
        return -1;
    return hex_digit(s[3]) * 16 + hex_digit(s[4]);
}

/* U+2581 stands for the space. */
enum { SPACE_CODE = 0x2581 };

static void put(char *buf, int cap, int *n, uint8_t byte)
{
    if (*n < cap)
        buf[*n] = (char)byte;
    (*n)++;
}

int vocab_bytes(const vocab *v, int32_t id, int special, char *buf, int cap)
{
    const vocab_token *t = &v->tokens[id];
    const uint8_t *s = (const uint8_t *)v->text + t->at;
    int n = 0;

    if (t->kind == VOCAB_UNUSED || (vocab_is_control(v, id) && !special))
        return 0;
    if (t->kind == VOCAB_BYTE) {
        put(buf, cap, &n, (uint8_t)vocab_byte(v, t));
        return n;
    }
    for (uint32_t i = 0; i < t->len;) {
        uint32_t cp = 0;
        int k = utf8_decode(s + i, t->len - i, &cp);
        int byte = t->kind != VOCAB_NORMAL || k <= 0 ? -1 : !v->raw ? cp_to_byte(cp) : cp == SPACE_CODE ? ' ' : -1;
        if (byte >= 0) {
            put(buf, cap, &n, (uint8_t)byte);
            i += (uint32_t)k;
            continue;
        }
        for (int j = 0; j < (k > 0 ? k : 1); j++) /* plain text, or outside of the alphabet: as stored */
            put(buf, cap, &n, s[i++]);
    }
    return n;
}
