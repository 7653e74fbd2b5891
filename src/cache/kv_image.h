/* cache/kv_image.h: a sequence's part of the cache as a list of byte ranges in one fixed order: what is written to a
 * file, or kept in host memory while a sequence is preempted.
 *
 *   pages 0 .. ceil(len/64)-1:  per attention layer the K page, then the V page; without layers of windows apart
 *   pages of windows, ascending: the same of those layers; what the next token sees, .. ceil(len/64)-1
 *   tail pages, ascending:      per attention layer with a tail K, then V; pages 0 .. S-1 and len/64 - T + 1 ..
 *                               ceil(len/64)-1, each once
 *   state:                      per recurrent layer the state, then the conv window
 *
 * Rows behind the length are zeros in an image, whatever the pool held there before: another sequence's rows never
 * leave through it.  Saving and loading use one order. */
#ifndef KVANT_CACHE_KV_IMAGE_H
#define KVANT_CACHE_KV_IMAGE_H

#include "cache/kv.h"

/* A place where the same bytes are too. */
typedef struct kv_range_copy {
    kvant_device *dev;
    uint8_t *addr;
    const kvant_kv_side *side;
} kv_range_copy;

/* One range; rows: how many of each head's 64 rows are in use (pages), 0: the whole range is to be zeros. */
typedef struct kv_range {
    kvant_device *dev;
    uint8_t *addr; /* on it */
    size_t bytes, head_bytes, row_bytes;
    int rows; /* -1: not made of rows (state) */
    const kvant_kv_side *side; /* a page in the device's private layout: its side, heads, width and number; else NULL */
    int h_kv, d, page;
    int n_copies; /* of layers of which every device has a copy: written with the first, read from it alone */
    kv_range_copy copy[KV_MOST_PLACES - 1];
} kv_range;

typedef int (*kv_range_fn)(void *ctx, const kv_range *r, kvant_diag *diag);

/* Ranges of one page (open: its encoded rows are not written yet where a side has a tail; -1: a late one, all of it
 * zeros), of one page of windows, of one tail page, of a state slot.  The first error of fn ends the walk and is
 * returned. */
int kv_walk_page(const kv_cache *kv, int page, int rows, int open, kv_range_fn fn, void *ctx, kvant_diag *diag);
int kv_walk_window(const kv_cache *kv, int page, int rows, int open, kv_range_fn fn, void *ctx, kvant_diag *diag);
int kv_walk_tail(const kv_cache *kv, int tail, int rows, kv_range_fn fn, void *ctx, kvant_diag *diag);
int kv_walk_state(const kv_cache *kv, int slot, kv_range_fn fn, void *ctx, kvant_diag *diag);
/* Bytes of one page, one page of windows, one tail page, one state. */
size_t kv_page_image_bytes(const kv_cache *kv);
size_t kv_window_image_bytes(const kv_cache *kv);
size_t kv_tail_image_bytes(const kv_cache *kv);
size_t kv_state_image_bytes(const kv_cache *kv);

/* Device -> buf, unused rows as zeros; buf -> device (not where no row is in use). r->bytes bytes. */
int kv_range_read(const kv_range *r, uint8_t *buf, kvant_diag *diag);
int kv_range_write(const kv_range *r, const uint8_t *buf, kvant_diag *diag);

/* The first page from p on that a sequence of this length keeps in the tail; ceil(len/64): none. */
int kv_image_next_tail(const kv_cache *kv, int len, int p);
int kv_image_tails(const kv_cache *kv, int len);     /* how many there are */
/* First page of windows of a sequence of this length; the last is ceil(len/64)-1.  None: equal to ceil(len/64). */
int kv_image_first_window(const kv_cache *kv, int len);
size_t kv_image_bytes(const kv_cache *kv, int len);
/* The whole sequence -> buf[kv_image_bytes(len)]; and back into an empty sequence, whose pages (the caller has checked
 * that they are free) are taken here.  On error the sequence is empty again. */
int kv_image_save(const kv_cache *kv, int seq, uint8_t *buf, kvant_diag *diag);
int kv_image_load(kv_cache *kv, int seq, int len, const uint8_t *buf, kvant_diag *diag);
/* Takes the pages, pages of windows and tail pages of an empty sequence of length len. */
void kv_image_reserve(kv_cache *kv, int seq, int len);

#endif
