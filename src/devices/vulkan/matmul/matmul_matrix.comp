#version 450
/* matrix.glsl by VK_NV_cooperative_matrix. */
#include "matrix.glsl"
