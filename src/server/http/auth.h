/* server/http/auth.h: API keys.  A key is kept and compared as its SHA-256; the comparison takes the same time for
 * every key and every guess of one length, and looks at all keys. */
#ifndef KVANT_SERVER_AUTH_H
#define KVANT_SERVER_AUTH_H

#include <stddef.h>
#include <stdint.h>
#include "kvant/error.h"

enum { AUTH_MAX_KEYS = 1024, AUTH_MAX_KEY = 512, AUTH_NAME = 64 };

typedef struct auth_key {
    char name[AUTH_NAME]; /* for logs and counters: of the file, else the first digits of the hash */
    int admin, gone;      /* it may administer; it was taken back */
} auth_key;

/* A key's index stays its own, also when it is taken back: caches and counters are by index. */
typedef struct auth {
    unsigned char (*hash)[32];
    auth_key *keys;
    int n;
    int admin; /* keys that are added from now on may administer */
    int grows; /* 1: more may come (auth_renew) */
} auth;

/* key: 1 to AUTH_MAX_KEY bytes without blanks or controls. */
int auth_add(auth *a, const char *key, size_t n, kvant_diag *diag);
/* One key per line, behind a blank its name (printable ASCII but " and \, at most 63); empty lines and a byte order
 * mark are passed over, CR before LF too.  KVANT_EINVAL: no key in it. */
int auth_add_file(auth *a, const char *path, kvant_diag *diag);
void auth_free(auth *a);
/* Index of the key, or -1; of a key that was added twice the last one.  Always looks at every key. */
int auth_find(const auth *a, const char *key, size_t n);
int auth_is_admin(const auth *a, int key);
/* Keys that hold, and among them admins'. */
int auth_count(const auth *a, int admin);
int auth_room(const auth *a); /* indexes that there may come to be */
/* The keys of `fresh` hold from now on: the others are gone, new ones come behind.  On error nothing has changed.  The
 * thread that calls auth_find. */
int auth_renew(auth *a, const auth *fresh, kvant_diag *diag);
/* 1 when all 32 bytes are equal; no branch depends on them. */
int auth_equal(const unsigned char a[32], const unsigned char b[32]);
/* Salt of a tenant for the prefix cache: of its key (-1: none) and its cache_salt (NULL: none). */
void auth_salt(const auth *a, int key, const char *salt, unsigned char out[16]);

#endif
