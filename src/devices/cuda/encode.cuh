/* encode.cuh: the encoders of the cache formats on the device: the references themselves.
 *
 * A format's reference file holds <f>_encode_group, static functions over constant tables.  Including it with `static`
 * read as `static __device__`, in a namespace of its own, gives device code with the same text, and, compiled without
 * contraction, the same bytes, for both encoders.  One thread encodes one group.  Two formats need a block per group
 * and are written out in cache.cu: turbo3_tcq (512 trellis states) and qjl1_256 (a 128 x 256 projection). */
#ifndef KVANT_CUDA_ENCODE_CUH
#define KVANT_CUDA_ENCODE_CUH

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include "kvant/format.h"

#define static static __device__
#include "base/half.h"
#include "formats/format.h"
#undef KVANT_FORMAT_DEFINE
#define KVANT_FORMAT_DEFINE(f, alias_list, group_n, group_b, group_s, flag_bits)
__device__ __noinline__ uint16_t format_norm(float v, int encoder);

/* What the formats share. */
__device__ __noinline__ void rotate_butterfly(float *x, int n);
__device__ __noinline__ void rotate_r128(float *x);
__device__ __noinline__ void rotate_r128_inverse(float *x);
__device__ __noinline__ void rotate_p32(float *x);
__device__ __noinline__ void rotate_p32_inverse(float *x);
#include "formats/rotate/rotate.h"

struct search_book;
__device__ __noinline__ void search_scale(const search_book *book, const float *y, int count, float guess, int *code,
                                          uint16_t *scale);
__device__ __noinline__ uint16_t search_storable(float s);
__device__ __noinline__ double search_error(const search_book *book, const float *y, int count, const int *code,
                                            uint16_t scale);
#include "formats/search.h"

__device__ __noinline__ int tbq_nearest(const float *c, int n, float v);
__device__ __noinline__ float tbq_precondition(const float *x, float *y);
#include "formats/tbq/tbq.h"

__device__ __noinline__ float turbo_prepare(const float *x, float *y);
__device__ __noinline__ int turbo_code(const float *mid, int n, float v);
__device__ __noinline__ float turbo_corrected(float norm, float r);
__device__ __noinline__ void turbo_rotate(const float *q, float *qp);
__device__ __noinline__ void turbo_unrotate(const float *acc, float *x);
#include "formats/turbo/turbo.h"

#include "formats/rotate/rotate.c"
#include "formats/search.c"
#include "formats/tbq/tbq.c"
#include "formats/turbo/turbo.c"
namespace ref_polar {
__device__ __noinline__ void polar_encode(const float *x, uint8_t *bytes, int use_residual, int encoder);
__device__ __noinline__ void polar_decode(const uint8_t *bytes, float *acc, int use_residual);
__device__ __noinline__ void polar_transform(const float *x, float *y);
#include "formats/polar/polar.h"
#include "formats/polar/polar.c"
}

namespace ref_f32 {
#include "formats/plain/f32.c"
}
namespace ref_f16 {
#include "formats/plain/f16.c"
}
namespace ref_bf16 {
#include "formats/plain/bf16.c"
}
namespace ref_q8_0 {
#include "formats/plain/q8_0.c"
}
namespace ref_q4_0 {
#include "formats/plain/q4_0.c"
}
namespace ref_f8_e4m3 {
#include "formats/plain/f8_e4m3.c"
}
namespace ref_tbq4_0 {
#include "formats/tbq/tbq4_0.c"
}
namespace ref_tbq3_0 {
#include "formats/tbq/tbq3_0.c"
}
namespace ref_turbo3 {
#include "formats/turbo/turbo3.c"
}
namespace ref_turbo4 {
#include "formats/turbo/turbo4.c"
}
namespace ref_turbo4_66 {
#include "formats/turbo/turbo4_66.c"
}
namespace ref_q4_polar {
using namespace ref_polar;
#include "formats/polar/q4_polar.c"
}
namespace ref_q4_polar_r {
using namespace ref_polar;
#include "formats/polar/q4_polar_r.c"
}
#undef static

__device__ __noinline__ uint16_t format_norm(float v, int encoder)
{
    (void)encoder;                     /* half-up rounding is for golden tests of the reference only */
    return f32_to_half(v);
}

#endif
