/* make/convert/convert_arch.h: what differs between the architectures that convert reads, as data: names of tensors,
 * keys, and how tensors change. */
#ifndef KVANT_MAKE_CONVERT_ARCH_H
#define KVANT_MAKE_CONVERT_ARCH_H

#include "make/convert/hf_config.h"
#include "make/gguf/gguf_keys.h"

enum convert_flag {
    CONVERT_ROPE_PAIRS = 1,        /* rows of q and k: the halves of a head become pairs */
    CONVERT_NORM_PLUS_1 = 2,       /* norm weights are stored less one */
    CONVERT_NO_OUTPUT = 4,         /* lm_head is the embedding; an equal copy in the file is left out */
    CONVERT_HEAD_DIM = 16,         /* head_dim is hidden_size / heads where config.json does not say */
    CONVERT_SPACE_PREFIX = 128,    /* add_space_prefix as tokenizer_config.json says */
    CONVERT_NO_SPACE_PREFIX = 256, /* a SentencePiece model adds no space before a text */
    CONVERT_PARTIAL = 512,         /* partial_rotary_factor counts */
    CONVERT_NO_KEY_LENGTH = 1024,  /* key_length and value_length are not said */
    CONVERT_KV_BY_LAYER = 2048,    /* head_count_kv is a list, 0 where layer_types has no full_attention */
    CONVERT_KV_ONE = 4096,         /* head_count_kv is 1: latent attention */
    CONVERT_FF_ADJUSTED = 16384,   /* feed_forward_length from block_ff_dim, as block_auto_adjust_ff_dim says */
    CONVERT_MROPE = 32768,         /* rope.dimension_sections */
    CONVERT_CHARACTERS = 65536,    /* a tokenizer of characters and bytes, not byte-level */
    CONVERT_BY_WINDOW = 131072,    /* heads and widths differ by kind of layer: convert_gemma4.c */
    CONVERT_FURTHER = 262144,      /* blocks for further tokens are kept */
    CONVERT_MXFP4 = 8192,          /* weights that are quantized to MXFP4 already are taken as they are */
};

struct convert_plan;
struct st_tensor;

typedef struct convert_name {
    const char *from, *to; /* what follows "model.layers.N." or "model.", without .weight or .bias */
} convert_name;

typedef struct convert_arch {
    const char *hf[4]; /* "architectures" of config.json */
    const char *arch;  /* general.architecture */
    unsigned flags;
    const convert_name *names;  /* before the common ones; NULL: none */
    const char *const *special; /* pairs of a kind of token and a token; NULL: none */
    /* Keys of its own, after the common ones. */
    int (*keys)(const hf_config *c, gguf_keys *k, kvant_diag *diag);
    /* Tensors that become others than renamed ones; *done 1: t is planned.  name: without what stands around the
     * language model; rest: behind "model.layers.N.".  NULL: none. */
    int (*tensor)(struct convert_plan *p, const struct st_tensor *t, const char *name, const char *rest, int *done,
                  kvant_diag *diag);
} convert_arch;

/* The architecture of a config.json; the error lists all. */
int convert_arch_find(const hf_config *c, const convert_arch **out, const char **its_name, kvant_diag *diag);
/* NULL at the end. */
const convert_arch *convert_arch_at(int i);

/* All keys of the architecture. */
int convert_put_keys(const convert_arch *a, const hf_config *c, int file_type, gguf_keys *k, kvant_diag *diag);
/* One key from the first of `names` that config.json has; none: no key. */
int convert_put_u32(const hf_config *c, const char *names, const char *key, gguf_keys *k, kvant_diag *diag);
int convert_put_number(const hf_config *c, const char *names, const char *key, gguf_keys *k, kvant_diag *diag);
/* A true or false of config.json; absent: no key. */
int convert_put_bool(const hf_config *c, const char *name, const char *key, gguf_keys *k, kvant_diag *diag);
/* expert_weights_norm, where it is not what readers take without it. */
int convert_put_norm(const hf_config *c, int by_reader, gguf_keys *k, kvant_diag *diag);
/* rope.dimension_count: partial_rotary_factor of a head. */
int convert_put_rotated(const hf_config *c, gguf_keys *k, kvant_diag *diag);
/* convert_rope.c: how many values of a head turn; partial: partial_rotary_factor may say a part. */
int convert_rotated(const hf_config *c, int partial, uint32_t *dim, kvant_diag *diag);
/* rope.freq_base, rope.freq_base_swa, rope.scaling.*, rope.dimension_sections. */
int convert_put_rope(const convert_arch *a, const hf_config *c, gguf_keys *k, kvant_diag *diag);
/* head_dim, or hidden_size / heads. */
int convert_head_dim(const hf_config *c, uint32_t *dim, kvant_diag *diag);
/* convert_gemma4.c: heads of the layers with full attention; head_count_kv and feed_forward_length, lists where layers
 * differ. */
int convert_full_head_dim(const hf_config *c, uint32_t *dim, kvant_diag *diag);
int convert_put_kv_by_window(const hf_config *c, gguf_keys *k, kvant_diag *diag);
int convert_put_ff_by_layer(const hf_config *c, gguf_keys *k, kvant_diag *diag);

/* convert_window.c: the window and the layers that have it; no key where none has. */
int convert_put_window(const hf_config *c, gguf_keys *k, kvant_diag *diag);

/* name -> "blk.3.attn_q.weight"; KVANT_OK with an empty text: left out (buffers, parts that are no language model). */
int convert_tensor_name(const convert_arch *a, const char *name, char *out, size_t size, kvant_diag *diag);
/* Why a tensor of this name is left out; NULL: it is not. */
const char *convert_left_out(const char *name);
/* 1: `name` belongs to layer *layer and has `rest` behind it. */
int convert_layer(const char *name, int *layer, const char **rest);

#endif
