/* Known call tree through functions without unwind tables. */
#include "probe.h"

void untabled(void (*callback)(void), int depth);

static uint64_t taken[LARGEST_DEPTH + 8];
static size_t taken_count;
static void callback(void) { probe_capture(LARGEST_DEPTH, taken, LARGEST_DEPTH + 8, &taken_count); }

__attribute__((noinline)) static uint64_t outer(int depth) {
    untabled(callback, depth);
    __asm__ volatile("");
    return (uint64_t)__builtin_return_address(0);
}

int main(void) {
    for (int depth = 1; depth < 30; depth++) {
        uint64_t in_main = outer(depth);
        size_t position = (size_t)depth + 3; /* callback, depth + 1 untabled frames, outer, main */
        if (taken_count <= position || taken[position] != in_main || taken[taken_count - 1] == 0) {
            fprintf(stderr, "depth %d\n", depth);
            show("taken", taken, taken_count);
            return 1;
        }
    }
    puts("ok");
    return 0;
}
