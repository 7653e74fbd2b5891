/* server/http/auth.h: API keys.  A key is kept and compared as its SHA-256; the comparison takes the same time for
 * every key and every guess of one length, and looks at all keys. */
#ifndef KVANT_SERVER_AUTH_H
#define KVANT_SERVER_AUTH_H

#include <stddef.h>
#include <stdint.h>
#include "kvant/error.h"

enum { AUTH_MAX_KEYS = 1024, AUTH_MAX_KEY = 512 };

typedef struct auth {
    unsigned char (*hash)[32];
    int n, n_admin; /* the last n_admin of them may administer */
} auth;

/* key: 1 to AUTH_MAX_KEY bytes without blanks or controls. */
int auth_add(auth *a, const char *key, size_t n, kvant_diag *diag);
/* One key per line; empty lines and a byte order mark are passed over, CR before LF too. KVANT_EINVAL: no key in it. */
int auth_add_file(auth *a, const char *path, kvant_diag *diag);
void auth_free(auth *a);
/* Index of the key, or -1; of a key that was added twice the last one.  Always looks at every key. */
int auth_find(const auth *a, const char *key, size_t n);
int auth_is_admin(const auth *a, int key);
/* 1 when all 32 bytes are equal; no branch depends on them. */
int auth_equal(const unsigned char a[32], const unsigned char b[32]);
/* Salt of a tenant for the prefix cache: of its key (-1: none) and its cache_salt (NULL: none). */
void auth_salt(const auth *a, int key, const char *salt, unsigned char out[16]);

#endif
