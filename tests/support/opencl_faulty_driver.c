/* An OpenCL library that passes all on to the real one, except for what a test asks of it by variables:
 *   FAULT=crash        loading a binary ends the process         crashrun   the first launch of a loaded kernel does
 *        =refuse       binaries are refused                      buildfail  they are taken, and fail when they are built
 *        =wrong        kernels of binaries leave out some work   nobinary   programs have no binaries
 *        =optimised    kernels of source leave out some work when they are built with optimisations
 *        =always       kernels leave out some work, however they are built
 *   KERNELS=TEXT       optimised and always: only kernels whose name has that text in it
 *   GPU=1              the first device is a GPU, and optimised and always concern it alone
 *   DRIVER=VERSION     the driver's version
 *   HANDED=PATH        every binary that is handed to the driver is added to that file: u64 size, bytes
 *   KILL_AT=N          with LD_PRELOAD: the process is killed when our code is about to change something on disk for the N-th time */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define MOST 256
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

typedef const void *objects[MOST];

static objects loaded; /* programs that came as binaries, and their kernels */
static objects bad;    /* programs and kernels that compute wrong */
static void *gpu;

static int fault(const char *name)
{
    const char *asked = getenv("FAULT");
    return asked != NULL && strcmp(asked, name) == 0;
}

static int is_in(const objects set, const void *object)
{
    for (int i = 0; i < MOST; i++)
        if (object != NULL && set[i] == object)
            return 1;
    return 0;
}

/* Addresses are used again: a new object at the place of an earlier one is in the set only if it is noted now. */
static void note(objects set, const void *object, int is_one)
{
    for (int i = 0; i < MOST; i++)
        if (set[i] == object)
            set[i] = NULL;
    for (int i = 0; i < MOST && is_one; i++)
        if (set[i] == NULL) {
            set[i] = object;
            return;
        }
}

void *clCreateProgramWithSource(void *context, uint32_t count, const char **texts, const size_t *sizes, int32_t *error)
{
    void *program = REAL(clCreateProgramWithSource)(context, count, texts, sizes, error);
    note(loaded, program, 0);
    return program;
}

void *clCreateProgramWithBinary(void *context, uint32_t count, const void *devices, const size_t *sizes, const unsigned char **binaries,
                                int32_t *status, int32_t *error)
{
    FILE *file = getenv("HANDED") == NULL ? NULL : fopen(getenv("HANDED"), "ab");
    const uint64_t size = sizes[0];
    void *program;

    if (file != NULL) {
        fwrite(&size, sizeof size, 1, file);
        fwrite(binaries[0], 1, sizes[0], file);
        fclose(file);
    }
    if (fault("crash"))
        abort();
    if (fault("refuse")) {
        *error = -42;
        return NULL;
    }
    program = REAL(clCreateProgramWithBinary)(context, count, devices, sizes, binaries, status, error);
    note(loaded, program, program != NULL);
    return program;
}

int32_t clBuildProgram(void *program, uint32_t count, const void *devices, const char *options, void *then, void *data)
{
    const int optimised = options == NULL || strstr(options, "-cl-opt-disable") == NULL;

    if (fault("buildfail") && is_in(loaded, program))
        return -11;
    note(bad, program, (gpu == NULL || *(void *const *)devices == gpu) && (fault("always") || (fault("optimised") && optimised && !is_in(loaded, program))));
    return REAL(clBuildProgram)(program, count, devices, options, then, data);
}

void *clCreateKernel(void *program, const char *name, int32_t *error)
{
    void *kernel = REAL(clCreateKernel)(program, name, error);
    const char *only = getenv("KERNELS");
    note(loaded, kernel, kernel != NULL && is_in(loaded, program));
    note(bad, kernel, kernel != NULL && is_in(bad, program) && (only == NULL || strstr(name, only) != NULL));
    return kernel;
}

int32_t clEnqueueNDRangeKernel(void *queue, void *kernel, uint32_t dims, const size_t *offset, const size_t *global, const size_t *local,
                               uint32_t waits, const void *list, void *event)
{
    size_t moved[3] = {offset == NULL ? 0 : offset[0], offset == NULL || dims < 2 ? 0 : offset[1], offset == NULL || dims < 3 ? 0 : offset[2]};

    if (fault("crashrun") && is_in(loaded, kernel))
        abort();
    if ((fault("wrong") && is_in(loaded, kernel)) || is_in(bad, kernel))
        moved[0] += local[0]; /* the first work-groups are never done; those too many check their bounds */
    return REAL(clEnqueueNDRangeKernel)(queue, kernel, dims, moved, global, local, waits, list, event);
}

int32_t clGetProgramInfo(void *program, uint32_t what, size_t size, void *value, size_t *real_size)
{
    return fault("nobinary") ? -5 : REAL(clGetProgramInfo)(program, what, size, value, real_size);
}

int32_t clGetDeviceInfo(void *device, uint32_t what, size_t size, void *value, size_t *real_size)
{
    const char *version = getenv("DRIVER");

    if (getenv("GPU") != NULL && gpu == NULL)
        gpu = device;
    if (what == 0x1000 && device == gpu && gpu != NULL && value != NULL) {
        *(uint64_t *)value = 4;
        return 0;
    }
    if (what != 0x102D || version == NULL)
        return REAL(clGetDeviceInfo)(device, what, size, value, real_size);
    if (value != NULL && size > strlen(version))
        strcpy(value, version);
    if (real_size != NULL)
        *real_size = strlen(version) + 1;
    return 0;
}

/* Killed at a moment --------------------------------------------------------------------------------------------------- */

/* The driver's own calls do not count. */
static void one_more(const void *caller)
{
    static int calls;
    const char *at = getenv("KILL_AT");
    Dl_info from;

    if (at != NULL && dladdr(caller, &from) != 0 && strstr(from.dli_fname, "/bin/tiny") != NULL && ++calls == atoi(at))
        kill(getpid(), SIGKILL);
}

int flock(int file, int how)
{
    one_more(__builtin_return_address(0));
    return REAL(flock)(file, how);
}

ssize_t write(int file, const void *data, size_t size)
{
    one_more(__builtin_return_address(0));
    return REAL(write)(file, data, size);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t at)
{
    one_more(__builtin_return_address(0));
    return REAL(pwrite)(file, data, size, at);
}

int ftruncate(int file, off_t size)
{
    one_more(__builtin_return_address(0));
    return REAL(ftruncate)(file, size);
}

int fsync(int file)
{
    one_more(__builtin_return_address(0));
    return REAL(fsync)(file);
}

int rename(const char *from, const char *to)
{
    one_more(__builtin_return_address(0));
    return REAL(rename)(from, to);
}

int unlink(const char *path)
{
    one_more(__builtin_return_address(0));
    return REAL(unlink)(path);
}

int unlinkat(int folder, const char *path, int flags)
{
    one_more(__builtin_return_address(0));
    return REAL(unlinkat)(folder, path, flags);
}
