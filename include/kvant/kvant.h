/* kvant.h: the public headers, and the version.  Not here, for engines that use the formats alone: fused.h, polar.h and
 * qjl.h. */
#ifndef KVANT_KVANT_H
#define KVANT_KVANT_H

#include "kvant/engine.h"
#include "kvant/error.h"
#include "kvant/format.h"
#include "kvant/ops.h"
#include "kvant/session.h"
#include "kvant/wtype.h"

#define KVANT_VERSION_MAJOR 0
#define KVANT_VERSION_MINOR 1
#define KVANT_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)     /* what libkvant.so exports */
/* "0.1.0 (commit)" of the library, for programs that check what they run with.  Any thread; never freed. */
const char *kvant_version(void);
#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
