/* tests/support/all_experts.h: a mixture whose routers choose nothing: a copy of its file with all experts in use.
 *
 * A router's choice is a step: the smallest difference may take another expert, after which a tiny model says something
 * else altogether.  With all experts chosen their weights still come from the router, but go with its input. */
#ifndef KVANT_TESTS_ALL_EXPERTS_H
#define KVANT_TESTS_ALL_EXPERTS_H

#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/file/file.h"
#include "base/mem.h"
#include "support/check.h"

/* The number of a key ".NAME" of 32 bits in the file's bytes; NULL: no such key. */
static inline char *experts_key(char *data, size_t size, const char *key)
{
    const size_t n = strlen(key);

    for (size_t i = 0; i + n + 8 <= size; i++)
        if (memcmp(data + i, key, n) == 0 && memcmp(data + i + n, "\4\0\0", 4) == 0)
            return data + i + n + 4;
    return NULL;
}

static inline uint32_t experts_number(const char *at)
{
    uint32_t v = 0;

    if (at)
        memcpy(&v, at, sizeof v);
    return v;
}

static inline void experts_use_all(char *data, size_t size)
{
    char *used = experts_key(data, size, ".expert_used_count");
    char *groups = experts_key(data, size, ".expert_group_used_count");
    const uint32_t n = experts_number(experts_key(data, size, ".expert_count"));
    const uint32_t n_groups = experts_number(experts_key(data, size, ".expert_group_count"));

    memcpy(used, &n, sizeof n);
    if (groups)
        memcpy(groups, &n_groups, sizeof n_groups);
}

/* Returns 1 where the model of `path` is a mixture, and copy[] (a template of mkstemp) the file, to be removed. */
static inline int all_experts(const char *path, char *copy)
{
    char *data = NULL;
    size_t size = 0;
    kvant_diag d = { "" };
    int made = 0;

    CHECK(file_read(path, 1 << 26, &data, &size, &d) == KVANT_OK, "%s", d.text);
    if (data && experts_number(experts_key(data, size, ".expert_used_count")) > 0) {
        const int fd = mkstemp(copy);
        experts_use_all(data, size);
        made = fd >= 0 && write(fd, data, size) == (ssize_t)size;
        CHECK(made, "%s: not written", copy);
        if (fd >= 0)
            close(fd);
    }
    kvant_free(data);
    return made;
}

#endif
