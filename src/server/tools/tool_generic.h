/* server/tools/tool_generic.h: what a chat template leaves out about tools, said in messages that it shows: the tools
 * and how to call them in the system's message, calls in the assistant's text, results in a user's message.  Calls are
 * written as the dialect hermes has them. */
#ifndef KVANT_SERVER_TOOLS_TOOL_GENERIC_H
#define KVANT_SERVER_TOOLS_TOOL_GENERIC_H

#include "server/tools/tool_set.h"
#include "server/tools/tool_traits.h"

/* *messages: JSON text of a chat (jansson's memory), replaced where something has to be said.  tools: NULL for none.
 * KVANT_OK or KVANT_ENOMEM. */
int tool_generic(const tool_traits *t, const tool_set *tools, char **messages);

#endif
