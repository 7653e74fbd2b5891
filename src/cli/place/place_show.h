/* place_show.h: which device has what of a model, and how long a decoded token takes at least. */
#ifndef KVANT_CLI_PLACE_SHOW_H
#define KVANT_CLI_PLACE_SHOW_H

#include "cli/common.h"

/* Key "devices" of w, or text where w is NULL; one device alone is shown in text only if always is 1.  p has been
 * fitted (kvant/fit.h). */
void place_show(const opts *o, const kvant_model *m, const kvant_engine_params *p, jsonw *w, int always);

#endif
