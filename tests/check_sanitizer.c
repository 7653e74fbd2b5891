/* check_sanitizer: a sanitized build reports planted faults of our own and no driver's (finding C1).  Each fault runs
 * in this program, started again with the fault's name; in a plain build there is nothing to check. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/mem.h"
#include "devices/device.h"
#include "support/check.h"

static char report[1 << 16];
static void *volatile lost;
static int shared;
static volatile int large = 0x7fffffff;

/* Every device opened and closed: what a driver leaves behind is there at exit. */
static int drivers(void)
{
    for (int i = 0; i < kvant_devices_count(); i++) {
        kvant_device_config cfg = { 0 };
        kvant_device *d;
        if (kvant_devices_at(i)->open(&cfg, &d, NULL) == KVANT_OK)
            kvant_devices_at(i)->close(d);
    }
    return 0;
}

/* As many bytes as the driver's leak, from libc and from our own allocator, beside a driver that was loaded. */
static int leak_malloc(void)
{
    lost = malloc(128);
    lost = NULL;
    return drivers();
}

static int leak_ours(void)
{
    lost = kvant_alloc(128);
    lost = NULL;
    return drivers();
}

static int over_read(void)
{
    const char *p = kvant_alloc(16);
    volatile char c = p[16];

    (void)c;
    kvant_free((void *)(size_t)p);
    return 0;
}

static int overflow(void)
{
    large = large + 1;
    return 0;
}

static void *add(void *unused)
{
    (void)unused;
    for (int i = 0; i < 100000; i++)
        shared++;
    return NULL;
}

static int data_race(void)
{
    pthread_t t;

    if (pthread_create(&t, NULL, add, NULL) != 0)
        return 0;
    add(NULL);
    pthread_join(t, NULL);
    return 0;
}

enum { ADDRESS = 1, THREAD = 2, UNDEFINED = 4 };

static const struct planted {
    const char *name;
    int (*run)(void);
    int builds;             /* where it must be found; 0: nowhere */
    const char *wanted;     /* words of the report */
} faults[] = {
    { "drivers", drivers, 0, NULL },
    { "leak_malloc", leak_malloc, ADDRESS, "LeakSanitizer" },
    { "leak_ours", leak_ours, ADDRESS, "LeakSanitizer" },
    { "over_read", over_read, ADDRESS, "heap-buffer-overflow" },
    { "overflow", overflow, UNDEFINED, "signed integer overflow" },
    { "data_race", data_race, THREAD, "data race" },
};
enum { FAULTS = sizeof faults / sizeof faults[0] };

static int this_build(void)
{
    int build = 0;
#if defined(KVANT_SANITIZE_ADDRESS)
    build |= ADDRESS;
#endif
#if defined(KVANT_SANITIZE_THREAD)
    build |= THREAD;
#endif
#if defined(KVANT_SANITIZE_UNDEFINED)
    build |= UNDEFINED;
#endif
    return build;
}

/* Exit status of this program with the fault; what it wrote to stderr is in `report`. */
static int run_fault(char *self, const char *name)
{
    int ends[2], status = -1;
    size_t n = 0;
    ssize_t got;

    if (pipe(ends) != 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], 2);
        unsetenv("ASAN_OPTIONS"); /* the report comes here, whatever this run was told */
        unsetenv("TSAN_OPTIONS");
        unsetenv("UBSAN_OPTIONS");
        close(ends[0]);
        execl("/proc/self/exe", self, name, (char *)NULL);
        _exit(126);
    }
    close(ends[1]);
    while (n + 1 < sizeof report && (got = read(ends[0], report + n, sizeof report - 1 - n)) > 0)
        n += (size_t)got;
    report[n] = 0;
    close(ends[0]);
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
    const int build = this_build();

    for (int i = 0; i < FAULTS && argc > 1; i++)
        if (strcmp(argv[1], faults[i].name) == 0)
            return faults[i].run();
    if (!build)
        printf("SKIP check_sanitizer: not a sanitized build (./dev asan, tsan, ubsan)\n");
    for (int i = 0; i < FAULTS && build; i++) {
        const struct planted *f = &faults[i];
        if (f->builds && !(f->builds & build))
            continue;
        const int status = run_fault(argv[0], f->name);
        CHECK((status != 0) == (f->builds != 0), "%s: exit %d: %.2000s", f->name, status, report);
        CHECK(!f->wanted || strstr(report, f->wanted), "%s: no \"%s\" in: %.2000s", f->name, f->wanted, report);
    }
    return check_end("check_sanitizer");
}
