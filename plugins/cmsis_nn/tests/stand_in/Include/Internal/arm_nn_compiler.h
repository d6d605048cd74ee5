/* A stand-in for CMSIS-NN: what is different between compilers. */
#ifndef ARM_NN_COMPILER_H
#define ARM_NN_COMPILER_H
#define __STATIC_INLINE static inline
#endif
