/* fuzz_tools.c: a model's output through the parser of each dialect: the events do not depend on how it is cut, no call
 * begins that is not of a tool, and nothing crashes.  The first byte chooses the dialect, the second how thoughts are
 * written, the third the cuts. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "server/tools/tool_parser.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static tool_set *tools;

typedef struct events {
    sbuf flat;
    int last, calls;
} events;

static void on_event(void *user, int event, const char *s, size_t n)
{
    events *e = user;

    if (event != e->last || event == TOOL_CALL || event == TOOL_END)
        sbuf_put(&e->flat, &"trcae"[event], 1);
    e->calls += event == TOOL_CALL;
    if (event == TOOL_CALL && tool_set_find(tools, s, n) < 0)
        abort();
    if ((event == TOOL_ARGS || event == TOOL_END) && !e->calls)
        abort();
    e->last = event;
    sbuf_put(&e->flat, s, n);
}

static void parse(tool_parser *p, int thinks, events *e, const uint8_t *data, size_t size, size_t step)
{
    p->emit = on_event;
    p->user = e;
    tool_parser_begin(p, thinks);
    for (size_t i = 0; i < size; i += step)
        if (tool_parser_feed(p, (const char *)data + i, step < size - i ? step : size - i) != KVANT_OK)
            abort();
    if (tool_parser_end(p) != KVANT_OK)
        abort();
    tool_parser_free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char list[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
                               "\"properties\":{\"s\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"}}}}}]";

    if (size < 3)
        return 0;
    if (!tools) {
        json_t *v = json_loads(list, 0, NULL);
        if (tool_set_read(v, &tools, NULL) != KVANT_OK)
            abort();
        json_decref(v);
    }
    tool_parser p = { .d = dialect_at(data[0] % dialect_count()), .tools = tools }, q;
    p.t = data[1] % 8 < thinking_count() ? thinking_at(data[1] % 8) : NULL;
    q = p;
    events whole = { .last = -1 }, cut = { .last = -1 };
    const size_t step = 1 + data[2] % 16;
    parse(&p, data[1] & 8, &whole, data + 3, size - 3, size + 2);
    parse(&q, data[1] & 8, &cut, data + 3, size - 3, step);
    if (whole.flat.n != cut.flat.n || (whole.flat.n && memcmp(whole.flat.s, cut.flat.s, whole.flat.n) != 0))
        abort();
    sbuf_free(&whole.flat);
    sbuf_free(&cut.flat);
    return 0;
}
