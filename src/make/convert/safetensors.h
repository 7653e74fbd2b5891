/* make/convert/safetensors.h: the reader of safetensors files: one, or the shards of an index.
 *
 * Everything is checked before st_open returns: the header's length and JSON, names, types, shapes (checked products),
 * and that the data of the tensors tile the rest of the file, with neither overlap nor gap.  Read-only after that. */
#ifndef KVANT_MAKE_SAFETENSORS_H
#define KVANT_MAKE_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>
#include "base/error.h"
#include "kvant/wtype.h"

enum { ST_DIMS = 4, ST_MOST_DIMS = 8, ST_NAME = 128 };

typedef struct st_tensor {
    char name[ST_NAME];
    const char *dtype;       /* as the file spells it */
    const kvant_wtype *type; /* NULL: a type that no weight of kvant has (I64, F8_E4M3, ...) */
    int n_dims;              /* 0: a single value; up to ST_MOST_DIMS (convolutions of eyes that see films) */
    int64_t dim[ST_DIMS];    /* as in the file: dim[0] slowest; unused ones 1; the last: times all behind it */
    const uint8_t *data;
    size_t bytes;
    int file;
} st_tensor;

typedef struct st_files st_files;

/* folder: a model's directory, with model.safetensors.index.json or model*.safetensors. */
int st_open(const char *folder, st_files **out, kvant_diag *diag);
/* One file in memory (fuzzing, tests); data must outlive the object. */
int st_open_mem(const uint8_t *data, size_t size, st_files **out, kvant_diag *diag);
void st_close(st_files *s);
/* Files in the order of their names, the tensors of a file in the order of theirs. */
int st_count(const st_files *s);
const st_tensor *st_at(const st_files *s, int i);
const st_tensor *st_find(const st_files *s, const char *name); /* NULL: none */
/* 1 when a mapped file shrank under us. */
int st_poisoned(const st_files *s);

#endif
