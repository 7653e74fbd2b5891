/* framing.c: heads that two HTTP parsers could read in two ways, which is how requests are smuggled past a proxy.  The
 * library's own refusals never come here; tests/check_serve_h11.py compares both with a strict parser. */
#include <stdint.h>
#include <string.h>
#include <strings.h>
#include "server/server_impl.h"

typedef struct header_facts {
    const char *end; /* of the last value; NULL: none yet */
    int lengths, encodings, chunked, hosts, bad, folded;
} header_facts;

/* RFC 9110 5.6.2: what a field's name is made of.  The library takes any byte, so that "Transfer-Encoding :" would be
 * an unknown field here and the body's framing to somebody else. */
static int is_token(const char *s)
{
    const size_t n = strspn(s, "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");

    return n > 0 && s[n] == 0;
}

static int has_control(const char *s)
{
    for (; s && *s; s++)
        if (((unsigned char)*s < 0x20 && *s != '\t') || *s == 0x7F)
            return 1;
    return 0;
}

/* A value stands behind its name with nothing but blanks between.  libmicrohttpd before 1.0 appends a continued line
 * (obs-fold) to the name of the field, in another place of its pool, so that "Transfer-Encoding:\r\n chunked" is a
 * field that nobody knows: such a name is never just before its value.  1.0 refuses continued lines itself. */
static int is_folded(const char *key, const char *value)
{
    const uintptr_t end = (uintptr_t)key + strlen(key) + 1, at = (uintptr_t)value;

    if (!value || at < end || at - end > HEADER_BYTES)
        return value != NULL;
    return strspn(key + strlen(key) + 1, " \t") < at - end;
}

/* libmicrohttpd before 1.0 ends a value at its first NUL, so that "Host: localhost\0.example" is localhost here and a
 * longer name to somebody else.  The head lies in one piece: behind a value stand one or two bytes of its line's end
 * (the lines' ends of the empty line too, behind the last one), or the value went on.  1.0 refuses a NUL itself. */
static int goes_on(const char *end, const char *next, int lines)
{
    return MHD_VERSION < 0x01000000 && (next < end + lines || next > end + 2 * (size_t)lines);
}

/* RFC 9110 5.5: blanks behind a value are no part of it.  The library keeps them, in a buffer of its own. */
static void trim(char *value)
{
    size_t n = strlen(value);

    while (n && (value[n - 1] == ' ' || value[n - 1] == '\t'))
        value[--n] = 0;
}

static enum MHD_Result look_at_header(void *cls, enum MHD_ValueKind kind, const char *key, const char *value)
{
    header_facts *f = cls;

    (void)kind;
    f->bad |= !is_token(key) || has_control(value);
    f->bad |= f->end && goes_on(f->end, key, 1);
    f->folded |= is_folded(key, value);
    f->end = value ? value + strlen(value) : NULL;
    f->hosts += strcasecmp(key, "Host") == 0;
    if (strcasecmp(key, "Content-Length") == 0)
        f->lengths++;
    if (strcasecmp(key, "Transfer-Encoding") == 0) {
        f->encodings++;
        f->chunked = value && strcasecmp(value, "chunked") == 0; /* untrimmed, as the library compares it */
    } else if (value) {
        trim((char *)(uintptr_t)value);
    }
    return MHD_YES;
}

/* Refuses a head that could be read in two ways; the connection is closed (the body is never read). */
const char *framing_error(struct MHD_Connection *conn, const char *method, const char *version)
{
    header_facts f = { 0 };
    const union MHD_ConnectionInfo *head = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    const char *length = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "Content-Length");

    if (MHD_get_connection_values(conn, MHD_HEADER_KIND, look_at_header, &f) > MAX_HEADERS)
        return "more than 100 headers";
    if (f.bad || (f.end && head && goes_on(f.end, method + head->header_size, 2)))
        return "header: a name or a value with bytes that may not be there";
    if (f.folded)
        return "header: continued on a second line";
    if (f.hosts > 1)
        return "Host: wanted once";
    if (f.lengths > 1 || f.encodings > 1 || (f.lengths && f.encodings))
        return "Content-Length and Transfer-Encoding: wanted one of them, once";
    if (f.encodings && (!f.chunked || strcmp(version, "HTTP/1.1") != 0))
        return "Transfer-Encoding: wanted chunked, with HTTP/1.1";
    for (; length && *length; length++)
        if (*length < '0' || *length > '9')
            return "Content-Length: wanted a number";
    return NULL;
}
