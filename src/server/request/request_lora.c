/* request_lora.c: lists of adapters and their scales, as llama.cpp's server takes them: the field lora of a request,
 * and the body of /lora-adapters. */
#include "server/request/json_scan.h"
#include "server/request/request_impl.h"

#include <string.h>

static int count(const kvant_model *m)
{
    kvant_lora_info info;
    int n = 0;

    while (kvant_model_lora(m, n, &info) == KVANT_OK)
        n++;
    return n;
}

/* One {"id", "scale"} -> scales; given[id]: it was there already. */
static int read_one(const json_t *o, int n, float *scales, unsigned char *given, api_error *e)
{
    int id = -1;
    float scale = 1.0f;

    if (!json_is_object(o))
        return api_fail(e, BAD, "lora", "lora: wanted objects with id and scale");
    if (!body_field(o, "id") || !body_field(o, "scale"))
        return api_fail(e, BAD, "lora", "lora: an object without id or scale");
    API_TRY(body_count(o, "id", 0, n - 1, &id, e));
    API_TRY(body_num(o, "scale", -KVANT_LORA_MOST, KVANT_LORA_MOST, &scale, e));
    if (given[id]++)
        return api_fail(e, BAD, "lora", "lora: id %d is there twice", id);
    scales[id] = scale;
    return API_OK;
}

static int read_list(const kvant_model *m, const json_t *list, float *scales, api_error *e)
{
    const int n = count(m);
    unsigned char given[KVANT_LORA_FILES] = { 0 };

    if (!json_is_array(list))
        return api_fail(e, BAD, "lora", "lora: wanted an array of objects with id and scale");
    if (json_array_size(list) && n == 0)
        return api_fail(e, BAD, "lora", "lora: this server has no adapters (--lora)");
    memset(scales, 0, KVANT_LORA_FILES * sizeof *scales);
    for (size_t i = 0; i < json_array_size(list); i++)
        API_TRY(read_one(json_array_get(list, i), n, scales, given, e));
    return API_OK;
}

int request_read_lora(const request_env *env, const json_t *o, api_request *r, api_error *e)
{
    const json_t *list = body_field(o, "lora");

    if (!list)
        return API_OK;
    r->lora.given = json_array_size(list) > 0;
    return read_list(env->model, list, r->lora.scale, e);
}

int request_parse_lora(const request_env *env, const char *body, size_t len, float scales[KVANT_LORA_FILES],
                       api_error *e)
{
    json_t *list = NULL;
    kvant_diag diag = { "" };

    if (len == 0 || json_read(body, len, &list, &diag) != KVANT_OK)
        return api_fail(e, BAD, "", "body: %s", len ? diag.text : "empty, wanted a JSON array");
    const int kind = read_list(env->model, list, scales, e);
    json_decref(list);
    return kind;
}
