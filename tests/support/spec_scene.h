/* tests/support/spec_scene.h: sixteen requests at once, each with another way to choose its tokens, without drafts and
 * with those of any drafter: tokens, log-probabilities and masks byte by byte. */
#ifndef KVANT_TESTS_SPEC_SCENE_H
#define KVANT_TESTS_SPEC_SCENE_H

#include "base/rng.h"
#include "support/serve_rig.h"

enum { SCENE_REQUESTS = 16, SCENE_GEN = 48, SCENE_LONGEST = 200 };

typedef struct spec_scene {
    const char *model, *type;
    int tail;
    int64_t pool_tokens;           /* of the engine; 0: enough */
    int mtp;                       /* it loads the block that predicts further tokens */
    int32_t prompt[SCENE_REQUESTS][SCENE_LONGEST];
    int n_prompt[SCENE_REQUESTS];
    serve_out plain[SCENE_REQUESTS], got[SCENE_REQUESTS];
    rng random;
    int in_thousand;               /* drafts of the drafter that are true */
    uint64_t drafted, accepted, preempted;
} spec_scene;

/* Runs the requests of a model without drafts; 0: the engine verifies no drafts of it, and says why.  type: K's and
 * V's format, f16 where heads do not fit it. */
int spec_scene_open(spec_scene *c, const char *path, const char *type, int tail);
kvant_engine_params spec_scene_engine(const spec_scene *c);
/* Runs them again, twice, the second time with prefix hits, and compares.  in_thousand -1: the session's drafter; else
 * one that is right so often.  name: of the drafter, for messages. */
void spec_scene_run(spec_scene *c, const char *name, kvant_session_params sp, int in_thousand);

#endif
