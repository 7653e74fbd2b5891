/* vk_mm.h: one product as its ways see it: vk_matmul.c chooses one, vk_halves.c is that of matrix units. */
#ifndef KVANT_DEVICES_VK_MM_H
#define KVANT_DEVICES_VK_MM_H

#include "devices/vulkan/core/vk_dev.h"

enum { VEC_ROWS = 8 };             /* at most: a workgroup per few outputs; more: tiles */

typedef struct vk_mm {
    const kvant_weight *w;
    const float *x;
    const int32_t *ids;            /* NULL: one expert */
    float *y;
    int64_t ldx, ldy;
    int rows, x_div, compute;
} vk_mm;

size_t vk_x_bytes(const vk_mm *p);
size_t vk_y_bytes(const vk_mm *p);
/* Weight rows that one dispatch may read: all with addresses, else what fits a range. */
int64_t vk_window_rows(const vk_device *d, const vk_weight *v, int64_t rows);
void vk_weight_ptr(vk_call *c, const vk_weight *v, int64_t from, int64_t n);
/* The grids of weight types, where the type has one: WT_GRID of wt.glsl. */
void vk_grid_ptr(const vk_device *d, vk_call *c, int type);
void vk_scale_ptr(vk_call *c, const kvant_weight *w, const vk_weight *v);

/* Many rows on matrix units: whether, what of scratch, the whole product. */
int vk_halves_take(const vk_device *d, const vk_mm *p);
size_t vk_halves_scratch(const vk_device *d, const vk_mm *p);
int vk_halves_run(vk_device *d, vk_list *l, const vk_mm *p, kvant_diag *diag);
/* When weights are loaded: finds the scales of their rows. */
int vk_halves_scales(vk_device *d, vk_weight *v, int64_t n_in, int64_t rows, kvant_diag *diag);

#endif
