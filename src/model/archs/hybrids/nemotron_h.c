/* archs/hybrids/nemotron_h.c: Nemotron-H: layers of Mamba2, attention or a squared-ReLU FFN, one block each. */
#include "model/build.h"

const arch_def arch_nemotron_h = { "nemotron_h", read_one_block_shapes, request_one_block, build_one_block };
