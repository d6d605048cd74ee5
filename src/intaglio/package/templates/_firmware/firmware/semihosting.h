/* Words to a debugger or an emulator; silence where there is none. */
#ifndef SEMIHOSTING_H
#define SEMIHOSTING_H

extern volatile unsigned char semihosting_absent; /* set when the first call was not heard */

void semihosting_putchar(int c);

/* The next byte that the debugger or emulator has; -1 at the end of what there is. */
int semihosting_getchar(void);

/* Ends an emulator with success or failure; returns if no emulator listens. */
void semihosting_exit(int failed);

#endif
