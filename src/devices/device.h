/* devices/device.h: what the engine needs of a device.  One vtable; a device is one folder and one line in devices.def.
 *
 * Addresses are device addresses (on the CPU plain pointers).  One owner thread per device object.
 * submit runs a list of ops in order and returns when their effects are ordered (copy_out and sync wait for them).
 * key != 0 promises that this list has the same ops and argument structs (addresses included) as the last list
 * submitted under that key, except for the contents of buffers: a device may replay a recorded program (CUDA graph). */
#ifndef KVANT_DEVICES_DEVICE_H
#define KVANT_DEVICES_DEVICE_H

#include "base/thread/copy.h"
#include "kvant/device.h"

typedef struct kvant_device_config {
    int threads;               /* CPU worker threads; 0: all */
    int index;                 /* which GPU */
    void *stream;              /* takes_stream: the caller's, in which everything runs; NULL: the device's own */
} kvant_device_config;

/* A program over a device and the thread that calls it, in order (vt.relay).  OPS run on the device, OUT copies from
 * it, IN to it; HOST calls a function on the thread.  OPS find what the INs before them brought, HOST what the OUTs
 * before it did; else the two sides do not wait for each other. */
enum { KVANT_RELAY_OPS, KVANT_RELAY_HOST, KVANT_RELAY_OUT, KVANT_RELAY_IN };
enum { KVANT_RELAY_PARTS = 3 };
typedef struct kvant_relay {
    int kind;
    int n;                     /* OPS: how many; HOST: the number that the function gets */
    const kvant_op *ops;
    const void *src[KVANT_RELAY_PARTS];
    void *dst[KVANT_RELAY_PARTS];
    size_t bytes[KVANT_RELAY_PARTS];           /* multiples of 4; 0: no such part */
} kvant_relay;
typedef int (*kvant_relay_fn)(void *user, int number, kvant_diag *diag);

/* Devices of one kind that have parts of rows come together: `rows` rows, of each part `cols` values at src, ld_src
 * apart, go to dst[i] of device i (NULL: not there), ld apart.  wait: some device may still use memory at dst. */
enum { KVANT_MEET_PARTS = 4, KVANT_MEET_MOST = 8 };
typedef struct kvant_meet_part {
    const float *src;
    float *dst[KVANT_MEET_MOST];
    int64_t ld_src;
    int cols;
} kvant_meet_part;
typedef struct kvant_meet {
    kvant_meet_part part[KVANT_MEET_PARTS];
    int64_t ld;
    int rows, n_parts, wait;
} kvant_meet;

/* Ops of one device, then a meeting (NULL: it is the end). */
typedef struct kvant_meet_piece {
    const kvant_op *ops;
    int n;
    const kvant_meet *meet;
} kvant_meet_piece;

/* Weights whose rows come anew again and again, into memory that several of them share (vt.slots). */
enum { KVANT_SLOTS = 2 };
typedef struct kvant_slots_vt {
    /* Bytes that w takes in a slot. */
    int (*bytes)(kvant_device *d, const kvant_weight *w, size_t *bytes, kvant_diag *diag);
    /* Makes w->packed of `at`, device memory of so many bytes, whose rows are not there yet; w->scale is read. */
    int (*make)(kvant_device *d, kvant_weight *w, void *at, kvant_diag *diag);
    void (*drop)(kvant_device *d, kvant_weight *w);    /* leaves that memory alone */
    /* Rows of w in file layout, list[i].to bytes from their begin on; read when this returns.  They are written once
     * the lists submitted before the last `used` of this slot have run; lists submitted from now on find them.  Copies
     * run beside lists; the caller waits while the pinned memory that they go through is full.  Pieces of COPY_PIECE
     * bytes or little more, none beyond the weight's rows (KVANT_EINVAL). */
    int (*fill)(kvant_device *d, kvant_weight *w, int slot, const copy_piece *list, int n, kvant_diag *diag);
    /* The lists submitted so far are the last that read what the slot has. */
    int (*used)(kvant_device *d, int slot, kvant_diag *diag);
} kvant_slots_vt;

typedef struct kvant_device_vt {
    const char *name;          /* "cpu" */
    int (*open)(const kvant_device_config *cfg, kvant_device **out, kvant_diag *diag);
    void (*close)(kvant_device *d);
    /* One line for people: "CPU (AMD EPYC, 2 threads, avx2)". */
    void (*describe)(const kvant_device *d, char *buf, int cap);
    int (*alloc)(kvant_device *d, size_t bytes, void **addr, kvant_diag *diag);   /* not cleared */
    void (*free)(kvant_device *d, void *addr);
    int (*copy_in)(kvant_device *d, void *dst, const void *src, size_t bytes, kvant_diag *diag);
    int (*copy_out)(kvant_device *d, void *dst, const void *src, size_t bytes, kvant_diag *diag);
    /* Takes a weight whose data is host memory in file layout; sets w->packed, and
     * w->data to NULL where it will not read the file's bytes again.  compute: enum kvant_compute. */
    int (*weight_load)(kvant_device *d, kvant_weight *w, int compute, kvant_diag *diag);
    void (*weight_free)(kvant_device *d, kvant_weight *w);
    /* Exactly what submit would execute: KVANT_OK, or KVANT_EUNSUPPORTED with the reason.  Also asked for fused ops
     * (ops/fuse), which submit itself finds in the list (device_next_op). */
    int (*supports)(kvant_device *d, const kvant_op *op, kvant_diag *diag);
    int (*submit)(kvant_device *d, const kvant_op *ops, int n, uint64_t key, kvant_diag *diag);
    int (*sync)(kvant_device *d, kvant_diag *diag);
    /* Optional (NULL: the caller makes host rows for weight_load).  A weight without data: its block i, of type->bytes,
     * is table[pick_block(seed, i, n)] (base/pick.h); table is host memory of n blocks. */
    int (*weight_make)(kvant_device *d, kvant_weight *w, int compute, const void *table, int n, uint64_t seed,
                       kvant_diag *diag);
    /* Optional.  The device's own clock: us[i] = microseconds of run i of the list, as one recorded program, after a
     * pass over other memory that leaves the caches cold.  n = 0: of a copy of KVANT_TIME_COPY bytes on the device. */
    int (*time)(kvant_device *d, const kvant_op *ops, int n, int reps, double *us, kvant_diag *diag);
    /* Optional (NULL: not there).  submit once, with the device's own clock behind every launch; returns when all has
     * run.  us[i] = microseconds from the launch before to the end of that of op i; -1: the op before did op i too. */
    int (*profile)(kvant_device *d, const kvant_op *ops, int n, double *us, kvant_diag *diag);
    /* Optional (NULL: rows).  Sets k.layout and v.layout (enum kvant_layout) of a layer that will run this attention:
     * the order of bytes that the device wants in full pages.  Read: the sides, h, h_kv, d_k, d_v, compute. */
    void (*kv_layout)(kvant_device *d, kvant_attn_args *a);
    /* With kv_layout: one page of a side in a private layout (h heads of d values) to and from rows in host memory. */
    int (*page_read)(kvant_device *dev, const kvant_kv_side *s, int h, int d, int page, void *rows, kvant_diag *diag);
    int (*page_write)(kvant_device *dev, const kvant_kv_side *s, int h, int d, int page, const void *rows,
                      kvant_diag *diag);
    /* Optional (NULL: alloc and copy_in).  A format's parameter (KVANT_FORMAT_PARAM) from host memory to an address
     * that sides name.  The device's form of it lies in the same allocation and lives as long: until free.  Until
     * then nothing may write there; copy_in refuses (KVANT_EINVAL). */
    int (*param_load)(kvant_device *d, const void *host, size_t bytes, void **addr, kvant_diag *diag);
    /* Optional (NULL: none are).  How many lists were replayed from a recording so far. */
    uint64_t (*replayed)(const kvant_device *d);
    /* submit computes on the thread that calls it, one step after another, and records nothing. */
    int on_caller;
    /* The default tokens of a pass: for an engine with KVANT_MANY_SEQS sequences or more, and for a model with experts,
     * each of which gets few of the tokens; 0: KVANT_PASS_TOKENS, as for other engines. */
    int pass_many, pass_experts;
    /* Optional (NULL: not known).  Bytes that are free on the device, or -1. */
    int64_t (*memory)(const kvant_device *d);
    /* Optional (NULL: no).  Returns 1 if this is the CPU: a software driver. */
    int (*is_software)(const kvant_device *d);
    /* Optional (NULL: takes none).  Memory of others as an address, without a copy: see kvant_device_adopt. */
    int (*adopt)(kvant_device *d, void *memory, size_t bytes, void **addr, kvant_diag *diag);
    int takes_stream;          /* open reads config.stream */
    /* Optional (NULL: the caller submits and copies piece by piece).  Runs list[n]; key as in submit, of the whole list
     * but for its HOST entries.  Returns when the last HOST and IN are done; an error of run ends the list. */
    int (*relay)(kvant_device *d, const kvant_relay *list, int n, uint64_t key, kvant_relay_fn run, void *user,
                 kvant_diag *diag);
    /* Optional (NULL: none wait).  on 1: more lists follow within microseconds, and the device's threads wait for them
     * without sleep, until on 0. */
    void (*stay_awake)(kvant_device *d, int on);
    /* Optional (NULL: copies are as fast as they are).  Host memory that relay copies from and to often: made ready for
     * it, where the system lets it, until host_release, which comes before it is freed. */
    void (*host_ready)(kvant_device *d, void *host, size_t bytes);
    void (*host_release)(kvant_device *d, void *host);
    /* Optional, all three.  meet_open: these n devices write into each other's memory from now on, each at its place in
     * the list; KVANT_EUNSUPPORTED: they cannot.  meet: enqueued; ops behind it find the rows of all.  Each device must
     * come to each meeting: the caller enqueues the ops before a meeting, and it, on all devices before the next. */
    int (*meet_open)(kvant_device *const *devs, int n, kvant_diag *diag);
    int (*meet)(kvant_device *d, const kvant_meet *m, kvant_diag *diag);
    /* A whole program of this device.  1: it is enqueued; 0: nothing is, but memory for its ops is there; the caller
     * goes piece by piece.  key as in submit; 0: always 0. */
    int (*meet_list)(kvant_device *d, const kvant_meet_piece *list, int n, uint64_t key, kvant_diag *diag);
    const kvant_slots_vt *slots;               /* optional (NULL: none) */
    int streams;                               /* it has slots, and is so much faster than a CPU that they pay */
} kvant_device_vt;

enum { KVANT_PASS_TOKENS = 512, KVANT_MANY_SEQS = 16 };

enum { KVANT_TIME_COPY = 1 << 30 };

struct kvant_device { const kvant_device_vt *vt; };

int kvant_devices_count(void);
const kvant_device_vt *kvant_devices_at(int i);
/* The device of a name such as "cpu" or "cuda:1", and its index, which stays as it is where the name has none.
 * KVANT_EDEVICE with the reason and the known names. */
int kvant_device_find(const char *name, const kvant_device_vt **vt, int *index, kvant_diag *diag);
/* param_load, or on devices without it alloc and copy_in. */
int device_param_load(kvant_device *d, const void *host, size_t bytes, void **addr, kvant_diag *diag);
/* The op that a list of n >= 1 begins with, as this device runs it: fused where the table of fused forms (ops/fuse) has
 * one that it supports, else ops[0].  Returns how many ops of the list *out stands for.  before: the id of the op that
 * the device runs before it, which may leave it a value (enum fuse_pass); 0: none. */
int device_next_op(kvant_device *d, const kvant_op *ops, int n, int before, kvant_op *out);
/* Opens by name; errors as above, and the device's own. */
int device_open(const char *name, const kvant_device_config *cfg, kvant_device **out, kvant_diag *diag);

#endif
