// Which of the compiled libraries this processor can run, and the release of their arrays.
#include "kernels.h"

#if defined(__x86_64__) || defined(_M_X64)
#include <cpuid.h>

// 3: all of x86-64-v3 (AVX2, FMA, BMI2 and the rest), registers saved by the system; else 1.
KERNEL longtail_level(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 1;
    const unsigned needed = bit_FMA | bit_SSE4_2 | bit_MOVBE | bit_POPCNT | bit_OSXSAVE | bit_AVX |
                            bit_F16C;
    if ((c & needed) != needed) return 1;
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 6) != 6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 1;
    const unsigned wanted = bit_AVX2 | bit_BMI | bit_BMI2;
    if ((b & wanted) != wanted || !__get_cpuid(0x80000001, &a, &b, &c, &d)) return 1;
    return c & (1u << 5) ? 3 : 1; // LZCNT
}
#else
KERNEL longtail_level(void) { return 1; }
#endif

KERNEL longtail_free(void *array) {
    free(array);
    return 0;
}
