/* tests/support/session_audit.h: does what a session counts agree with what it holds?  For tests: they hang it into
 * kvant_session.after_tick, where it sees every step's end.  It changes nothing.
 *
 * I1  every page, tail page, snapshot and sequence has exactly the holders that it counts; free ones have none
 * I2  what is promised can be had: promises are covered by pages that are free or that an eviction, tried out here,
 *     would free; and each running request is promised what the rest of its prompt takes
 * I3  the index is a tree whose nodes have one page each, and who holds a node's page holds those of its ancestors */
#ifndef KVANT_TESTS_SESSION_AUDIT_H
#define KVANT_TESTS_SESSION_AUDIT_H

#include "engine/session_impl.h"

/* 1: all is well.  0: `why` is a sentence that names the first thing that is not.  Owner thread, or an idle session. */
int session_audit(kvant_session *s, char *why, size_t cap);

#endif
