/* kvant.h: the public headers, and the version.  Not here, for engines that use the formats alone: fused.h, polar.h and
 * qjl.h. */
#ifndef KVANT_KVANT_H
#define KVANT_KVANT_H

#include "kvant/device.h"
#include "kvant/engine.h"
#include "kvant/error.h"
#include "kvant/fit.h"
#include "kvant/format.h"
#include "kvant/ops.h"
#include "kvant/session.h"
#include "kvant/wtype.h"

#define KVANT_VERSION_MAJOR 0
#define KVANT_VERSION_MINOR 1
#define KVANT_VERSION_PATCH 0
#define KVANT_VERSION (KVANT_VERSION_MAJOR * 10000 + KVANT_VERSION_MINOR * 100 + KVANT_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)     /* what libkvant.so exports */
/* The library's version as a number, KVANT_VERSION of the headers it was built with: a program compares it with its
 * own.  Any thread. */
int kvant_version(void);
/* "0.1.0 (commit)" of the library.  Any thread; never freed. */
const char *kvant_version_text(void);

enum { KVANT_LOG_ERROR = 0, KVANT_LOG_WARN = 1, KVANT_LOG_INFO = 2, KVANT_LOG_DEBUG = 3 };
/* Messages of the library go to `sink`, one call for each, up to `level`; without one the library says nothing.  The
 * text is one line, without its end, control characters escaped; valid during the call.  NULL: none again.  Call it
 * while no other thread is in the library; the sink is then called on any thread. */
void kvant_log_set(void (*sink)(void *user, int level, const char *text), void *user, int level);
#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
