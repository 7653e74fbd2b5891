/* store_rig.c: see store_rig.h. */
#include "support/store_rig.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static void on_done(void *user, const kvant_slot_result *r)
{
    reply *o = user;
    o->r = *r;
    snprintf(o->text, sizeof o->text, "%s", r->text);
    atomic_store(&o->done, 1);
}

reply store_act(serve_rig *r, int what, int slot, const char *name, const unsigned char *salt)
{
    static reply o;
    const struct timespec ms = { 0, 200000 };
    kvant_diag d = { "" };

    memset(&o, 0, sizeof o);
    const int code = kvant_session_slot(r->s, what, slot, name, salt, on_done, &o, &d);
    if (code < 0) {
        o.r.code = code;
        snprintf(o.text, sizeof o.text, "%s", d.text);
        return o;
    }
    while (!atomic_load(&o.done))
        nanosleep(&ms, NULL);
    return o;
}

kvant_request store_request(const int32_t *prompt, int n, int gen, int slot, const unsigned char *salt)
{
    kvant_request q = kvant_request_defaults();

    q.prompt = prompt;
    q.n_prompt = n;
    q.max_tokens = gen;
    q.ignore_eos = 1;
    q.n_logprobs = 0;
    q.slot = slot;
    if (salt)
        memcpy(q.salt, salt, sizeof q.salt);
    return q;
}
