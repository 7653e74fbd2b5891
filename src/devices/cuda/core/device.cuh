/* device.cuh: what the files of the device object share: device.cu (open, memory, copies, vtable), weights.cu,
 * lists.cu, relay.cu, slots.cu, meet.cu and stopwatch.cu.  The functions of a kvant_device_vt are in device.h. */
#ifndef KVANT_CUDA_DEVICE_CUH
#define KVANT_CUDA_DEVICE_CUH

#include "devices/cuda/core/cuda_dev.cuh"

/* A kernel that waits for another GPU or for the host gives up after a minute (relay.cu, meet.cu).  By the GPU's clock
 * of nanoseconds, which is asked once in so many looks. */
enum { CUDA_LOOKS = 1 << 10 };
constexpr unsigned long long CUDA_LOST_NS = 60000000000ull;

static __device__ __forceinline__ unsigned long long cuda_now_ns(void)
{
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

/* device.cu: CUDA_LAUNCH_BLOCKING: a launch returns when it has run, so no kernel may wait for what comes behind it */
bool cuda_launches_block(void);

/* arch.cu: fails where KVANT_CUDA_MASK names nothing */
int cuda_arch_of(const cudaDeviceProp *prop, cuda_arch *o, kvant_diag *diag);

/* device.cu */
int cuda_use(const cuda_device *d, kvant_diag *diag);    /* before anything that the runtime does on the current GPU */
int cuda_alloc(kvant_device *base, size_t bytes, void **addr, kvant_diag *diag);
void cuda_free(kvant_device *base, void *addr);
int cuda_copy_in(kvant_device *base, void *dst, const void *src, size_t bytes, kvant_diag *diag);
int cuda_sync(kvant_device *base, kvant_diag *diag);

/* kernels.cu */
int cuda_load_kernels(kvant_diag *diag);    /* on the current GPU; again is cheap */

/* slots.cu */
extern const kvant_slots_vt cuda_slots;
void cuda_slots_close(cuda_device *d);

/* upload.cu: copy_in of a weight, which may be a mapped file's.  src is read when this returns.  The next list gives
 * the pinned memory back. */
int cuda_upload(cuda_device *d, void *dst, const void *src, size_t bytes, kvant_diag *diag);
void cuda_upload_close(cuda_device *d);
/* Pieces of at most CUDA_UPLOAD_BLOCK bytes to base + list[i].to, in a stream, by an uploader that is made where *p is
 * NULL; uploader_free gives its memory back, when its copies are over. */
enum { CUDA_UPLOAD_BLOCK = 4 << 20 };
int cuda_upload_pieces(cuda_device *d, struct cuda_uploader **p, cudaStream_t stream, void *base,
                       const copy_piece *list, int n, kvant_diag *diag);
void cuda_uploader_free(struct cuda_uploader *p);

/* weights.cu */
int cuda_weight_load(kvant_device *base, kvant_weight *w, int compute, kvant_diag *diag);
int cuda_weight_make(kvant_device *base, kvant_weight *w, int compute, const void *table, int n, uint64_t seed,
                     kvant_diag *diag);
void cuda_weight_free(kvant_device *base, kvant_weight *w);
/* A weight in memory of others, and how much it takes there. */
int cuda_weight_bytes(const kvant_weight *w, size_t *bytes, kvant_diag *diag);
int cuda_weight_at(cuda_device *d, kvant_weight *w, void *at, kvant_diag *diag);

/* lists.cu */
int cuda_supports(kvant_device *base, const kvant_op *op, kvant_diag *diag);
uint64_t cuda_replayed(const kvant_device *base);
int cuda_submit(kvant_device *base, const kvant_op *ops, int n, uint64_t key, kvant_diag *diag);
/* Scratch for the hungriest op of a list; a larger block drops the graphs, which hold the old one's address. */
int cuda_reserve_scratch(cuda_device *d, const kvant_op *ops, int n, kvant_diag *diag);
/* Launches what the list (n >= 1) begins with; returns how many of its ops that did, or an error.  *id: of what ran
 * before it (0: nothing did), then of this. */
int cuda_launch_next(cuda_device *d, const kvant_op *ops, int n, int *id, kvant_diag *diag);
int cuda_launch_list(cuda_device *d, const kvant_op *ops, int n, kvant_diag *diag);
int cuda_record(cuda_device *d, cuda_graph *g, const kvant_op *ops, int n, kvant_diag *diag);
void cuda_drop_graphs(cuda_device *d);
cuda_graph *cuda_graph_of(cuda_device *d, uint64_t key, bool *seen);
typedef int (*cuda_launcher)(cuda_device *d, const void *what, kvant_diag *diag);
int cuda_record_with(cuda_device *d, cuda_graph *g, cuda_launcher launch, const void *what, kvant_diag *diag);

/* relay.cu */
int cuda_relay(kvant_device *base, const kvant_relay *list, int n, uint64_t key, kvant_relay_fn run, void *user,
               kvant_diag *diag);
void cuda_relay_close(cuda_device *d);
void cuda_host_ready(kvant_device *base, void *host, size_t bytes);
void cuda_host_release(kvant_device *base, void *host);

/* meet.cu */
int cuda_meet_open(kvant_device *const *devs, int n, kvant_diag *diag);
int cuda_meet(kvant_device *base, const kvant_meet *m, kvant_diag *diag);
int cuda_meet_list(kvant_device *base, const kvant_meet_piece *list, int n, uint64_t key, kvant_diag *diag);
void cuda_meet_close(cuda_device *d);

/* stopwatch.cu */
int cuda_time(kvant_device *base, const kvant_op *ops, int n, int reps, double *us, kvant_diag *diag);
int cuda_profile(kvant_device *base, const kvant_op *ops, int n, double *us, kvant_diag *diag);

#endif
