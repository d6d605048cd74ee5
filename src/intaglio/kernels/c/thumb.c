#if defined(__thumb__) && defined(__OPTIMIZE__) && !defined(IG_NO_ASSEMBLY)
#define IG_THUMB 1
#endif
