/* kernels_pages_q8.h: a rung that adds nothing but the integer path of a format of page scope. */
#if defined(__aarch64__)
const kvant_format_kernels CARD_KERNELS(CARD_NAME, dotprod) = { PAGE_Q8_KERNELS };
#else
const kvant_format_kernels CARD_KERNELS(CARD_NAME, avx512vnni) = { PAGE_Q8_KERNELS };
#endif
