/* fuzz_schema.c: JSON schemas (and, behind a '^', patterns).  What is accepted must compile or be refused by the
 * grammar with a reason; nothing crashes, and no schema turns into more text than its limit. */
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "server/grammar/grammar.h"
#include "server/grammar/grammar_pattern.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void pattern(const uint8_t *data, size_t size)
{
    char text[512];
    sbuf out = { .max = GRAMMAR_MAX_SCHEMA };
    kvant_diag diag = { "" };
    grammar *g = NULL;

    if (size >= sizeof text)
        return;
    for (size_t i = 0; i < size; i++)
        text[i] = (char)(data[i] & 0x7F ? data[i] & 0x7F : '.'); /* what a JSON parser lets through is UTF-8 */
    text[size] = 0;
    sbuf_puts(&out, "root ::= ");
    if (grammar_from_pattern(text, &(pattern_lengths){ .cap = (int)(size % 4) - 1, .more = (int)(size % 3) }, &out,
                             &diag) == KVANT_OK &&
        !out.error) {
        sbuf_puts(&out, "\nchar ::= [a-z]\n");
        if (grammar_compile(out.s, out.n, &g, &diag) != KVANT_OK && !strstr(diag.text, "begin with itself") &&
            !strstr(diag.text, "more than") && !strstr(diag.text, "too") && !strstr(diag.text, "m <= n"))
            abort(); /* what the pattern reader writes is GBNF */
        grammar_release(g);
    }
    sbuf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *gbnf = NULL;
    kvant_diag diag = { "" };
    grammar *g = NULL;

    if (size && data[0] == '^') {
        pattern(data, size);
        return 0;
    }
    if (grammar_from_schema((const char *)data, size, &gbnf, &diag) != KVANT_OK) {
        if (!diag.text[0])
            abort();
        return 0;
    }
    if (grammar_compile(gbnf, strlen(gbnf), &g, &diag) != KVANT_OK && !strstr(diag.text, "begin with itself") &&
        !strstr(diag.text, "more than") && !strstr(diag.text, "too") && !strstr(diag.text, "m <= n"))
        abort(); /* what the schema reader writes is GBNF */
    grammar_release(g);
    kvant_free(gbnf);
    return 0;
}
