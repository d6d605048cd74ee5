/* Counts basic blocks: Unicorn calls `count_block` at the start of each one, tens of millions of times a second.
 *
 * A table with open addressing, in memory of the caller. A block is its address and its size: one address may begin blocks
 * of several sizes. `taken` counts how often the branch at the end of a block went elsewhere than to the next instruction.
 *
 * Memories that a board has to wait for are regions: `count_access` is registered for each of them, and a cache that is in
 * between is simulated on the addresses. Code goes through the cache of its region, block by block. */
#include <stdint.h>

typedef struct {
    uint32_t address, size; /* size 0: the row is free */
    uint64_t count, taken;
} block;

typedef struct {
    uint32_t line_shift, fill_shift; /* log2 of their bytes */
    uint32_t set_mask, ways;
    uint32_t prefetch;   /* code in a row is fetched ahead */
    uint32_t clock;      /* of the last access: the oldest line of a set is replaced */
    uint32_t *tags;      /* [set][way]: number of the line + 1, 0 is free */
    uint32_t *ages;
    uint64_t *filled;    /* a bit for each fill of a line */
    uint64_t misses[2];  /* of data, of code */
} cache;

typedef struct {
    uint32_t first, last;
    uint32_t moved;     /* added to addresses for the caches */
    cache *data, *code; /* 0: none */
    uint64_t accesses, bytes;
} region;

typedef struct {
    block *rows;
    uint64_t mask;       /* number of rows - 1, a power of two - 1 */
    uint64_t used;       /* rows that are not free */
    uint64_t bytes_left; /* of code, before it is taken for a runaway */
    region *regions;     /* that code is in and that have a cache for it */
    uint64_t region_count;
    block *last;         /* the block that runs now */
    void (*stop)(void *engine);
    uint64_t stopped;    /* 1: out of bytes, 2: out of rows */
} counter;

/* Whether it was missing. */
static int look(cache *c, uint32_t address)
{
    uint32_t line = address >> c->line_shift, set = line & c->set_mask, way, oldest = 0;
    uint32_t *tags = c->tags + set * c->ways, *ages = c->ages + set * c->ways;
    uint64_t *filled = c->filled + set * c->ways;
    uint64_t bit = (uint64_t)1 << ((address & (((uint32_t)1 << c->line_shift) - 1)) >> c->fill_shift);
    int missing;

    c->clock++;
    for (way = 0; way < c->ways && tags[way] != line + 1; way++)
        if (c->clock - ages[way] > c->clock - ages[oldest])
            oldest = way;
    if (way == c->ways) {
        way = oldest;
        tags[way] = line + 1;
        filled[way] = 0;
    }
    ages[way] = c->clock;
    missing = (filled[way] & bit) == 0;
    filled[way] |= bit;
    return missing;
}

static void fetch(counter *c, uint32_t address, uint32_t size, int jumped)
{
    uint64_t i;

    for (i = 0; i < c->region_count; i++) {
        region *r = &c->regions[i];
        uint32_t at, step;
        if (r->code == 0 || address < r->first || address > r->last)
            continue;
        step = (uint32_t)1 << r->code->fill_shift;
        for (at = address & ~(step - 1); at < address + size; at += step) {
            int first = jumped && at <= address;
            if (look(r->code, at + r->moved) && (first || !r->code->prefetch))
                r->code->misses[1]++;
        }
    }
}

void count_block(void *engine, uint64_t address64, uint32_t size, void *user)
{
    counter *c = (counter *)user;
    uint32_t address = (uint32_t)address64;
    uint64_t at = (address >> 1) & c->mask;
    block *row = &c->rows[at];
    int jumped = 1;

    if (c->bytes_left < size) { /* the block does not run: whoever goes on here counts it */
        c->stopped = 1;
        c->stop(engine);
        return;
    }
    c->bytes_left -= size;
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
    if (c->last != 0) {
        jumped = c->last->address + c->last->size != address;
        c->last->taken += (uint64_t)jumped;
    }
    if (c->region_count != 0)
        fetch(c, address, size, jumped);
    c->last = row;
}

void count_access(void *engine, int kind, uint64_t address64, int size, int64_t value, void *user)
{
    region *r = (region *)user;
    uint32_t address = (uint32_t)address64 + r->moved;

    (void)engine, (void)kind, (void)value;
    r->accesses++;
    r->bytes += (uint32_t)size;
    if (r->data != 0) {
        r->data->misses[0] += (uint64_t)look(r->data, address);
        if ((address ^ (address + (uint32_t)size - 1)) >> r->data->fill_shift)
            r->data->misses[0] += (uint64_t)look(r->data, address + (uint32_t)size - 1);
    }
}

/* Two cores that compute parts of a layer at the same time: no byte that one has written is touched by the other. For every byte of
 * a memory and each core there is the number of the round in which it was last written, and read. */
typedef struct {
    uint32_t first, last;
    uint32_t *written[2], *read[2];
} shared_memory;

typedef struct {
    uint32_t round;
    uint32_t counts[2];             /* accesses of this core are part of a round */
    uint32_t ignored, ignored_last; /* where they hand over */
    uint32_t at, core, wrote;       /* the first byte that went wrong; `core` 0: none yet, else the number of the core + 1 */
    void (*stop)(void *engine);
} rounds;

typedef struct {
    rounds *all;
    shared_memory *memory;
    uint32_t core;
} watcher;

enum { WRITES = 17 }; /* UC_MEM_WRITE */

void check_access(void *engine, int kind, uint64_t address64, int size, int64_t value, void *user)
{
    watcher *w = (watcher *)user;
    rounds *all = w->all;
    shared_memory *m = w->memory;
    uint32_t address = (uint32_t)address64, mine = w->core, other = 1 - mine, i;

    (void)value;
    if (!all->counts[mine] || (address >= all->ignored && address <= all->ignored_last))
        return;
    for (i = address - m->first; i < address - m->first + (uint32_t)size && i <= m->last - m->first; i++) {
        int bad = m->written[other][i] == all->round || (kind == WRITES && m->read[other][i] == all->round);
        (kind == WRITES ? m->written : m->read)[mine][i] = all->round;
        if (bad && all->core == 0) {
            all->at = m->first + i;
            all->core = mine + 1;
            all->wrote = kind == WRITES;
            all->stop(engine);
        }
    }
}
