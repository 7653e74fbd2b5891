/* server/tools/tool_schema.h: which values a parameter's schema accepts.  That, and not how the schema is spelled,
 * decides how dialects of keys and values write it (dialect.h):
 *
 *   only texts            plain text, up to the end marker, whatever it looks like
 *   no texts              JSON
 *   texts and other JSON  JSON of another type, where what stands there is such a value; else plain text
 *
 * Constant data; any thread. */
#ifndef KVANT_SERVER_TOOLS_TOOL_SCHEMA_H
#define KVANT_SERVER_TOOLS_TOOL_SCHEMA_H

#include <jansson.h>

enum {
    ACCEPTS_TEXT = 1,
    ACCEPTS_NULL = 2,
    ACCEPTS_BOOL = 4,
    ACCEPTS_NUMBER = 8,
    ACCEPTS_LIST = 16,
    ACCEPTS_OBJECT = 32,
    ACCEPTS_ANY = 63,
};

/* Types (ACCEPTS_*) of the values that the schema may accept; root: what its $refs point into. */
unsigned schema_accepts(const json_t *schema, const json_t *root);
/* Returns 1 if it may accept v, by types, enum, const and keywords that combine schemas; others are not looked at. */
int schema_takes(const json_t *schema, const json_t *root, const json_t *v);
/* All values that it accepts, appended to `list`, where they can be told (enum, const, true, false and null). */
int schema_lists(const json_t *schema, const json_t *root, json_t *list);
/* Properties of an object's schema, those of $ref, allOf, anyOf and oneOf too (borrowed values in a new object), and
 * the names that are required (in a new list, each that is among them once). */
void schema_properties(const json_t *schema, json_t *properties, json_t *required);
/* The schema of properties without one of their own; NULL: there are none.  A `true` is any. */
const json_t *schema_others(const json_t *schema);

#endif
