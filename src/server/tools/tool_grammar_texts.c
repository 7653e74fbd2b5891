/* tool_grammar_texts.c: the texts of a dialect as parts of a grammar's rules. */
#include "server/tools/tool_grammar.h"

#include <string.h>
#include "server/grammar/grammar_schema.h"

/* One alternative p[n]. */
static void put_one(sbuf *b, const char *p, size_t n)
{
    for (size_t i = 0, k; i < n; i += k + (k == 0)) {
        for (k = 0; i + k < n && !strchr(" %^", p[i + k]);)
            k++;
        if (k)
            schema_put_text(b, p + i, k);
        else if (p[i] == ' ')
            sbuf_puts(b, " ws ");
        else if (p[i] == '%')
            sbuf_printf(b, " [0-9a-zA-Z]{1,%d} ", DIALECT_MOST_ID);
    }
    sbuf_puts(b, " ");
}

void rule_pattern(sbuf *b, const char *p, int rest)
{
    const char *mark = p && rest ? strchr(p, '^') : NULL;

    p = mark ? mark + 1 : p;
    if (p && *p)
        put_one(b, p, strcspn(p, "\v"));
}

void rule_alternatives(sbuf *b, const char *p)
{
    if (!p || !*p)
        return;
    sbuf_puts(b, "(");
    for (size_t k = strcspn(p, "\v");; k = strcspn(p, "\v")) {
        put_one(b, p, k);
        p += k;
        if (!*p++)
            break;
        sbuf_puts(b, "| ");
    }
    sbuf_puts(b, ") ");
}

/* A marker by its characters. */
typedef struct marker {
    const char *s;
    int at[65], n; /* where each begins, and the end */
} marker;

static void marker_of(marker *m, const char *end)
{
    *m = (marker){ .s = end };
    for (int i = 0; end[i] && m->n < 64;) {
        m->at[m->n++] = i++;
        while (((unsigned char)end[i] & 0xC0) == 0x80)
            i++;
        m->at[m->n] = i;
    }
}

/* Returns 1 if n of the marker's characters from a on are those from b on. */
static int same(const marker *m, int a, int b, int n)
{
    const int bytes = m->at[a + n] - m->at[a];

    return bytes == m->at[b + n] - m->at[b] && memcmp(m->s + m->at[a], m->s + m->at[b], (size_t)bytes) == 0;
}

static int comes_before(const marker *m, int c)
{
    for (int i = 0; i < c; i++)
        if (same(m, i, c, 1))
            return 1;
    return 0;
}

void rule_until(sbuf *b, const char *name, const char *end)
{
    marker m;

    marker_of(&m, end);
    for (int i = 0; i < m.n; i++) {
        sbuf_printf(b, "%s%d ::= ", name, i);
        for (int c = 0; c < m.n; c++) {
            int next = i + 1;
            if (comes_before(&m, c))
                continue; /* each character once */
            while (next > 0 && !(same(&m, next - 1, c, 1) && same(&m, 0, i - next + 1, next - 1)))
                next--;
            schema_put_text(b, end + m.at[c], (size_t)(m.at[c + 1] - m.at[c]));
            if (next < m.n)
                sbuf_printf(b, " %s%d", name, next);
            sbuf_puts(b, " | ");
        }
        sbuf_puts(b, "[^\\x00-\\x08\\x0B-\\x1F\\x7F"); /* what no text of a model has a use for */
        for (int c = 0; c < m.n; c++)
            if (end[m.at[c]] == '\n')
                sbuf_puts(b, "\\n");
            else if (m.at[c + 1] - m.at[c] > 1)
                sbuf_put(b, end + m.at[c], (size_t)(m.at[c + 1] - m.at[c]));
            else
                sbuf_printf(b, "\\x%02X", (unsigned char)end[m.at[c]]);
        sbuf_printf(b, "] %s0\n", name);
    }
}
