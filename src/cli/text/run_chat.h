/* cli/text/run_chat.h: `kvant run` as a chat.  Also the end of the report of both forms of `run` (cmd_run.c). */
#ifndef KVANT_CLI_RUN_CHAT_H
#define KVANT_CLI_RUN_CHAT_H

#include "base/text/jsonw.h"
#include "cli/text/generate.h"

int run_chat(const opts *o, kvant_diag *diag);

/* The end of the report: "text", "ids", "stop" and what gen_json adds; the object closed and printed. */
int run_json_end(const generator *g, int reason, jsonw *w, kvant_diag *diag);

#endif
