/* engine/fit/fit_place.h: the memory of the devices of an engine, and a model that is larger than them. */
#ifndef KVANT_ENGINE_FIT_PLACE_H
#define KVANT_ENGINE_FIT_PLACE_H

#include <stdint.h>

#include "kvant/engine.h"

/* Bytes that all devices may have together, at most `given` where that is 0 or more; -1: any. */
int64_t fit_memory(const kvant_model *m, const kvant_engine_params *p, int64_t given);
/* The plan takes at most that much (-1: any), and of each device no more than the parameters say. */
int fit_fits(const kvant_model *m, const kvant_engine_params *p, int64_t memory);
/* These bytes, less the sixteenth of the devices' memory that stays free. */
int64_t fit_less(const kvant_engine_params *p, int64_t bytes);
/* 1: slots of prompts (engine/place/place_stream.h) have room beside the context of p, or KVANT_FIT_TOKENS, in these
 * placements: what grows later leaves it to them. */
int fit_has_slots(const kvant_model *m, const kvant_engine_params *p);
/* fit_fits; slots: and slots of prompts have room, where the rule wants them. */
int fit_beside(const kvant_model *m, const kvant_engine_params *p, int64_t memory, int slots);
/* p->cpu_experts -1: as many experts, then layers, of the device as its memory holds; p has a context and a pool, or 0
 * for KVANT_FIT_TOKENS of them.  Parameters stay as they are where nothing fits. */
int fit_place(const kvant_model *m, kvant_engine_params *p, kvant_diag *diag);

#endif
