#if CLIPS_LOW && CLIPS_HIGH
return value < LOW ? LOW : value > HIGH ? HIGH : value;
#elif CLIPS_LOW
return value < LOW ? LOW : value;
#elif CLIPS_HIGH
return value > HIGH ? HIGH : value;
#else
return value;
#endif
