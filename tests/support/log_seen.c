/* log_seen.c: see log_seen.h. */
#include "support/log_seen.h"

#include <stdio.h>
#include <string.h>
#include "base/log.h"

static char all[1 << 16];
static size_t used;

static void keep(void *user, int level, const char *text)
{
    (void)user;
    (void)level;
    if (used + strlen(text) + 2 < sizeof all)
        used += (size_t)snprintf(all + used, sizeof all - used, "%s\n", text);
}

void log_seen_begin(void)
{
    used = 0;
    all[0] = 0;
    log_set_sink(keep, NULL, LOG_WARN);
}

int log_seen(const char *text)
{
    return used > 0 && strstr(all, text) != NULL;
}

const char *log_seen_all(void)
{
    return all;
}
