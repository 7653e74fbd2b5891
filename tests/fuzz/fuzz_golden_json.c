/* fuzz_golden_json.c: libFuzzer target of the reader of golden files (base/text/json.h).
 * Promises: an accepted text stays readable: every value reached through arrays and keys lies inside it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/text/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile double sink;

static void inside(gjson v, const char *text, size_t n)
{
    if (v.p && (v.p < text || v.p + v.n > text + n || v.n == 0)) {
        fprintf(stderr, "broken promise: a value outside of its text\n");
        abort();
    }
}

static void visit(gjson v, const char *text, size_t n, int depth)
{
    static const char *const keys[] = { "format", "vectors", "cases", "x_f32", "enc", "a", "" };
    char buf[32];
    uint8_t bytes[8];
    gjson it = { NULL, 0 };
    inside(v, text, n);
    sink = gjson_number(v);
    gjson_text(v, buf, sizeof buf);
    if (gjson_hex_bytes(v) <= sizeof bytes)
        gjson_hex(v, bytes, gjson_hex_bytes(v));
    if (depth == 4)
        return;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        visit(gjson_get(v, keys[i]), text, n, depth + 1);
    for (int i = 0; i < 4 && gjson_next(v, &it); i++)
        visit(it, text, n, depth + 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size ? size : 1);          /* exact: no terminator to lean on */
    kvant_diag diag;
    gjson root;
    memcpy(text, data, size);
    if (gjson_parse(text, size, &root, &diag) == KVANT_OK)
        visit(root, text, size, 0);
    free(text);
    return 0;
}
