#version 450
/* wide.glsl by VK_KHR_cooperative_matrix: as matmul_khr. */
#define KHR
#include "wide.glsl"
