/* server/routes/routes.h: the routes: their table, and what each does with a request that was accepted. */
#ifndef KVANT_SERVER_ROUTES_H
#define KVANT_SERVER_ROUTES_H

#include "server/server_impl.h"

typedef enum MHD_Result (*route_handler)(call *c, struct MHD_Connection *conn);
/* no key; needs a model; path ends in a number; an admin's, where there are keys; its body is short, since the loop
 * reads it; path ends in a name; of the model that the query names (call.m); and of all, when it names none */
enum {
    ROUTE_PUBLIC = 1,
    ROUTE_MODEL = 2,
    ROUTE_SLOT = 4,
    ROUTE_ADMIN = 8,
    ROUTE_SHORT = 16,
    ROUTE_NAMED = 32,
    ROUTE_ONE = 64,
    ROUTE_ANY = 128
};
struct route {
    const char *method, *path;
    route_handler handler;
    int flags;
    work_fn make; /* work_begin: what a worker runs (with ROUTE_MODEL: for a model that is there), */
    int shape;    /* for a body of this shape */
};
enum { ROUTE_METHODS = 40 };
/* allow[ROUTE_METHODS]: the methods that the path exists with, "GET, HEAD"; "" for none. */
const route *route_find(const char *method, const char *path, char *allow);
void route_slot_result(job *j, jsonw *w); /* the response of a slot or cache action; under job->lock */
int route_count(void);
const route *route_at(int i);

enum MHD_Result route_fail(call *c, struct MHD_Connection *conn, int kind, const char *param, const char *text);

/* ---- routes_work.c, api/embed/embed_write.c: on a worker ---- */
int make_answer(work *w, api_error *e);
int make_count(work *w, api_error *e);
int make_render(work *w, api_error *e); /* the tokens of a request, which is not run */
int make_tokenize(work *w, api_error *e);
int make_detokenize(work *w, api_error *e);
int make_template(work *w, api_error *e);
int make_embeddings(work *w, api_error *e);
int make_rerank(work *w, api_error *e);
int make_predict(work *w, api_error *e); /* api/native/predict.c */

/* ---- api/ollama/ollama_models.c ---- */
int make_ollama_show(work *w, api_error *e);
enum MHD_Result get_ollama_version(call *c, struct MHD_Connection *conn);
enum MHD_Result get_ollama_tags(call *c, struct MHD_Connection *conn);
enum MHD_Result get_ollama_ps(call *c, struct MHD_Connection *conn);
enum MHD_Result get_studio_models(call *c, struct MHD_Connection *conn);
enum MHD_Result get_studio_model(call *c, struct MHD_Connection *conn);

/* ---- api/tgi/tgi_write.c ---- */
enum MHD_Result get_tgi_info(call *c, struct MHD_Connection *conn);

/* ---- http/kept_routes.c: streams that are kept ---- */
enum MHD_Result get_stream(call *c, struct MHD_Connection *conn);
enum MHD_Result delete_stream(call *c, struct MHD_Connection *conn);
enum MHD_Result post_streams_lookup(call *c, struct MHD_Connection *conn);

/* ---- openapi.c ---- */
enum MHD_Result get_openapi(call *c, struct MHD_Connection *conn);

/* ---- routes_state.c ---- */
enum MHD_Result get_health(call *c, struct MHD_Connection *conn);
enum MHD_Result get_ready(call *c, struct MHD_Connection *conn); /* health, and willing to take new requests */
enum MHD_Result get_version(call *c, struct MHD_Connection *conn);
enum MHD_Result get_metrics(call *c, struct MHD_Connection *conn);
enum MHD_Result get_props(call *c, struct MHD_Connection *conn);
enum MHD_Result get_tokenizer(call *c, struct MHD_Connection *conn); /* vLLM's /tokenizer_info */
enum MHD_Result get_slots(call *c, struct MHD_Connection *conn);
enum MHD_Result get_trace(call *c, struct MHD_Connection *conn);
enum MHD_Result get_events(call *c, struct MHD_Connection *conn);
enum MHD_Result get_page(call *c, struct MHD_Connection *conn);

/* ---- routes_actions.c ---- */
enum MHD_Result post_slot(call *c, struct MHD_Connection *conn);
enum MHD_Result post_cache(call *c, struct MHD_Connection *conn);
enum MHD_Result get_lora(call *c, struct MHD_Connection *conn);
enum MHD_Result post_lora(call *c, struct MHD_Connection *conn);

/* ---- models_routes.c ---- */
enum MHD_Result get_models(call *c, struct MHD_Connection *conn);
enum MHD_Result get_model(call *c, struct MHD_Connection *conn);
enum MHD_Result post_load(call *c, struct MHD_Connection *conn);
enum MHD_Result post_unload(call *c, struct MHD_Connection *conn);

/* ---- downloads_routes.c ---- */
enum MHD_Result post_models(call *c, struct MHD_Connection *conn);
enum MHD_Result delete_models(call *c, struct MHD_Connection *conn);
enum MHD_Result get_models_sse(call *c, struct MHD_Connection *conn);

/* ---- api/responses/responses_routes.c: responses that are kept ---- */
enum MHD_Result get_response(call *c, struct MHD_Connection *conn);
enum MHD_Result delete_response(call *c, struct MHD_Connection *conn);

#endif
