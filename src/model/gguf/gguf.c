/* gguf.c: opening a GGUF model: map, shards, merged tensor list, lookup.
 * The bytes of a file are gguf_parse.c's business, typed values gguf_get.c's. */
#include "model/gguf/gguf_internal.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/mem.h"

gguf_text gguf_printable(gguf_str s)
{
    gguf_text t;
    const size_t n = s.n < sizeof t.s - 1 ? s.n : sizeof t.s - 1;

    for (size_t i = 0; i < n; i++)
        t.s[i] = s.s[i] > 0x20 && s.s[i] < 0x7f ? s.s[i] : '?';
    t.s[n] = 0;
    return t;
}

int gguf_str_cmp(gguf_str a, gguf_str b)
{
    const size_t n = a.n < b.n ? a.n : b.n;
    const int c = n ? memcmp(a.s, b.s, n) : 0;

    return c ? c : (a.n > b.n) - (a.n < b.n);
}

/* Restores the heap property below i in idx[0..n). */
static void sift(uint32_t *idx, size_t i, size_t n, gguf_less less, const void *ctx)
{
    const uint32_t moving = idx[i];

    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && less(ctx, idx[child], idx[child + 1]))
            child++;
        if (!less(ctx, moving, idx[child]))
            break;
        idx[i] = idx[child];
    }
    idx[i] = moving;
}

void gguf_sort(uint32_t *idx, int n, gguf_less less, const void *ctx)
{
    int sorted = 1;

    for (int i = 1; i < n && sorted; i++)
        sorted = !less(ctx, idx[i], idx[i - 1]);
    if (sorted)
        return;
    for (size_t i = (size_t)n / 2; i-- > 0;)
        sift(idx, i, (size_t)n, less, ctx);
    for (size_t end = (size_t)n; end-- > 1;) {
        const uint32_t top = idx[0];
        idx[0] = idx[end];
        idx[end] = top;
        sift(idx, 0, end, less, ctx);
    }
}

const gguf_kv *gguf_shard_find(const gguf_shard *s, const char *key)
{
    const gguf_str want = { key, strlen(key) };
    int lo = 0, hi = s->n_kv;

    while (lo < hi) {
        const int mid = lo + (hi - lo) / 2;
        const gguf_kv *kv = &s->kv[s->kv_order[mid]];
        const int c = gguf_str_cmp(want, kv->key);
        if (c == 0)
            return kv;
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

static void shard_name(gguf_shard *s, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *last = slash && slash[1] ? slash + 1 : path;

    memcpy(s->name, gguf_printable((gguf_str){ last, strlen(last) }).s, sizeof s->name);
}

/* Maps and parses one file. */
static int open_shard(gguf_shard *s, const char *path, kvant_diag *diag)
{
    KVANT_TRY(file_map(path, &s->file, diag));
    s->data = s->file.data;
    s->size = s->file.size;
    shard_name(s, path);
    KVANT_TRY(gguf_parse(s, diag));
    if (file_poisoned(&s->file))
        return kvant_fail(diag, KVANT_EIO, "%s: the file shrank while it was read", s->name);
    return KVANT_OK;
}

/* Path of part i of n, made from the first part's path: PREFIX-00001-of-0000N.gguf.  Only the number changes, so parts
 * lie in the directory of the first. */
static int part_path(const char *first, const char *name, uint32_t i, uint32_t n, char **out, kvant_diag *diag)
{
    char suffix[48], want[48];
    const size_t len = strlen(first);

    snprintf(want, sizeof want, "-00001-of-%05u.gguf", n);
    const size_t tail = strlen(want);
    if (len <= tail || strcmp(first + len - tail, want) != 0)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: is part 1 of %u by its keys, a name ending in %s wanted", name, n,
                          want);
    snprintf(suffix, sizeof suffix, "-%05u-of-%05u.gguf", i + 1, n);
    char *p = kvant_alloc(len + sizeof suffix);
    if (!p)
        return kvant_fail(diag, KVANT_ENOMEM, "%s: no memory for a path", name);
    memcpy(p, first, len - tail);
    memcpy(p + (len - tail), suffix, strlen(suffix) + 1);
    *out = p;
    return KVANT_OK;
}

/* A later part repeats some keys of the first (converters differ in which): these must agree. */
static int check_same_model(const gguf_shard *first, const gguf_shard *part, kvant_diag *diag)
{
    static const char *const keys[] = { "general.architecture", "general.name", "general.file_type" };

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const gguf_kv *a = gguf_shard_find(first, keys[i]), *b = gguf_shard_find(part, keys[i]);
        if (a && b && (a->type != b->type || a->bytes != b->bytes || memcmp(a->value, b->value, a->bytes) != 0))
            return kvant_fail(diag, KVANT_EFORMAT, "%s: %s differs from %s: a part of another model", part->name,
                              keys[i], first->name);
    }
    return KVANT_OK;
}

static int check_part(const gguf_shard *first, const gguf_shard *part, uint32_t i, uint32_t n, uint32_t total,
                      kvant_diag *diag)
{
    uint32_t no, count, tensors;

    KVANT_TRY(gguf_shard_u32(part, "split.no", UINT32_MAX, &no, diag));
    KVANT_TRY(gguf_shard_u32(part, "split.count", n, &count, diag)); /* some writers say it in the first part only */
    KVANT_TRY(gguf_shard_u32(part, "split.tensors.count", total, &tensors, diag));
    if (no != i || count != n || tensors != total)
        return kvant_fail(diag, KVANT_EFORMAT,
                          "%s: split.no %u, split.count %u, split.tensors.count %u found, %u, %u, %u wanted",
                          part->name, no, count, tensors, i, n, total);
    return check_same_model(first, part, diag);
}

static int open_parts(gguf *g, const char *path, uint32_t n, uint32_t total, kvant_diag *diag)
{
    gguf_shard *all = kvant_calloc(n, sizeof *all);

    if (!all)
        return kvant_fail(diag, KVANT_ENOMEM, "%s: no memory for %u parts", g->shards[0].name, n);
    all[0] = g->shards[0];
    kvant_free(g->shards);
    g->shards = all;
    for (uint32_t i = 1; i < n; i++) {
        char *part = NULL;
        KVANT_TRY(part_path(path, all[0].name, i, n, &part, diag));
        g->n_shards = (int)i + 1;
        int rc = open_shard(&all[i], part, diag);
        if (rc == KVANT_ENOENT)
            kvant_fail(diag, rc, "%s: part %u of %u is missing: %.120s", all[0].name, i + 1, n, part);
        kvant_free(part);
        KVANT_TRY(rc);
        KVANT_TRY(check_part(&all[0], &all[i], i, n, total, diag));
    }
    return KVANT_OK;
}

/* path NULL: from memory, where other parts cannot be reached. */
static int open_split(gguf *g, const char *path, kvant_diag *diag)
{
    const gguf_shard *s = &g->shards[0];
    uint32_t no, n, total;

    KVANT_TRY(gguf_shard_u32(s, "split.count", 1, &n, diag));
    KVANT_TRY(gguf_shard_u32(s, "split.no", 0, &no, diag));
    KVANT_TRY(gguf_shard_u32(s, "split.tensors.count", UINT32_MAX, &total, diag));
    if (n <= 1)
        return KVANT_OK;
    if (n > GGUF_MAX_SHARDS)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: split.count %u found, at most %d wanted", s->name, n,
                          GGUF_MAX_SHARDS);
    if (no != 0)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: is part %llu of %u, open part 1", s->name,
                          (unsigned long long)no + 1, n);
    if (total == UINT32_MAX)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: key split.tensors.count: absent, wanted beside split.count %u",
                          s->name, n);
    if (!path)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: split.count %u found, 1 wanted for a model in memory", s->name, n);
    return open_parts(g, path, n, total, diag);
}

static int tensor_less(const void *ctx, uint32_t a, uint32_t b)
{
    const gguf_tensor *t = ctx;
    return gguf_str_cmp(t[a].name, t[b].name) < 0;
}

/* The n tensors of the shards from `from` on come into the list, sorted for lookup. */
static int list_tensors(gguf *g, int from, size_t n, kvant_diag *diag)
{
    const size_t had = (size_t)g->n_tensors, all = had + n;
    uint32_t *order = kvant_calloc(all + 1, sizeof *order);
    gguf_tensor *list = order ? kvant_realloc(g->tensors, had * sizeof *list, (all + 1) * sizeof *list) : NULL;

    if (!list) {
        kvant_free(order);
        return kvant_fail(diag, KVANT_ENOMEM, "%s: no memory for %zu tensors", g->shards[0].name, all);
    }
    kvant_free(g->tensor_order);
    g->tensors = list;
    g->tensor_order = order;
    for (int i = from; i < g->n_shards; i++) {
        for (int j = 0; j < g->shards[i].n_tensors; j++) {
            g->tensors[g->n_tensors] = g->shards[i].tensors[j];
            g->tensors[g->n_tensors++].shard = i;
        }
        kvant_free(g->shards[i].tensors);
        g->shards[i].tensors = NULL;
    }
    for (int i = 0; i < g->n_tensors; i++)
        g->tensor_order[i] = (uint32_t)i;
    gguf_sort(g->tensor_order, g->n_tensors, tensor_less, g->tensors);
    for (int i = 1; i < g->n_tensors; i++) {
        const gguf_tensor *a = &g->tensors[g->tensor_order[i - 1]], *b = &g->tensors[g->tensor_order[i]];
        if (gguf_str_cmp(a->name, b->name) == 0)
            return kvant_fail(diag, KVANT_EFORMAT, "%s: tensor %s: found twice, once wanted", g->shards[b->shard].name,
                              gguf_printable(a->name).s);
    }
    return KVANT_OK;
}

/* One list of the tensors of all shards; their number must be what the first part promised. */
static int merge_tensors(gguf *g, kvant_diag *diag)
{
    const gguf_shard *first = &g->shards[0];
    size_t n = 0;
    uint32_t promised;

    for (int i = 0; i < g->n_shards; i++)
        n += (size_t)g->shards[i].n_tensors;
    KVANT_TRY(gguf_shard_u32(first, "split.tensors.count", (uint32_t)n, &promised, diag));
    if (n > GGUF_MAX_TENSORS || (g->n_shards > 1 && n != promised))
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %zu tensors in %d parts found, %u wanted (at most %d)", first->name,
                          n, g->n_shards, promised, GGUF_MAX_TENSORS);
    return list_tensors(g, 0, n, diag);
}

static int open_any(const char *path, const uint8_t *data, size_t size, gguf *g, kvant_diag *diag)
{
    g->shards = kvant_calloc(1, sizeof *g->shards);
    if (!g->shards)
        return kvant_fail(diag, KVANT_ENOMEM, "%.120s: no memory for the model file", path ? path : "(memory)");
    g->n_shards = 1;
    if (path) {
        KVANT_TRY(open_shard(&g->shards[0], path, diag));
    } else {
        g->shards[0].data = data;
        g->shards[0].size = size;
        shard_name(&g->shards[0], "(memory)");
        KVANT_TRY(gguf_parse(&g->shards[0], diag));
    }
    KVANT_TRY(open_split(g, path, diag));
    KVANT_TRY(merge_tensors(g, diag));
    return gguf_seen_begin(g, diag);
}

static int open_new(const char *path, const uint8_t *data, size_t size, gguf **out, kvant_diag *diag)
{
    gguf *g = kvant_calloc(1, sizeof *g);

    if (!g)
        return kvant_fail(diag, KVANT_ENOMEM, "%.120s: no memory for the model file", path ? path : "(memory)");
    const int rc = open_any(path, data, size, g, diag);
    if (rc < 0) {
        gguf_close(g);
        return rc;
    }
    *out = g;
    return KVANT_OK;
}

int gguf_open(const char *path, gguf **out, kvant_diag *diag)
{
    if (!path || !out)
        return kvant_fail(diag, KVANT_EINVAL, "gguf_open: NULL found, a path and a place for the result wanted");
    return open_new(path, NULL, 0, out, diag);
}

int gguf_open_mem(const uint8_t *data, size_t size, gguf **out, kvant_diag *diag)
{
    if (!out || (!data && size))
        return kvant_fail(diag, KVANT_EINVAL, "gguf_open_mem: NULL found, data and a place for the result wanted");
    return open_new(NULL, size ? data : (const uint8_t *)"", size, out, diag);
}

int gguf_add(gguf *g, const char *path, kvant_diag *diag)
{
    const size_t n = (size_t)g->n_shards, size = sizeof *g->shards;
    gguf_shard *all = kvant_realloc(g->shards, n * size, (n + 1) * size);

    if (!all)
        return kvant_fail(diag, KVANT_ENOMEM, "%.120s: no memory for the file", path);
    g->shards = all;
    memset(&all[n], 0, size);
    g->n_shards++;
    KVANT_TRY(open_shard(&all[n], path, diag));
    const gguf_kv *a = gguf_shard_find(&all[0], "general.architecture"),
                  *b = gguf_shard_find(&all[n], "general.architecture");
    if (!a || !b || a->bytes != b->bytes || memcmp(a->value, b->value, a->bytes) != 0)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: general.architecture differs from %s", all[n].name, all[0].name);
    if (all[n].n_tensors > GGUF_MAX_TENSORS - g->n_tensors)
        return kvant_fail(diag, KVANT_EFORMAT, "%s: %d tensors beside %d of %s, wanted at most %d in all", all[n].name,
                          all[n].n_tensors, g->n_tensors, all[0].name, GGUF_MAX_TENSORS);
    KVANT_TRY(list_tensors(g, (int)n, (size_t)all[n].n_tensors, diag));
    return gguf_seen_begin(g, diag);
}

void gguf_close(gguf *g)
{
    if (!g)
        return;
    for (int i = 0; i < g->n_shards; i++)
        gguf_shard_clear(&g->shards[i]);
    kvant_free(g->shards);
    kvant_free(g->tensors);
    kvant_free(g->tensor_order);
    kvant_free(g->seen);
    for (int i = 0; i < g->n_given; i++)
        kvant_free(g->given[i]);
    kvant_free(g->given);
    kvant_free(g);
}

int gguf_version(const gguf *g)
{
    return g->shards[0].version;
}

int64_t gguf_file_bytes(const gguf *g)
{
    int64_t n = 0;

    for (int i = 0; i < g->n_shards; i++)
        n += (int64_t)g->shards[i].size;
    return n;
}

int gguf_poisoned(const gguf *g)
{
    int bad = 0;

    for (int i = 0; i < g->n_shards; i++)
        bad |= file_poisoned(&g->shards[i].file);
    return bad;
}

int gguf_is_part(const gguf *g, const char *path)
{
    struct stat a, b;

    if (!path || stat(path, &a) != 0)
        return 0;
    for (int i = 0; i < g->n_shards; i++)
        if (g->shards[i].file.path && stat(g->shards[i].file.path, &b) == 0 && a.st_dev == b.st_dev &&
            a.st_ino == b.st_ino)
            return 1;
    return 0;
}

int gguf_kv_count(const gguf *g)
{
    return g->shards[0].n_kv;
}

const gguf_kv *gguf_kv_at(const gguf *g, int i)
{
    return i >= 0 && i < g->shards[0].n_kv ? &g->shards[0].kv[i] : NULL;
}

const gguf_kv *gguf_find(const gguf *g, const char *key)
{
    char other[128];
    const gguf_shard *s = &g->shards[0];
    const gguf_kv *kv = gguf_shard_find(s, key);

    for (int i = 0; !kv && gguf_alias(key, i, other, sizeof other); i++)
        kv = gguf_shard_find(s, other);
    if (kv && g->seen)
        g->seen[kv - s->kv] = 1;
    return kv;
}

int gguf_seen_begin(gguf *g, kvant_diag *diag)
{
    kvant_free(g->seen);
    g->seen = kvant_calloc((size_t)g->shards[0].n_kv + (size_t)g->n_tensors + 1, 1);
    return g->seen ? KVANT_OK : kvant_fail(diag, KVANT_ENOMEM, "%s: no memory for the file's keys", g->shards[0].name);
}

int gguf_kv_seen(const gguf *g, int i)
{
    return g->seen && g->seen[i];
}

int gguf_tensor_seen(const gguf *g, int i)
{
    return g->seen && g->seen[g->shards[0].n_kv + i];
}

void gguf_seen_end(gguf *g)
{
    kvant_free(g->seen);
    g->seen = NULL;
}

int gguf_tensor_count(const gguf *g)
{
    return g->n_tensors;
}

const gguf_tensor *gguf_tensor_at(const gguf *g, int i)
{
    return i >= 0 && i < g->n_tensors ? &g->tensors[i] : NULL;
}

const gguf_tensor *gguf_tensor_find(const gguf *g, const char *name)
{
    const gguf_str want = { name, strlen(name) };
    int lo = 0, hi = g->n_tensors;

    while (lo < hi) {
        const int mid = lo + (hi - lo) / 2;
        const gguf_tensor *t = &g->tensors[g->tensor_order[mid]];
        const int c = gguf_str_cmp(want, t->name);
        if (c == 0) {
            if (g->seen)
                g->seen[g->shards[0].n_kv + (int)(t - g->tensors)] = 1;
            return t;
        }
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}
