/* The device, live: samples come in one by one, and when a gesture begins, 119 of them are taken and recognised.
 *
 * A sample is six 16-bit numbers, low byte first, as an inertial sensor gives them: parts of its range, 32768 is all of it. They
 * come over semihosting here; on a board, read your sensor in `next_sample`. */
#include "gesture.h"
#include "live_config.h" /* names of the gestures, and how samples become the model's integers */
#include "semihosting.h"

#include <stddef.h>
#include <stdint.h>

int gesture_app_main(void);
int gesture_app_run(void);
unsigned char *gesture_app_arena(void);

/* The arena has room for the input until the model runs, and for the output after that. */
#define INPUT ((int8_t *)(gesture_app_arena() + LIVE_INPUT_OFFSET))
#define OUTPUT ((const int8_t *)(gesture_app_arena() + LIVE_OUTPUT_OFFSET))

static int next_sample(int16_t *sample)
{
    for (size_t axis = 0; axis < LIVE_AXES; axis++) {
        const int low = semihosting_getchar(), high = semihosting_getchar();

        if (low < 0 || high < 0)
            return 0;
        sample[axis] = (int16_t)(uint16_t)((uint32_t)low | (uint32_t)high << 8);
    }
    return 1;
}

/* A hand that moves: all of its acceleration, gravity included, is more than LIVE_START of the range. */
static int moves(const int16_t *sample)
{
    int32_t sum = 0;

    for (size_t axis = 0; axis < 3; axis++)
        sum += sample[axis] < 0 ? -sample[axis] : sample[axis];
    return sum >= LIVE_START;
}

/* To the step of the model's input: rounded, clamped to 8 bits. */
static int8_t quantised(int16_t value)
{
    const int32_t scaled = (int32_t)(((int64_t)value * LIVE_FACTOR + (1 << 19)) >> 20) + LIVE_ZERO;

    return (int8_t)(scaled < -128 ? -128 : scaled > 127 ? 127 : scaled);
}

static void say(const char *text)
{
    while (*text)
        semihosting_putchar(*text++);
}

/* From 0 to 100. */
static void say_percent(int32_t number)
{
    if (number >= 100)
        semihosting_putchar('1');
    if (number >= 10)
        semihosting_putchar((int)('0' + number / 10 % 10));
    semihosting_putchar((int)('0' + number % 10));
    say("%\n");
}

static void recognise(void)
{
    const int8_t *const chances = OUTPUT;
    size_t best = 0;

    if (gesture_app_run() != 0) {
        say("error\n");
        return;
    }
    for (size_t n = 1; n < LIVE_GESTURES; n++)
        if (chances[n] > chances[best])
            best = n;
    say(live_names[best]);
    semihosting_putchar(' ');
    say_percent(((int32_t)chances[best] + 128) * 100 / 255);
}

/* In place of the self-test that the package's own application runs. */
int gesture_app_main(void)
{
    int16_t sample[LIVE_AXES];
    size_t taken = 0;

    while (next_sample(sample)) {
        if (taken == 0 && !moves(sample))
            continue;
        for (size_t axis = 0; axis < LIVE_AXES; axis++)
            INPUT[taken * LIVE_AXES + axis] = quantised(sample[axis]);
        if (++taken == LIVE_SAMPLES) {
            recognise();
            taken = 0;
        }
    }
    return 0;
}
