/* routes_state.c: what the server tells of itself, and the page. */
#include "server/routes/routes.h"

#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "kvant/kvant.h"

/* Requests wait and no step has ended for long: the engine is stuck. */
static int stuck(const server *s, const kvant_session_stats *st)
{
    int64_t since = st->last_step_ns > s->started_ns ? st->last_step_ns : s->started_ns;

    return s->p.watchdog_s && st->queued + st->running > 0 &&
           clock_ns() - since > (int64_t)s->p.watchdog_s * 1000000000;
}

/* Returns the fault of any loaded model, or NULL. */
static const char *illness(server *s)
{
    const char *ill = models_ready(s) ? NULL : "Loading model";
    kvant_session_stats st;

    for (int i = 0; i < s->models.n && !ill; i++) {
        served *m = &s->models.list[i];
        if (!served_hold(m))
            continue;
        kvant_session_get_stats(m->session, &st);
        ill = st.failed ? "the engine failed" : stuck(s, &st) ? "the engine makes no progress" : NULL;
        served_release(m);
    }
    if (!ill && s->p.watchdog_s && workers_stuck(s, (int64_t)s->p.watchdog_s * 1000000000))
        ill = "bodies wait and none is read";
    return ill;
}

enum MHD_Result get_health(call *c, struct MHD_Connection *conn)
{
    const char *ill = illness(c->s);
    jsonw w;

    if (ill)
        return route_fail(c, conn, API_UNAVAILABLE, "", ill);
    jsonw_init(&w);
    jsonw_object(&w);
    jsonw_kstr(&w, "status", "ok");
    jsonw_end(&w);
    return respond_json(c, conn, 200, &w);
}

/* Health, and willing to take new requests. */
enum MHD_Result get_ready(call *c, struct MHD_Connection *conn)
{
    if (c->s->draining)
        return route_fail(c, conn, API_UNAVAILABLE, "", "the server is shutting down");
    return get_health(c, conn);
}

enum MHD_Result get_version(call *c, struct MHD_Connection *conn)
{
    jsonw w;

    jsonw_init(&w);
    jsonw_object(&w);
    jsonw_kstr(&w, "version", kvant_version_text());
    jsonw_end(&w);
    return respond_json(c, conn, 200, &w);
}

enum MHD_Result get_metrics(call *c, struct MHD_Connection *conn)
{
    server *s = c->s;
    served *m = c->m;
    kvant_session_stats st;
    sbuf text = { 0 };
    metrics_view v = { .model = m ? m->name : "",
                       .vllm = s->p.compat.vllm,
                       .llamacpp = s->p.compat.llamacpp,
                       .connections = s->n_clients,
                       .streams = s->n_streams,
                       .uptime_ns = clock_ns() - s->started_ns };

    if (!s->p.on.metrics)
        return route_fail(c, conn, API_OFF, "", "/metrics is switched off (--no-metrics)");
    if (!s->p.router && s->models.n)
        v.model = s->models.list[0].name;
    v.ready = models_loaded(s);
    v.gone = atomic_load(&s->gone);
    for (int i = 0; i < 6; i++)
        v.http[i] = atomic_load(&s->http[i]);
    if (m) {
        kvant_session_get_stats(m->session, &st);
        grammar_cache_get_stats(m->env.grammars, &v.grammars);
    }
    const int counted = m || models_asleep(s, NULL, &st); /* its counters stand still while it sleeps */
    metrics_text(counted ? m ? &m->metrics : &s->models.list[0].metrics : NULL, counted ? &st : NULL, &v, &text);
    access_metrics(c, &text);
    if (!text.error)
        return respond_text(c, conn, 200, "text/plain; version=0.0.4; charset=utf-8", text.s, text.n);
    sbuf_free(&text);
    return route_fail(c, conn, API_UNAVAILABLE, "", "out of memory");
}

enum MHD_Result get_props(call *c, struct MHD_Connection *conn)
{
    sbuf asleep = { 0 };
    jsonw w;

    if (!c->m && models_asleep(c->s, &asleep, NULL) && !asleep.error)
        return respond_text(c, conn, 200, "application/json", asleep.s, asleep.n);
    sbuf_free(&asleep);
    if (!c->m && !c->s->p.router) /* it wakes at this moment, or there is no memory */
        return route_fail(c, conn, API_UNAVAILABLE, "", "Loading model");
    jsonw_init(&w);
    if (c->m)
        live_props(c->m, 0, &w);
    else
        router_props(c->s, &w);
    return respond_json(c, conn, 200, &w);
}

enum MHD_Result get_tokenizer(call *c, struct MHD_Connection *conn)
{
    jsonw w;

    jsonw_init(&w);
    jsonw_object(&w);
    jsonw_kstr(&w, "tokenizer_class", "kvant");
    live_tokenizer(c->m, &w);
    jsonw_kbool(&w, "add_bos_token", kvant_token_add_bos(c->m->model));
    jsonw_kint(&w, "model_max_length", c->m->env.n_ctx);
    jsonw_end(&w);
    return respond_json(c, conn, 200, &w);
}

enum MHD_Result get_slots(call *c, struct MHD_Connection *conn)
{
    kvant_session_stats st;
    const char *strict = query_value(conn, "fail_on_no_slot");
    jsonw w;

    if (!c->s->p.on.slots)
        return route_fail(c, conn, API_OFF, "", "/slots is switched off (--no-slots)");
    kvant_session_get_stats(c->m->session, &st);
    if (strict && strcmp(strict, "1") == 0 && st.running >= st.max_seqs)
        return route_fail(c, conn, API_UNAVAILABLE, "", "no slot is free");
    jsonw_init(&w);
    live_slots(c->m, 1, &w);
    return respond_json(c, conn, 200, &w);
}

enum MHD_Result get_trace(call *c, struct MHD_Connection *conn)
{
    sbuf text = { 0 };

    if (live_trace(c->m, &text) == KVANT_OK)
        return respond_text(c, conn, 200, "application/json", text.s, text.n);
    sbuf_free(&text);
    return route_fail(c, conn, API_UNAVAILABLE, "", "out of memory");
}

/* A stream of the server's numbers; ?interval=SECONDS (1 to 86400). */
enum MHD_Result get_events(call *c, struct MHD_Connection *conn)
{
    const char *given = query_value(conn, "interval");
    int seconds = given ? atoi(given) : 1;
    job *j;

    if (seconds < 1 || seconds > 86400)
        return route_fail(c, conn, API_INVALID, "interval", "interval: wanted 1 to 86400 seconds");
    j = job_new(c->s, NULL, JOB_LIVE, 0);
    if (!j)
        return route_fail(c, conn, API_UNAVAILABLE, "", "out of memory");
    j->stream = 1;
    j->live.of = c->m;
    served_release(c->m); /* to watch a model keeps it from nothing */
    c->m = NULL;
    j->live.interval_ns = (int64_t)seconds * 1000000000;
    sbuf_puts(&j->out, ": kvant\n\n");
    return respond_job(c, conn, j);
}

enum MHD_Result get_page(call *c, struct MHD_Connection *conn)
{
    const char *name = strrchr(c->route->path, '/') + 1;
    const ui_file *f = ui_find(name[0] ? name : "index.html");

    if (!f || !c->s->p.on.page)
        return route_fail(c, conn, API_NOT_FOUND, "", f ? "the page is switched off" : "no such file");
    return respond_fixed(c, conn, 200, ui_type(f->name), (const char *)f->bytes, f->n);
}
