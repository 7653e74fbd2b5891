#version 450
/* wide.glsl by VK_NV_cooperative_matrix. */
#include "wide.glsl"
