#version 450
/* matrix.glsl by VK_KHR_cooperative_matrix: what glslc makes of it is translated (tools/spirv_khr.py), which tells right
 * operands from left ones by their columns. */
#define KHR
#include "matrix.glsl"
