// From a sum to a byte. SATURATE is the instruction for the type; CLIPS_LOW, CLIPS_HIGH: the range is smaller than the type's.
// The quick ways, TWICE, CLIPPED and ONCE, take the sum doubled; SLOW and SLOW_ONCE do what the reference does; FLOAT is ONNX Runtime's.

IG_INLINE int32_t NAME(int32_t sum, int32_t multiplier, int32_t offset, int32_t right)
{
#if TWICE
    const int32_t value = SATURATE((ig_smmlar(sum, multiplier, offset) + (sum >> 31)) >> right);
#elif CLIPPED
    const int32_t value = SATURATE(ig_smmlar(sum, multiplier, offset) >> right);
#elif ONCE
    const int32_t value = SATURATE(ig_smmla(sum, multiplier, offset) >> right);
#elif SLOW
    const int32_t value = SATURATE(ig_scale32_i32(sum, multiplier, right) + offset);
#elif SLOWONCE
    const int32_t value = SATURATE(ig_scale_once_i32(sum, multiplier, right) + offset);
#else
    const int32_t value = SATURATE(ig_scale_float_i32(sum, ig_as_float(multiplier)) + offset);
    (void)right;
#endif
    #include "clipped.h"
}
