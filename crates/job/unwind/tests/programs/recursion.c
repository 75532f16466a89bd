/* Recursion 2,000 deep, with stacks cut at 1,000 frames, and every depth limit. */
#include "probe.h"

__attribute__((noinline)) static int descend(int left) {
    if (left == 0) return (int)check_stack();
    return descend(left - 1) + (left & 1);
}

struct taken {
    size_t limit, count;
    int id;
    uint64_t frames[LARGEST_DEPTH + 8];
};

__attribute__((noinline)) static void limited(size_t depth) {
    static struct taken *volatile memory; /* unknown size and rounds keep one call site */
    if (!memory) memory = calloc(2, sizeof *memory);
    struct taken *taken = memory;
    taken[0].limit = LARGEST_DEPTH;
    taken[1].limit = depth;
    volatile size_t rounds = 2;
    for (size_t round = 0; round < rounds; round++) {
        struct taken *here = &taken[round];
        here->id = probe_capture(here->limit, here->frames, LARGEST_DEPTH + 8, &here->count);
    }
    int id = taken[1].id;
    size_t count = taken[1].count, whole_count = taken[0].count;
    int right = depth == 0 ? id == 0
              : depth < whole_count ? id < 0 && count == depth
                                    : id == taken[0].id && count == whole_count;
    if (!right || memcmp(taken[0].frames, taken[1].frames, (depth == 0 ? 0 : count) * 8) != 0) {
        fprintf(stderr, "limit %zu: id %d, %zu of %zu frames\n", depth, id, count, whole_count);
        exit(1);
    }
}

__attribute__((noinline)) static int descend_limited(int left) {
    if (left == 0) {
        for (size_t depth = 0; depth <= LARGEST_DEPTH; depth += depth < 60 ? 1 : 47) limited(depth);
        return 0;
    }
    return descend_limited(left - 1) + 1;
}

int main(void) {
    for (int depth = 0; depth <= 2000; depth += depth < 50 || (depth > 980 && depth < 1010) ? 1 : 50) descend(depth);
    descend_limited(30);
    descend_limited(990);
    puts("ok");
    return 0;
}
