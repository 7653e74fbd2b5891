/* vk_numbers.h: numbers that C and GLSL share; preprocessor text only, so that both read it. */
#ifndef KVANT_DEVICES_VK_NUMBERS_H
#define KVANT_DEVICES_VK_NUMBERS_H

/* Cache formats (vk_formats.def) and how they rotate. */
#define VK_FMT_f32 0
#define VK_FMT_f16 1
#define VK_FMT_bf16 2
#define VK_FMT_q8_0 3
#define VK_FMT_q4_0 4
#define VK_FMT_tbq4_0 5
#define VK_FMT_tbq3_0 6
#define VK_FMT_turbo3 7
#define VK_FMT_turbo4 8
#define VK_FMT_turbo4_66 9
#define VK_FMT_turbo3_tcq 10
#define VK_FMT_qjl1_256 11
#define VK_FMT_q4_polar 12
#define VK_FMT_q4_polar_r 13
#define VK_FMT_f8_e4m3 14
#define VK_FMT_COUNT 15

#define VK_SPACE_REAL 0
#define VK_SPACE_P32 1
#define VK_SPACE_R128 2
#define VK_SPACE_H128 3
#define VK_SPACE_SKETCH 4

/* Weight types (vk_wtypes.def). */
#define VK_WT_f32 0
#define VK_WT_f16 1
#define VK_WT_bf16 2
#define VK_WT_q8_0 3
#define VK_WT_q4_0 4
#define VK_WT_q4_k 5
#define VK_WT_q6_k 6
#define VK_WT_mxfp4 7
#define VK_WT_nvfp4 8
#define VK_WT_COUNT 9
/* Not a file type: q8_0 as vk_weight.c lays it out, a row's codes, then its scales. */
#define VK_WT_q8_split 9

/* The books: one device buffer of f32 tables (vk_books.c); where each begins.  A format's table is what its decoder
 * looks codes up in; what its encoder compares with follows directly. */
#define VK_BOOK_SIGNS1 0
#define VK_BOOK_SIGNS2 128
#define VK_BOOK_SIGNS32 256
#define VK_BOOK_TBQ4 288
#define VK_BOOK_TBQ3 304
#define VK_BOOK_TURBO3 312            /* 8 centroids, 7 midpoints */
#define VK_BOOK_TURBO4 327            /* 16, 15 */
#define VK_BOOK_TURBO4_66 358         /* 16, 15 */
#define VK_BOOK_POLAR 389             /* 16 centroids, 128 signs, 15 boundaries */
#define VK_BOOK_TCQ 548
#define VK_BOOK_FLOATS 1060

#define VK_ARGMAX_PIECE 8192           /* values of a row for one workgroup */

#endif
