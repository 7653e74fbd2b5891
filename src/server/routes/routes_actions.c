/* routes_actions.c: what an operator does to a model that runs: slots, caches and their files, adapters. */
#include "server/routes/routes.h"

#include <stdlib.h>
#include <string.h>

/* ---- slots and files ---- */

/* A full quota is the client's to empty, not a prompt that is too long; a slot that runs will not run for ever. */
static int action_error(const job *j, int code)
{
    const int saves = j->slot.action == KVANT_SLOT_SAVE || j->slot.action == KVANT_CACHE_SAVE;

    return code == KVANT_EBUSY || (code == KVANT_ENOSPC && saves) ? API_INVALID : api_kind_of(code);
}

static void slot_done(void *user, const kvant_slot_result *r)
{
    job *j = user;

    pthread_mutex_lock(&j->lock);
    j->slot.result = *r;
    if (r->code != KVANT_OK)
        api_fail(&j->error, action_error(j, r->code), "", "%s",
                 r->text && r->text[0] ? r->text : kvant_error_text(r->code));
    j->slot.result.text = "";
    j->done = 1;
    pthread_mutex_unlock(&j->lock);
    job_dirty(j);
    server_wake(j->s);
    job_release(j);
}

void route_slot_result(job *j, jsonw *w)
{
    static const char *const count[] = {
        "", "n_saved", "n_restored", "n_erased", "n_saved", "n_restored", "n_cleared"
    };
    static const char *const bytes[] = { "", "n_written", "n_read", "", "n_written", "n_read", "" };

    jsonw_object(w);
    if (j->slot.action <= KVANT_SLOT_ERASE)
        jsonw_kint(w, "id_slot", j->slot.result.slot);
    if (j->slot.name[0])
        jsonw_kstr(w, "filename", j->slot.name);
    jsonw_kint(w, count[j->slot.action], j->slot.result.n_tokens);
    if (bytes[j->slot.action][0])
        jsonw_kint(w, bytes[j->slot.action], j->slot.result.bytes);
    jsonw_knum(w, "ms", (double)j->slot.result.ns * 1e-6);
    jsonw_end(w);
}

static enum MHD_Result run_action(call *c, struct MHD_Connection *conn, int action, int slot, int named)
{
    job *j = job_new(c->s, c->m, JOB_SLOT, 0);
    api_error e = { 0 };
    kvant_diag diag = { "" };
    unsigned char salt[16];
    int code;

    if (!j)
        return route_fail(c, conn, API_UNAVAILABLE, "", "out of memory");
    j->slot.action = action;
    if (named && request_parse_filename(sbuf_text(&c->body), c->body.n, j->slot.name, &e) != API_OK) {
        job_release(j);
        return respond_error(c, conn, &e);
    }
    auth_salt(c->s->p.keys, c->key, NULL, salt);
    atomic_fetch_add(&j->refs, 1);
    code = kvant_session_slot(c->m->session, action, slot, j->slot.name, salt, slot_done, j, &diag);
    if (code == KVANT_OK)
        return respond_job(c, conn, j);
    atomic_fetch_sub(&j->refs, 1);
    job_release(j);
    return route_fail(c, conn, code == KVANT_EBUSY ? API_UNAVAILABLE : api_kind_of(code), "", diag.text);
}

static int action_of(struct MHD_Connection *conn, const char *const *names)
{
    const char *given = query_value(conn, "action");

    for (int i = 0; given && i < 3; i++)
        if (strcmp(given, names[i]) == 0)
            return i;
    return -1;
}

enum MHD_Result post_slot(call *c, struct MHD_Connection *conn)
{
    static const char *const names[] = { "save", "restore", "erase" };
    int action = action_of(conn, names), slot = atoi(strrchr(c->path, '/') + 1);
    kvant_session_stats st;

    if (action < 0)
        return route_fail(c, conn, API_INVALID, "action", "action: wanted save, restore or erase");
    kvant_session_get_stats(c->m->session, &st);
    if (slot >= st.max_seqs)
        return route_fail(c, conn, API_INVALID, "id", "slot: no such slot");
    return run_action(c, conn, KVANT_SLOT_SAVE + action, slot, action < 2);
}

enum MHD_Result post_cache(call *c, struct MHD_Connection *conn)
{
    static const char *const names[] = { "save", "restore", "clear" };
    int action = action_of(conn, names);

    if (action < 0)
        return route_fail(c, conn, API_INVALID, "action", "action: wanted save, restore or clear");
    return run_action(c, conn, KVANT_CACHE_SAVE + action, 0, action < 2);
}

/* ---- adapters ---- */

enum MHD_Result get_lora(call *c, struct MHD_Connection *conn)
{
    jsonw w;

    jsonw_init(&w);
    live_lora(c->m, &w);
    return respond_json(c, conn, 200, &w);
}

/* The scales of requests that bring none. */
enum MHD_Result post_lora(call *c, struct MHD_Connection *conn)
{
    float scales[KVANT_LORA_FILES];
    kvant_diag diag = { "" };
    api_error e = { 0 };

    if (request_parse_lora(&c->m->env, sbuf_text(&c->body), c->body.n, scales, &e) != API_OK)
        return respond_error(c, conn, &e);
    const int n = kvant_session_get_lora(c->m->session, NULL, 0);
    const int code = kvant_session_set_lora(c->m->session, scales, n, &diag);
    if (code < 0)
        return route_fail(c, conn, api_kind_of(code), "", diag.text);
    return respond_success(c, conn);
}
