/* trace.c: Chrome trace events.  Owns one open file at most; the mutex guards the file and its error flag. */
#include "base/trace.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t trace_lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *trace_file;           /* guarded by trace_lock */
static int trace_first, trace_bad; /* guarded by trace_lock */
static _Atomic int trace_enabled;  /* read without the lock: the one branch that an untraced run pays */

int trace_open(const char *path, kvant_diag *diag)
{
    int code = KVANT_OK;

    pthread_mutex_lock(&trace_lock);
    if (trace_file) {
        code = kvant_fail(diag, KVANT_EBUSY, "trace %.100s: another trace is open", path);
    } else {
        trace_file = fopen(path, "w");
        if (!trace_file)
            code = kvant_fail(diag, KVANT_EIO, "trace %.100s: %s", path, strerror(errno));
    }
    if (code == KVANT_OK) {
        trace_bad = fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", trace_file) < 0;
        trace_first = 1;
        atomic_store(&trace_enabled, 1);
    }
    pthread_mutex_unlock(&trace_lock);
    return code;
}

int trace_on(void)
{
    return atomic_load_explicit(&trace_enabled, memory_order_relaxed);
}

/* Names are literals of our own, but a quote in one must not break the whole file. */
static void put_name(const char *name)
{
    for (; *name; name++) {
        unsigned char c = (unsigned char)*name;
        if (c == '"' || c == '\\')
            fputc('\\', trace_file);
        fputc(c < 0x20 ? ' ' : c, trace_file);
    }
}

void trace_span(const char *name, int tid, int64_t t0_ns, int64_t t1_ns)
{
    if (!trace_on())
        return;
    pthread_mutex_lock(&trace_lock);
    if (trace_file) {
        fputs(trace_first ? "\n{\"name\":\"" : ",\n{\"name\":\"", trace_file);
        trace_first = 0;
        put_name(name);
        int n = fprintf(trace_file, "\",\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f}", tid,
                        (double)t0_ns / 1e3, (double)(t1_ns - t0_ns) / 1e3);
        trace_bad |= n < 0;
    }
    pthread_mutex_unlock(&trace_lock);
}

void trace_counters(const char *name, int64_t t_ns, const char *const *series, const int *values, int n)
{
    if (!trace_on())
        return;
    pthread_mutex_lock(&trace_lock);
    if (trace_file) {
        fputs(trace_first ? "\n{\"name\":\"" : ",\n{\"name\":\"", trace_file);
        trace_first = 0;
        put_name(name);
        fprintf(trace_file, "\",\"ph\":\"C\",\"pid\":1,\"ts\":%.3f,\"args\":{", (double)t_ns / 1e3);
        for (int i = 0; i < n; i++) {
            fputs(i ? ",\"" : "\"", trace_file);
            put_name(series[i]);
            fprintf(trace_file, "\":%d", values[i]);
        }
        trace_bad |= fputs("}}", trace_file) < 0;
    }
    pthread_mutex_unlock(&trace_lock);
}

int trace_close(kvant_diag *diag)
{
    int code = KVANT_OK;

    pthread_mutex_lock(&trace_lock);
    atomic_store(&trace_enabled, 0);
    if (trace_file) {
        int bad = trace_bad | (fputs("\n]}\n", trace_file) < 0) | ferror(trace_file);
        bad |= fclose(trace_file) != 0;
        trace_file = NULL;
        if (bad)
            code = kvant_fail(diag, KVANT_EIO, "trace: writing failed (%s); the file is not complete", strerror(errno));
    }
    pthread_mutex_unlock(&trace_lock);
    return code;
}
