/* tool_loose.c: calls in another form than the dialect's own: another marker, keys in another order, a list or none,
 * fences of code, Python's spelling, a name before JSON, or no marker at all.
 *
 *   marker? (fence | marker)* VALUE (fence | end marker)* (separator? marker* VALUE ...)*
 *
 * A VALUE is JSON or a list of NAME(KEY=VALUE), or a tool's name and then JSON.  It is read to its end, and is one or
 * more calls or text.  Without a marker it counts at the beginning of a line, when nothing but calls follows. */
#include <string.h>
#include "server/tools/tool_json.h"
#include "server/tools/tool_parser_impl.h"

enum { LOOSE_START, LOOSE_NAMED, LOOSE_VALUE, LOOSE_BEHIND };
enum { MOST_OPENERS = 4, HEAD = PARSER_HEAD };
#define BAR "\xEF\xBD\x9C"
#define LOW "\xE2\x96\x81"

static const char markers[] =
    "<tool_call>\v<|tool_call|>\v<tool_calls>\v<|tool_calls|>\v<|tool_call_start|>\v<|tool_calls_start|>\v"
    "<function_call>\v<function_calls>\v<|python_tag|>\v<|python_start|>\v<TOOLCALL>\v[TOOL_CALLS]\v<tools>\v<tool_code>\v"
    "<|tool_calls_section_begin|>\v<|tool_call_begin|>\v<|tools_prefix|>\v<|action_start|><|plugin|>\v<|START_ACTION|>\v"
    "<|tool_call>\v<start_function_call>\v<tool_call|>\v<call>\vfunctools\v"
    "function call<|role_sep|>\v"
    "<function=\"\v<function='\v<function=\v<function name=\"\v<function name='\v<function name=\v"
    "<invoke name=\"\v<invoke name='\v<invoke name=\v<minimax:tool_call>\v<seed:tool_call>\v"
    "<" BAR "DSML" BAR "invoke name=\"\v<" BAR "DSML" BAR "function_calls>\v<" BAR "DSML" BAR "tool_calls>\v"
    "<steptml:invoke name=\"\v<" BAR "tool" LOW "calls" LOW "begin" BAR ">\v"
    "<" BAR "tool" LOW "call" LOW "begin" BAR ">";
static const char fences[] = "```json\v```tool_call\v```tool_code\v```python\v```xml\v```";
static const char ends[] =
    "</tool_call>\v<|/tool_call|>\v</tool_calls>\v<|tool_call_end|>\v<|tool_calls_end|>\v</function_call>\v"
    "</function_calls>\v</TOOLCALL>\v[/TOOL_CALLS]\v</tools>\v</tool_code>\v<|tool_calls_section_end|>\v"
    "<|tools_suffix|>\v<|action_end|>\v<|END_ACTION|>\v<|python_end|>\v<tool_call|>\v<end_function_call>\v</call>\v</function>\v"
    "</invoke>\v</minimax:tool_call>\v</seed:tool_call>\v</" BAR "DSML" BAR "invoke>\v</" BAR "DSML" BAR
    "function_calls>\v</" BAR "DSML" BAR "tool_calls>\v</steptml:invoke>\v<" BAR "tool" LOW "call" LOW "end" BAR ">\v"
    "<" BAR "tool" LOW "calls" LOW "end" BAR ">\v```";
/* Behind a name. */
static const char behind_name[] =
    "[ARGS]\v[CALL_ID]%[ARGS]\v<|tool_call_argument_begin|>\v:%<|tool_call_argument_begin|>\v>\v\">\v'>\v\" >\v"
    "<" BAR "tool" LOW "sep" BAR ">";

static int is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static char front(const tool_parser *p)
{
    return p->held.s[p->at];
}

int parser_marker(const tool_parser *p, size_t *used)
{
    const char *own = p->d->open ? p->d->open : p->d->before;
    size_t other;
    const int a = p->d->at_start ? MATCH_NO : parser_try(p, own, PATTERN_TRIGGER, used);
    const int b = parser_try(p, markers, PATTERN_ALL, &other);

    if (a == MATCH_FULL && *used > 0 && p->held.s[p->at + *used - 1] == '[')
        --*used; /* a list's bracket belongs to the value, as behind the marker alone */
    if (b == MATCH_PART) /* it may become a longer one */
        return MATCH_PART;
    if (a == MATCH_FULL && *used > 0 && (b != MATCH_FULL || other <= *used))
        return MATCH_FULL;
    *used = other;
    return b == MATCH_FULL ? MATCH_FULL : a == MATCH_PART || b == MATCH_PART ? MATCH_PART : MATCH_NO;
}

int parser_end_marker(const tool_parser *p, size_t *used)
{
    size_t n = p->at;

    while (n < p->held.n && is_blank(p->held.s[n]))
        n++;
    *used = 0;
    if (n - p->at > PARSER_MOST_BLANKS)
        return MATCH_NO;
    const int m = pattern_match(ends, PATTERN_ALL, p->held.s + n, p->held.n - n, used);
    *used += n - p->at;
    return m == MATCH_PART && p->final ? MATCH_NO : m;
}

static void begin(tool_parser *p, int weak)
{
    memset(&p->loose, 0, sizeof p->loose);
    p->loose.tool = -1;
    p->loose.weak = weak;
    p->loose.at_end = weak && !(p->d->at_start && !p->wrote && !p->said);
    p->raw.n = 0;
    p->other = 1;
    p->state = PARSE_LOOSE;
}

/* A tool's name of n bytes, and the first key behind it; in dialects of Python's spelling, or behind a marker, its
 * bracket. */
static int at_named(const tool_parser *p, int *which, size_t *n)
{
    const dialect_args *a = p->d->args;
    const int python = (a && !a->bare && !a->quote) || (p->state == PARSE_LOOSE && !p->loose.weak);
    const int m = parser_read_name(p, n);
    tool_parser q = { .held = p->held, .at = p->at + *n, .final = p->final };
    size_t used;

    *which = m == MATCH_NO ? -1 : tool_set_find(p->tools, p->held.s + p->at, *n);
    if (m == MATCH_PART)
        return parser_begins_name(p->tools, p->held.s + p->at, *n) ? MATCH_PART : MATCH_NO;
    if (m == MATCH_NO || *which < 0)
        return MATCH_NO;
    return parser_try(&q, python ? " <arg_key>\v (" : " <arg_key>", PATTERN_ALL, &used);
}

/* Calls without their opener, as GLM and LFM2 write them. */
static int begins_named(tool_parser *p, int *wait)
{
    size_t n;
    int which;
    const int m = at_named(p, &which, &n);

    *wait |= m == MATCH_PART;
    if (m != MATCH_FULL)
        return 0;
    begin(p, 1);
    p->loose.phase = LOOSE_NAMED;
    p->loose.tool = which;
    parser_take(p, n);
    return 1;
}

int parser_begins_loose(tool_parser *p, int *wait)
{
    size_t used, fence;
    const int strong = p->d ? parser_marker(p, &used) : MATCH_NO;

    if (!p->d || p->strict || p->reread > PARSER_MOST_REREAD)
        return 0;
    const int line = parser_line_starts(p);
    const int f = line ? parser_try(p, fences, PATTERN_ALL, &fence) : MATCH_NO;
    *wait |= strong == MATCH_PART || (f == MATCH_PART && strong != MATCH_FULL);
    if (strong != MATCH_FULL && *wait)
        return 0;
    if (strong == MATCH_FULL || f == MATCH_FULL) {
        begin(p, strong != MATCH_FULL);
        parser_take(p, strong == MATCH_FULL ? used : fence);
        return 1;
    }
    if (!line || (front(p) != '{' && front(p) != '['))
        return line && begins_named(p, wait);
    begin(p, 1);
    return 1;
}

static int is_text(tool_parser *p)
{
    return parser_not_a_call(p, p->raw.n < HEAD ? PLAIN_ALL : PLAIN_NOT);
}

void parser_forget_calls(tool_parser *p)
{
    json_decref(p->loose.calls);
    p->loose.calls = NULL;
    p->f = p->d;
}

/* ---- what has been found ---- */

static void tell(tool_parser *p)
{
    size_t i;
    json_t *call;

    json_array_foreach(p->loose.calls, i, call)
    {
        const char *name = p->tools->tools[json_integer_value(json_array_get(call, 0))].name;
        sbuf args = { 0 };
        tool_json_put(json_array_get(call, 1), &args);
        parser_emit(p, TOOL_CALL, name, strlen(name));
        parser_emit(p, TOOL_ARGS, sbuf_text(&args), args.n);
        parser_emit(p, TOOL_END, "", 0);
        p->args.error |= args.error;
        sbuf_free(&args);
        p->n_calls++;
        p->wrote = 1;
    }
    json_decref(p->loose.calls);
    p->loose.calls = NULL;
    p->raw.n = 0;
}

/* More calls, in a list that is given away, or none (ok 0): they are told now, or all of it is text. */
static int found(tool_parser *p, json_t *calls, int ok)
{
    if (ok && !p->loose.calls)
        p->loose.calls = json_array();
    if (ok)
        json_array_extend(p->loose.calls, calls);
    json_decref(calls);
    if (!ok)
        return is_text(p);
    p->loose.phase = LOOSE_BEHIND;
    p->loose.openers = 0;
    p->loose.tool = -1;
    if (!p->loose.at_end)
        tell(p);
    return 1;
}

/* The call of loose.tool with these arguments (given away; NULL: none). */
static int found_one(tool_parser *p, json_t *args)
{
    json_t *calls = json_array();
    const int ok = json_is_object(args) && tool_has_required(&p->tools->tools[p->loose.tool], args) &&
                   json_array_append_new(calls, json_pack("[i,O]", p->loose.tool, args)) == 0;

    json_decref(args);
    return found(p, calls, ok);
}

int parser_form_done(tool_parser *p)
{
    json_t *args = tool_json_read(sbuf_text(&p->args), p->args.n);

    p->args.n = 0;
    p->f = p->d;
    p->state = PARSE_LOOSE;
    return found_one(p, args);
}

/* The value is whole: calls, or text. */
static int value_done(tool_parser *p)
{
    json_t *v = tool_json_read(p->raw.s + p->loose.from, p->raw.n - p->loose.from), *calls;

    if (p->loose.tool >= 0) /* its name stood before it */
        return found_one(p, v);
    calls = json_array();
    const int ok = v && calls && tool_json_calls(v, p->tools, calls);
    json_decref(v);
    return found(p, calls, ok);
}

/* ---- reading ---- */

static void begin_value(tool_parser *p)
{
    p->loose.phase = LOOSE_VALUE;
    p->loose.depth = p->loose.quote = p->loose.escaped = p->loose.n = 0;
    p->loose.from = p->raw.n;
}

/* A tool's name: before JSON, or of a call NAME(...). */
static int in_name(tool_parser *p)
{
    size_t n;
    const int m = parser_read_name(p, &n);

    if (m == MATCH_PART)
        return 0;
    const int which = m == MATCH_FULL ? tool_json_find(p->tools, p->held.s + p->at, n) : -1;
    if (which < 0 || (p->loose.weak && !p->raw.n)) /* a fence, or a marker */
        return is_text(p);
    begin_value(p);
    p->loose.phase = LOOSE_NAMED;
    p->loose.tool = which;
    parser_take(p, n);
    return 1;
}

static int in_start(tool_parser *p)
{
    size_t used, fence;

    if (parser_skip_blanks(p))
        return 1;
    const int m = parser_marker(p, &used), f = parser_try(p, fences, PATTERN_ALL, &fence);
    if ((m == MATCH_PART || f == MATCH_PART) && m != MATCH_FULL)
        return 0;
    if (m == MATCH_FULL || f == MATCH_FULL) {
        if (++p->loose.openers > MOST_OPENERS)
            return is_text(p);
        parser_take(p, m == MATCH_FULL ? used : fence);
        return 1;
    }
    if (front(p) == '{' || front(p) == '[') {
        begin_value(p);
        return 1;
    }
    return in_name(p);
}

/* Behind a name: the first key of a form of keys and values. */
static int begins_keys(tool_parser *p)
{
    size_t used;
    int part = 0;

    for (int i = 0; i < dialect_form_count(); i++) {
        const int m = parser_try(p, dialect_form(i)->args->key, PATTERN_ALL, &used);
        part |= m == MATCH_PART;
        if (m == MATCH_FULL && !part) {
            p->f = dialect_form(i);
            p->tool = p->loose.tool;
            p->state = PARSE_KEY;
            parser_begin_arguments(p);
            return MATCH_FULL;
        }
    }
    return part ? MATCH_PART : MATCH_NO;
}

/* Behind a name: NAME(...), NAME {...}, NAME[ARGS]{...}, keys and values, or the end of a call without arguments. */
static int in_named(tool_parser *p)
{
    size_t used;

    if (parser_skip_blanks(p))
        return 1;
    const int m = parser_try(p, behind_name, PATTERN_ALL, &used);
    const int k = m == MATCH_NO ? begins_keys(p) : MATCH_NO;
    const int e = m == MATCH_NO && k == MATCH_NO && !p->loose.weak ? parser_end_marker(p, &used) : MATCH_NO;
    if (m == MATCH_PART || k == MATCH_PART || e == MATCH_PART)
        return 0;
    if (k == MATCH_FULL)
        return 1;
    if (e == MATCH_FULL)
        return found_one(p, json_object());
    if (m == MATCH_FULL) {
        if (++p->loose.openers > MOST_OPENERS)
            return is_text(p);
        parser_take(p, used);
        return 1;
    }
    if (front(p) == '(') {
        p->loose.tool = -1; /* the name is part of the value */
        p->loose.phase = LOOSE_VALUE;
    } else if (front(p) == '{') {
        begin_value(p);
    } else {
        return is_text(p);
    }
    return 1;
}

/* Up to where brackets and quotes are closed. */
static int in_value(tool_parser *p)
{
    const char c = front(p);

    parser_take(p, 1);
    if (p->loose.quote) {
        if (p->loose.escaped)
            p->loose.escaped = 0;
        else if (c == '\\')
            p->loose.escaped = 1;
        else if (c == p->loose.quote)
            p->loose.quote = 0;
    } else {
        p->loose.quote = c == '"' || c == '\'' ? c : 0;
        p->loose.depth += (c == '{' || c == '[' || c == '(') - (c == '}' || c == ']' || c == ')');
    }
    if (p->loose.tool < 0 && p->raw.n - p->loose.from < HEAD &&
        !tool_json_may_call(p->raw.s + p->loose.from, p->raw.n - p->loose.from, p->tools))
        return is_text(p);
    return p->loose.depth == 0 && !p->loose.quote ? value_done(p) : 1;
}

/* Nothing more of the calls comes: they are told, or what follows them makes all of it text. */
static int leave(tool_parser *p)
{
    if (p->loose.at_end && !p->final)
        return is_text(p);
    tell(p);
    p->other = 0;
    parser_to(p, PARSE_TEXT);
    return 1;
}

/* Behind a value: what ends it, and the next one. */
static int in_behind(tool_parser *p)
{
    size_t used, next, fence;
    int which;

    if (is_blank(front(p)) || (strchr(",;]", front(p)) && front(p) && p->loose.openers == 0)) {
        p->loose.openers += !is_blank(front(p));
        parser_take(p, 1);
        return 1;
    }
    const int e = parser_try(p, ends, PATTERN_ALL, &used), m = parser_marker(p, &next);
    const int f = parser_try(p, fences, PATTERN_ALL, &fence);
    if ((e == MATCH_PART || m == MATCH_PART || f == MATCH_PART) && !p->final)
        return 0;
    if (e == MATCH_FULL && !(f == MATCH_FULL && fence > used)) {
        parser_take(p, used);
        p->loose.openers = 0;
        return 1;
    }
    const int named = m == MATCH_NO && f == MATCH_NO ? at_named(p, &which, &next) : MATCH_NO;
    if (named == MATCH_PART)
        return 0;
    if (named == MATCH_FULL || m == MATCH_FULL || f == MATCH_FULL || front(p) == '{' || front(p) == '[') {
        p->loose.phase = LOOSE_START;
        p->loose.openers = 0;
        return 1;
    }
    return leave(p);
}

int parser_in_loose(tool_parser *p)
{
    switch (p->loose.phase) {
    case LOOSE_START: return in_start(p);
    case LOOSE_NAMED: return in_named(p);
    case LOOSE_VALUE: return in_value(p);
    default: return in_behind(p);
    }
}

int parser_idle(const tool_parser *p)
{
    return p->state == PARSE_TEXT || p->state == PARSE_AFTER || p->state == PARSE_NEXT ||
           (p->state == PARSE_LOOSE && p->loose.phase == LOOSE_BEHIND);
}

/* The output ended: calls of which the end is missing are none.  One that was cut is not shown; what has no marker is
 * text. */
void parser_end_loose(tool_parser *p)
{
    if (p->loose.phase == LOOSE_BEHIND && !(p->cut && p->loose.at_end)) {
        leave(p);
    } else if (p->cut && !p->loose.weak) {
        p->held.n = p->at = p->raw.n = 0;
        p->other = 0;
        parser_to(p, PARSE_TEXT);
    } else {
        is_text(p);
    }
}
