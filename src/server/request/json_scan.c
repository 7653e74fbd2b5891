/* json_scan.c: see json_scan.h.  Owns the limits on depth and nodes; jansson owns the syntax. */
#include "server/request/json_scan.h"

#include <jansson.h>
#include <string.h>

int json_scan(const char *text, size_t len, kvant_diag *diag)
{
    int depth = 0, in_string = 0;
    long nodes = 1;

    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = 0;
            continue;
        }
        if (c == '"')
            in_string = 1;
        else if (c == '[' || c == '{')
            depth++;
        else if (c == ']' || c == '}')
            depth--;
        nodes += c == ',' || c == '[' || c == '{';
        if (depth > JSON_MAX_DEPTH)
            return kvant_fail(diag, KVANT_EINVAL, "JSON: nested deeper than %d at byte %zu", JSON_MAX_DEPTH, i);
        if (nodes > JSON_MAX_NODES)
            return kvant_fail(diag, KVANT_EINVAL, "JSON: more than %d values", JSON_MAX_NODES);
    }
    return KVANT_OK;
}

int json_read(const char *text, size_t len, json_t **out, kvant_diag *diag)
{
    json_error_t error;

    KVANT_TRY(json_scan(text, len, diag));
    json_t *v = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (!v)
        return kvant_fail(diag, KVANT_EINVAL, "JSON: %.120s (byte %d)", error.text, error.position);
    *out = v;
    return KVANT_OK;
}
