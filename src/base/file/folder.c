/* folder.c: see folder.h. */
#include "base/file/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int folder_open(const char *path, int *fd, kvant_diag *diag)
{
    const int got = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (got < 0)
        return kvant_fail(diag, errno == ENOENT || errno == ENOTDIR ? KVANT_ENOENT : KVANT_EIO,
                          "%.120s: cannot open the directory: %s", path, strerror(errno));
    *fd = got;
    return KVANT_OK;
}

/* A descriptor of its own: readdir moves the position, and closedir closes. */
int folder_each(int fd, void (*each)(void *user, int fd, const char *name), void *user)
{
    const int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = own < 0 ? NULL : fdopendir(own);
    int n = 0;

    if (!d) {
        if (own >= 0)
            close(own);
        return KVANT_EIO;
    }
    for (struct dirent *e; (e = readdir(d)) != NULL; n++)
        each(user, fd, e->d_name);
    closedir(d);
    return n;
}

typedef struct sum {
    const char *begins, *except;
    int64_t bytes;
} sum;

static void add(void *user, int fd, const char *name)
{
    sum *s = user;
    struct stat st;

    if (strncmp(name, s->begins, strlen(s->begins)) == 0 && !(s->except && strcmp(name, s->except) == 0) &&
        fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
        s->bytes += st.st_size;
}

int folder_bytes(int fd, const char *begins, const char *except, int64_t *bytes, kvant_diag *diag)
{
    sum s = { begins, except, 0 };

    if (folder_each(fd, add, &s) < 0)
        return kvant_fail(diag, KVANT_EIO, "directory: cannot list it: %s", strerror(errno));
    *bytes = s.bytes;
    return KVANT_OK;
}
