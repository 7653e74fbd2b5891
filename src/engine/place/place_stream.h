/* place_stream.h: experts of the CPU that a GPU multiplies for passes of many rows: the rule, and the memory. */
#ifndef KVANT_ENGINE_PLACE_STREAM_H
#define KVANT_ENGINE_PLACE_STREAM_H

#include "engine/engine.h"

/* From so many rows of a pass with prompts on; 0: never, also where the slots have no room.  *home: the place that
 * multiplies. */
int engine_stream_rows(const kvant_model *m, const kvant_engine_params *p, const engine_split *s, int *home);
/* Bytes that this takes of a place. */
int64_t engine_stream_memory(const kvant_model *m, const kvant_engine_params *p, const engine_split *s, int place);

/* 1: the rule wants slots, and an engine with these parameters has no room for them. */
int engine_stream_lost(const kvant_model *m, const kvant_engine_params *params);
/* Their number of rows as an engine with these parameters will have it, 0: never, and the device. */
int engine_stream_about(const kvant_model *m, const kvant_engine_params *params, char *device, size_t cap);

/* Once weights are loaded and ops chosen: opens where the rule says so; where it cannot, a message tells. */
int engine_stream_create(kvant_engine *e, kvant_diag *diag);
/* After weights are loaded and ops chosen: for passes of `rows` or more on place `home`. */
int engine_stream_open(kvant_engine *e, int home, int rows, kvant_diag *diag);
void engine_stream_close(kvant_engine *e);
/* The builder is at the experts of layer l with so many rows: 1: they are computed at home, from a slot. */
int engine_stream_takes(kvant_engine *e, int home, int l);
/* Fills the slot of layer l; before the ops of its experts. */
int engine_stream_fill(kvant_engine *e, int l, kvant_diag *diag);

#endif
