/* run_commands.c: what a person types in a chat of `kvant run`: messages, and words behind a slash for the program. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>
#include "base/log.h"
#include "base/mem.h"
#include "cli/term.h"
#include "cli/text/chat_file.h"
#include "cli/text/chat_state.h"
#include "cli/text/line.h"

typedef struct chat_word {
    const char *name, *arg; /* arg: what follows the name, "[..]" if it may be left out; NULL: nothing */
    const char *help;
    int (*run)(chat *c, const char *arg, kvant_diag *diag);
} chat_word;

static int run_exit(chat *c, const char *arg, kvant_diag *diag)
{
    (void)arg;
    (void)diag;
    c->ended = 1;
    return KVANT_OK;
}

static int run_clear(chat *c, const char *arg, kvant_diag *diag)
{
    (void)arg;
    (void)diag;
    chat_drop(c, c->n_system);
    c->in_cache = 0;
    return KVANT_OK;
}

static int run_regen(chat *c, const char *arg, kvant_diag *diag)
{
    int reason;

    (void)arg;
    return chat_regenerate(c, &reason, diag);
}

/* Files pile up in front of the next message, marked as files. */
static int run_read(chat *c, const char *arg, kvant_diag *diag)
{
    static const char form[] = "%sFile %s:\n```\n%s\n```\n\n";
    const char *before = c->front ? c->front : "";
    char *text;
    size_t size;

    KVANT_TRY(read_text(arg, &text, &size, diag));
    const size_t cap = sizeof form + strlen(before) + strlen(arg) + size;
    char *all = kvant_calloc(cap, 1);
    if (all) {
        snprintf(all, cap, form, before, arg, text);
        kvant_free(c->front);
        c->front = all;
        fprintf(stderr, "%s: %zu bytes, in front of the next message\n", arg, size);
    }
    kvant_free(text);
    return all ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "/read: no memory for %zu bytes", size);
}

/* The conversation stays, and is read again with the next message. */
static int run_system(chat *c, const char *arg, kvant_diag *diag)
{
    KVANT_TRY(check_utf8("/system", arg, strlen(arg), diag));
    if (*arg)
        KVANT_TRY(chat_add(c, "system", arg, strlen(arg), diag));
    kvant_chat_msg added = *arg ? c->msgs[--c->n] : (kvant_chat_msg){ NULL, NULL };
    for (int i = 0; i < c->n_system; i++)
        kvant_free((void *)c->msgs[i].content);
    const int now = *arg ? 1 : 0, turns = c->n - c->n_system;
    if (c->n)
        memmove(c->msgs + now, c->msgs + c->n_system, (size_t)turns * sizeof *c->msgs);
    if (now)
        c->msgs[0] = added;
    c->n = now + turns;
    c->n_system = now;
    c->in_cache = 0;
    return KVANT_OK;
}

static int run_save(chat *c, const char *arg, kvant_diag *diag)
{
    KVANT_TRY(chat_save(c, arg, diag));
    fprintf(stderr, "%s: %d messages written\n", arg, c->n);
    return KVANT_OK;
}

static int run_load(chat *c, const char *arg, kvant_diag *diag)
{
    KVANT_TRY(chat_load(c, arg, diag));
    fprintf(stderr, "%s: %d messages read\n", arg, c->n);
    return KVANT_OK;
}

static int run_stats(chat *c, const char *arg, kvant_diag *diag)
{
    char text[256];

    (void)arg;
    (void)diag;
    for (int i = 0; gen_stats(&c->g, i, text, sizeof text); i++)
        fprintf(stderr, "%s\n", text);
    return KVANT_OK;
}

static int run_help(chat *c, const char *arg, kvant_diag *diag);

static const chat_word commands[] = {
    { "/help", NULL, "this list", run_help },
    { "/regen", NULL, "another answer to the last message", run_regen },
    { "/read", "FILE", "put a file's text in front of the next message", run_read },
    { "/system", "[TEXT]", "another system message, or none; the conversation goes on", run_system },
    { "/clear", NULL, "forget the conversation, but for the system message", run_clear },
    { "/save", "FILE", "write the conversation into a new file (messages of OpenAI's API)", run_save },
    { "/load", "FILE", "go on with a conversation that was saved", run_load },
    { "/stats", NULL, "timings, and the size of the cache", run_stats },
    { "/exit", NULL, "end (as Ctrl-D, and Ctrl-C at the prompt)", run_exit },
};

static int run_help(chat *c, const char *arg, kvant_diag *diag)
{
    (void)c;
    (void)arg;
    (void)diag;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        fprintf(stderr, "  %-7s %-7s %s\n", commands[i].name, commands[i].arg ? commands[i].arg : "", commands[i].help);
    fputs("Ctrl-C during an answer ends the answer. A message goes on in the next line when its\n"
          "line ends in \\, and from one \"\"\" to the next. //word sends /word.\n",
          stderr);
    return KVANT_OK;
}

/* A path or a fraction is a message; one word of letters behind a slash is meant for the program. */
static int is_command(const char *line, size_t len)
{
    size_t n = 1;

    while (n < len && line[n] >= 'a' && line[n] <= 'z')
        n++;
    return line[0] == '/' && (n == len || line[n] == ' ');
}

static int chat_command(chat *c, const char *line, size_t len, kvant_diag *diag)
{
    char text[4096];
    const size_t word = strcspn(line, " "), from = word + strspn(line + word, " ");

    while (len > from && line[len - 1] == ' ')
        len--;
    if (len - from >= sizeof text)
        return kvant_fail(diag, KVANT_EINVAL, "%.*s: found %zu bytes behind it, wanted at most %zu", (int)word, line,
                          len - from, sizeof text - 1);
    snprintf(text, sizeof text, "%.*s", (int)(len - from), line + from);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        const chat_word *k = &commands[i];
        if (strlen(k->name) != word || strncmp(k->name, line, word) != 0 || (!k->arg && *text))
            continue;
        if (k->arg && k->arg[0] != '[' && !*text)
            return kvant_fail(diag, KVANT_EINVAL, "%s: found nothing behind it, wanted %s", k->name, k->arg);
        return k->run(c, text, diag);
    }
    fprintf(stderr, "%.*s: not a command, and not sent; /help lists the commands\n", (int)(len < 60 ? len : 60), line);
    return KVANT_OK;
}

/* A message with what /read put in front of it; that stays there until a message was answered. */
static int send_message(chat *c, const char *line, size_t len, kvant_diag *diag)
{
    const size_t front = c->front ? strlen(c->front) : 0;
    int reason, before = c->n;

    if (!front)
        return chat_turn(c, line, len, &reason, diag);
    char *all = kvant_realloc(NULL, 0, front + len + 1);
    if (!all)
        return kvant_fail(diag, KVANT_ENOMEM, "chat: no memory for a message");
    memcpy(all, c->front, front);
    memcpy(all + front, line, len);
    all[front + len] = 0;
    int code = chat_turn(c, all, front + len, &reason, diag);
    kvant_free(all);
    if (c->n > before) {
        kvant_free(c->front);
        c->front = NULL;
    }
    return code;
}

/* A person is told and may try something else; a script ends, with the exit code. */
static int told(int code, const kvant_diag *diag)
{
    const int theirs = code == KVANT_EINVAL || code == KVANT_ENOSPC || code == KVANT_ENOENT || code == KVANT_EIO ||
                       code == KVANT_EFORMAT;

    if (!theirs || !isatty(STDIN_FILENO))
        return code;
    log_msg(LOG_ERROR, "%s", diag->text);
    return KVANT_OK;
}

static int converse_lines(chat *c, line_reader *in, kvant_diag *diag)
{
    const char *line;
    size_t len;

    while (!c->ended) {
        if (term_interrupted() && isatty(STDIN_FILENO))
            tcflush(STDIN_FILENO, TCIFLUSH); /* nor does what was typed meanwhile begin another answer */
        term_clear_interrupt(); /* the Ctrl-C that cut an answer is spent; the next one ends the chat */
        const int got = line_message(in, &line, &len);
        if (got != 1)
            return got == 0 ? KVANT_OK : kvant_fail(diag, got, "chat: no memory for a message");
        const size_t skip = len > 1 && line[0] == '/' && line[1] == '/';
        if (len && is_command(line, len))
            KVANT_TRY(told(chat_command(c, line, len, diag), diag));
        else if (len)
            KVANT_TRY(told(send_message(c, line + skip, len - skip, diag), diag));
        if (opt_flag(c->g.o, OPT_SINGLE_TURN) && c->n > c->n_system)
            return KVANT_OK;
    }
    return KVANT_OK;
}

int chat_converse(chat *c, kvant_diag *diag)
{
    line_reader *in = line_open(opt_flag(c->g.o, OPT_SIMPLE_IO));

    if (!in)
        return kvant_fail(diag, KVANT_ENOMEM, "chat: out of memory");
    if (isatty(STDIN_FILENO))
        log_msg(LOG_INFO, "/help lists the commands of a chat");
    int code = converse_lines(c, in, diag);
    line_close(in);
    return code;
}
