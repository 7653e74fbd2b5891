/* budget.c: what one client, one key and all of them together may take of the server: bytes of bodies, connections.
 * Loop thread, but budget_body_release, which any thread may call.  The limits stand in docs/server-limits.md. */
#include <string.h>
#include <sys/socket.h>
#include "base/error.h"
#include "base/mem.h"
#include "server/request/request_impl.h"
#include "server/server_impl.h"

enum { CHUNKED_FIRST = 16 << 10 }; /* bytes that a body of unknown length gets at first; it doubles from there */

void budget_share(server *s)
{
    const int n = auth_count(s->p.keys, 0);
    budget *b = &s->budget;

    /* One key alone can take all; of several each leaves the others room. */
    b->body_key = n < 2 ? b->body_all : b->body_all / 2 > s->p.max_body ? b->body_all / 2 : s->p.max_body;
    b->calls_key = n > 1 ? (s->p.max_connections * 3 + 3) / 4 : s->p.max_connections;
    pthread_mutex_lock(&s->workers.lock);
    s->workers.queue.shared = n > 1;
    pthread_mutex_unlock(&s->workers.lock);
}

int budget_open(server *s, kvant_diag *diag)
{
    budget *b = &s->budget;

    b->body_all = s->p.max_body_memory ? s->p.max_body_memory : 8 * s->p.max_body;
    if (b->body_all < s->p.max_body)
        return kvant_fail(diag, KVANT_EINVAL,
                          "--max-body-memory: %lld bytes, want at least one body (--max-body), %lld",
                          (long long)b->body_all, (long long)s->p.max_body);
    b->tenants = kvant_calloc((size_t)auth_room(s->p.keys) + 1, sizeof *b->tenants);
    return b->tenants ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "server: out of memory");
}

int budget_greatest(const server *s, size_t member)
{
    const int n = auth_room(s->p.keys) + 1;
    int64_t most = -1;
    int at = 0;

    for (int i = 0; i < n; i++) {
        const int64_t has = *(const int64_t *)(const void *)((const char *)&s->budget.tenants[i] + member);
        at = has > most ? i : at;
        most = has > most ? has : most;
    }
    return at;
}

void budget_close(server *s)
{
    kvant_free(s->budget.tenants);
    s->budget.tenants = NULL;
}

/* ---- bodies ---- */

void budget_body_release(server *s, int tenant, int64_t bytes)
{
    atomic_fetch_sub(&s->budget.body_bytes, bytes);
    atomic_fetch_sub(&s->budget.tenants[tenant].body_bytes, bytes);
}

static int reserve(call *c, int64_t bytes, api_error *e)
{
    server *s = c->s;
    budget *b = &s->budget;
    int tenant = c->key + 1;

    if (atomic_fetch_add(&b->tenants[tenant].body_bytes, bytes) + bytes > b->body_key) {
        atomic_fetch_sub(&b->tenants[tenant].body_bytes, bytes);
        return api_fail(e, API_OVERLOAD, "",
                        "bodies of this key: more than %lld bytes at once (--max-body-memory); try later",
                        (long long)b->body_key);
    }
    if (atomic_fetch_add(&b->body_bytes, bytes) + bytes > b->body_all) {
        budget_body_release(s, tenant, bytes);
        return api_fail(e, API_UNAVAILABLE, "", "bodies: more than %lld bytes at once (--max-body-memory); try later",
                        (long long)b->body_all);
    }
    c->body_reserved += bytes;
    return API_OK;
}

static int grow_to(call *c, size_t cap, api_error *e)
{
    API_TRY(reserve(c, (int64_t)(cap - c->body.cap), e));
    char *p = kvant_realloc(c->body.s, c->body.cap, cap);
    if (!p)
        return api_fail(e, API_UNAVAILABLE, "", "out of memory");
    c->body.s = p;
    c->body.cap = cap;
    return API_OK;
}

static int too_large(const call *c, api_error *e)
{
    return api_fail(e, API_TOO_LARGE, "", "body: larger than this server takes, want at most %lld bytes (--max-body)",
                    (long long)c->s->p.max_body);
}

int budget_body_begin(call *c, int64_t bytes, api_error *e)
{
    if (bytes > c->s->p.max_body)
        return too_large(c, e);
    return bytes > 0 ? grow_to(c, (size_t)bytes + 1, e) : API_OK;
}

int budget_body_grow(call *c, size_t n, api_error *e)
{
    size_t cap = c->body.cap ? c->body.cap : CHUNKED_FIRST, most = (size_t)c->s->p.max_body + 1;

    if (n + 1 > most)
        return too_large(c, e);
    while (cap < n + 1)
        cap *= 2;
    return cap > c->body.cap ? grow_to(c, cap < most ? cap : most, e) : API_OK;
}

void budget_body_free(call *c)
{
    sbuf_free(&c->body);
    budget_body_release(c->s, c->key + 1, c->body_reserved);
    c->body_reserved = 0;
}

/* ---- connections ---- */

int budget_call_begin(call *c, api_error *e)
{
    server *s = c->s;
    budget *b = &s->budget;
    int *own = &b->tenants[c->key + 1].calls;

    if (b->calls >= s->p.max_connections)
        return api_fail(e, API_UNAVAILABLE, "", "connections: %d busy (--max-connections); try later", b->calls);
    if (*own >= b->calls_key)
        return api_fail(e, API_OVERLOAD, "",
                        "connections of this key: %d busy of at most %d (--max-connections); try later", *own,
                        b->calls_key);
    b->calls++;
    ++*own;
    c->counted = 1;
    return API_OK;
}

void budget_call_end(call *c)
{
    if (!c->counted)
        return;
    c->s->budget.calls--;
    c->s->budget.tenants[c->key + 1].calls--;
    c->counted = 0;
}

/* One of two connections that wait for a request goes first: that which never showed a key, else the older. */
static int goes_before(const client *a, const client *b)
{
    return !b || a->known < b->known || (a->known == b->known && a->since_ns < b->since_ns);
}

void budget_make_room(server *s)
{
    while (s->n_clients - s->n_cut > s->p.max_connections) {
        client *oldest = NULL;
        for (client *k = s->clients; k; k = k->next)
            if (!k->cut && !k->call_ns && goes_before(k, oldest))
                oldest = k;
        if (!oldest)
            return; /* all are busy; the spare ones still answer /health */
        oldest->cut = 1;
        s->n_cut++;
        shutdown(oldest->fd, SHUT_RDWR);
    }
}
