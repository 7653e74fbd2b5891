/* options.c: the option table, parsing and the getters.  Owns the rules of a command line: what an option's value may
 * be, and where it comes from; unknown spellings are options_hint.c's business, documents are options_doc.c's. */
#include "cli/options/options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/mem.h"
#include "kvant/format.h"

#define KVANT_OPTION(ID, ...) { __VA_ARGS__ },
static const opt_def opt_table[OPT_COUNT] = {
#include "cli/options/options.def"
};
#undef KVANT_OPTION

#define KVANT_COMMAND(ID, words, fn, n_pos, usage, line, more) { words, fn, n_pos, usage, line, more },
static const command command_table[CMD_COUNT] = {
#include "cli/options/commands.def"
};
#undef KVANT_COMMAND

enum { NAME_CAP = OPT_NAME_CAP, ITEM_CAP = 128 };

const command *command_at(int id)
{
    return id >= 0 && id < CMD_COUNT ? &command_table[id] : NULL;
}

int command_find(const char *words)
{
    for (int i = 0; i < CMD_COUNT; i++)
        if (strcmp(command_table[i].words, words) == 0)
            return i;
    return -1;
}

const opt_def *opt_at(int id)
{
    return id >= 0 && id < OPT_COUNT ? &opt_table[id] : NULL;
}

/* ---- spellings ---- */

static int nth_word(const char *s, char sep, int n, char *buf, size_t cap)
{
    for (;; n--) {
        const char *end = strchr(s, sep);
        size_t len = end ? (size_t)(end - s) : strlen(s);
        if (n == 0) {
            snprintf(buf, cap, "%.*s", (int)len, s);
            return 1;
        }
        if (!end)
            return 0;
        s = end + 1;
    }
}

int opt_spelling(const opt_def *d, int n, char *buf, size_t cap)
{
    return nth_word(d->names, ' ', n, buf, cap);
}

void opt_spellings(const opt_def *d, const char *sep, char *buf, size_t cap)
{
    char word[NAME_CAP];

    buf[0] = 0;
    for (int i = 0; opt_spelling(d, i, word, sizeof word); i++) {
        size_t n = strlen(buf);
        snprintf(buf + n, cap - n, "%s%s", i ? sep : "", word);
    }
}

int opt_takes(const opt_def *d, int cmd)
{
    return (int)(d->commands >> cmd & 1u);
}

const char *opt_long(const opt_def *d, char *buf, size_t cap)
{
    for (int i = 0; opt_spelling(d, i, buf, cap); i++)
        if (strncmp(buf, "--", 2) == 0)
            return buf;
    opt_spelling(d, 0, buf, cap);
    return buf;
}

const char *opt_env(const opt_def *d, char *buf, size_t cap)
{
    opt_long(d, buf, cap);
    if (strncmp(buf, "--", 2) != 0 || opt_is_foreign(d)) {
        buf[0] = 0;
        return buf;
    }
    memmove(buf, buf + 2, strlen(buf + 2) + 1);
    for (char *p = buf; *p; p++)
        *p = (char)(*p == '-' ? '_' : *p >= 'a' && *p <= 'z' ? *p - 32 : *p);
    return buf;
}

int opt_find(int cmd, const char *name, size_t len)
{
    char word[NAME_CAP];

    for (int i = 0; i < OPT_COUNT; i++) {
        if (!opt_takes(&opt_table[i], cmd))
            continue;
        for (int j = 0; opt_spelling(&opt_table[i], j, word, sizeof word); j++)
            if (strlen(word) == len && memcmp(word, name, len) == 0)
                return i;
    }
    return -1;
}

int opt_is_foreign(const opt_def *d)
{
    return d->type == OPT_T_NOTED || d->type == OPT_T_REFUSED;
}

/* ---- values ---- */

/* 0 to 4 characters of suffix to a factor: k m g t (1024), optionally followed by b or ib.  0: not a suffix. */
static int64_t suffix_factor(const char *s, int size)
{
    static const char letters[] = "kmgt";
    const char *p;

    if (!*s)
        return 1;
    p = strchr(letters, *s | 32);
    if (!p)
        return 0;
    if (size && s[1] && strcmp(s + 1, "B") != 0 && strcmp(s + 1, "iB") != 0 && strcmp(s + 1, "b") != 0)
        return 0;
    if (!size && (s[1] || p - letters > 1))
        return 0;
    return (int64_t)1 << (10 * (p - letters + 1));
}

static int parse_int(const char *s, int size, int64_t *v)
{
    char *end;

    errno = 0;
    long long n = strtoll(s, &end, 10);
    if (end == s || errno || *s == ' ' || *s == '\t')
        return 0;
    int64_t f = suffix_factor(end, size);
    if (f == 0 || n > INT64_MAX / f || n < INT64_MIN / f)
        return 0;
    *v = (int64_t)n * f;
    return 1;
}

int opt_parse_size(const char *s, int64_t *v)
{
    return parse_int(s, 1, v);
}

static int parse_num(const char *s, double *v)
{
    char *end;

    *v = strtod(s, &end);
    return end != s && !*end && isfinite(*v) && *s != ' ';
}

static int in_range(const opt_def *d, double v)
{
    return v >= d->min && v <= d->max;
}

static int fail_range(const opt_def *d, const char *origin, const char *found, const char *what, kvant_diag *diag)
{
    return kvant_fail(diag, KVANT_EINVAL, "%s: found \"%.60s\", wanted %s from %.10g to %.10g", origin, found, what,
                      d->min, d->max);
}

static int is_choice(const char *choices, const char *s)
{
    char word[NAME_CAP];

    for (int i = 0; nth_word(choices, '|', i, word, sizeof word); i++)
        if (strcmp(word, s) == 0)
            return 1;
    return 0;
}

/* One item of INTS: n, a-b, a-b+step, a-b*factor.  Appends to v. */
static int parse_range(const opt_def *d, const char *origin, const char *item, int64_t *v, int cap, int *n,
                       kvant_diag *diag)
{
    char text[ITEM_CAP], *dash, *op = NULL, kind = '+';
    int64_t a, b, step = 1;

    snprintf(text, sizeof text, "%s", item);
    dash = text[0] ? strchr(text + 1, '-') : NULL; /* a leading minus is a sign */
    if (dash) {
        *dash = 0;
        op = strpbrk(dash + 1, "+*");
    }
    if (op) {
        kind = *op;
        *op = 0;
    }
    if (!parse_int(text, 0, &a) || (dash && !parse_int(dash + 1, 0, &b)) || (op && !parse_int(op + 1, 0, &step)))
        return fail_range(d, origin, item, "integers (or a-b, a-b+step, a-b*factor)", diag);
    if (!dash)
        b = a;
    if (!in_range(d, (double)a) || !in_range(d, (double)b))
        return fail_range(d, origin, item, "integers", diag);
    if (a > b || step < (kind == '*' ? 2 : 1) || (kind == '*' && a < 1))
        return kvant_fail(diag, KVANT_EINVAL, "%s: found \"%.60s\", wanted a range that grows", origin, item);
    const int64_t most = kind == '*' ? b + 1 : b - a + 1; /* a larger step ends the range too, and may not fit */
    step = step < most ? step : most;
    for (; a <= b; a = kind == '*' ? a * step : a + step) {
        if (*n >= cap)
            return kvant_fail(diag, KVANT_EINVAL, "%s: more than %d values", origin, cap);
        v[(*n)++] = a;
    }
    return KVANT_OK;
}

static int ints_of(const opt_def *d, const char *origin, const char *text, int64_t *v, int cap, int *n,
                   kvant_diag *diag)
{
    char item[ITEM_CAP];

    *n = 0;
    for (int i = 0; nth_word(text, ',', i, item, sizeof item); i++)
        KVANT_TRY(parse_range(d, origin, item, v, cap, n, diag));
    return KVANT_OK;
}

static int check_words(const opt_def *d, const char *origin, const char *text, kvant_diag *diag)
{
    char item[ITEM_CAP];
    const kvant_format *f;
    kvant_diag why = { "" };
    int list = d->type == OPT_T_CHOICES || d->type == OPT_T_FORMATS;

    for (int i = 0; list ? nth_word(text, ',', i, item, sizeof item) : i == 0; i++) {
        const char *word = list ? item : text;
        if (d->type == OPT_T_CHOICE || d->type == OPT_T_CHOICES) {
            if (!is_choice(d->choices, word))
                return kvant_fail(diag, KVANT_EINVAL, "%s: found \"%.60s\", wanted one of %s", origin, word,
                                  d->choices);
        } else if (kvant_format_parse(word, &f, &why) != KVANT_OK) {
            return kvant_fail(diag, KVANT_EINVAL, "%s: %.200s", origin, why.text);
        }
    }
    return KVANT_OK;
}

static int parse_flag(const char *s)
{
    return is_choice("1|on|true|enabled|yes", s) ? 1 : is_choice("0|off|false|disabled|no", s) ? 0 : -1;
}

/* A foreign option with a value that would change something: what is not one of the choices is refused, not ignored. */
static int check_harmless(const opt_def *d, const char *origin, const char *text, kvant_diag *diag)
{
    if (!d->choices[0] || is_choice(d->choices, text))
        return KVANT_OK;
    return kvant_fail(diag, KVANT_EUNSUPPORTED, "%s: found \"%.60s\", wanted %s: %s", origin, text, d->choices,
                      d->help);
}

enum { MAX_INTS = 4096 };

static int set_value(opts *o, int id, const char *text, const char *origin, kvant_diag *diag)
{
    const opt_def *d = &opt_table[id];
    opt_value v = { text, origin, 0, 0, o->v[id].count + 1 };
    int64_t list[MAX_INTS];
    int n;

    switch (d->type) {
    case OPT_T_FLAG:
        if (parse_flag(text) < 0)
            return kvant_fail(diag, KVANT_EINVAL, "%s: found \"%.60s\", wanted 1, on, true or 0, off, false", origin,
                              text);
        v.count = parse_flag(text) ? v.count : 0;
        break;
    case OPT_T_INT:
    case OPT_T_SIZE:
        if (!parse_int(text, d->type == OPT_T_SIZE, &v.i) || !in_range(d, (double)v.i))
            return fail_range(d, origin, text, d->type == OPT_T_SIZE ? "bytes (such as 512M or 16G)" : "an integer",
                              diag);
        break;
    case OPT_T_NUM:
        if (!parse_num(text, &v.f) || !in_range(d, v.f))
            return fail_range(d, origin, text, "a number", diag);
        break;
    case OPT_T_INTS: KVANT_TRY(ints_of(d, origin, text, list, MAX_INTS, &n, diag)); break;
    case OPT_T_CHOICE:
    case OPT_T_CHOICES:
    case OPT_T_FORMAT:
    case OPT_T_FORMATS: KVANT_TRY(check_words(d, origin, text, diag)); break;
    case OPT_T_NOTED: KVANT_TRY(check_harmless(d, origin, text, diag)); break;
    case OPT_T_REFUSED: return kvant_fail(diag, KVANT_EUNSUPPORTED, "%s: %s", origin, d->help);
    case OPT_T_STR:
    case OPT_T_FILE:
        if (!*text && (d->type == OPT_T_FILE || d->min > 0))
            return kvant_fail(diag, KVANT_EINVAL, "%s: found \"\", wanted %s", origin, d->arg);
        break;
    }
    o->v[id] = v;
    return KVANT_OK;
}

static int set_defaults(opts *o, kvant_diag *diag)
{
    for (int i = 0; i < OPT_COUNT; i++) {
        const opt_def *d = &opt_table[i];
        if (!d->def[0])
            continue;
        KVANT_TRY(set_value(o, i, d->def, d->names, diag));
        o->v[i].count = 0;
        o->v[i].origin = NULL;
    }
    return KVANT_OK;
}

/* ---- command line ---- */

static int take_option(opts *o, int argc, char **argv, int *at, kvant_diag *diag)
{
    const char *arg = argv[*at], *eq = strncmp(arg, "--", 2) == 0 ? strchr(arg, '=') : NULL, *text = "1";
    size_t len = eq ? (size_t)(eq - arg) : strlen(arg);
    int id = opt_find(o->cmd, arg, len);

    if (id < 0)
        return opt_unknown(o->cmd, arg, len, diag);
    const opt_def *d = &opt_table[id];
    if (d->type == OPT_T_REFUSED)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "%.*s: %s", (int)len, arg, d->help);
    char name[NAME_CAP];
    snprintf(name, sizeof name, "%.*s", (int)len, arg);
    const int valued = d->type != OPT_T_FLAG && d->arg[0];
    if (eq && valued) {
        text = eq + 1;
    } else if (eq) {
        return kvant_fail(diag, KVANT_EINVAL, "%s: takes no value, found \"%.60s\"", name, eq + 1);
    } else if (valued) {
        if (*at + 1 >= argc)
            return kvant_fail(diag, KVANT_EINVAL, "%s: found nothing after it, wanted %s", name, d->arg);
        text = argv[++*at];
    }
    KVANT_TRY(set_value(o, id, text, name, diag));
    o->v[id].origin = strcpy(o->spelt[id], name);
    o->all[o->n_all++] = (opt_repeat){ id, arg, text };
    return KVANT_OK;
}

static const char *env_value(const opt_def *d, char *name, size_t cap)
{
    char tail[NAME_CAP];
    const char *v = NULL;

    if (!*opt_env(d, tail, sizeof tail))
        return NULL;
    snprintf(name, cap, "KVANT_ARG_%s", tail);
    v = getenv(name);
    if ((!v || !*v) && d->llama_env[0]) {
        snprintf(name, cap, "LLAMA_ARG_%s", d->llama_env);
        v = getenv(name);
    }
    return v && *v ? v : NULL;
}

static int take_environment(opts *o, kvant_diag *diag)
{
    char name[OPT_SPELT_CAP];

    KVANT_TRY(opt_check_variables(diag));
    for (int i = 0; i < OPT_COUNT; i++) {
        const opt_def *d = &opt_table[i];
        if (!opt_takes(d, o->cmd) || o->v[i].count || i == OPT_HELP || i == OPT_VERSION ||
            i == OPT_LIST_DEVICES)
            continue;
        const char *text = env_value(d, name, sizeof name);
        if (!text)
            continue;
        KVANT_TRY(set_value(o, i, text, name, diag));
        o->v[i].origin = strcpy(o->spelt[i], name);
        o->all[o->n_all++] = (opt_repeat){ i, NULL, text };
    }
    return KVANT_OK;
}

int opts_parse(opts *o, int cmd, int argc, char **argv, kvant_diag *diag)
{
    int only_words = 0;

    memset(o, 0, sizeof *o);
    o->cmd = cmd;
    o->all = kvant_calloc((size_t)argc + OPT_COUNT, sizeof *o->all);
    o->spelt = kvant_calloc(OPT_COUNT, sizeof *o->spelt);
    if (!o->all || !o->spelt)
        return kvant_fail(diag, KVANT_ENOMEM, "options: out of memory");
    for (int i = 0; i < OPT_COUNT; i++)
        opt_long(&opt_table[i], o->spelt[i], NAME_CAP);
    KVANT_TRY(set_defaults(o, diag));
    for (int i = 0; i < argc; i++) {
        if (!only_words && strcmp(argv[i], "--") == 0) {
            only_words = 1;
        } else if (!only_words && argv[i][0] == '-' && argv[i][1]) {
            KVANT_TRY(take_option(o, argc, argv, &i, diag));
        } else if (o->n_pos >= command_table[cmd].n_pos) {
            return kvant_fail(diag, KVANT_EINVAL, "\"%.60s\": kvant %s takes %s%s", argv[i], command_table[cmd].words,
                              command_table[cmd].n_pos ? "only " : "no ",
                              command_table[cmd].n_pos ? command_table[cmd].usage : "further words");
        } else {
            o->pos[o->n_pos++] = argv[i];
        }
    }
    return opt_given(o, OPT_HELP) || opt_given(o, OPT_VERSION) ? KVANT_OK : take_environment(o, diag);
}

void opts_free(opts *o)
{
    kvant_free(o->all);
    o->all = NULL;
    kvant_free(o->spelt);
    o->spelt = NULL;
    kvant_free(o->pulled);
    o->pulled = NULL;
}

void opts_notes(const opts *o)
{
    for (int id = 0; id < OPT_COUNT; id++) {
        char names[256] = "";
        if (opt_table[id].type != OPT_T_NOTED || !opt_given(o, id))
            continue;
        for (int i = 0; i < o->n_all; i++)
            if (o->all[i].id == id) {
                size_t n = strlen(names), len = strcspn(o->all[i].name, "=");
                snprintf(names + n, sizeof names - n, "%s%.*s", n ? ", " : "", (int)len, o->all[i].name);
            }
        log_msg(LOG_INFO, "%s: no effect: %s", names, opt_table[id].help);
    }
}

/* ---- getters ---- */

int opt_given(const opts *o, int id)
{
    return o->v[id].count > 0;
}

int opt_flag(const opts *o, int id)
{
    return o->v[id].count > 0;
}

int64_t opt_int(const opts *o, int id)
{
    return o->v[id].i;
}

double opt_num(const opts *o, int id)
{
    return o->v[id].f;
}

const char *opt_str(const opts *o, int id)
{
    return o->v[id].text;
}

int opt_is(const opts *o, int id, const char *choice)
{
    return o->v[id].text && strcmp(o->v[id].text, choice) == 0;
}

const char *opt_origin(const opts *o, int id)
{
    return o->v[id].origin ? o->v[id].origin : o->spelt[id];
}

int opt_ints(const opts *o, int id, int64_t *v, int cap, int *n, kvant_diag *diag)
{
    *n = 0;
    return o->v[id].text ? ints_of(&opt_table[id], opt_origin(o, id), o->v[id].text, v, cap, n, diag) : KVANT_OK;
}

int opt_item(const opts *o, int id, int i, char *buf, size_t cap)
{
    return o->v[id].text ? nth_word(o->v[id].text, ',', i, buf, cap) : 0;
}
