/* auth.c: see auth.h. */
#include "server/http/auth.h"

#include <string.h>
#include <sys/stat.h>
#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sha256.h"

int auth_equal(const unsigned char a[32], const unsigned char b[32])
{
    unsigned differ = 0;

    for (int i = 0; i < 32; i++)
        differ |= a[i] ^ b[i];
    return (int)((differ - 1) >> 31); /* 0 - 1 has the top bit, 1..255 - 1 has not */
}

int auth_add(auth *a, const char *key, size_t n, kvant_diag *diag)
{
    if (n == 0 || n > AUTH_MAX_KEY)
        return kvant_fail(diag, KVANT_EINVAL, "API key: %zu bytes, want 1 to %d", n, AUTH_MAX_KEY);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)key[i] <= ' ' || (unsigned char)key[i] == 0x7F)
            return kvant_fail(diag, KVANT_EINVAL, "API key: a blank or control character at byte %zu", i);
    if (a->n == AUTH_MAX_KEYS)
        return kvant_fail(diag, KVANT_EINVAL, "API keys: more than %d", AUTH_MAX_KEYS);
    if (!a->hash && !(a->hash = kvant_calloc(AUTH_MAX_KEYS, sizeof *a->hash)))
        return kvant_fail(diag, KVANT_ENOMEM, "API keys: out of memory");
    sha256(key, n, a->hash[a->n]);
    a->n++;
    return KVANT_OK;
}

static void warn_readable(const char *path)
{
    struct stat st;

    if (stat(path, &st) == 0 && (st.st_mode & (S_IRWXG | S_IRWXO)))
        log_msg(LOG_WARN, "API key file %s can be read by others; chmod 600 helps", path);
}

int auth_add_file(auth *a, const char *path, kvant_diag *diag)
{
    char *text, *s;
    size_t size;
    int before = a->n, code = file_read(path, 1 << 20, &text, &size, diag);

    if (code != KVANT_OK)
        return code;
    warn_readable(path);
    s = text + (size >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0);
    while (s < text + size && code == KVANT_OK) {
        size_t n = strcspn(s, "\n"), whole = n;
        if (n && s[n - 1] == '\r')
            n--;
        if (n)
            code = auth_add(a, s, n, diag);
        s += whole + 1;
    }
    memset(text, 0, size);
    kvant_free(text);
    if (code == KVANT_OK && a->n == before)
        return kvant_fail(diag, KVANT_EINVAL, "API key file %s: no key in it, want one per line", path);
    return code;
}

void auth_free(auth *a)
{
    kvant_free(a->hash);
    *a = (auth){ 0 };
}

int auth_find(const auth *a, const char *key, size_t n)
{
    unsigned char hash[32];
    int found = -1;

    if (n > AUTH_MAX_KEY)
        n = 0; /* no key is that long; compare something all the same */
    sha256(key, n, hash);
    for (int i = 0; i < a->n; i++) {
        int mask = -auth_equal(a->hash[i], hash);
        found = (found & ~mask) | (i & mask);
    }
    return found;
}

int auth_is_admin(const auth *a, int key)
{
    return key >= a->n - a->n_admin && key < a->n;
}

void auth_salt(const auth *a, int key, const char *salt, unsigned char out[16])
{
    unsigned char text[32 + 32] = { 0 }, hash[32];

    memset(out, 0, 16);
    if (key < 0 && !salt)
        return;
    if (key >= 0)
        memcpy(text, a->hash[key], 32);
    if (salt)
        sha256(salt, strlen(salt), text + 32);
    sha256(text, sizeof text, hash);
    memcpy(out, hash, 16);
}
