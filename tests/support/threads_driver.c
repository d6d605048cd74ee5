/* Runs a network in parts, as asked: `own` threads, those of a pool that is `given`, or `several` runs at the same time.
 *
 *   driver MODE RUNS input.bin output.bin */
#define _POSIX_C_SOURCE 200809L
#include "net.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORKERS 3
#define AGAIN 4

static unsigned char input[NET_INPUT_X_BYTES];
static unsigned char output[AGAIN][NET_OUTPUT_Y_BYTES];

/* A pool of the application: parts wait in a list, last in, first out. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    net_task task;
    void *argument;
    int waiting[64];
    int count, running, quit, started, finished;
} mine = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, NULL, {0}, 0, 0, 0, 0, 0};

static void *work(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&mine.lock);
    for (;;) {
        while (mine.count == 0 && !mine.quit)
            pthread_cond_wait(&mine.changed, &mine.lock);
        if (mine.count == 0)
            break;
        int part = mine.waiting[--mine.count];
        mine.running++;
        pthread_mutex_unlock(&mine.lock);
        mine.task(mine.argument, part);
        pthread_mutex_lock(&mine.lock);
        mine.running--;
        mine.finished++;
        pthread_cond_broadcast(&mine.changed);
    }
    pthread_mutex_unlock(&mine.lock);
    return NULL;
}

static void start(void *context, net_task task, void *argument, int parts)
{
    if (context != &mine)
        abort();
    pthread_mutex_lock(&mine.lock);
    mine.task = task;
    mine.argument = argument;
    for (int part = 0; part < parts; part++)
        mine.waiting[mine.count++] = part;
    mine.started += parts;
    pthread_cond_broadcast(&mine.changed);
    pthread_mutex_unlock(&mine.lock);
}

static void wait_for(void *context)
{
    (void)context;
    pthread_mutex_lock(&mine.lock);
    while (mine.count != 0 || mine.running != 0)
        pthread_cond_wait(&mine.changed, &mine.lock);
    pthread_mutex_unlock(&mine.lock);
}

static int infer(void *arena, int which)
{
    net_inputs in;
    net_outputs out;
    in.x = (const void *)input;
    out.y = (void *)output[which];
    return arena == NULL ? net_run(&in, &out) : net_run_in(arena, &in, &out);
}

static void *one_of_several(void *which)
{
    void *arena = NULL;
    if (posix_memalign(&arena, NET_ARENA_ALIGNMENT, NET_ARENA_BYTES) != 0)
        abort();
    for (int n = 0; n < 10; n++)
        if (infer(arena, *(int *)which) != NET_OK)
            abort();
    free(arena);
    return NULL;
}

static void transfer(const char *path, const char *mode, void *data, size_t size)
{
    FILE *file = fopen(path, mode);
    if (file == NULL || (mode[0] == 'r' ? fread(data, 1, size, file) : fwrite(data, 1, size, file)) != size || fclose(file) != 0)
        abort();
}

int main(int argc, char **argv)
{
    pthread_t threads[WORKERS + AGAIN];
    const char *mode = argc == 5 ? argv[1] : "";
    int runs = argc == 5 ? atoi(argv[2]) : 0;

    transfer(argv[3], "rb", input, sizeof input);
    if (strcmp(mode, "given") == 0) {
        net_use_pool(start, wait_for, &mine);
        for (int n = 0; n < WORKERS; n++)
            pthread_create(&threads[n], NULL, work, NULL);
    }
    if (strcmp(mode, "own") == 0 && net_threads_start() != NET_THREADS)
        abort();
    for (int n = 0; n < runs; n++)
        if (infer(NULL, 0) != NET_OK)
            return 1;
    if (strcmp(mode, "several") == 0) {
        static int numbers[AGAIN] = {0, 1, 2, 3};
        for (int n = 0; n < AGAIN; n++)
            pthread_create(&threads[n], NULL, one_of_several, &numbers[n]);
        for (int n = 0; n < AGAIN; n++)
            pthread_join(threads[n], NULL);
        for (int n = 1; n < AGAIN; n++)
            if (memcmp(output[0], output[n], sizeof output[0]) != 0)
                return 2;
    }
    if (strcmp(mode, "given") == 0) {
        pthread_mutex_lock(&mine.lock);
        mine.quit = 1;
        pthread_cond_broadcast(&mine.changed);
        pthread_mutex_unlock(&mine.lock);
        for (int n = 0; n < WORKERS; n++)
            pthread_join(threads[n], NULL);
        net_use_pool(NULL, NULL, NULL);
    }
    net_threads_stop();
    net_threads_stop(); /* there is nothing to stop */
    if (strcmp(mode, "own") == 0 && infer(NULL, 0) != NET_OK) /* which starts them again */
        return 3;
    net_threads_stop();
    transfer(argv[4], "wb", output[0], sizeof output[0]);
    printf("%d %d\n", mine.started, mine.finished);
    return 0;
}
