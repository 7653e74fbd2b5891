/* cli/run_chat.h: `kvant run` as a chat.  Also two small things that both forms of `run` use (cmd_run.c). */
#ifndef KVANT_CLI_RUN_CHAT_H
#define KVANT_CLI_RUN_CHAT_H

#include "base/jsonw.h"
#include "cli/options.h"

int run_chat(const opts *o, kvant_diag *diag);

/* \n \r \t \' \" \\ and \xHH in place; any other backslash stays. */
void run_unescape(char *s);
void run_json_ids(jsonw *w, const char *key, const int32_t *ids, int n);

#endif
