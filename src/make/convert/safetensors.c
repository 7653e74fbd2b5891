/* safetensors.c: see safetensors.h.  Owns the maps and the list of tensors; knows nothing of models.
 *
 * Layout of a file: u64 LE n | n bytes of JSON {"name": {"dtype", "shape", "data_offsets": [begin, end]}} | data. */
#include "make/convert/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file/file.h"
#include "base/file/folder.h"
#include "base/mem.h"
#include "base/text/json.h"

enum {
    MAX_HEADER = 100000000, /* the format's own limit */
    MAX_TENSORS = 1 << 20,  /* arbitrary, far above any model */
    MAX_FILES = 2000,       /* below the number of files that may be mapped at once */
    MAX_INDEX = 64 << 20,
    FILE_NAME = 160,
};

typedef struct st_file {
    char name[FILE_NAME];
    mapped_file map;
} st_file;

struct st_files {
    st_file *files;
    int n_files;
    st_tensor *tensors;
    const st_tensor **by_name;
    int n, cap;
};

static const struct dtype {
    const char *name;
    int bytes;
    const char *wtype; /* NULL: not for weights */
} dtypes[] = {
    { "F32", 4, "F32" },    { "F16", 2, "F16" },    { "BF16", 2, "BF16" }, { "F64", 8, NULL }, { "I64", 8, NULL },
    { "I32", 4, NULL },     { "I16", 2, NULL },     { "I8", 1, NULL },     { "U64", 8, NULL }, { "U32", 4, NULL },
    { "U16", 2, NULL },     { "U8", 1, NULL },      { "BOOL", 1, NULL },   { "C64", 8, NULL }, { "F8_E4M3", 1, NULL },
    { "F8_E5M2", 1, NULL }, { "F8_E8M0", 1, NULL },
};

static const struct dtype *find_dtype(gjson v)
{
    char name[16] = "";

    gjson_text(v, name, sizeof name);
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return &dtypes[i];
    return NULL;
}

/* A whole number of 0 up to 2^53; -1: none. */
static int64_t whole(gjson v)
{
    const double d = gjson_number(v);

    return d >= 0.0 && d <= 9007199254740992.0 && d == (double)(int64_t)d ? (int64_t)d : -1;
}

/* How much of a value an error shows. */
static int shown(gjson v)
{
    return v.n < 40 ? (int)v.n : 40;
}

/* Letters without controls: a name may be printed. */
static int is_printable(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7F)
            return 0;
    return 1;
}

static int read_name(gjson key, st_tensor *t, kvant_diag *diag)
{
    char text[4 * ST_NAME];

    if (key.n > sizeof text)
        return kvant_fail(diag, KVANT_EFORMAT, "safetensors: a name of %zu bytes, at most %d wanted", key.n,
                          ST_NAME - 1);
    const size_t n = gjson_unescape(key, text);
    if (n == 0 || n >= ST_NAME || !is_printable(text, n))
        return kvant_fail(diag, KVANT_EFORMAT, "safetensors: a name of %zu bytes, 1 to %d without controls wanted", n,
                          ST_NAME - 1);
    memcpy(t->name, text, n);
    t->name[n] = 0;
    return KVANT_OK;
}

static int read_shape(gjson shape, st_tensor *t, size_t *values, kvant_diag *diag)
{
    gjson it = { NULL, 0 };

    if (!shape.p || *shape.p != '[')
        return kvant_fail(diag, KVANT_EFORMAT, "%s: no \"shape\", a list wanted", t->name);
    *values = 1;
    for (int i = 0; i < ST_DIMS; i++)
        t->dim[i] = 1;
    while (gjson_next(shape, &it)) {
        const int64_t d = whole(it);
        if (t->n_dims == ST_MOST_DIMS)
            return kvant_fail(diag, KVANT_EFORMAT, "%s: more than %d dimensions", t->name, ST_MOST_DIMS);
        if (d < 1 || d > INT32_MAX || !size_mul(*values, (size_t)d, values))
            return kvant_fail(diag, KVANT_EFORMAT, "%s: dimension %d is %.*s, 1 to 2^31 - 1 wanted", t->name, t->n_dims,
                              shown(it), it.p);
        t->dim[t->n_dims < ST_DIMS ? t->n_dims : ST_DIMS - 1] *= d;
        t->n_dims++;
    }
    return KVANT_OK;
}

/* One entry of the header; `data` is what follows it, of `room` bytes. */
static int read_entry(gjson key, gjson v, const uint8_t *data, size_t room, st_tensor *t, kvant_diag *diag)
{
    const gjson offsets = gjson_get(v, "data_offsets");
    const int64_t begin = whole(gjson_at(offsets, "0")), end = whole(gjson_at(offsets, "1"));
    const struct dtype *d = find_dtype(gjson_get(v, "dtype"));
    size_t values = 0, bytes = 0;

    KVANT_TRY(read_name(key, t, diag));
    const gjson dtype = gjson_get(v, "dtype");
    if (!d)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: \"dtype\" is %.*s, F32, F16 or BF16 wanted", t->name, shown(dtype),
                          dtype.p ? dtype.p : "");
    KVANT_TRY(read_shape(gjson_get(v, "shape"), t, &values, diag));
    if (begin < 0 || end < begin || (uint64_t)end > room)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: \"data_offsets\" are %lld to %lld, inside %zu bytes wanted",
                          t->name, (long long)begin, (long long)end, room);
    if (!size_mul(values, (size_t)d->bytes, &bytes) || bytes != (size_t)(end - begin))
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %lld bytes of data, its shape wants %zu values of %s", t->name,
                          (long long)(end - begin), values, d->name);
    t->dtype = d->name;
    t->type = d->wtype ? kvant_wtype_find(d->wtype) : NULL;
    t->data = data + begin;
    t->bytes = bytes;
    return KVANT_OK;
}

static int add_tensor(st_files *s, const st_tensor *t, kvant_diag *diag)
{
    if (s->n == s->cap) {
        const int cap = s->cap ? 2 * s->cap : 256;
        void *p = cap <= MAX_TENSORS
                      ? kvant_realloc(s->tensors, (size_t)s->cap * sizeof *s->tensors, (size_t)cap * sizeof *s->tensors)
                      : NULL;
        if (!p)
            return kvant_fail(diag, KVANT_ENOMEM, "safetensors: no room for more than %d tensors", s->n);
        s->tensors = p;
        s->cap = cap;
    }
    s->tensors[s->n++] = *t;
    return KVANT_OK;
}

static int by_data(const void *a, const void *b)
{
    const st_tensor *x = a, *y = b;
    return (x->data > y->data) - (x->data < y->data);
}

static int by_own_name(const void *a, const void *b)
{
    return strcmp(((const st_tensor *)a)->name, ((const st_tensor *)b)->name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const st_tensor *const *)a)->name, (*(const st_tensor *const *)b)->name);
}

/* The tensors from `first` on cover data[room] once: no byte in two of them, none in none. */
static int check_tiling(st_files *s, int first, const uint8_t *data, size_t room, kvant_diag *diag)
{
    const uint8_t *at = data;

    if (s->n > first)
        qsort(s->tensors + first, (size_t)(s->n - first), sizeof *s->tensors, by_data);
    for (int i = first; i < s->n; i++) {
        const st_tensor *t = &s->tensors[i];
        if (t->data != at)
            return kvant_fail(diag, KVANT_EFORMAT, "%s: its data begin at %zu, %zu wanted (%s)", t->name,
                              (size_t)(t->data - data), (size_t)(at - data), t->data < at ? "they overlap" : "a gap");
        at += t->bytes;
    }
    if ((size_t)(at - data) != room)
        return kvant_fail(diag, KVANT_EFORMAT, "safetensors: %zu bytes of data, the tensors cover %zu", room,
                          (size_t)(at - data));
    if (s->n > first)
        qsort(s->tensors + first, (size_t)(s->n - first), sizeof *s->tensors, by_own_name);
    return KVANT_OK;
}

/* One file's tensors into s. */
static int read_file(st_files *s, const uint8_t *data, size_t size, int file, kvant_diag *diag)
{
    uint64_t header = 0;
    gjson root, key = { NULL, 0 }, it = { NULL, 0 };
    const int first = s->n;

    if (size >= sizeof header)
        memcpy(&header, data, sizeof header);
    if (size < sizeof header || header > MAX_HEADER || header > size - sizeof header)
        return kvant_fail(diag, KVANT_EFORMAT,
                          "safetensors: a header of %llu bytes in a file of %zu, at most %d wanted",
                          (unsigned long long)header, size, MAX_HEADER);
    KVANT_TRY(gjson_parse((const char *)data + sizeof header, (size_t)header, &root, diag));
    if (*root.p != '{')
        return kvant_fail(diag, KVANT_EFORMAT, "safetensors: the header is no JSON object");
    const uint8_t *body = data + sizeof header + header;
    const size_t room = size - sizeof header - (size_t)header;
    while (gjson_member(root, &key, &it)) {
        st_tensor t = { .file = file };
        if (key.n == 14 && memcmp(key.p, "\"__metadata__\"", 14) == 0)
            continue;
        KVANT_TRY(read_entry(key, it, body, room, &t, diag));
        KVANT_TRY(add_tensor(s, &t, diag));
    }
    return check_tiling(s, first, body, room, diag);
}

static int index_names(st_files *s, kvant_diag *diag)
{
    s->by_name = kvant_calloc((size_t)s->n + 1, sizeof *s->by_name);
    if (!s->by_name)
        return kvant_fail(diag, KVANT_ENOMEM, "safetensors: no memory for %d names", s->n);
    for (int i = 0; i < s->n; i++)
        s->by_name[i] = &s->tensors[i];
    if (s->n)
        qsort(s->by_name, (size_t)s->n, sizeof *s->by_name, by_name);
    for (int i = 1; i < s->n; i++)
        if (strcmp(s->by_name[i - 1]->name, s->by_name[i]->name) == 0)
            return kvant_fail(diag, KVANT_EFORMAT, "%s: is there twice", s->by_name[i]->name);
    return KVANT_OK;
}

/* ---- which files ---- */

static int by_file(const void *a, const void *b)
{
    return strcmp(((const st_file *)a)->name, ((const st_file *)b)->name);
}

static int ends_with(const char *s, const char *tail)
{
    const size_t n = strlen(s), m = strlen(tail);
    return n >= m && strcmp(s + n - m, tail) == 0;
}

typedef struct listing {
    st_files *s;
    int failed;
} listing;

static void add_file(listing *l, const char *name)
{
    st_files *s = l->s;

    for (int i = 0; i < s->n_files; i++)
        if (strcmp(s->files[i].name, name) == 0)
            return;
    if (s->n_files == MAX_FILES || strlen(name) >= FILE_NAME) {
        l->failed = 1;
        return;
    }
    snprintf(s->files[s->n_files++].name, FILE_NAME, "%s", name);
}

static void on_name(void *user, int fd, const char *name)
{
    (void)fd;
    if (strncmp(name, "model", 5) == 0 && ends_with(name, ".safetensors"))
        add_file(user, name);
}

/* The files of an index, each name without '/'. */
static int list_index(listing *l, gjson map, kvant_diag *diag)
{
    gjson key = { NULL, 0 }, it = { NULL, 0 };
    char name[FILE_NAME] = "", last[FILE_NAME] = "";

    if (!map.p || *map.p != '{')
        return kvant_fail(diag, KVANT_EFORMAT, "model.safetensors.index.json: no \"weight_map\"");
    while (gjson_member(map, &key, &it)) {
        if (!gjson_text(it, name, sizeof name) || strchr(name, '/') || strchr(name, '\\') ||
            !ends_with(name, ".safetensors"))
            return kvant_fail(diag, KVANT_EFORMAT,
                              "model.safetensors.index.json: a file named %.*s, a name of this "
                              "folder that ends in .safetensors wanted",
                              shown(it), it.p);
        if (strcmp(name, last) != 0)
            add_file(l, name);
        memcpy(last, name, sizeof last);
    }
    return KVANT_OK;
}

/* Every tensor of the index is in the file that it names, and there are no others. */
static int check_index(const st_files *s, gjson map, kvant_diag *diag)
{
    gjson key = { NULL, 0 }, it = { NULL, 0 };
    char file[FILE_NAME];
    int n = 0;

    while (gjson_member(map, &key, &it)) {
        st_tensor want = { .file = 0 };
        KVANT_TRY(read_name(key, &want, diag));
        const st_tensor *t = st_find(s, want.name);
        gjson_text(it, file, sizeof file);
        if (!t || strcmp(s->files[t->file].name, file) != 0)
            return kvant_fail(diag, KVANT_EFORMAT, "%s: %s names %s, which does not hold it", want.name,
                              "model.safetensors.index.json", file);
        n++;
    }
    return n == s->n ? KVANT_OK
                     : kvant_fail(diag, KVANT_EFORMAT, "model.safetensors.index.json: %d tensors, the files hold %d", n,
                                  s->n);
}

static int map_files(st_files *s, const char *folder, kvant_diag *diag)
{
    char path[4096];

    qsort(s->files, (size_t)s->n_files, sizeof *s->files, by_file);
    for (int i = 0; i < s->n_files; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, s->files[i].name);
        KVANT_TRY(file_map(path, &s->files[i].map, diag));
        KVANT_TRY(read_file(s, s->files[i].map.data, s->files[i].map.size, i, diag));
    }
    return index_names(s, diag);
}

static int list_folder(listing *l, const char *folder, kvant_diag *diag)
{
    int fd;

    KVANT_TRY(folder_open(folder, &fd, diag));
    const int n = folder_each(fd, on_name, l);
    close(fd);
    return n < 0 ? kvant_fail(diag, KVANT_EIO, "%.120s: cannot list the directory", folder) : KVANT_OK;
}

static int open_folder(st_files *s, const char *folder, gjson *map, char **index, kvant_diag *diag)
{
    char path[4096];
    size_t size;
    gjson root = { NULL, 0 };
    listing l = { s, 0 };
    kvant_diag none;

    s->files = kvant_calloc(MAX_FILES, sizeof *s->files);
    if (!s->files ||
        snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder) >= (int)sizeof path - FILE_NAME)
        return kvant_fail(diag, KVANT_ENOMEM, "%.120s: no room for its list of files", folder);
    const int rc = file_read(path, MAX_INDEX, index, &size, &none);
    if (rc == KVANT_OK) {
        KVANT_TRY(gjson_parse(*index, size, &root, diag));
        *map = gjson_get(root, "weight_map");
        KVANT_TRY(list_index(&l, *map, diag));
    } else if (rc == KVANT_ENOENT) {
        KVANT_TRY(list_folder(&l, folder, diag));
    } else {
        return kvant_fail(diag, rc, "%.200s", none.text);
    }
    if (s->n_files == 0 || l.failed)
        return kvant_fail(diag, KVANT_EFORMAT, "%.120s: %s model*.safetensors, 1 to %d wanted", folder,
                          l.failed ? "too many or too long names of" : "no", MAX_FILES);
    KVANT_TRY(map_files(s, folder, diag));
    return map->p ? check_index(s, *map, diag) : KVANT_OK;
}

int st_open(const char *folder, st_files **out, kvant_diag *diag)
{
    st_files *s = kvant_calloc(1, sizeof *s);
    char *index = NULL;
    gjson map = { NULL, 0 };

    if (!s)
        return kvant_fail(diag, KVANT_ENOMEM, "safetensors: out of memory");
    const int rc = open_folder(s, folder, &map, &index, diag);
    kvant_free(index);
    if (rc < 0) {
        st_close(s);
        return rc;
    }
    *out = s;
    return KVANT_OK;
}

int st_open_mem(const uint8_t *data, size_t size, st_files **out, kvant_diag *diag)
{
    st_files *s = kvant_calloc(1, sizeof *s);

    if (!s)
        return kvant_fail(diag, KVANT_ENOMEM, "safetensors: out of memory");
    int rc = read_file(s, data, size, 0, diag);
    if (rc == KVANT_OK)
        rc = index_names(s, diag);
    if (rc < 0) {
        st_close(s);
        return rc;
    }
    *out = s;
    return KVANT_OK;
}

void st_close(st_files *s)
{
    if (!s)
        return;
    for (int i = 0; s->files && i < s->n_files; i++)
        file_unmap(&s->files[i].map);
    kvant_free(s->files);
    kvant_free(s->tensors);
    kvant_free(s->by_name);
    kvant_free(s);
}

int st_count(const st_files *s)
{
    return s->n;
}

const st_tensor *st_at(const st_files *s, int i)
{
    return &s->tensors[i];
}

const st_tensor *st_find(const st_files *s, const char *name)
{
    int low = 0, high = s->n;

    while (low < high) {
        const int mid = low + (high - low) / 2, order = strcmp(name, s->by_name[mid]->name);
        if (order == 0)
            return s->by_name[mid];
        if (order < 0)
            high = mid;
        else
            low = mid + 1;
    }
    return NULL;
}

int st_poisoned(const st_files *s)
{
    for (int i = 0; i < s->n_files; i++)
        if (file_poisoned(&s->files[i].map))
            return 1;
    return 0;
}
