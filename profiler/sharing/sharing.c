// Counts, under QEMU's user-mode emulation, how often threads touch cache lines that other threads write.
//
// This TCG plugin sees every load and store of the emulated program. Its counts are exact and equal on every machine;
// they contain no times. It prints two figures per operation, without the main thread:
//
//   write_shared_accesses_per_op   accesses to steadily write-shared lines: at least two threads touch the line in more
//                                  than one per cent of their operations, and one of them writes it that often
//   transfers_per_op_at_most       upper bound for transfers of a line between processors, over all interleavings and
//                                  without a threshold: a thread misses on a line at most once per own access, and at
//                                  most once per write by others
//
// Method: each thread has a table from lines to reads and writes, which only that thread accesses while the program
// runs. At the end all entries are sorted by line, and each group of entries of one line is judged.
//
// Arguments: ops=N, the operations of each thread. The plugin uses QEMU's plugin API, version 1 (QEMU 6.0 and later).
// Its header is not packaged for user mode, so the used part is declared here.

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- the used part of QEMU's plugin API ---

typedef uint64_t plugin_id;
typedef uint32_t meminfo;
struct block;
struct instruction;
struct system_info;
enum { NO_REGISTERS = 0, READS_AND_WRITES = 3 };

extern void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct block *));
extern size_t qemu_plugin_tb_n_insns(const struct block *);
extern struct instruction *qemu_plugin_tb_get_insn(const struct block *, size_t);
extern void qemu_plugin_register_vcpu_mem_cb(struct instruction *, void (*)(unsigned, meminfo, uint64_t, void *),
                                             int registers, int which, void *);
extern bool qemu_plugin_mem_is_store(meminfo);
extern void qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void *), void *);

#define EXPORT __attribute__((visibility("default")))
EXPORT int qemu_plugin_version = 1;

// --- one table per thread ---

enum { THREADS_MAX = 256, LINE_BITS = 6, FIRST_SLOTS = 4096 };
// Set in every key; a zero key marks an empty slot.
#define OCCUPIED (1ull << 63)

struct entry {
    uint64_t key;
    uint64_t reads, writes;
    unsigned thread;
};

struct table {
    struct entry *slots;
    size_t slots_count, used;
};

static struct table tables[THREADS_MAX];
static uint64_t ops = 1000000;

static void *zeroed(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory) {
        fputs("sharing: out of memory\n", stderr);
        abort();
    }
    return memory;
}

// Returns the slot of this key, or the empty slot for it.
static struct entry *slot(const struct table *table, uint64_t key) {
    size_t mask = table->slots_count - 1;
    size_t at = (key * 0x9E3779B97F4A7C15ull) >> 32 & mask;
    while (table->slots[at].key && table->slots[at].key != key)
        at = (at + 1) & mask;
    return &table->slots[at];
}

static void grow(struct table *table) {
    struct table larger = {.slots_count = table->slots_count ? table->slots_count * 2 : FIRST_SLOTS};
    larger.slots = zeroed(larger.slots_count, sizeof *larger.slots);
    for (size_t i = 0; i < table->slots_count; i++)
        if (table->slots[i].key)
            *slot(&larger, table->slots[i].key) = table->slots[i];
    larger.used = table->used;
    free(table->slots);
    *table = larger;
}

static void on_access(unsigned thread, meminfo info, uint64_t address, void *unused) {
    (void)unused;
    if (thread == 0 || thread >= THREADS_MAX)
        return; // the main thread, which starts and joins the others; or a thread beyond the tables
    struct table *table = &tables[thread];
    if (table->used * 2 >= table->slots_count)
        grow(table);
    uint64_t key = address >> LINE_BITS | OCCUPIED;
    struct entry *entry = slot(table, key);
    if (!entry->key) {
        entry->key = key;
        entry->thread = thread;
        table->used++;
    }
    if (qemu_plugin_mem_is_store(info))
        entry->writes++;
    else
        entry->reads++;
}

static void on_translation(plugin_id id, struct block *block) {
    (void)id;
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); i++)
        qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(block, i), on_access, NO_REGISTERS, READS_AND_WRITES,
                                         NULL);
}

// --- the judgement ---

struct verdict {
    uint64_t accesses, steady_accesses, steady_lines, transfers, hottest_line, hottest_accesses;
    unsigned threads;
};

static int by_key(const void *a, const void *b) {
    uint64_t x = ((const struct entry *)a)->key, y = ((const struct entry *)b)->key;
    return (x > y) - (x < y);
}

// Adds one line with `count` entries, one per thread that touched it.
static void judge_line(const struct entry *entries, size_t count, struct verdict *verdict) {
    uint64_t often = ops / 100 + 1, writes = 0, sum = 0;
    unsigned touching = 0;
    bool written = false;
    for (size_t i = 0; i < count; i++)
        writes += entries[i].writes;
    for (size_t i = 0; i < count; i++) {
        uint64_t own = entries[i].reads + entries[i].writes, others = writes - entries[i].writes;
        verdict->transfers += own < others ? own : others;
        if (own >= often) {
            touching++;
            sum += own;
            written |= entries[i].writes >= often;
        }
    }
    if (touching < 2 || !written)
        return;
    verdict->steady_lines++;
    verdict->steady_accesses += sum;
    if (sum > verdict->hottest_accesses) {
        verdict->hottest_accesses = sum;
        verdict->hottest_line = (entries[0].key & ~OCCUPIED) << LINE_BITS;
    }
}

static struct verdict judge(void) {
    struct verdict verdict = {0};
    size_t total = 0, count = 0;
    for (unsigned t = 0; t < THREADS_MAX; t++)
        total += tables[t].used;
    struct entry *all = zeroed(total + 1, sizeof *all);
    for (unsigned t = 0; t < THREADS_MAX; t++) {
        uint64_t accesses = 0;
        for (size_t i = 0; i < tables[t].slots_count; i++)
            if (tables[t].slots[i].key) {
                all[count++] = tables[t].slots[i];
                accesses += tables[t].slots[i].reads + tables[t].slots[i].writes;
            }
        // A thread with fewer accesses than operations did not run the loop.
        if (accesses && accesses >= ops) {
            verdict.threads++;
            verdict.accesses += accesses;
        }
    }
    qsort(all, count, sizeof *all, by_key);
    for (size_t first = 0, next; first < count; first = next) {
        for (next = first + 1; next < count && all[next].key == all[first].key; next++)
            ;
        judge_line(all + first, next - first, &verdict);
    }
    free(all);
    return verdict;
}

static void on_exit_of_program(plugin_id id, void *unused) {
    (void)id;
    (void)unused;
    struct verdict v = judge();
    double per = v.threads ? 1.0 / v.threads / (double)ops : 0;
    fprintf(stderr,
            "sharing: threads=%u ops_per_thread=%" PRIu64 " accesses_per_op=%.2f write_shared_lines=%" PRIu64
            " write_shared_accesses_per_op=%.4f transfers_per_op_at_most=%.4f hottest=%" PRIx64 "\n",
            v.threads, ops, (double)v.accesses * per, v.steady_lines, (double)v.steady_accesses * per,
            (double)v.transfers * per, v.hottest_line);
}

EXPORT int qemu_plugin_install(plugin_id id, const struct system_info *info, int argc, char **argv) {
    (void)info;
    for (int i = 0; i < argc; i++)
        if (strncmp(argv[i], "ops=", 4) == 0)
            ops = strtoull(argv[i] + 4, NULL, 10);
    if (ops == 0) {
        fputs("sharing: ops must be a positive number\n", stderr);
        return 1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_atexit_cb(id, on_exit_of_program, NULL);
    return 0;
}
