#if defined(__ARM_FEATURE_MVE)
#include <arm_mve.h>
#define IG_MVE 1
#endif
