/* keep.c: --mlock.  Owns the decision what is locked: everything that is read (weights as the device laid them out,
 * caches and buffers as they are touched), but not a second time the file that the weights came from. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/log.h"
#include "cli/common.h"
#include "model/model.h"

/* Weights that the device laid out anew are no longer read from the file: its pages leave this process (not the
 * page cache) and are locked when they are read again.  A synthetic model's pages are the only copy. */
static void drop_file_pages(const opts *o, const kvant_model *m)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    if (opt_given(o, OPT_SYNTHETIC))
        return;
    for (int i = 0; i < gguf_tensor_count(m->file); i++) {
        const gguf_tensor *t = gguf_tensor_at(m->file, i);
        const uintptr_t from = ((uintptr_t)t->data + page - 1) / page * page,
                        to = ((uintptr_t)t->data + t->bytes) / page * page;
        if (from < to)
            (void)madvise((void *)from, to - from, MADV_DONTNEED); /* failing costs memory, nothing else */
    }
}

void keep_in_memory(const opts *o, const kvant_model *m)
{
    struct rlimit limit = { 0, 0 };

    if (!opt_flag(o, OPT_MLOCK))
        return;
    drop_file_pages(o, m);
    if (mlockall(MCL_CURRENT | MCL_ONFAULT) == 0) {
        log_msg(LOG_INFO, "%s: what is read stays in memory", opt_origin(o, OPT_MLOCK));
        return;
    }
    const int why = errno;
    (void)getrlimit(RLIMIT_MEMLOCK, &limit);
    log_msg(LOG_WARN, "%s: memory is not locked: %s (the limit is %lld KiB; ulimit -l, or LimitMEMLOCK= of systemd)",
            opt_origin(o, OPT_MLOCK), strerror(why),
            limit.rlim_cur == RLIM_INFINITY ? -1 : (long long)(limit.rlim_cur >> 10));
}
