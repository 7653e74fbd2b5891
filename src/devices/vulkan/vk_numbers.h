/* vk_numbers.h: numbers that C and GLSL share; preprocessor text only, so that both read it.  Formats, weight types and
 * the places of their tables come from the cards. */
#ifndef KVANT_DEVICES_VK_NUMBERS_H
#define KVANT_DEVICES_VK_NUMBERS_H

#include "cards/vulkan.h"

/* Not a file type: q8_0 as vk_weight.c lays it out, a row's codes, then its scales. */
#define VK_WT_q8_split VK_WT_COUNT

#define VK_ARGMAX_PIECE 8192           /* values of a row for one workgroup */

#endif
