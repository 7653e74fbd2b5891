/* gguf_make.c: see gguf_make.h. */
#include "support/gguf_make.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model/gguf/gguf.h"
#include "support/text_file.h"

enum { HEADER = 24 }; /* magic, version, tensors, keys */

static void grow(gguf_make *m, size_t n)
{
    if (m->n + n <= m->cap)
        return;
    m->cap = 2 * (m->n + n) + 256;
    m->data = realloc(m->data, m->cap);
    if (!m->data)
        abort();
}

void gguf_make_bytes(gguf_make *m, const void *p, size_t n)
{
    if (m->n == 0) {
        grow(m, HEADER);
        memset(m->data, 0, HEADER);
        m->n = HEADER;
    }
    grow(m, n);
    if (n)
        memcpy(m->data + m->n, p, n);
    m->n += n;
}

void gguf_make_text(gguf_make *m, const char *s, size_t n)
{
    uint64_t length = n;
    gguf_make_bytes(m, &length, sizeof length);
    gguf_make_bytes(m, s, n);
}

void gguf_make_key(gguf_make *m, const char *key, int type)
{
    uint32_t t = (uint32_t)type;
    gguf_make_text(m, key, strlen(key));
    gguf_make_bytes(m, &t, sizeof t);
    m->keys++;
}

void gguf_make_u32(gguf_make *m, const char *key, uint32_t v)
{
    gguf_make_key(m, key, GGUF_U32);
    gguf_make_bytes(m, &v, sizeof v);
}

void gguf_make_bool(gguf_make *m, const char *key, int v)
{
    uint8_t b = v != 0;
    gguf_make_key(m, key, GGUF_BOOL);
    gguf_make_bytes(m, &b, 1);
}

void gguf_make_str(gguf_make *m, const char *key, const char *v)
{
    gguf_make_key(m, key, GGUF_STRING);
    gguf_make_text(m, v, strlen(v));
}

void gguf_make_array(gguf_make *m, const char *key, int elem, uint64_t n)
{
    uint32_t e = (uint32_t)elem;
    gguf_make_key(m, key, GGUF_ARRAY);
    gguf_make_bytes(m, &e, sizeof e);
    gguf_make_bytes(m, &n, sizeof n);
}

void gguf_make_strs(gguf_make *m, const char *key, const char *const *v)
{
    uint64_t n = 0;
    while (v[n])
        n++;
    gguf_make_array(m, key, GGUF_STRING, n);
    for (uint64_t i = 0; i < n; i++)
        gguf_make_text(m, v[i], strlen(v[i]));
}

void gguf_make_i32s(gguf_make *m, const char *key, const int32_t *v, size_t n)
{
    gguf_make_array(m, key, GGUF_I32, n);
    gguf_make_bytes(m, v, n * sizeof *v);
}

void gguf_make_finish(gguf_make *m)
{
    uint32_t version = 3;
    gguf_make_bytes(m, NULL, 0);
    memcpy(m->data, "GGUF", 4);
    memcpy(m->data + 4, &version, 4);
    memcpy(m->data + 16, &m->keys, 8);
}

void gguf_make_free(gguf_make *m)
{
    free(m->data);
    memset(m, 0, sizeof *m);
}

int gguf_copy_u32(const char *from, const char *to, const char *key, uint32_t v)
{
    size_t size = 0;
    char *data = text_file_read(from, &size);
    int found = 0;

    for (size_t i = 0; data && i + strlen(key) + 8 <= size && !found; i++) {
        found = memcmp(data + i, key, strlen(key)) == 0;
        if (found)
            memcpy(data + i + strlen(key) + 4, &v, sizeof v);      /* behind the key's type */
    }
    FILE *f = found ? fopen(to, "wb") : NULL;
    const int ok = f && fwrite(data, 1, size, f) == size;
    free(data);
    return f && fclose(f) == 0 && ok;
}
