/* vk_dev.h: the insides of the device "vulkan": the device object, lists of commands, and what an op's file provides.
 *
 * Two forms of every shader: `fast` (device addresses, subgroup reductions) and `plain` (descriptors, shared memory
 * reductions), chosen once per device.  In the plain form an address is a number of ours, (block << 40) + offset, and
 * every pointer of an op is bound as one range.  All memory is read and written as 32-bit words. */
#ifndef KVANT_DEVICES_VK_DEV_H
#define KVANT_DEVICES_VK_DEV_H

#include <stdint.h>
#include <string.h>
#include "base/error.h"
#include "devices/device.h"
#include "devices/vulkan/core/vk_api.h"
#include "cards/vulkan.h"
#include "ops/fuse/fuse.h"

enum {
    VK_MAX_PTRS = 16, VK_MAX_SCALARS = 48, VK_MAX_SPEC = 16, VK_MAX_PROGRAMS = 32, VK_MAX_RANGES = 96, VK_LISTS = 8,
    VK_PUSH_BYTES = 128, VK_MAX_PARAMS = 8, VK_GROUP = 128,
    VK_WIDE_GROUP = 512,                   /* core/kv.glsl, fast form */
    VK_HALVES_ID = 31,                     /* its constant HALVES */
};

/* ---- shaders: one number per .comp file of the folders ---- */

#define VK_SHADER(name) VK_SHADER_##name,
enum vk_shader_id {
#include "vk_shader_list.inc"
    VK_SHADER_COUNT
};
#undef VK_SHADER

typedef struct vk_code { const uint32_t *words; size_t bytes; } vk_code;
typedef struct vk_shader { const char *name; vk_code fast, plain; } vk_shader;
extern const vk_shader vk_shaders[VK_SHADER_COUNT];

/* Which shader makes products of many rows, by matrix units. */
enum { VK_PRODUCTS_NONE, VK_PRODUCTS_NV, VK_PRODUCTS_KHR };

/* ---- memory ---- */

typedef struct vk_block {          /* one allocation; sorted by address */
    uint64_t addr;
    uint64_t bytes;
    VkBuffer buffer;
    VkDeviceMemory memory;
    unsigned char *map;            /* host memory, where mapped */
} vk_block;

/* ---- lists of commands ---- */

typedef struct vk_range { uint64_t begin, end; int write; } vk_range;

typedef struct vk_chunk { vk_block block; uint64_t used; } vk_chunk;

typedef struct vk_list {
    VkCommandBuffer cmd;
    vk_range ranges[VK_MAX_RANGES];        /* touched since the last barrier */
    int n_ranges, dirty;                   /* dirty: a barrier comes before the next command */
    int copied;                            /* the next barrier must wait for copies too */
    int narrow;                            /* a barrier since the last wide one let copies through */
    vk_chunk *chunks;                      /* argument blocks larger than push constants */
    int n_chunks;
    VkDescriptorPool *pools;               /* plain form */
    int n_pools, pool_used;
} vk_list;

typedef struct vk_program {
    uint64_t key;                          /* 0: free */
    unsigned generation;                   /* of the scratch block it was recorded with */
    uint64_t used;
    int recorded;
    vk_list list;
} vk_program;

typedef struct vk_pipeline {
    int shader, n_spec;
    uint32_t spec[VK_MAX_SPEC];
    VkPipeline handle;
} vk_pipeline;

typedef struct vk_pipelines {
    VkPipelineCache cache;
    char path[512];                        /* of the cache's file */
    uint64_t bytes;                        /* of it, as read */
    vk_pipeline *list;
    int n, cap;
    VkShaderModule modules[VK_SHADER_COUNT];
    VkDescriptorSetLayout set_layouts[VK_MAX_PTRS + 1];    /* by the number of pointers */
    VkPipelineLayout layouts[VK_MAX_PTRS + 1];
} vk_pipelines;

typedef struct vk_caps {
    int bda, subgroup, half, dot;          /* used, not only present; half (16-bit arithmetic), dot: fast form only */
    int matrix, products;                  /* attn_matrix is used; matmul_matrix or matmul_khr, VK_PRODUCTS_* */
    int wide;                              /* attn_wide is used where there are products */
    int fits_matrix;                       /* all that their shaders need but the extensions */
    int portability;                       /* not all of Vulkan: what is missing there is not used here */
    int fuse;                              /* neighbours in a list run as one (ops/fuse) */
    int software;                          /* runs on the CPU: compiling costs more than running */
    int subnormal16;                       /* subnormal halves keep their values */
    int int_dot, storage8, storage16, coopmat, khr, float16, int64;    /* present: for the report */
    uint32_t subgroup_size, api, push_bytes;
    uint64_t max_range, offset_align, max_alloc, most_alloc;           /* of an allocation: as reported; as masked */
    uint32_t max_groups, max_shared, max_bindings, max_invocations;
    int indexing;                          /* dynamic, of arrays of storage buffers: the plain form */
    uint32_t cores;                        /* multiprocessors, as far as the device says; else a guess */
    float tick_ns;                         /* of a timestamp; 0: none on the queue */
    char name[256], driver[256];
} vk_caps;

typedef struct vk_device {
    kvant_device base;
    vk_api api;
    VkPhysicalDevice gpu;
    VkDevice dev;
    VkQueue queue;
    uint32_t family;
    VkPhysicalDeviceMemoryProperties mem;
    vk_caps caps;
    int lost;                              /* the driver said so: every later call fails */
    int lose_at;                           /* KVANT_VK_DISABLE=device:N: says so at submission N; 0: never */
    int n_submits;

    vk_block *blocks;
    int n_blocks, cap_blocks;
    uint64_t next_addr;                    /* plain form: the next number */
    vk_block stage_in, stage_out, dummy;
    void *books, *grids;                   /* tables of the formats, of weight types: vk_books.c */
    uint64_t stage_used;

    VkCommandPool pool;
    VkFence fence;
    vk_list lists[VK_LISTS];               /* one-time lists; n_used of them since the last wait */
    int n_used, open;                      /* open: lists[n_used - 1] is being recorded */
    VkCommandBuffer pending[2 * VK_LISTS + 2];
    int n_pending, in_flight;
    vk_program programs[VK_MAX_PROGRAMS];
    uint64_t clock;

    vk_pipelines pipelines;

    void *scratch;                         /* of the op that runs; grown before a list, never inside */
    size_t scratch_bytes;
    unsigned generation;
    struct { const void *host; void *dev; } params[VK_MAX_PARAMS];     /* format parameters given as host memory */
} vk_device;

/* w->packed points to this: the weight's rows on the device. */
typedef struct vk_weight {
    void *data, *scale;
    float *row_scale;                      /* of rows_half; NULL: no matrix units */
    size_t row_bytes, bytes;
    int type, dot;                         /* VK_WT_*, VK_DOT_* */
} vk_weight;

/* ---- one dispatch ---- */

enum { VK_READ = 0, VK_WRITE = 1 };

typedef struct vk_call {
    int shader, n_ptr, n_spec, n_scalar;
    struct { uint64_t addr, bytes; int write; } ptr[VK_MAX_PTRS];
    uint32_t spec[VK_MAX_SPEC], scalar[VK_MAX_SCALARS];
} vk_call;

/* Pointers, scalars and specialisation constants in the shader's order.  bytes: what may be touched from addr on.
 * addr NULL: a pointer that is not used. */
void vk_call_begin(vk_call *c, int shader);
void vk_ptr(vk_call *c, const void *addr, size_t bytes, int write);
void vk_uint(vk_call *c, int64_t v);
void vk_float(vk_call *c, float v);
void vk_spec(vk_call *c, uint32_t v);
/* Records groups x y z after what it depends on. */
int vk_dispatch(vk_device *d, vk_list *l, const vk_call *c, uint64_t x, uint32_t y, uint32_t z, kvant_diag *diag);

/* ---- ops ---- */

/* supports and scratch may be NULL: always (where its values fit the shaders' indices: counted of its card's operands,
 * or as many as it says), none. */
typedef struct vk_op {
    const char *name;
    int counted;
    int64_t (*values)(const void *args);
    int (*supports)(vk_device *d, const void *args, kvant_diag *diag);
    size_t (*scratch)(vk_device *d, const void *args);
    int (*run)(vk_device *d, vk_list *l, const void *args, kvant_diag *diag);
} vk_op;

#define KVANT_OP(ID, name, args, tol, fused, text) extern const vk_op vk_op_##name;
#include "kvant/ops.def"
#undef KVANT_OP

/* Fused forms (ops/fuse/fused.def) whose column `on` names Vulkan: args are the form's ops; no scratch. */
#define VK_HAS_vulkan(...) __VA_ARGS__
#define VK_HAS_gpus(...) __VA_ARGS__
#define VK_HAS_vulkan_cuda(...) __VA_ARGS__
#define VK_HAS_portable(...)
#define VK_HAS_cuda(...)
#define FUSED(ID, name, on, ins, links, where) VK_HAS_##on(extern const vk_op vk_fused_##name;)
#include "ops/fuse/fused.def"

/* The contents of a format's card that this device reads. */
typedef struct vk_card {
    int space, encoder;                    /* VK_SPACE_*, VK_ENCODE_* */
    int unit, unit_bytes, factor;          /* what is encoded together; whether the parameter is a factor */
    int nibbles, centre;                   /* records that attn_matrix knows; the integer that stands for zero */
    int bits;                              /* of a symbol of a trellis; 0: none */
    uint32_t book, decode, encode;         /* its table, and how much of it decoder and encoder use */
} vk_card;

/* One side of a cache, as ops need it. */
typedef struct vk_side {
    const kvant_kv_side *s;
    vk_card card;
    const void *param;
    size_t param_bytes;
    int fmt, d, dp, sdim;
    int factor;                            /* values are multiplied by the parameter */
} vk_side;
/* Returns 1 for a format of page scope: its rows have no bytes of their own. */
static inline int vk_paged(const vk_side *s)
{
    return s->card.encoder == VK_ENCODE_PAGE;
}
int vk_side_supports(vk_device *d, const kvant_kv_side *s, int head_dim, kvant_diag *diag);
int vk_side_of(vk_device *d, const kvant_kv_side *s, int head_dim, vk_side *out, kvant_diag *diag);
/* Pointers to a side's pages and tail, with their extents as the allocations say. */
void vk_side_pages(const vk_device *d, vk_call *c, const vk_side *s, int write);
void vk_side_tail(const vk_device *d, vk_call *c, const vk_side *s, int write);
/* Pointers to a batch's q0, pos0, page table and, if wanted, table of exact pages; to the last one alone. */
void vk_seqs_ptr(vk_call *c, const kvant_seqs *q, int tails);
void vk_tails_ptr(vk_call *c, const kvant_seqs *q, int tails);
void vk_side_param(vk_call *c, const vk_side *s);
void vk_side_strides(vk_call *c, const vk_side *s);        /* page_words, head_bytes, row_bytes */
void vk_books_ptr(const vk_device *d, vk_call *c);
/* Pointers to all operands of an op, in its card's order. */
void vk_operands(const vk_device *d, vk_call *c, int id, const void *args);
/* vk_fits of the operand that reaches furthest. */
int vk_counted(const char *name, const kvant_op *op, kvant_diag *diag);
/* KVANT_EUNSUPPORTED where a count does not fit the shaders' 31-bit indices. */
int vk_fits(const char *op, int64_t count, kvant_diag *diag);
/* Bytes from addr to the end of its allocation: for pointers whose extent the arguments do not say. */
size_t vk_rest(const vk_device *d, const void *addr);

/* ---- the device's parts: vk_memory.c, vk_list.c, vk_pipeline.c, vk_weight.c, vk_side.c, vk_books.c, vk_caps.c ---- */

int vk_check(vk_device *d, VkResult r, const char *what, kvant_diag *diag);
#define VK_TRY_R(d, r, what, diag) KVANT_TRY(vk_check(d, r, what, diag))

int vk_block_make(vk_device *d, uint64_t bytes, VkMemoryPropertyFlags want, VkMemoryPropertyFlags like, vk_block *out,
                  kvant_diag *diag);
void vk_block_drop(vk_device *d, vk_block *b);
const vk_block *vk_block_of(const vk_device *d, uint64_t addr);
int vk_alloc(kvant_device *base, size_t bytes, void **addr, kvant_diag *diag);
void vk_free(kvant_device *base, void *addr);
int vk_copy_in(kvant_device *base, void *dst, const void *src, size_t bytes, kvant_diag *diag);
int vk_copy_out(kvant_device *base, void *dst, const void *src, size_t bytes, kvant_diag *diag);

int vk_list_open(vk_device *d, vk_list **out, kvant_diag *diag);       /* the one-time list being recorded */
int vk_list_begin(vk_device *d, vk_list *l, kvant_diag *diag);
int vk_list_end(vk_device *d, vk_list *l, kvant_diag *diag);            /* what it wrote is there for the CPU too */
void vk_list_reset(vk_device *d, vk_list *l);
void vk_list_free(vk_device *d, vk_list *l);
void vk_list_touch(vk_device *d, vk_list *l, const vk_range *r, int n);    /* before a dispatch */
void vk_list_copies(vk_device *d, vk_list *l, const vk_range *r, int n);   /* before a copy or a fill */
int vk_close_list(vk_device *d, kvant_diag *diag);                      /* ends the open one-time list */
int vk_flush(vk_device *d, kvant_diag *diag);                           /* one submission of all that is pending */
int vk_wait(vk_device *d, kvant_diag *diag);

int vk_pipeline_get(vk_device *d, const vk_call *c, VkPipeline *out, kvant_diag *diag);
int vk_layout_get(vk_device *d, int n_ptr, VkPipelineLayout *out, kvant_diag *diag);
void vk_cache_read(vk_device *d);
void vk_cache_write(vk_device *d);
void vk_pipelines_drop(vk_device *d);

int vk_wtype_find(const kvant_wtype *t);
int vk_weight_load(kvant_device *base, kvant_weight *w, int compute, kvant_diag *diag);
void vk_weight_free(kvant_device *base, kvant_weight *w);

/* Grows the scratch block to what the list wants; records its ops. */
int vk_reserve_scratch(vk_device *d, const kvant_op *ops, int n, kvant_diag *diag);
/* Records what the list (n >= 1) begins with; returns how many of its ops that is, or an error. */
int vk_record_next(vk_device *d, vk_list *l, const kvant_op *ops, int n, kvant_diag *diag);
int vk_record_ops(vk_device *d, vk_list *l, const kvant_op *ops, int n, kvant_diag *diag);
int vk_time(kvant_device *base, const kvant_op *ops, int n, int reps, double *us, kvant_diag *diag);
int vk_profile(kvant_device *base, const kvant_op *ops, int n, double *us, kvant_diag *diag);

int vk_books_make(vk_device *d, kvant_diag *diag);
int vk_caps_read(vk_device *d, const char *mask, kvant_diag *diag);
int vk_mask(vk_device *d, const char *mask, kvant_diag *diag);           /* vk_mask.c: takes from d->caps */

/* vk_matrix.c: 16 x 16 by 16 x n halves are offered, by the one extension or the other; caps.matrix off where elements
 * lie elsewhere than expected. */
int vk_matrix_sizes(const vk_device *d, uint32_t n);
int vk_matrix_khr(const vk_device *d, uint32_t n);
int vk_matrix_check(vk_device *d, kvant_diag *diag);
/* vk_halves.c: caps.products off where a small product is not what it should be. */
int vk_products_check(vk_device *d, kvant_diag *diag);

#endif
