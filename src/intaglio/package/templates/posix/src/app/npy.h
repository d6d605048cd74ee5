/* Tensors in .npy and raw files, without heap: the caller gives the memory. */
#ifndef NPY_H
#define NPY_H

#include <stddef.h>

#define NPY_MAX_RANK 8

typedef enum {
    NPY_F32, NPY_F64, NPY_F16, NPY_BF16,
    NPY_I8, NPY_I16, NPY_I32, NPY_I64,
    NPY_U8, NPY_U16, NPY_U32, NPY_U64, NPY_BOOL
} npy_type;

typedef struct {
    const char *name;
    npy_type type;
    int rank;
    size_t shape[NPY_MAX_RANK];
    size_t elements;
    size_t size_bytes;
    double tolerance; /* of the largest value, in the self-test; 0: exact */
    void *data;
} npy_tensor;

/* Fill `tensor->data` from a .npy file, or from a raw file of exactly its size.
 * Returns 0, or 1 after a message on stderr. */
int npy_read(const char *path, npy_tensor *tensor);

/* Write a .npy file; a path that ends in .bin or .raw gets the bare bytes. */
int npy_write(const char *path, const npy_tensor *tensor);

/* Element `index` as a number, to print or compare. */
double npy_value(const npy_tensor *tensor, size_t index);

int npy_is_float(npy_type type);
size_t npy_element_bytes(npy_type type);

#endif
