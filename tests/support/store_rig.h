/* tests/support/store_rig.h: actions on the slots and files of a session, waited for. */
#ifndef KVANT_TESTS_STORE_RIG_H
#define KVANT_TESTS_STORE_RIG_H

#include <stdatomic.h>
#include "support/serve_rig.h"

typedef struct reply {
    kvant_slot_result r;
    char text[256];
    _Atomic int done;
} reply;

/* One action (KVANT_SLOT_*, KVANT_CACHE_*); what is refused at once comes back the same way. */
reply store_act(serve_rig *r, int what, int slot, const char *name, const unsigned char *salt);
/* Greedy, with log-probabilities, gen tokens whatever they are; slot -1: any, salt NULL: none. */
kvant_request store_request(const int32_t *prompt, int n, int gen, int slot, const unsigned char *salt);

#endif
