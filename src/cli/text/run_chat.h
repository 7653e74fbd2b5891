/* cli/text/run_chat.h: `kvant run` as a chat.  Also two small things that both forms of `run` use (cmd_run.c). */
#ifndef KVANT_CLI_RUN_CHAT_H
#define KVANT_CLI_RUN_CHAT_H

#include "base/text/jsonw.h"
#include "cli/text/generate.h"

int run_chat(const opts *o, kvant_diag *diag);

/* \n \r \t \' \" \\ and \xHH in place; any other backslash stays. */
void run_unescape(char *s);
/* The end of the report: "text", "ids", "stop" and what gen_json adds; the object closed and printed. */
int run_json_end(const generator *g, int reason, jsonw *w, kvant_diag *diag);

#endif
