/* cli/text/chat_file.h: a conversation in a file: {"messages": [{"role", "content"}, ...]}, as OpenAI's API has it. */
#ifndef KVANT_CLI_CHAT_FILE_H
#define KVANT_CLI_CHAT_FILE_H

#include "cli/text/chat_state.h"

/* KVANT_EIO: the file is there already, or cannot be written. */
int chat_save(const chat *c, const char *path, kvant_diag *diag);
/* Takes the place of the conversation, which stays as it is after an error. */
int chat_load(chat *c, const char *path, kvant_diag *diag);

#endif
