/* downloads_routes.c: POST and DELETE /models, and the events of /models/sse.  Names and shapes are llama-server's. */
#include "server/routes/routes.h"

static int may_change(const call *c, api_error *e)
{
    const server *s = c->s;

    if (!s->p.router)
        return api_fail(e, API_OFF, "", "one model is served here; kvant serve --models-download has those of a hub");
    if (!s->p.loader->downloads)
        return api_fail(e, API_OFF, "", "downloads are switched off (--models-download)");
    if (s->draining)
        return api_fail(e, API_UNAVAILABLE, "", "the server is shutting down");
    return API_OK;
}

/* The answer comes when the hub has said that there is such a model, or when the files are gone. */
static enum MHD_Result begin(call *c, struct MHD_Connection *conn, const char *name,
                             int (*act)(server *, const char *, job *, api_error *))
{
    job *j = job_new(c->s, NULL, JOB_CACHE, 0);
    api_error e = { 0 };

    if (!j)
        return route_fail(c, conn, API_UNAVAILABLE, "", "out of memory");
    if (act(c->s, name, j, &e) == API_OK)
        return respond_job(c, conn, j);
    job_release(j);
    return respond_error(c, conn, &e);
}

enum MHD_Result post_models(call *c, struct MHD_Connection *conn)
{
    char name[MODEL_NAME] = "";
    api_error e = { 0 };

    if (may_change(c, &e) == API_OK &&
        request_parse_model(sbuf_text(&c->body), c->body.n, name, sizeof name, &e) == API_OK && !name[0])
        api_fail(&e, API_INVALID, "model", "model: missing, wanted USER/NAME or USER/NAME:QUANT");
    return e.kind ? respond_error(c, conn, &e) : begin(c, conn, name, downloads_fetch);
}

enum MHD_Result delete_models(call *c, struct MHD_Connection *conn)
{
    char name[MODEL_NAME];
    api_error e = { 0 };

    if (may_change(c, &e) == API_OK && !query_model(conn, name, sizeof name))
        api_fail(&e, API_INVALID, "model", "model: missing, wanted ?model=USER/NAME:TAG");
    return e.kind ? respond_error(c, conn, &e) : begin(c, conn, name, downloads_remove);
}

enum MHD_Result get_models_sse(call *c, struct MHD_Connection *conn)
{
    job *j;

    if (!c->s->p.router)
        return route_fail(c, conn, API_NOT_FOUND, "", "one model is served here; /debug/events tells of it");
    j = job_new(c->s, NULL, JOB_LIVE, 0);
    if (!j)
        return route_fail(c, conn, API_UNAVAILABLE, "", "out of memory");
    j->stream = j->live.events = 1;
    sbuf_puts(&j->out, ": kvant\n\n");
    return respond_job(c, conn, j);
}
