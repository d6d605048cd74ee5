/* A stand-in for CMSIS-NN: which kind of core this is. */
#ifndef ARM_NN_MATH_TYPES_H
#define ARM_NN_MATH_TYPES_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__ARM_FEATURE_DSP) && !defined(ARM_MATH_DSP)
#define ARM_MATH_DSP 1
#endif
#if defined(__ARM_FEATURE_MVE) && !defined(ARM_MATH_MVEI)
#define ARM_MATH_MVEI 1
#endif
#endif
