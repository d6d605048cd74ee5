/* A plug-in of QEMU that counts basic blocks into a file which the other side has mapped too: `into=counts`.
 *
 * Blocks are found when QEMU translates them, so that running one costs two additions. Rows are as in counter.c; a file has
 * as many as fit. QEMU's header is not needed: these few functions have hardly changed since version 4.2. */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#ifndef PLUGIN_VERSION
#define PLUGIN_VERSION 1 /* QEMU up to 8.1; newer ones refuse it, and are asked again with 2 and 4 */
#endif

typedef struct {
    uint32_t address, size; /* size 0: the row is free */
    uint64_t count, taken;
} block;

struct qemu_plugin_tb;
struct qemu_plugin_insn;

extern void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*call)(uint64_t, struct qemu_plugin_tb *));
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, void (*call)(unsigned, void *), int flags, void *user);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t index);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
#if PLUGIN_VERSION < 3
extern const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
#else
extern size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *, void *to, size_t size);
#endif

__attribute__((visibility("default"))) int qemu_plugin_version = PLUGIN_VERSION;

static block *rows;
static size_t row_count;
static block *last; /* the block that runs now */

static void on_run(unsigned core, void *user)
{
    block *row = (block *)user;

    (void)core;
    row->count++;
    if (last != NULL && last->address + last->size != row->address)
        last->taken++;
    last = row;
}

/* Not qemu_plugin_insn_size: before an instruction that crosses a page QEMU looks ahead, and counts what it saw. */
static uint32_t thumb_size(const struct qemu_plugin_insn *insn)
{
    uint8_t half[2];
#if PLUGIN_VERSION < 3
    memcpy(half, qemu_plugin_insn_data(insn), 2);
#else
    (void)qemu_plugin_insn_data(insn, half, 2);
#endif
    return (half[1] >> 3) >= 0x1d ? 4 : 2;
}

static void on_translate(uint64_t id, struct qemu_plugin_tb *tb)
{
    uint32_t address = (uint32_t)qemu_plugin_tb_vaddr(tb);
    const struct qemu_plugin_insn *end = qemu_plugin_tb_get_insn(tb, qemu_plugin_tb_n_insns(tb) - 1);
    uint32_t size = (uint32_t)qemu_plugin_insn_vaddr(end) - address + thumb_size(end);
    size_t i;

    (void)id;
    for (i = (address >> 1) % row_count; rows[i].size != 0; i = (i + 1) % row_count)
        if (rows[i].address == address && rows[i].size == size)
            break;
    rows[i].address = address;
    rows[i].size = size;
    qemu_plugin_register_vcpu_tb_exec_cb(tb, on_run, 0, &rows[i]);
}

__attribute__((visibility("default"))) int qemu_plugin_install(uint64_t id, const void *info, int count, char **words)
{
    struct stat about;
    int file;

    (void)info;
    if (count != 1 || strncmp(words[0], "into=", 5) != 0)
        return -1;
    file = open(words[0] + 5, O_RDWR);
    if (file < 0 || fstat(file, &about) != 0)
        return -1;
    row_count = (size_t)about.st_size / sizeof(block);
    rows = mmap(NULL, (size_t)about.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (rows == MAP_FAILED)
        return -1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
    return 0;
}
