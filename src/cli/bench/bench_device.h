/* cli/bench/bench_device.h: `kvant bench-kernels` with --device NAME or --cases: ops at the shapes that the speed bars
 * name, on the device's own clock, caches cold, each beside the copy bandwidth of the same run.  A device without a
 * clock is timed by the host's, from the call to its end, caches as the run before left them; the report says so.
 *
 * A case is a line of bench_device.def: a function that makes its buffers and calls room_time once per row. */
#ifndef KVANT_CLI_BENCH_DEVICE_H
#define KVANT_CLI_BENCH_DEVICE_H

#include "cli/options/options.h"
#include "devices/device.h"

enum { ROOM_BUFFERS = 64, ROOM_ROWS = 512 };

/* Tokens, sequences or rows of the cases that tell how an op grows: one, a tile's worth, one more than a tile. */
enum { ROOM_COUNTS = 3 };
extern const int room_counts[ROOM_COUNTS];

typedef struct room_row {
    char name[48], what[48];       /* the case; its variant */
    double us, least_us;           /* median and least */
    double bytes, flops;           /* that the op must move, and compute; 0: not shown */
} room_row;

typedef struct room {
    kvant_device *dev;
    const opts *o;
    void *mem[ROOM_BUFFERS];
    int n_mem, reps, rc;           /* rc: sticky */
    double copy_tbs;
    room_row rows[ROOM_ROWS];
    int n_rows;
    const char *name;              /* of the case */
    kvant_diag *diag;
} room;

/* Device memory until the case ends: normal f32 values (one block of random numbers repeated), or what `from` has
 * (NULL: left as it is), which may change once it is back.  NULL and r->rc set on failure. */
float *room_normal(room *r, size_t n);
void *room_copy(room *r, const void *from, size_t bytes);
/* Host memory, for kvant_free; NULL and r->rc set where there is none, NULL after an earlier failure. */
void *room_host(room *r, size_t bytes);
/* Frees what was taken since r->n_mem was `mark`. */
void room_drop(room *r, int mark);
/* Runs one op once, without timing, and waits for it. */
void room_run(room *r, int id, const void *args);
/* Measures one op (skipped with a line where the device does not take it) and adds a row; what: printf. */
void room_time(room *r, int id, const void *args, double bytes, double flops, const char *what, ...)
    __attribute__((format(printf, 6, 7)));
/* Sequences of equal length: each with n tokens from position pos0, pages in shuffled order. */
kvant_seqs room_seqs(room *r, int n_seqs, int n, int pos0, int prompt);

/* The command, for a device other than the CPU, or with --cases. */
int bench_device(const opts *o, kvant_diag *diag);

#endif
