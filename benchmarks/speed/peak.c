/* The most multiply-adds per second that one core does: independent chains of fused multiply-adds in registers. */
#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
enum { CHAINS = 12 };
typedef float vector __attribute__((vector_size(4 * LANES)));

float peak_run(long rounds);
long peak_macs(long rounds);

long peak_macs(long rounds)
{
    return rounds * CHAINS * LANES;
}

float peak_run(long rounds)
{
    vector sums[CHAINS];
    vector factor, term;
    for (int lane = 0; lane < LANES; lane++) {
        factor[lane] = 0.999f;
        term[lane] = 0.001f;
    }
    for (int chain = 0; chain < CHAINS; chain++) {
        sums[chain] = term * (float)chain;
    }
    for (long round = 0; round < rounds; round++) {
#pragma GCC unroll 12
        for (int chain = 0; chain < CHAINS; chain++) {
            sums[chain] = sums[chain] * factor + term;
        }
    }
    vector total = sums[0];
    for (int chain = 1; chain < CHAINS; chain++) {
        total += sums[chain];
    }
    return total[0];
}
