/* zmq_api.c: see zmq_api.h. */
#include "server/events/zmq_api.h"

#include <dlfcn.h>
#include <string.h>

static const char *const libraries[] = { "libzmq.so.5", "libzmq.so", "libzmq.5.dylib" };

static void *open_library(void)
{
    void *lib = NULL;

    for (size_t i = 0; i < sizeof libraries / sizeof *libraries && !lib; i++)
        lib = dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL);
    return lib;
}

int zmq_api_open(zmq_api *z, kvant_diag *diag)
{
    const struct {
        const char *name;
        void *to;
    } names[] = {
        { "zmq_ctx_new", &z->ctx_new },       { "zmq_ctx_term", &z->ctx_term },
        { "zmq_socket", &z->socket },         { "zmq_close", &z->close },
        { "zmq_bind", &z->bind },             { "zmq_setsockopt", &z->setsockopt },
        { "zmq_getsockopt", &z->getsockopt }, { "zmq_send", &z->send },
        { "zmq_recv", &z->recv },             { "zmq_poll", &z->poll },
        { "zmq_msg_send", &z->msg_send },     { "zmq_msg_close", &z->msg_close },
        { "zmq_msg_init_data", &z->msg_init_data },
        { "zmq_errno", &z->error },           { "zmq_strerror", &z->strerror },
    };
    void *lib = open_library();

    if (!lib)
        return kvant_fail(diag, KVANT_EUNSUPPORTED, "--kv-events: libzmq.so.5 is not there (Debian: libzmq5)");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *f = dlsym(lib, names[i].name);
        if (!f)
            return kvant_fail(diag, KVANT_EUNSUPPORTED, "--kv-events: libzmq has no %s, wanted version 4",
                              names[i].name);
        memcpy(names[i].to, &f, sizeof f);
    }
    return KVANT_OK;
}
