/* tool_args.c: the arguments of a call, as JSON: passed on where the model writes JSON, made where it writes a list of
 * keys and values. */
#include <stdio.h>
#include <string.h>
#include "server/tools/tool_parser_impl.h"

enum { JSON_NONE, JSON_GROUP, JSON_TEXT, JSON_WORD };

static void put(tool_parser *p, const char *s)
{
    parser_emit(p, TOOL_ARGS, s, strlen(s));
}

void parser_begin_arguments(tool_parser *p)
{
    memset(&p->json, 0, sizeof p->json);
    p->n_params = 0;
    if (p->d->args)
        put(p, "{");
}

static int give_up(tool_parser *p)
{
    parser_give_up(p);
    return 1;
}

/* ---- JSON ---- */

static int is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'E';
}

/* Takes one byte of a value that has begun; 1: it is its last. */
static int json_byte(tool_parser *p, char c)
{
    if (p->json.in_string) {
        if (p->json.escaped)
            p->json.escaped = 0;
        else if (c == '\\')
            p->json.escaped = 1;
        else if (c == '"')
            p->json.in_string = 0;
        return !p->json.in_string && p->json.kind == JSON_TEXT;
    }
    p->json.in_string = c == '"';
    p->json.depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    return p->json.depth == 0 && !p->json.in_string;
}

static void json_end(tool_parser *p)
{
    memset(&p->json, 0, sizeof p->json);
    if (p->d->args) {
        p->state = PARSE_VALUE_END;
        return;
    }
    parser_emit(p, TOOL_END, "", 0);
    p->state = PARSE_AFTER;
}

static int json_begin(tool_parser *p)
{
    const char c = p->held.s[p->at];

    p->json.kind = c == '{' || c == '[' ? JSON_GROUP : c == '"' ? JSON_TEXT : JSON_WORD;
    return p->d->args ? c == '{' || c == '[' || c == '"' || is_word(c) : c == '{';
}

static int in_json(tool_parser *p)
{
    const size_t from = p->at;
    int ends = 0;

    if (p->json.kind == JSON_NONE && parser_skip_blanks(p))
        return 1;
    if (p->json.kind == JSON_NONE && !json_begin(p))
        return give_up(p);
    if (p->json.kind == JSON_WORD) {
        while (p->at < p->held.n && is_word(p->held.s[p->at]))
            p->at++;
        ends = p->at < p->held.n;
    }
    while (p->json.kind != JSON_WORD && p->at < p->held.n && !ends)
        ends = json_byte(p, p->held.s[p->at++]);
    parser_emit(p, TOOL_ARGS, p->held.s + from, p->at - from);
    if (ends)
        json_end(p);
    return p->at < p->held.n || ends;
}

/* ---- keys and values ---- */

static int in_key(tool_parser *p)
{
    size_t last = 0, used = 0;
    const int end = parser_try(p, p->d->after, PATTERN_ALL, &last);
    const int more = parser_try_both(p, p->n_params ? p->d->args->between : NULL, p->d->args->key, &used);

    if (end == MATCH_FULL) {
        p->at += last;
        put(p, "}");
        parser_emit(p, TOOL_END, "", 0);
        p->state = PARSE_NEXT;
        return 1;
    }
    if (end == MATCH_PART || more == MATCH_PART)
        return 0;
    if (more == MATCH_NO)
        return give_up(p);
    p->at += used;
    p->state = PARSE_KEY_NAME;
    return 1;
}

static int in_key_name(tool_parser *p)
{
    char text[TOOL_NAME_MOST + 8];
    size_t n;

    if (parser_skip_blanks(p))
        return 1;
    const int m = parser_read_name(p, &n);
    if (m == MATCH_PART)
        return 0;
    if (m == MATCH_NO)
        return give_up(p);
    memcpy(p->name, p->held.s + p->at, n);
    p->name[n] = 0;
    p->at += n;
    snprintf(text, sizeof text, "%s\"%s\": ", p->n_params ? ", " : "", p->name); /* of letters that need no escape */
    put(p, text);
    p->state = PARSE_VALUE;
    return 1;
}

/* Text or JSON: by the quote, or by what the parameter's schema says. */
static int in_value(tool_parser *p)
{
    const dialect_args *a = p->d->args;
    size_t used, quote = 0;
    int m = parser_try(p, a->value, PATTERN_ALL, &used);

    if (m == MATCH_FULL && a->quote)
        m = parser_try_both(p, a->value, a->quote, &quote);
    if (m == MATCH_PART)
        return 0;
    if (m == MATCH_NO && parser_try(p, a->value, PATTERN_ALL, &used) != MATCH_FULL)
        return give_up(p);
    p->quoted = a->quote && m == MATCH_FULL;
    p->at += p->quoted ? quote : used;
    p->state = p->quoted || (a->bare && tool_param_is_text(&p->tools->tools[p->tool], p->name, strlen(p->name)))
                   ? PARSE_RAW
                   : PARSE_JSON;
    if (p->state == PARSE_RAW)
        put(p, "\"");
    return 1;
}

static void put_escaped(tool_parser *p, unsigned char c)
{
    static const char letters[] = "\"\\\b\f\n\r\t", as[] = "\"\\bfnrt";
    const char *at = c ? strchr(letters, c) : NULL;
    char text[8] = { (char)c, 0 };

    if (at)
        snprintf(text, sizeof text, "\\%c", as[at - letters]);
    else if (c < 0x20)
        snprintf(text, sizeof text, "\\u%04x", c);
    parser_emit(p, TOOL_ARGS, text, strlen(text));
}

static int in_raw(tool_parser *p)
{
    size_t used;
    const int m = parser_try(p, p->quoted ? p->d->args->quote : p->d->args->end, PATTERN_ALL, &used);

    if (m == MATCH_PART)
        return 0;
    if (m == MATCH_NO) {
        put_escaped(p, (unsigned char)p->held.s[p->at++]);
        return 1;
    }
    p->at += used;
    put(p, "\"");
    p->n_params += !p->quoted;
    p->state = p->quoted ? PARSE_VALUE_END : PARSE_KEY;
    return 1;
}

static int in_value_end(tool_parser *p)
{
    size_t used;
    const int m = parser_try(p, p->d->args->end, PATTERN_ALL, &used);

    if (m == MATCH_PART)
        return 0;
    if (m == MATCH_NO)
        return give_up(p);
    p->at += used;
    p->n_params++;
    p->state = PARSE_KEY;
    return 1;
}

int parser_in_arguments(tool_parser *p)
{
    switch (p->state) {
    case PARSE_JSON: return in_json(p);
    case PARSE_KEY: return in_key(p);
    case PARSE_KEY_NAME: return in_key_name(p);
    case PARSE_VALUE: return in_value(p);
    case PARSE_RAW: return in_raw(p);
    default: return in_value_end(p);
    }
}
