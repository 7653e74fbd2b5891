/* line.c: see line.h.  Owns the history of chats and the choice between libedit and plain lines.
 *
 * A terminal marks a pasted text (bracketed paste).  Newlines in it end lines of the editor, but not the message: the
 * last line waits for Enter like one that was typed. */
#include "cli/text/line.h"

#include <errno.h>
#include <fcntl.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>
#include "base/error.h"
#include "base/mem.h"
#include "cli/term.h"
#ifdef KVANT_HAVE_LIBEDIT
#include <histedit.h>
#endif

enum {
    HISTORY_LINES = 200,
    HISTORY_BYTES = 4096, /* a longer message is not remembered: nobody edits it in a line */
    PROMPT_CAP = 32,
    PROMPT_COLUMNS = 2,
    INTERRUPT_MS = 100, /* how late a Ctrl-C may be seen, or another width */
    KEY_MS = 50,        /* between the bytes of one key */
    KEY_BYTES = 8,
    PATH_CAP = 1024
};

struct line_reader {
    int tty;
    int more;  /* the next line belongs to the message that is being read */
    int goes_on; /* the last line ended within a pasted text */
    char *buf; /* plain lines: of getline */
    size_t cap;
    char *whole; /* the message so far */
    size_t whole_len, whole_cap;
#ifdef KVANT_HAVE_LIBEDIT
    EditLine *el; /* NULL: plain lines */
    History *history;
    HistEvent event;
    char prompt[PROMPT_CAP];
    char file[PATH_CAP];    /* of the history; "": none */
    char key[KEY_BYTES];    /* bytes that were read ahead */
    int key_at, key_n, pasting, quoted;
    unsigned short columns;
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

enum { QUOTE = 0x16 /* ^V: the next character is no key */ };

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

/* 1: the terminal has another width than at the last call. */
static int new_width(line_reader *r)
{
    const unsigned short before = r->columns;
    struct winsize w;

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) != 0 || w.ws_col == 0)
        return 0;
    r->columns = w.ws_col;
    return before && before != r->columns;
}

/* Columns from the prompt's first to the cursor, in a row without end; a newline fills its row. */
static int columns_before(line_reader *r)
{
    const LineInfoW *line = el_wline(r->el);
    int n = PROMPT_COLUMNS;

    for (const wchar_t *p = line->buffer; p < line->cursor; p++) {
        const int width = wcwidth(*p);
        n += *p == L'\n' ? r->columns - n % r->columns : width >= 0 ? width : 2; /* ^X */
    }
    return n;
}

/* A line that was typed for another width is drawn anew.  Terminals break it at the new width by themselves, and leave
 * the cursor at its character: from there the line begins that many rows further up. */
static void draw_again(line_reader *r)
{
    const int up = columns_before(r) / r->columns;

    fputs("\r", stderr);
    if (up)
        fprintf(stderr, "\x1b[%dA", up);
    fputs("\x1b[J", stderr);
    el_resize(r->el);
    el_set(r->el, EL_REFRESH);
}

/* 1: a byte; 0: the end; -1: an error, or nothing in time (ms; -1: any).  libedit's own reading waits in read(), and a
 * Ctrl-C that comes just before it would be lost. */
static int read_byte(line_reader *r, char *to, int ms)
{
    while (!term_interrupted()) {
        struct pollfd in = { STDIN_FILENO, POLLIN, 0 };
        const int ready = poll(&in, 1, ms < 0 ? INTERRUPT_MS : ms);
        if (ready < 0 && errno != EINTR)
            return -1;
        if (ready <= 0 && ms >= 0)
            return -1;
        if (ready <= 0) {
            if (new_width(r))
                draw_again(r);
            continue;
        }
        const ssize_t n = read(STDIN_FILENO, to, 1);
        if (n >= 0 || errno != EINTR)
            return (int)n;
    }
    return -1;
}

/* Reads ahead behind an escape while it may become `mark`; 1: it is one, and is taken. */
static int read_mark(line_reader *r, const char *mark)
{
    const int n = (int)strlen(mark);

    r->key_at = r->key_n = 0;
    for (; r->key_n < n; r->key_n++)
        if (read_byte(r, r->key + r->key_n, KEY_MS) != 1)
            return 0;
        else if (r->key[r->key_n] != mark[r->key_n]) {
            r->key_n++;
            return 0;
        }
    r->key_n = 0;
    return 1;
}

/* The next byte of a key or of a pasted text, whose marks are left out; as read_byte. */
static int next_byte(line_reader *r, char *to)
{
    for (;;) {
        if (r->key_at < r->key_n) {
            *to = r->key[r->key_at++];
            return 1;
        }
        const int got = read_byte(r, to, -1);
        if (got != 1 || *to != '\x1b' || !read_mark(r, r->pasting ? "[201~" : "[200~"))
            return got;
        r->pasting = !r->pasting;
    }
}

/* A byte of a pasted text is no key: newlines end the line, others that control something are quoted. */
static char plain_byte(line_reader *r, char byte)
{
    if (byte == '\r' || byte == '\n') {
        r->goes_on = 1;
        return '\n';
    }
    if ((unsigned char)byte >= 0x20 && byte != 0x7F)
        return byte;
    r->quoted = byte ? byte : '?';
    return QUOTE;
}

/* Reads one character for libedit. */
static int read_char(EditLine *el, wchar_t *to)
{
    line_reader *r = NULL;
    mbstate_t state = { 0 };
    char byte;

    el_get(el, EL_CLIENTDATA, &r);
    if (r->quoted) {
        *to = r->quoted;
        r->quoted = 0;
        return 1;
    }
    for (;;) {
        const int n = next_byte(r, &byte);
        if (n != 1)
            return n;
        if (r->pasting)
            byte = plain_byte(r, byte);
        const size_t used = mbrtowc(to, &byte, 1, &state);
        if (used == (size_t)-1) /* no character: what was begun is left out */
            state = (mbstate_t){ 0 };
        else if (used != (size_t)-2)
            return 1;
    }
}

/* The history's file: as KVANT_HISTORY says, else in the folder of the user's state; "": none. */
static void find_history(line_reader *r)
{
    const char *given = getenv("KVANT_HISTORY"), *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");

    if (given)
        snprintf(r->file, sizeof r->file, "%s", strlen(given) < sizeof r->file ? given : "");
    else if (state && state[0] == '/')
        snprintf(r->file, sizeof r->file, "%.900s/kvant-history", state);
    else if (home && home[0] == '/' && access(home, W_OK) == 0) /* a home that is not there is not made */
        snprintf(r->file, sizeof r->file, "%.900s/.local/state/kvant-history", home);
}

/* The folders above the history's file, as far as they are not there. */
static void make_folders(char *path)
{
    for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = 0;
        mkdir(path, 0700);
        *p = '/';
    }
}

/* The lines of several chats that end at the same time: those of the last one stay. */
static void save_history(line_reader *r)
{
    if (r->file[0])
        make_folders(r->file);
    const int fd = r->file[0] ? open(r->file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");

    if (fd >= 0 && !f)
        close(fd);
    if (!f)
        return;
    fchmod(fd, 0600); /* one that was there before may be open to others */
    history(r->history, &r->event, H_SAVE_FP, f);
    fclose(f);
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
    el_set(r->el, EL_BIND, "^V", "ed-quoted-insert", NULL);
    find_history(r);
    if (r->file[0])
        history(r->history, &r->event, H_LOAD, r->file);
    fputs("\x1b[?2004h", stderr); /* pasted texts come between marks */
}

static void close_editor(line_reader *r)
{
    if (!r->el)
        return;
    fputs("\x1b[?2004l", stderr);
    save_history(r);
    history_end(r->history);
    el_end(r->el);
}

/* The message r->whole + from is an entry of the history, whatever lines it came in. */
static void remember(line_reader *r, size_t from)
{
    const size_t len = r->whole_len - from;

    if (!r->el || len > HISTORY_BYTES || strspn(r->whole + from, " \t\n") >= len)
        return;
    memcpy(r->whole + r->whole_len, "\n", 2); /* as libedit's own lines end */
    history(r->history, &r->event, H_ENTER, r->whole + from);
    r->whole[r->whole_len] = 0;
}

static int read_line(line_reader *r, const char **text, size_t *len)
{
    int n = 0;

    if (!r->el)
        return read_plain(r, text, len);
    if (new_width(r))
        el_resize(r->el);
    const char *line = el_gets(r->el, &n);
    if (!line || n <= 0)
        return 0;
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

static void remember(line_reader *r, size_t from)
{
    (void)r;
    (void)from;
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

    r->goes_on = 0;
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
    int block = 0, pasted = 0, done = 0; /* pasted: it stays as it came */

    r->whole_len = 0;
    for (r->more = 0; !done; r->more = 1) {
        const int got = add_line(r);
        if (got != 1)
            return got;
        if (r->goes_on) {
            pasted = 1;
            r->whole[r->whole_len++] = '\n';
            continue;
        }
        if (!r->more)
            block = strncmp(r->whole, quotes, 3) == 0;
        const int mark = (block || !pasted) && ends_with(r, block ? 3 : 0, block ? quotes : "\\");
        done = mark == block;
        r->whole_len -= !mark ? 0 : block ? 3 : 1;
        if (!done)
            r->whole[r->whole_len++] = '\n';
    }
    size_t from = block ? 3 : 0; /* the quotes; if they stand on lines of their own, those are no part of it */
    from += block && from < r->whole_len && r->whole[from] == '\n';
    r->whole_len -= block && r->whole_len > from && r->whole[r->whole_len - 1] == '\n';
    r->whole[r->whole_len] = 0;
    remember(r, from);
    *text = r->whole + from;
    *len = r->whole_len - from;
    return 1;
}
