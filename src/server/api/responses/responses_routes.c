/* responses_routes.c: GET and DELETE of /v1/responses/ID, and the items of its input.  Stored answers are ready
 * text: the loop thread reads no JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "server/api/responses/responses_store.h"
#include "server/routes/routes.h"

enum { ITEMS_DEFAULT = 20, ITEMS_MOST = 100 };

/* The id in the path; 1: its input is asked for. */
static int read_path(const call *c, char id[RESPONSE_ID])
{
    const char *name = strstr(c->path, c->route->path) + strlen(c->route->path);
    const size_t n = strcspn(name, "/");
    const int known = n < RESPONSE_ID && (!name[n] || strcmp(name + n, "/input_items") == 0);

    snprintf(id, RESPONSE_ID, "%.*s", known ? (int)n : 0, name);
    return name[n] != 0;
}

static enum MHD_Result not_kept(call *c, struct MHD_Connection *conn, const char *id)
{
    api_error e;

    api_fail(&e, API_NOT_FOUND, "response_id", "response_id: no response %.47s is kept here (any more)", id);
    return respond_error(c, conn, &e);
}

/* A line of the kept input, "ID<tab>JSON". */
typedef struct item_line {
    const char *id, *json;
    int id_bytes, json_bytes;
} item_line;

static int count_lines(const char *s)
{
    int n = 0;

    while ((s = strchr(s, '\n'))) {
        n++;
        s++;
    }
    return n;
}

static int read_lines(const char *s, item_line *list)
{
    int n = 0;

    for (const char *end; (end = strchr(s, '\n')); s = end + 1) {
        const int id = (int)strcspn(s, "\t");
        list[n++] = (item_line){ .id = s, .id_bytes = id, .json = s + id + 1, .json_bytes = (int)(end - s) - id - 1 };
    }
    return n;
}

static void put_id(const char *key, const item_line *l, jsonw *w)
{
    jsonw_key(w, key);
    if (l)
        jsonw_strn(w, l->id, (size_t)l->id_bytes);
    else
        jsonw_null(w);
}

typedef struct page {
    int first, step, n; /* the first one's place, and the way to go; n: how many */
    int more;
} page;

/* OpenAI's way to leaf through: the newest first, at most `limit`, those that come after the one named. */
static page choose_page(struct MHD_Connection *conn, const item_line *list, int n)
{
    const char *order = query_value(conn, "order"), *limit = query_value(conn, "limit");
    const char *after = query_value(conn, "after");
    const int up = order && strcmp(order, "asc") == 0, asked = limit ? atoi(limit) : ITEMS_DEFAULT;
    page p = { .first = up ? 0 : n - 1, .step = up ? 1 : -1 };

    for (int i = 0; after && i < n; i++)
        if ((int)strlen(after) == list[i].id_bytes && strncmp(after, list[i].id, strlen(after)) == 0)
            p.first = i + p.step;
    const int left = up ? n - p.first : p.first + 1, most = asked < 1 ? 1 : asked > ITEMS_MOST ? ITEMS_MOST : asked;
    p.n = left < most ? left : most;
    p.more = left > p.n;
    return p;
}

static enum MHD_Result put_items(call *c, struct MHD_Connection *conn, const char *text)
{
    item_line *list = kvant_calloc((size_t)count_lines(text) + 1, sizeof *list);
    jsonw w;

    if (!list)
        return respond_fail(c, conn, API_UNAVAILABLE, "out of memory");
    const page p = choose_page(conn, list, read_lines(text, list));
    jsonw_init(&w);
    jsonw_object(&w);
    jsonw_kstr(&w, "object", "list");
    jsonw_key(&w, "data");
    jsonw_array(&w);
    for (int i = 0; i < p.n; i++) {
        const item_line *l = &list[p.first + i * p.step];
        char *one = kvant_strndup(l->json, (size_t)l->json_bytes);
        if (one)
            jsonw_raw(&w, one);
        w.error |= !one;
        kvant_free(one);
    }
    jsonw_end(&w);
    put_id("first_id", p.n ? &list[p.first] : NULL, &w);
    put_id("last_id", p.n ? &list[p.first + (p.n - 1) * p.step] : NULL, &w);
    jsonw_kbool(&w, "has_more", p.more);
    jsonw_end(&w);
    kvant_free(list);
    return respond_json(c, conn, 200, &w);
}

/* Whose it is: the key's, and of a conversation with a cache_salt that of the query. */
static store_owner owner_of(const call *c, struct MHD_Connection *conn)
{
    const char *salt = query_value(conn, "cache_salt");

    return store_owner_of(c->key + 1, salt, salt ? strlen(salt) : 0);
}

enum MHD_Result get_response(call *c, struct MHD_Connection *conn)
{
    char id[RESPONSE_ID];
    const int items = read_path(c, id);
    const store_owner o = owner_of(c, conn);
    stored_text *text = response_store_get(c->s->kept.responses, &o, id, items ? STORED_INPUT : STORED_RESPONSE);

    if (!text)
        return not_kept(c, conn, id);
    const enum MHD_Result r = items ? put_items(c, conn, text->s) : respond_stored(c, conn, text);
    stored_text_release(text);
    return r;
}

enum MHD_Result delete_response(call *c, struct MHD_Connection *conn)
{
    char id[RESPONSE_ID];
    const store_owner o = owner_of(c, conn);
    jsonw w;

    if (read_path(c, id) || !response_store_drop(c->s->kept.responses, &o, id))
        return not_kept(c, conn, id);
    jsonw_init(&w);
    jsonw_object(&w);
    jsonw_kstr(&w, "id", id);
    jsonw_kstr(&w, "object", "response.deleted");
    jsonw_kbool(&w, "deleted", 1);
    jsonw_end(&w);
    return respond_json(c, conn, 200, &w);
}
