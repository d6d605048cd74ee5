// From a sum to a float; ROW: the scale of the channel and the step of the input are multiplied first.

IG_INLINE float NAME(int32_t sum, int32_t scale, int32_t bias, float step)
{
#if REALROW
    return (float)sum * (step * ig_as_float(scale)) + ig_as_float(bias);
#else
    return (float)sum * ig_as_float(scale) * step + ig_as_float(bias);
#endif
}
