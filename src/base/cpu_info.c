/* cpu_info.c: the CPU's name and how many of them this process may use, as the system tells. */
#include "base/cpu.h"

#if defined(__linux__)
#include <sched.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void cpu_model_name(char *buf, int cap)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");

    if (cap < 1)
        goto done;
    snprintf(buf, (size_t)cap, "unknown");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        colon += 1 + (colon[1] == ' ');
        colon[strcspn(colon, "\r\n")] = 0;
        snprintf(buf, (size_t)cap, "%s", colon);
        break;
    }
done:
    if (f)
        fclose(f);
}

#if defined(__linux__)
/* One cpu.max ("max 100000" or "150000 100000"): whole CPUs, at least 1; INT_MAX-like 1 << 20 when unlimited. */
static int quota_of(const char *path)
{
    char first[32] = "";
    long period = 0;
    FILE *f = fopen(path, "r");

    if (!f)
        return 1 << 20;
    int n = fscanf(f, "%31s %ld", first, &period);
    fclose(f);
    long quota = n == 2 ? strtol(first, NULL, 10) : 0;           /* "max" gives 0 */
    if (quota <= 0 || period <= 0)
        return 1 << 20;
    long cpus = quota / period;     /* rounded down: a spinning extra thread would only be throttled */
    return cpus < 1 ? 1 : (int)(cpus > 1 << 20 ? 1 << 20 : cpus);
}

/* The smallest quota on the way from our cgroup up to the root (cgroup v2). */
static int quota_cgroup(void)
{
    char line[512], path[640];
    int best = quota_of("/sys/fs/cgroup/cpu.max");
    FILE *f = fopen("/proc/self/cgroup", "r");

    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "0::/", 4) != 0)
            continue;
        char *group = line + 3;
        group[strcspn(group, "\n")] = 0;
        for (char *slash; (slash = strrchr(group, '/')) != NULL; *slash = 0) {
            snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", group);
            int q = quota_of(path);
            best = q < best ? q : best;
        }
    }
    if (f)
        fclose(f);
    return best;
}

int cpu_count(void)
{
    cpu_set_t set;
    int n = (int)sysconf(_SC_NPROCESSORS_ONLN), quota = quota_cgroup();

    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        n = CPU_COUNT(&set);
    n = quota < n ? quota : n;
    return n < 1 ? 1 : n;
}
#else
int cpu_count(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);

    return n < 1 ? 1 : (int)n;
}
#endif
