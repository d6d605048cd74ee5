#include "npy.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define HEADER_BYTES 4096

typedef struct {
    const char *descr; /* in a .npy header */
    const char *name;
    size_t size_bytes;
} type_row;

/* In the order of npy_type. numpy has no bf16: its bits travel as u2. */
static const type_row TYPES[] = {
    {"<f4", "float32", 4}, {"<f8", "float64", 8}, {"<f2", "float16", 2}, {"<u2", "bfloat16 bits", 2},
    {"|i1", "int8", 1},    {"<i2", "int16", 2},   {"<i4", "int32", 4},   {"<i8", "int64", 8},
    {"|u1", "uint8", 1},   {"<u2", "uint16", 2},  {"<u4", "uint32", 4},  {"<u8", "uint64", 8},
    {"|b1", "bool", 1},
};

static const unsigned char MAGIC[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

int npy_is_float(npy_type type)
{
    return type == NPY_F32 || type == NPY_F64 || type == NPY_F16 || type == NPY_BF16;
}

size_t npy_element_bytes(npy_type type)
{
    return TYPES[type].size_bytes;
}

/* The text after `key` and its colon in the header's dictionary, or NULL. */
static const char *find(const char *header, const char *key)
{
    const char *at = strstr(header, key);
    if (at == NULL)
        return NULL;
    at += strlen(key);
    while (*at == ' ' || *at == ':')
        at++;
    return at;
}

static int same_descr(const char *text, npy_type type)
{
    const char *descr = TYPES[type].descr;
    if (*text != '\'' && *text != '"')
        return 0;
    text++;
    /* byte order does not matter for single bytes: |i1 and <i1 */
    if (TYPES[type].size_bytes == 1 ? strchr("|<=>", *text) == NULL : (*text != '<' && *text != '='))
        return 0;
    return *text != '\0' && strncmp(text + 1, descr + 1, strlen(descr) - 1) == 0 && (text[3] == '\'' || text[3] == '"');
}

static void print_shape(FILE *file, int rank, const size_t *shape)
{
    int i;
    fputc('[', file);
    for (i = 0; i < rank; i++)
        fprintf(file, i ? ",%lu" : "%lu", (unsigned long)shape[i]);
    fputc(']', file);
}

/* Shapes agree when they are the same but for axes of length 1. */
static int same_shape(const npy_tensor *tensor, int rank, const size_t *shape)
{
    int i = 0;
    int k = 0;
    for (;;) {
        while (i < rank && shape[i] == 1)
            i++;
        while (k < tensor->rank && tensor->shape[k] == 1)
            k++;
        if (i == rank || k == tensor->rank)
            return i == rank && k == tensor->rank;
        if (shape[i++] != tensor->shape[k++])
            return 0;
    }
}

/* `(1, 3, 8, 8)`: fills shape, returns the rank or -1. */
static int parse_shape(const char *text, size_t *shape)
{
    int rank = 0;
    if (*text++ != '(')
        return -1;
    for (;;) {
        size_t size = 0;
        while (*text == ' ' || *text == ',')
            text++;
        if (*text == ')')
            return rank;
        if (*text < '0' || *text > '9' || rank == NPY_MAX_RANK)
            return -1;
        while (*text >= '0' && *text <= '9') {
            if (size > SIZE_MAX / 16)
                return -1;
            size = size * 10 + (size_t)(*text++ - '0');
        }
        shape[rank++] = size;
    }
}

static int check_header(const char *path, const char *header, const npy_tensor *tensor)
{
    const char *descr = find(header, "'descr'");
    const char *order = find(header, "'fortran_order'");
    const char *extent = find(header, "'shape'");
    size_t shape[NPY_MAX_RANK];
    int rank = extent == NULL ? -1 : parse_shape(extent, shape);

    if (descr == NULL || order == NULL || rank < 0) {
        fprintf(stderr, "error: %s has a damaged .npy header\n", path);
        return 1;
    }
    if (!same_descr(descr, tensor->type)) {
        fprintf(stderr, "error: %s has type %.5s, but input %s needs %s (%s)\n", path, descr, tensor->name,
                TYPES[tensor->type].name, TYPES[tensor->type].descr);
        return 1;
    }
    if (!same_shape(tensor, rank, shape)) {
        fprintf(stderr, "error: %s has shape ", path);
        print_shape(stderr, rank, shape);
        fprintf(stderr, ", but %s needs ", tensor->name);
        print_shape(stderr, tensor->rank, tensor->shape);
        fputc('\n', stderr);
        return 1;
    }
    if (rank > 1 && strncmp(order, "True", 4) == 0) {
        fprintf(stderr, "error: %s is in Fortran order; save it with numpy.ascontiguousarray\n", path);
        return 1;
    }
    return 0;
}

/* Leaves the file at its data. Returns 0, or 1 after a message. */
static int read_header(const char *path, FILE *file, const npy_tensor *tensor)
{
    static char header[HEADER_BYTES + 1];
    unsigned char start[12];
    size_t length;
    size_t got = fread(start, 1, 10, file);

    if (got < 6 || memcmp(start, MAGIC, 6) != 0) { /* raw */
        if (fseek(file, 0, SEEK_SET) != 0) {
            fprintf(stderr, "error: cannot read %s\n", path);
            return 1;
        }
        return 0;
    }
    length = got < 10 ? 0 : (size_t)start[8] | (size_t)start[9] << 8;
    if (got == 10 && start[6] >= 2) {
        if (fread(start + 10, 1, 2, file) != 2)
            length = 0;
        else
            length |= (size_t)start[10] << 16 | (size_t)start[11] << 24;
    }
    if (length == 0 || length > HEADER_BYTES || fread(header, 1, length, file) != length) {
        fprintf(stderr, "error: %s has a damaged .npy header\n", path);
        return 1;
    }
    header[length] = '\0';
    return check_header(path, header, tensor);
}

int npy_read(const char *path, npy_tensor *tensor)
{
    FILE *file = fopen(path, "rb");
    unsigned char extra;
    int failed;

    if (file == NULL) {
        fprintf(stderr, "error: cannot open %s\n", path);
        return 1;
    }
    failed = read_header(path, file, tensor);
    if (!failed &&
        (fread(tensor->data, 1, tensor->size_bytes, file) != tensor->size_bytes || fread(&extra, 1, 1, file) != 0)) {
        fprintf(stderr, "error: %s does not hold exactly the %lu bytes of %s\n", path,
                (unsigned long)tensor->size_bytes, tensor->name);
        failed = 1;
    }
    fclose(file);
    return failed;
}

static int is_raw(const char *path)
{
    size_t length = strlen(path);
    return length > 4 && (strcmp(path + length - 4, ".bin") == 0 || strcmp(path + length - 4, ".raw") == 0);
}

static int write_header(FILE *file, const npy_tensor *tensor)
{
    char text[256];
    unsigned char start[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 0, 0};
    int i;
    int length = sprintf(text, "{'descr': '%s', 'fortran_order': False, 'shape': (", TYPES[tensor->type].descr);

    for (i = 0; i < tensor->rank; i++)
        length += sprintf(text + length, tensor->rank == 1 ? "%lu," : i ? ", %lu" : "%lu", (unsigned long)tensor->shape[i]);
    length += sprintf(text + length, "), }");
    while ((length + 11) % 64 != 0)
        text[length++] = ' ';
    text[length++] = '\n';
    start[8] = (unsigned char)(length & 255);
    start[9] = (unsigned char)(length >> 8);
    return fwrite(start, 1, 10, file) == 10 && fwrite(text, 1, (size_t)length, file) == (size_t)length;
}

int npy_write(const char *path, const npy_tensor *tensor)
{
    FILE *file = fopen(path, "wb");
    int good;

    if (file == NULL) {
        fprintf(stderr, "error: cannot write %s\n", path);
        return 1;
    }
    good = is_raw(path) || write_header(file, tensor);
    good = good && fwrite(tensor->data, 1, tensor->size_bytes, file) == tensor->size_bytes;
    good = fclose(file) == 0 && good;
    if (!good)
        fprintf(stderr, "error: cannot write %s\n", path);
    return !good;
}

static double half(uint16_t bits)
{
    int exponent = bits >> 10 & 31;
    int mantissa = bits & 1023;
    double value;
    if (exponent == 31)
        value = mantissa ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        value = ldexp(mantissa, -24);
    else
        value = ldexp(mantissa + 1024, exponent - 25);
    return bits & 0x8000 ? -value : value;
}

static double bfloat(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return (double)value;
}

double npy_value(const npy_tensor *tensor, size_t index)
{
    const void *data = tensor->data;
    switch (tensor->type) {
    case NPY_F32: return (double)((const float *)data)[index];
    case NPY_F64: return ((const double *)data)[index];
    case NPY_F16: return half(((const uint16_t *)data)[index]);
    case NPY_BF16: return bfloat(((const uint16_t *)data)[index]);
    case NPY_I8: return (double)((const int8_t *)data)[index];
    case NPY_I16: return (double)((const int16_t *)data)[index];
    case NPY_I32: return (double)((const int32_t *)data)[index];
    case NPY_I64: return (double)((const int64_t *)data)[index];
    case NPY_U8:
    case NPY_BOOL: return (double)((const uint8_t *)data)[index];
    case NPY_U16: return (double)((const uint16_t *)data)[index];
    case NPY_U32: return (double)((const uint32_t *)data)[index];
    case NPY_U64: return (double)((const uint64_t *)data)[index];
    }
    return 0.0;
}
