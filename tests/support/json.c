/* json.c: see json.h. */
#include "support/json.h"

#include <math.h>
#include <string.h>
#include "base/text/json.h"

int json_valid(const char *text, size_t n)
{
    gjson root;
    return gjson_parse(text, n, &root, NULL) == KVANT_OK;
}

const char *json_at(const char *text, const char *path, size_t *n)
{
    gjson root;
    if (gjson_parse(text, strlen(text), &root, NULL) < 0)
        return NULL;
    gjson v = gjson_at(root, path);
    *n = v.n;
    return v.p;
}

double json_num(const char *text, const char *path)
{
    gjson root;
    return gjson_parse(text, strlen(text), &root, NULL) < 0 ? NAN : gjson_number(gjson_at(root, path));
}
