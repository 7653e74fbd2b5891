/* server/request/request_fields.h: the table of decisions about the fields of requests (fields.def), for its test and
 * for a description of the routes.  Immutable; any thread. */
#ifndef KVANT_SERVER_REQUEST_FIELDS_H
#define KVANT_SERVER_REQUEST_FIELDS_H

#include "server/request/request_impl.h"

enum { FIELD_PATH = 200 };
enum { FIELD_READ, FIELD_HARMLESS, FIELD_WARN, FIELD_REFUSE };

typedef struct request_field {
    const char *path;
    int routes, what; /* REQUEST_*; FIELD_* */
    int neutral;      /* of WARN and REFUSE: kinds of values that change nothing */
    const char *words;
    const char *text; /* why, or what to use instead; NULL */
} request_field;

int request_field_count(void);
const request_field *request_field_at(int i); /* in the order of fields.def */
/* The line that decides about a field of a route, as the check finds it; NULL: nobody has decided. */
const request_field *request_field_find(int route, const char *path);

#endif
