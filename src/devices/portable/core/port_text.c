/* port_text.c: the texts of the kernels, embedded by tools/embed_kernels, and what a compiler gets of them: one text,
 * for neither OpenCL nor Metal has files. */
#include "devices/portable/core/port_dev.h"

#include "base/mem.h"

#include "port_texts.inc"

enum { MAX_TEXTS = sizeof port_texts / sizeof port_texts[0] };

#define PORT_KERNEL(name, file) { #name, file },
const port_kernel port_kernels[PORT_KERNEL_COUNT] = {
#include "devices/portable/core/port_kernels.def"
};
#undef PORT_KERNEL

typedef struct text_writer {
    char *out; /* NULL: only counted */
    size_t n;
    unsigned char seen[MAX_TEXTS];
} text_writer;

static void put(text_writer *w, const char *text, size_t n)
{
    if (w->out)
        memcpy(w->out + w->n, text, n);
    w->n += n;
}

static int find_text(const char *name, size_t n)
{
    for (int i = 0; i < MAX_TEXTS; i++)
        if (strlen(port_texts[i].name) == n && memcmp(port_texts[i].name, name, n) == 0)
            return i;
    return -1;
}

/* The file that a line includes, or -1: another line, or a host's header in a branch that no kernel takes. */
static int included(const char *line, size_t n)
{
    static const char word[] = "#include \"";
    const char *name = line + sizeof word - 1;
    const char *end = n > sizeof word && memcmp(line, word, sizeof word - 1) == 0
                          ? memchr(name, '"', n - (sizeof word - 1))
                          : NULL;
    return end ? find_text(name, (size_t)(end - name)) : -1;
}

/* Depth is that of the includes: each file opens once. */
static void put_file(text_writer *w, int file)
{
    const char *at = (const char *)port_texts[file].text, *end = at + port_texts[file].bytes;
    w->seen[file] = 1;
    while (at < end) {
        const char *eol = memchr(at, '\n', (size_t)(end - at));
        const size_t n = eol ? (size_t)(eol - at) + 1 : (size_t)(end - at);
        const int inner = included(at, n);
        if (inner < 0)
            put(w, at, n);
        else if (!w->seen[inner])
            put_file(w, inner);
        at += n;
    }
}

int port_source(const char *file, const char *defines, char **out, kvant_diag *diag)
{
    char name[96] = "devices/portable/";
    strncat(name, file, sizeof name - strlen(name) - 1);
    const int at = find_text(name, strlen(name));
    if (at < 0)
        return kvant_fail(diag, KVANT_EINVAL, "portable kernels: no file %.60s", file);
    for (text_writer w = { 0 };;) {
        put(&w, defines, strlen(defines));
        put_file(&w, at);
        put(&w, "", 1);
        if (w.out) {
            *out = w.out;
            return KVANT_OK;
        }
        w = (text_writer){ .out = kvant_alloc(w.n) };
        if (!w.out)
            return kvant_fail(diag, KVANT_ENOMEM, "portable kernels: out of memory");
    }
}
