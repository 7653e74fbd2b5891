/* head.c: everything that can be said about a request before its body: who asks, from where, for what, how much.  Each
 * check answers and ends the request, or lets it go on; the order is the order of trust: nothing is said about a route
 * that wants a key before the key was right, and no byte of a body is kept before all of it passed. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "server/routes/routes.h"

enum { SHORT_BODY = 4096 }; /* of routes that take a name */

typedef struct head_text {
    call *c;
    struct MHD_Connection *conn;
    int star;            /* OPTIONS *: about the server, not one path */
    char authority[256]; /* of a request in absolute form, or "" */
} head_text;

static const char *field(const head_text *h, const char *name)
{
    return MHD_lookup_connection_value(h->conn, MHD_HEADER_KIND, name);
}

static int refuse(const head_text *h, int kind, const char *text)
{
    return (int)respond_fail(h->c, h->conn, kind, text);
}

static int is_public(const call *c)
{
    return c->route && c->route->flags & ROUTE_PUBLIC;
}

/* ---- where from ---- */

/* Bytes of the name in a Host value; -1 when something else than a port follows it. */
static int host_name_bytes(const char *host)
{
    size_t n = strcspn(host, host[0] == '[' ? "]" : ":") + (host[0] == '[');
    const char *port = host + n;

    if (n > strlen(host)) /* a bracket without its end */
        return -1;
    if (*port && (*port != ':' || strspn(port + 1, "0123456789") != strlen(port + 1) || strlen(port) > 6))
        return -1;
    return (int)n;
}

/* An address: a browser that shows a page of it has reached this very machine by it.  No name points elsewhere then. */
static int is_address(const char *host, size_t n)
{
    unsigned char bytes[16];
    char text[64];

    if (host[0] == '[' && n > 2) {
        host++;
        n -= 2;
    }
    if (n >= sizeof text)
        return 0;
    snprintf(text, sizeof text, "%.*s", (int)n, host);
    return inet_pton(AF_INET, text, bytes) == 1 || inet_pton(AF_INET6, text, bytes) == 1;
}

/* Names that nobody else's name server can point here: RFC 6761 keeps .localhost, and container runtimes answer for
 * theirs themselves (.internal is nobody's). */
static int is_local_name(const char *host, size_t n)
{
    static const char *const names[] = { "localhost",
                                         "localhost.",
                                         "host.docker.internal",
                                         "gateway.docker.internal",
                                         "host.containers.internal",
                                         "host.lima.internal",
                                         "host.orb.internal",
                                         "host.minikube.internal",
                                         "kubernetes.docker.internal" };
    const size_t tail = strlen(".localhost");

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == n && strncasecmp(host, names[i], n) == 0)
            return 1;
    return n > tail && strncasecmp(host + n - tail, ".localhost", tail) == 0;
}

/* Without a key, a page of another site must not reach us through a name that it pointed here. */
static int is_our_host(const server *s, const char *host)
{
    const int n = host_name_bytes(host);

    return n > 0 &&
           (is_local_name(host, (size_t)n) || is_address(host, (size_t)n) || listen_is_host(s, host, (size_t)n));
}

static int host_allowed(const head_text *h)
{
    const server *s = h->c->s;
    const char *host = field(h, "Host");

    if (server_has_keys(s) || s->address.socket_path[0])
        return 1;
    return (!host || is_our_host(s, host)) && (!h->authority[0] || is_our_host(s, h->authority));
}

/* "http://HOST" of this very request: its own page asks. */
static int is_own_origin(const head_text *h, const char *origin)
{
    const char *host = field(h, "Host"), *name = strstr(origin, "://");

    return host && name && strncasecmp(origin, "http", 4) == 0 && strcasecmp(name + 3, host) == 0;
}

/* A browser says where a page that asks comes from.  Without a key that is all that tells our page from any other: what
 * another one makes a browser send (a form, an image) must change and tell nothing.  A key is proof enough, as browsers
 * never send it by themselves. */
static int origin_refused(const head_text *h)
{
    const server *s = h->c->s;
    const char *origin = field(h, "Origin"), *site = field(h, "Sec-Fetch-Site"), *list = s->p.cors.origins;

    if (server_has_keys(s) || is_public(h->c) || (list && strcmp(list, "*") == 0))
        return 0;
    if (origin)
        return !is_own_origin(h, origin) && !(list && origin_listed(list, origin));
    return site && strcasecmp(site, "cross-site") == 0;
}

static int check_source(const head_text *h)
{
    if (!host_allowed(h))
        return refuse(h, API_INVALID, "Host: not a name of this server (set an API key to serve other names)");
    if (origin_refused(h))
        return refuse(h, API_FORBIDDEN, "Origin: a page of another site, and no API key (--cors-origins names sites)");
    return -1;
}

/* ---- who ---- */

static int find_key(const head_text *h)
{
    const char *given = field(h, "Authorization");

    if (given && strncasecmp(given, "Bearer", 6) == 0 && (given[6] == ' ' || given[6] == '\t'))
        given += 6 + strspn(given + 6, " \t");
    else
        given = field(h, "X-Api-Key");
    return given ? auth_find(h->c->s->p.keys, given, strlen(given)) : -1;
}

int server_has_keys(const server *s)
{
    return s->p.keys && s->p.keys->n > 0;
}

static int check_key(const head_text *h)
{
    call *c = h->c;

    if (is_public(c))
        return -1;
    if (server_has_keys(c->s)) {
        c->key = find_key(h);
        if (c->key < 0)
            return refuse(h, API_AUTH, "API key: missing or wrong (Authorization: Bearer KEY)");
        if (c->route && c->route->flags & ROUTE_ADMIN && !auth_is_admin(c->s->p.keys, c->key))
            return refuse(h, API_FORBIDDEN,
                          auth_count(c->s->p.keys, 1) ? "this route wants the admin key"
                                                : "this route wants an admin key: --admin-key-file gives one");
    }
    c->client->known = 1;
    return -1;
}

/* ---- what ---- */

static int check_route(const head_text *h)
{
    call *c = h->c;
    const int other = c->allow[0] != 0;

    if (c->route)
        return -1;
    if (strcmp(c->method, "OPTIONS") == 0 && (other || h->star)) {
        if (h->star)
            snprintf(c->allow, sizeof c->allow, "GET, HEAD, POST, DELETE, OPTIONS");
        return (int)respond_fixed(c, h->conn, 200, "text/plain", "", 0);
    }
    return refuse(h, other ? API_METHOD : API_NOT_FOUND, other ? "method not allowed here" : "no such route");
}

static int check_state(const head_text *h)
{
    const call *c = h->c;

    if (!(c->route->flags & ROUTE_MODEL))
        return -1;
    if (!models_ready(c->s))
        return refuse(h, API_UNAVAILABLE, "Loading model");
    if (c->s->draining && c->method[0] == 'P')
        return refuse(h, API_UNAVAILABLE, "the server is shutting down");
    return -1;
}

/* The model that the request is about, held until it ends.  Nothing is loaded for it. */
static int check_model(const head_text *h)
{
    const int any = h->c->route->flags & ROUTE_ANY;
    char name[MODEL_NAME];
    served *m;
    api_error e;

    if (!any && !(h->c->route->flags & ROUTE_ONE))
        return -1;
    if (!query_model(h->conn, name, sizeof name) && any && h->c->s->p.router)
        return -1;
    if (models_named(h->c->s, name, &m, &e) != API_OK)
        return any && !name[0] ? -1 : (int)respond_error(h->c, h->conn, &e);
    if (served_hold(m))
        h->c->m = m;
    else if (h->c->s->p.router)
        return refuse(h, API_INVALID, "model: it is not loaded");
    else if (!any)
        return refuse(h, API_UNAVAILABLE, "the model sleeps (--sleep-idle-seconds): a request for an answer loads it");
    return -1;
}

/* ---- the body that is to come ---- */

/* Declared bytes, 0 for none, -1 for a chunked body.  framing.c has seen that it is a number. */
static int64_t declared_bytes(const head_text *h)
{
    const char *length = field(h, "Content-Length");

    if (field(h, "Transfer-Encoding"))
        return -1;
    if (!length)
        return 0;
    return strlen(length) > 18 ? INT64_MAX : atoll(length);
}

static int is_json(const char *type)
{
    const size_t n = strlen("application/json");

    return strncasecmp(type, "application/json", n) == 0 && strchr("; \t", type[n]) != NULL;
}

/* Ollama reads a body whatever its type, and clients of its API (litellm, curl as its manual has it) name none or a
 * form's.  A browser's POST tells the page that asks, so that this one is no browser's. */
static int any_type(const head_text *h)
{
    return h->c->api == ERROR_OLLAMA && !field(h, "Origin") && !field(h, "Sec-Fetch-Site");
}

static int check_type(const head_text *h)
{
    const char *type = field(h, "Content-Type"), *encoding = field(h, "Content-Encoding");

    if (encoding && strcasecmp(encoding, "identity") != 0)
        return refuse(h, API_MEDIA, "Content-Encoding: not supported");
    /* Without a type a browser sends a body to any site without asking that site first; check_source has seen to what
     * it sends without a body. */
    if (h->c->method[0] == 'P' && !any_type(h) && (type ? !is_json(type) : h->c->key < 0 && declared_bytes(h) != 0))
        return refuse(h, API_MEDIA, "Content-Type: wanted application/json");
    return -1;
}

static int check_body(const head_text *h)
{
    const int64_t bytes = declared_bytes(h);
    api_error e;

    if (h->c->route->flags & ROUTE_SHORT && (bytes < 0 || bytes > SHORT_BODY))
        return refuse(h, API_TOO_LARGE, "body: this route takes at most 4096 bytes, with their Content-Length");
    if (h->c->method[0] != 'P' && bytes != 0)
        return refuse(h, API_TOO_LARGE, "body: this route takes none");
    if (budget_body_begin(h->c, bytes, &e) != API_OK)
        return (int)respond_error(h->c, h->conn, &e);
    return -1;
}

static int check_share(const head_text *h)
{
    api_error e;

    if (is_public(h->c) || budget_call_begin(h->c, &e) == API_OK)
        return -1;
    return (int)respond_error(h->c, h->conn, &e);
}

/* RFC 9112 3.2.2: "GET http://HOST/path", as to a proxy, is a request for /path.  HOST has to be ours, as the Host
 * field has. */
static const char *strip_authority(const char *url, char *host, size_t cap)
{
    const char *name = url + (strncasecmp(url, "http://", 7) == 0 ? 7 : strncasecmp(url, "https://", 8) == 0 ? 8 : 0);
    const size_t n = strcspn(name, "/?#");

    host[0] = 0;
    if (name == url)
        return url;
    snprintf(host, cap, "%.*s", n && n < cap ? (int)n : 1, n && n < cap ? name : "?"); /* no name: not ours */
    return name[n] == '/' ? name + n : "/";
}

static const char *strip_prefix(const server *s, const char *url)
{
    size_t n = strlen(s->p.api_prefix);

    return strncmp(url, s->p.api_prefix, n) == 0 ? url + n : url;
}

static int begins(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

/* Whose clients ask: their errors have that API's shape. */
static int api_of(const head_text *h, const char *path)
{
    if (begins(path, "/v1/messages") || (begins(path, "/v1/models") && field(h, "anthropic-version")))
        return ERROR_ANTHROPIC;
    if (begins(path, "/api/") && !begins(path, "/api/v0/"))
        return ERROR_OLLAMA;
    if (begins(path, "/generate") || (strcmp(path, "/") == 0 && strcmp(h->c->method, "POST") == 0))
        return ERROR_TGI;
    return begins(path, "/v1/responses") || begins(path, "/responses") ? ERROR_RESPONSES : ERROR_PLAIN;
}

int head_check(call *c, struct MHD_Connection *conn, const char *url, const char *version)
{
    static int (*const checks[])(const head_text *) = { check_source, check_key,   check_route, check_state,
                                                        check_type,   check_share, check_body,  check_model };
    head_text h = { .c = c, .conn = conn, .star = strcmp(url, "*") == 0 };
    const char *bad = framing_error(conn, c->method, version);

    url = strip_authority(url, h.authority, sizeof h.authority);
    snprintf(c->path, sizeof c->path, "%s", url);
    url = strip_prefix(c->s, url);
    c->api = api_of(&h, url);
    if (bad)
        return refuse(&h, API_INVALID, bad);
    c->route = route_find(c->method, url, c->allow);
    if (strcmp(c->method, "OPTIONS") == 0 && c->s->p.cors.origins)
        return (int)respond_fixed(c, conn, 200, "text/plain", "", 0);
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        int answer = checks[i](&h);
        if (answer >= 0)
            return answer;
    }
    return -1;
}
