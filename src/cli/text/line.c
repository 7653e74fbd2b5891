/* line.c: see line.h.  Owns the history of a chat (in memory only) and the choice between libedit and plain lines. */
#include "cli/text/line.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>
#include "base/error.h"
#include "base/mem.h"
#include "cli/term.h"
#ifdef KVANT_HAVE_LIBEDIT
#include <histedit.h>
#endif

enum { HISTORY_LINES = 200, PROMPT_CAP = 32, INTERRUPT_MS = 100 /* how late a Ctrl-C may be seen */ };

struct line_reader {
    int tty;
    int more;  /* the next line belongs to the message that is being read */
    char *buf; /* plain lines: of getline */
    size_t cap;
    char *whole; /* the message so far */
    size_t whole_len, whole_cap;
#ifdef KVANT_HAVE_LIBEDIT
    EditLine *el; /* NULL: plain lines */
    History *history;
    HistEvent event;
    char prompt[PROMPT_CAP];
#endif
};

static int read_plain(line_reader *r, const char **text, size_t *len)
{
    if (r->tty) {
        fprintf(stderr, "%s%s%s", term_color(stderr, 32), r->more ? ". " : "> ", term_color(stderr, 1));
        fflush(stderr);
    }
    errno = 0;
    ssize_t n = getline(&r->buf, &r->cap, stdin);
    if (r->tty)
        fputs(term_color(stderr, 0), stderr);
    *text = r->buf;
    *len = n < 0 ? 0 : (size_t)n;
    return n >= 0;
}

#ifdef KVANT_HAVE_LIBEDIT

static char *prompt_of(EditLine *el)
{
    line_reader *r = NULL;

    el_get(el, EL_CLIENTDATA, &r);
    /* Between two \1 stand bytes without width. */
    snprintf(r->prompt, sizeof r->prompt, term_color_on(stderr) ? "\1\x1b[32m\1%c \1\x1b[0m\1" : "%c ",
             r->more ? '.' : '>');
    return r->prompt;
}

/* libedit reads characters by the locale; in one without UTF-8 it would lose everything but ASCII. */
static void set_characters(void)
{
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
}

/* Reads one character: libedit's own reading waits in read(), and a Ctrl-C that comes just before it would be lost. */
static int read_char(EditLine *el, wchar_t *to)
{
    mbstate_t state = { 0 };

    (void)el;
    while (!term_interrupted()) {
        struct pollfd in = { STDIN_FILENO, POLLIN, 0 };
        char byte;
        const int ready = poll(&in, 1, INTERRUPT_MS);
        if (ready < 0 && errno != EINTR)
            return -1;
        if (ready <= 0)
            continue;
        const ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n == 0 || (n < 0 && errno != EINTR))
            return (int)n;
        const size_t used = n < 0 ? (size_t)-2 : mbrtowc(to, &byte, 1, &state);
        if (used == (size_t)-1) /* no character: what was begun is left out */
            state = (mbstate_t){ 0 };
        else if (used != (size_t)-2)
            return 1;
    }
    return -1;
}

/* Opens libedit; if that fails, lines come without an editor. */
static void open_editor(line_reader *r)
{
    set_characters();
    r->el = el_init("kvant", stdin, stderr, stderr);
    r->history = r->el ? history_init() : NULL;
    if (!r->history) {
        if (r->el)
            el_end(r->el);
        r->el = NULL;
        return;
    }
    history(r->history, &r->event, H_SETSIZE, HISTORY_LINES);
    history(r->history, &r->event, H_SETUNIQUE, 1);
    el_set(r->el, EL_CLIENTDATA, r);
    el_set(r->el, EL_GETCFN, read_char);
    el_set(r->el, EL_PROMPT_ESC, prompt_of, '\1');
    el_set(r->el, EL_EDITOR, "emacs");
    el_set(r->el, EL_HIST, history, r->history);
    el_set(r->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
}

static void close_editor(line_reader *r)
{
    if (!r->el)
        return;
    history_end(r->history);
    el_end(r->el);
}

static int read_line(line_reader *r, const char **text, size_t *len)
{
    int n = 0;

    if (!r->el)
        return read_plain(r, text, len);
    const char *line = el_gets(r->el, &n);
    if (!line || n <= 0)
        return 0;
    if (strspn(line, " \t\n") < (size_t)n)
        history(r->history, &r->event, H_ENTER, line);
    *text = line;
    *len = (size_t)n;
    return 1;
}

#else

static void open_editor(line_reader *r)
{
    (void)r;
}

static void close_editor(line_reader *r)
{
    (void)r;
}

static int read_line(line_reader *r, const char **text, size_t *len)
{
    return read_plain(r, text, len);
}

#endif

line_reader *line_open(int plain)
{
    const char *term = getenv("TERM");
    line_reader *r = kvant_calloc(1, sizeof *r);

    if (!r)
        return NULL;
    r->tty = isatty(STDIN_FILENO);
    if (r->tty && isatty(STDERR_FILENO) && !plain && !(term && strcmp(term, "dumb") == 0))
        open_editor(r);
    return r;
}

void line_close(line_reader *r)
{
    if (!r)
        return;
    close_editor(r);
    free(r->buf);
    kvant_free(r->whole);
    kvant_free(r);
}

/* The next line of a message, at the end of what was read of it. */
static int add_line(line_reader *r)
{
    const char *text;
    size_t len;

    if (!read_line(r, &text, &len)) {
        if (r->tty)
            fputc('\n', stderr);
        return 0;
    }
    if (len && text[len - 1] == '\n')
        len--;
    if (r->whole_len + len + 2 > r->whole_cap) {
        const size_t cap = 2 * (r->whole_len + len) + 256;
        char *p = kvant_realloc(r->whole, r->whole_len, cap);
        if (!p)
            return KVANT_ENOMEM;
        r->whole = p;
        r->whole_cap = cap;
    }
    memcpy(r->whole + r->whole_len, text, len);
    r->whole_len += len;
    r->whole[r->whole_len] = 0;
    return 1;
}

static int ends_with(const line_reader *r, size_t from, const char *mark)
{
    const size_t n = strlen(mark);

    return r->whole_len >= from + n && memcmp(r->whole + r->whole_len - n, mark, n) == 0;
}

int line_message(line_reader *r, const char **text, size_t *len)
{
    static const char quotes[] = "\"\"\"";
    int block = 0, done = 0;

    r->whole_len = 0;
    for (r->more = 0; !done; r->more = 1) {
        const int got = add_line(r);
        if (got != 1)
            return got;
        if (!r->more)
            block = strncmp(r->whole, quotes, 3) == 0;
        const int mark = ends_with(r, block ? 3 : 0, block ? quotes : "\\");
        done = mark == block;
        r->whole_len -= !mark ? 0 : block ? 3 : 1;
        if (!done)
            r->whole[r->whole_len++] = '\n';
    }
    size_t from = block ? 3 : 0; /* the quotes; if they stand on lines of their own, those are no part of it */
    from += block && from < r->whole_len && r->whole[from] == '\n';
    r->whole_len -= block && r->whole_len > from && r->whole[r->whole_len - 1] == '\n';
    r->whole[r->whole_len] = 0;
    *text = r->whole + from;
    *len = r->whole_len - from;
    return 1;
}
