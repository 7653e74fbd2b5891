/* table.c: see table.h. */
#include "cli/table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { ROW_MAX = 4096 };

typedef struct column {
    const char *title;
    int chars, width, right;
} column;

/* Reads the column at the text; returns where the next one begins. */
static const char *next_column(const char *at, column *c)
{
    c->right = *at == '>';
    c->title = at + c->right;
    c->chars = (int)strcspn(c->title, "@|");
    c->width = c->title[c->chars] == '@' ? atoi(c->title + c->chars + 1) : 0;
    at += strcspn(at, "|");
    return *at ? at + 1 : "";
}

/* Pads by characters, not bytes: the plus-minus sign has two. */
static void cell(FILE *f, const column *c, const char *text, int bytes)
{
    int pad = c->width;
    for (int i = 0; i < bytes; i++)
        pad -= (text[i] & 0xC0) != 0x80;
    pad = pad > 0 ? pad : 0;
    fprintf(f, " %*s%.*s%*s |", c->right ? pad : 0, "", bytes, text, c->right ? 0 : pad, "");
}

static void rule(FILE *f, const column *c)
{
    int dashes = c->width > 3 ? c->width : 3 - c->right;
    if (c->width)
        fputc(' ', f);
    for (int i = c->width ? c->right : 0; i < dashes; i++)
        fputc('-', f);
    fputs(c->right ? ":" : "", f);
    fputs(c->width ? " |" : "|", f);
}

void table_head(FILE *f, const char *columns)
{
    column c;
    for (int line = 0; line < 2; line++) {
        fputc('|', f);
        for (const char *at = columns; *at;) {
            at = next_column(at, &c);
            if (line)
                rule(f, &c);
            else
                cell(f, &c, c.title, c.chars);
        }
        fputc('\n', f);
    }
}

void table_row(FILE *f, const char *columns, const char *format, ...)
{
    char text[ROW_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fputc('|', f);
    column c;
    for (const char *at = columns, *s = text; *at;) {
        int bytes = (int)strcspn(s, "|");
        at = next_column(at, &c);
        cell(f, &c, s, bytes);
        s += bytes + (s[bytes] == '|');
    }
    fputc('\n', f);
}
