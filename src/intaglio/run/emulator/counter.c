/* Counts basic blocks: Unicorn calls `count_block` at the start of each one, tens of millions of times a second.
 *
 * A table with open addressing, in memory of the caller. A block is its address and its size: one address may begin blocks
 * of several sizes. `taken` counts how often the branch at the end of a block went elsewhere than to the next instruction.
 * `reads` counts loads from the memory that `count_read` is registered for. */
#include <stdint.h>

typedef struct {
    uint32_t address, size; /* size 0: the row is free */
    uint64_t count, taken;
} block;

typedef struct {
    block *rows;
    uint64_t mask;       /* number of rows - 1, a power of two - 1 */
    uint64_t used;       /* rows that are not free */
    uint64_t bytes_left; /* of code, before it is taken for a runaway */
    uint64_t reads;
    block *last;         /* the block that runs now */
    void (*stop)(void *engine);
    uint64_t stopped;    /* 1: out of bytes, 2: out of rows */
} counter;

void count_block(void *engine, uint64_t address64, uint32_t size, void *user)
{
    counter *c = (counter *)user;
    uint32_t address = (uint32_t)address64;
    uint64_t at = (address >> 1) & c->mask;
    block *row = &c->rows[at];

    while (row->size != 0 && (row->address != address || row->size != size)) {
        at = (at + 1) & c->mask;
        row = &c->rows[at];
    }
    if (row->size == 0) {
        if (c->used >= c->mask) {
            c->stopped = 2;
            c->stop(engine);
            return;
        }
        c->used++;
        row->address = address;
        row->size = size;
    }
    row->count++;
    if (c->last != 0 && c->last->address + c->last->size != address)
        c->last->taken++;
    c->last = row;
    if (c->bytes_left < size) {
        c->stopped = 1;
        c->stop(engine);
        return;
    }
    c->bytes_left -= size;
}

void count_read(void *engine, int kind, uint64_t address, int size, int64_t value, void *user)
{
    (void)engine, (void)kind, (void)address, (void)size, (void)value;
    ((counter *)user)->reads++;
}
