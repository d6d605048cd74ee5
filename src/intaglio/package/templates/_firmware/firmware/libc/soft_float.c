/* Sums, products, comparisons and conversions of floats for cores without a unit for them, in place of the compiler's functions:
 * faster, and with hardly any way that takes longer than another, so that a bound of the time is close to what is observed.
 *
 * Results are rounded to nearest, ties to even, as IEEE 754 has it, but for numbers below 2^-126: operands below are zero, and
 * so are results, with their sign. A number that is not a number is 0x7fc00000. Weak: the functions of a library that defines
 * all of its own win.
 *
 * `steady.h` says whether sums and products take the same way for zeros, and for all sizes of two numbers (`--safety steady`). */
#include <stdint.h>

#include "steady.h"

#if defined(SOFT_FLOAT_TEST)
#define ADD test_add
#define SUB test_sub
#define MUL test_mul
#define FROM_I32 test_from_i32
#define FROM_U32 test_from_u32
#define TO_I32 test_to_i32
#define TO_U32 test_to_u32
#define SOFT_FLOAT
#elif defined(__arm__) && defined(__SOFTFP__)
#define ADD __aeabi_fadd
#define SUB __aeabi_fsub
#define MUL __aeabi_fmul
#define FROM_I32 __aeabi_i2f
#define FROM_U32 __aeabi_ui2f
#define TO_I32 __aeabi_f2iz
#define TO_U32 __aeabi_f2uiz
#define SOFT_FLOAT
#elif defined(__riscv) && __riscv_xlen == 32 && !defined(__riscv_flen)
#define ADD __addsf3
#define SUB __subsf3
#define MUL __mulsf3
#define FROM_I32 __floatsisf
#define FROM_U32 __floatunsisf
#define TO_I32 __fixsfsi
#define TO_U32 __fixunssfsi
#define SOFT_FLOAT
#endif

#ifdef SOFT_FLOAT

#define WEAK __attribute__((weak, used))
#define SIGN 0x80000000u
#define INFINITE 0x7f800000u
#define NOT_A_NUMBER 0x7fc00000u
#define MANTISSA 0x007fffffu
#define ONE 0x00800000u /* above the mantissa: the bit that is not stored, or 1 in the exponent */

typedef uint32_t bits; /* of a float, which such cores pass in registers for integers */

/* How far `x`, which is not zero, can be shifted to the left. */
static inline int32_t room(uint32_t x)
{
#if !defined(__ARM_ARCH_6M__) && !(defined(__riscv) && !defined(__riscv_zbb))
    return (int32_t)__builtin_clz(x);
#elif STEADY_FLOATS
    uint32_t n = (uint32_t)(x < 0x10000u) << 4;
    x <<= n;
    uint32_t step = (uint32_t)(x < 0x1000000u) << 3;
    x <<= step;
    n += step;
    step = (uint32_t)(x < 0x10000000u) << 2;
    x <<= step;
    n += step;
    step = (uint32_t)(x < 0x40000000u) << 1;
    x <<= step;
    return (int32_t)(n + step + (~x >> 31));
#else
    int32_t n = 0;
    if (x >> 16 == 0) {
        x <<= 16;
        n = 16;
    }
    if (x >> 24 == 0) {
        x <<= 8;
        n += 8;
    }
    if (x >> 28 == 0) {
        x <<= 4;
        n += 4;
    }
    if (x >> 30 == 0) {
        x <<= 2;
        n += 2;
    }
    return n + (int32_t)(~x >> 31);
#endif
}

#if STEADY_FLOATS
/* All ones where `x` is not zero, without a branch. */
static inline uint32_t mask(uint32_t x)
{
    return 0u - ((x | (0u - x)) >> 31);
}

/* With the bit that is not stored; 0 where the exponent is 0. */
static inline uint32_t significant(bits x, uint32_t exponent)
{
    return ((x & MANTISSA) | ONE) & mask(exponent);
}
#endif

/* `a` is infinite or not a number, and `b` not larger. */
static bits special_sum(bits a, bits b)
{
    if ((a & MANTISSA) != 0 || a == (b ^ SIGN))
        return NOT_A_NUMBER;
    return a;
}

bits ADD(bits a, bits b);
#if STEADY_FLOATS
WEAK bits ADD(bits a, bits b)
{
    const uint32_t swap = (a ^ b) & (0u - (uint32_t)(a << 1 < b << 1)); /* the larger one first */
    a ^= swap;
    b ^= swap;
    int32_t exponent = (int32_t)(a >> 23 & 255u);
    const uint32_t other = b >> 23 & 255u;
    if (exponent == 255)
        return special_sum(a, b);
    const uint32_t distance = (uint32_t)exponent - other, far = 0u - (uint32_t)(distance > 31);
    const uint32_t behind = (distance | far) & 31u;
    const uint32_t small = significant(b, other) << 3;
    const uint32_t part = small >> behind | (mask((small << (31 - behind)) << 1) & 1u);
    const uint32_t flip = (uint32_t)((int32_t)(a ^ b) >> 31);
    uint32_t sum = (significant(a, (uint32_t)exponent) << 3) + (part ^ flip) - flip;
    if (sum == 0)
        return a & b & SIGN;
    const int32_t shift = room(sum);
    sum <<= shift;
    exponent += 5 - shift;
    if (exponent <= 0)
        return a & SIGN;
    if (exponent >= 255)
        return (a & SIGN) | INFINITE;
    sum = sum >> 1 | (sum & 1);
    return (a & SIGN) + ((uint32_t)(exponent - 1) << 23) + ((sum + 63 + (sum >> 7 & 1)) >> 7);
}
#else
WEAK bits ADD(bits a, bits b)
{
    uint32_t x = a << 1, y = b << 1; /* without their signs */
    if (x < y) {
        const uint32_t larger = y;
        y = x;
        x = larger;
        a ^= b;
        b ^= a;
        a ^= b;
    }
    int32_t exponent = (int32_t)(x >> 24);
    const uint32_t behind = (uint32_t)exponent - (y >> 24);
    if (exponent == 255)
        return special_sum(a, b);
    if (y >> 24 == 0)
        return exponent == 0 ? a & b & SIGN : a;
    if (behind > 25) /* less than half of the last place, also of the number below `a` */
        return a;
    uint32_t sum = ((a & MANTISSA) | ONE) << 3; /* three bits more, of which the last stands for all behind it */
    const uint32_t small = ((b & MANTISSA) | ONE) << 3;
    const uint32_t part = small >> behind | (uint32_t)((small << (31 - behind)) << 1 != 0);
    if ((int32_t)(a ^ b) >= 0) {
        sum += part;
        if (sum >> 27 != 0) {
            sum = sum >> 1 | (sum & 1);
            if (++exponent == 255)
                return (a & SIGN) | INFINITE;
        }
    } else {
        sum -= part;
        if (sum == 0)
            return 0;
        const int32_t shift = room(sum) - 5;
        sum <<= shift;
        exponent -= shift;
        if (exponent <= 0)
            return a & SIGN;
    }
    return (a & SIGN) + ((uint32_t)(exponent - 1) << 23) + ((sum + 3 + (sum >> 3 & 1)) >> 3);
}
#endif

bits SUB(bits a, bits b);
WEAK bits SUB(bits a, bits b)
{
    return ADD(a, b ^ SIGN);
}

/* One of them is zero, infinite, not a number, or below 2^-126. */
static bits special_product(bits a, bits b)
{
    const uint32_t x = a << 1, y = b << 1, sign = (a ^ b) & SIGN;
    const uint32_t larger = x > y ? x : y, smaller = x > y ? y : x;
    if (larger > INFINITE << 1)
        return NOT_A_NUMBER;
    if (larger == INFINITE << 1)
        return smaller < ONE << 1 ? NOT_A_NUMBER : sign | INFINITE;
    return sign;
}

/* The first 32 of the 48 bits of a product, the last of them 1 if any behind it is. */
static inline uint32_t product_of(uint32_t p, uint32_t q)
{
#if defined(__ARM_ARCH_6M__) /* multiplies 32 bits by 32 into 32 */
    const uint32_t low = (p & 255u) * (q & 255u);
    const uint32_t middle = (p >> 8) * (q & 255u) + (p & 255u) * (q >> 8) + (low >> 8);
    const uint32_t high = (p >> 8) * (q >> 8) + (middle >> 8);
    const uint32_t behind = (middle | low) & 255u;
#else
    const uint64_t whole = (uint64_t)(p << 8) * (q << 8);
    const uint32_t high = (uint32_t)(whole >> 32);
    const uint32_t behind = (uint32_t)whole;
#endif
#if STEADY_FLOATS
    return high | (mask(behind) & 1u);
#else
    return high | (uint32_t)(behind != 0);
#endif
}

bits MUL(bits a, bits b);
#if STEADY_FLOATS
WEAK bits MUL(bits a, bits b)
{
    const uint32_t first = a >> 23 & 255u, second = b >> 23 & 255u, sign = (a ^ b) & SIGN;
    if (first == 255u || second == 255u)
        return special_product(a, b);
    uint32_t product = product_of(significant(a, first), significant(b, second));
    const uint32_t carry = product >> 31;
    product = product >> carry | (product & carry);
    const int32_t exponent = ((int32_t)(first + second + carry) - 127) & (int32_t)mask(product);
    if (exponent >= 255)
        return sign | INFINITE;
    const uint32_t result = ((uint32_t)(exponent - 1) << 23) + ((product + 63 + (product >> 7 & 1)) >> 7);
    return sign | (result & ~(uint32_t)((int32_t)(result - ONE) >> 31)); /* below 2^-126: zero */
}
#else
WEAK bits MUL(bits a, bits b)
{
    const uint32_t first = a >> 23 & 255u, second = b >> 23 & 255u;
    if (first - 1 >= 254u || second - 1 >= 254u)
        return special_product(a, b);
    int32_t exponent = (int32_t)(first + second) - 127;
    uint32_t product = product_of((a & MANTISSA) | ONE, (b & MANTISSA) | ONE);
    if (product >> 31 != 0) {
        product = product >> 1 | (product & 1);
        exponent++;
    }
    if (exponent <= 0 || exponent >= 255) { /* just below 2^-126 may still be rounded to it */
        if (exponent == 0 && product >= 0x7fffffc0u)
            return ((a ^ b) & SIGN) | ONE;
        return ((a ^ b) & SIGN) | (exponent > 0 ? INFINITE : 0);
    }
    return ((a ^ b) & SIGN) + ((uint32_t)(exponent - 1) << 23) + ((product + 63 + (product >> 7 & 1)) >> 7);
}
#endif

bits FROM_U32(uint32_t x);
WEAK bits FROM_U32(uint32_t x)
{
    if (x == 0)
        return 0;
    const int32_t shift = room(x);
    x <<= shift;
    x = x >> 1 | (x & 1);
    return ((uint32_t)(157 - shift) << 23) + ((x + 63 + (x >> 7 & 1)) >> 7);
}

bits FROM_I32(int32_t x);
WEAK bits FROM_I32(int32_t x)
{
    const uint32_t sign = (uint32_t)x & SIGN;
    return sign | FROM_U32(sign != 0 ? 0u - (uint32_t)x : (uint32_t)x);
}

/* Towards zero; the nearest integer where there is none, and 0 where it is not a number. */
int32_t TO_I32(bits x);
WEAK int32_t TO_I32(bits x)
{
    const int32_t exponent = (int32_t)(x >> 23 & 255u) - 127;
    if (exponent < 0)
        return 0;
    if (exponent > 30)
        return x << 1 > INFINITE << 1 ? 0 : (x & SIGN) != 0 ? INT32_MIN : INT32_MAX;
    const uint32_t size = ((x & MANTISSA) | ONE) << 8 >> (31 - exponent);
    return (x & SIGN) != 0 ? -(int32_t)size : (int32_t)size;
}

uint32_t TO_U32(bits x);
WEAK uint32_t TO_U32(bits x)
{
    const int32_t exponent = (int32_t)(x >> 23 & 255u) - 127;
    if (exponent < 0 || (x & SIGN) != 0)
        return 0;
    if (exponent > 31)
        return x > INFINITE ? 0 : UINT32_MAX;
    return ((x & MANTISSA) | ONE) << 8 >> (31 - exponent);
}

/* Comparisons ----------------------------------------------------------------------------------------------------------- */

static inline int is_number(bits x)
{
    return x << 1 <= INFINITE << 1;
}

/* A number that is ordered as the float is; -0 is 0. */
static inline int32_t place(bits x)
{
    return (x & SIGN) != 0 ? (int32_t)(SIGN - x) : (int32_t)x;
}

#if defined(SOFT_FLOAT_TEST)
int test_less(bits a, bits b);
int test_less(bits a, bits b)
{
    return is_number(a) && is_number(b) && place(a) < place(b);
}
#elif defined(__arm__)
int __aeabi_fcmpeq(bits a, bits b);
WEAK int __aeabi_fcmpeq(bits a, bits b)
{
    return is_number(a) && is_number(b) && place(a) == place(b);
}

int __aeabi_fcmplt(bits a, bits b);
WEAK int __aeabi_fcmplt(bits a, bits b)
{
    return is_number(a) && is_number(b) && place(a) < place(b);
}

int __aeabi_fcmple(bits a, bits b);
WEAK int __aeabi_fcmple(bits a, bits b)
{
    return is_number(a) && is_number(b) && place(a) <= place(b);
}

int __aeabi_fcmpgt(bits a, bits b);
WEAK int __aeabi_fcmpgt(bits a, bits b)
{
    return is_number(a) && is_number(b) && place(a) > place(b);
}

int __aeabi_fcmpge(bits a, bits b);
WEAK int __aeabi_fcmpge(bits a, bits b)
{
    return is_number(a) && is_number(b) && place(a) >= place(b);
}

int __aeabi_fcmpun(bits a, bits b);
WEAK int __aeabi_fcmpun(bits a, bits b)
{
    return !is_number(a) || !is_number(b);
}
#else
/* -1, 0 or 1, and `odd` where one is not a number */
static inline int compare(bits a, bits b, int odd)
{
    if (!is_number(a) || !is_number(b))
        return odd;
    return (place(a) > place(b)) - (place(a) < place(b));
}

int __eqsf2(bits a, bits b);
WEAK int __eqsf2(bits a, bits b)
{
    return compare(a, b, 1);
}

int __nesf2(bits a, bits b);
WEAK int __nesf2(bits a, bits b)
{
    return compare(a, b, 1);
}

int __ltsf2(bits a, bits b);
WEAK int __ltsf2(bits a, bits b)
{
    return compare(a, b, 1);
}

int __lesf2(bits a, bits b);
WEAK int __lesf2(bits a, bits b)
{
    return compare(a, b, 1);
}

int __gtsf2(bits a, bits b);
WEAK int __gtsf2(bits a, bits b)
{
    return compare(a, b, -1);
}

int __gesf2(bits a, bits b);
WEAK int __gesf2(bits a, bits b)
{
    return compare(a, b, -1);
}

int __unordsf2(bits a, bits b);
WEAK int __unordsf2(bits a, bits b)
{
    return !is_number(a) || !is_number(b);
}
#endif
#endif
