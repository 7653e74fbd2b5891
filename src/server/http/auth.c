/* auth.c: see auth.h. */
#include "server/http/auth.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
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
    if (!a->hash)
        a->hash = kvant_calloc(AUTH_MAX_KEYS, sizeof *a->hash);
    if (!a->keys)
        a->keys = kvant_calloc(AUTH_MAX_KEYS, sizeof *a->keys);
    if (!a->hash || !a->keys)
        return kvant_fail(diag, KVANT_ENOMEM, "API keys: out of memory");
    sha256(key, n, a->hash[a->n]);
    a->keys[a->n] = (auth_key){ .admin = a->admin };
    for (int i = 0; i < 4; i++)
        snprintf(a->keys[a->n].name + 2 * i, 3, "%02x", a->hash[a->n][i]);
    a->n++;
    return KVANT_OK;
}

/* "KEY" or "KEY NAME" */
static int add_line(auth *a, const char *s, size_t n, kvant_diag *diag)
{
    size_t key = 0, from, end = n;

    while (key < n && s[key] != ' ' && s[key] != '\t')
        key++;
    for (from = key; from < n && (s[from] == ' ' || s[from] == '\t');)
        from++;
    while (end > from && (s[end - 1] == ' ' || s[end - 1] == '\t'))
        end--;
    for (size_t i = from; i < end; i++)
        if ((unsigned char)s[i] < ' ' || (unsigned char)s[i] > '~' || s[i] == '"' || s[i] == '\\')
            return kvant_fail(diag, KVANT_EINVAL,
                              "API key: found byte 0x%02x in its name, wanted printable ASCII but \" and \\",
                              (unsigned)(unsigned char)s[i]);
    if (key == 6 && end > from && strncasecmp(s, "Bearer", 6) == 0) /* a header's value is no key and its name */
        return kvant_fail(diag, KVANT_EINVAL, "API key: found \"Bearer\" in front, wanted the key itself");
    if (end - from >= AUTH_NAME)
        return kvant_fail(diag, KVANT_EINVAL, "API key: found a name of %zu bytes, wanted at most %d", end - from,
                          AUTH_NAME - 1);
    KVANT_TRY(auth_add(a, s, key, diag));
    if (end > from)
        snprintf(a->keys[a->n - 1].name, AUTH_NAME, "%.*s", (int)(end - from), s + from);
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
            code = add_line(a, s, n, diag);
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
    kvant_free(a->keys);
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
        int mask = -(auth_equal(a->hash[i], hash) & !a->keys[i].gone);
        found = (found & ~mask) | (i & mask);
    }
    return found;
}

int auth_is_admin(const auth *a, int key)
{
    return key >= 0 && key < a->n && a->keys[key].admin && !a->keys[key].gone;
}

int auth_count(const auth *a, int admin)
{
    int n = 0;

    for (int i = 0; a && i < a->n; i++)
        n += !a->keys[i].gone && (!admin || a->keys[i].admin);
    return n;
}

int auth_room(const auth *a)
{
    return !a ? 0 : a->grows && a->n ? AUTH_MAX_KEYS : a->n;
}

/* The last key of `in` that is key i of `of`; -1. */
static int same_key(const auth *in, const auth *of, int i)
{
    int found = -1;

    for (int k = 0; k < in->n; k++)
        if (auth_equal(in->hash[k], of->hash[i]))
            found = k;
    return found;
}

int auth_renew(auth *a, const auth *fresh, kvant_diag *diag)
{
    int more = 0;

    for (int i = 0; i < fresh->n; i++)
        more += same_key(a, fresh, i) < 0 && same_key(fresh, fresh, i) == i;
    if (fresh->n == 0 || a->n + more > auth_room(a))
        return kvant_fail(diag, KVANT_EINVAL, "API keys: found %d, of them %d new ones since the start, wanted at least 1 and "
                          "room for them (%d)", fresh->n, more, auth_room(a) - a->n);
    for (int i = 0; i < a->n; i++) {
        const int k = same_key(fresh, a, i);
        a->keys[i].gone = k < 0;
        if (k >= 0)
            a->keys[i] = fresh->keys[k];
    }
    for (int i = 0; i < fresh->n; i++) {
        if (same_key(a, fresh, i) >= 0 || same_key(fresh, fresh, i) != i) /* of both files: the admin's, behind */
            continue;
        memcpy(a->hash[a->n], fresh->hash[i], sizeof *a->hash);
        a->keys[a->n++] = fresh->keys[i];
    }
    return KVANT_OK;
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
