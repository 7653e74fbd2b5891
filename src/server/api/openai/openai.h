/* server/api/openai/openai.h: OpenAI's chats and completions: what an answer needs of its request, and the parts of
 * its JSON that other APIs share.  Under job->lock, or before the job is shared. */
#ifndef KVANT_SERVER_API_OPENAI_H
#define KVANT_SERVER_API_OPENAI_H

#include "base/text/jsonw.h"
#include "kvant/session.h"

typedef struct job job;
typedef struct choice choice;

typedef struct openai_answer {
    int chat, include_usage;
    int verbose; /* of chats: the answer tells the prompt and the settings */
} openai_answer;

void openai_progress(job *j, choice *c, const kvant_event *ev);
void openai_put_progress(const kvant_event *ev, int done, int64_t ns, jsonw *w); /* its members of an event */
void openai_error_frame(job *j);
void openai_frame(job *j, jsonw *w); /* one event; frees w */
void openai_timings(const kvant_timings *t, jsonw *w);
/* The field logprobs of a choice: null without them. */
void openai_probs(const job *j, const choice *c, jsonw *w);
/* The fields token, logprob (but of NaN), bytes. */
void openai_token(const job *j, int32_t token, float logprob, jsonw *w);

#endif
