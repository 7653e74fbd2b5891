/* server/events/msgpack.h: writes MessagePack (msgpack.org, the specification of 2013) into a text buffer: as much
 * of it as KV events need.  Errors are sticky in the buffer.  Any thread. */
#ifndef KVANT_SERVER_MSGPACK_H
#define KVANT_SERVER_MSGPACK_H

#include <stdint.h>
#include "base/text/sbuf.h"

void msgpack_nil(sbuf *b);
void msgpack_uint(sbuf *b, uint64_t v);
void msgpack_double(sbuf *b, double v);
void msgpack_str(sbuf *b, const char *s);   /* at most 65,535 bytes */
void msgpack_array(sbuf *b, uint32_t n);    /* n values follow */
void msgpack_map(sbuf *b, uint32_t n);      /* n times a key and a value follow; n < 16 */

#endif
