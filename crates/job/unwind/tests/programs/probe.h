/* The probe library, and the comparison that every test program makes. */
#ifndef PROBE_H
#define PROBE_H
#define _GNU_SOURCE
#include <execinfo.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif
int probe_capture(size_t depth, uint64_t *frames, size_t room, size_t *count);
int probe_measure(size_t depth);
void probe_modules(uint32_t *defined, uint32_t *gone);
void probe_forget(void);
#ifdef __cplusplus
}
#endif

#define LARGEST_DEPTH 1000

static void show(const char *what, uint64_t *frames, size_t count) {
    void *addresses[LARGEST_DEPTH + 8];
    for (size_t index = 0; index < count; index++) addresses[index] = (void *)frames[index];
    char **names = backtrace_symbols(addresses, (int)count);
    fprintf(stderr, "%s: %zu frames\n", what, count);
    for (size_t index = 0; index < count; index++) fprintf(stderr, "  %3zu %s\n", index, names[index]);
}

/* Takes both stacks here and compares all frames but the first, which lies in this function.
   Returns the number of frames. */
__attribute__((noinline, unused)) static size_t check_stack(void) {
    static __thread void *expected[LARGEST_DEPTH + 8];
    static __thread uint64_t expected_words[LARGEST_DEPTH + 8];
    static __thread uint64_t taken[LARGEST_DEPTH + 8];
    size_t taken_count = 0;
    size_t expected_count = (size_t)backtrace(expected, LARGEST_DEPTH + 1);
    int id = probe_capture(LARGEST_DEPTH, taken, LARGEST_DEPTH + 8, &taken_count);
    int cut = expected_count > LARGEST_DEPTH;
    if (cut) expected_count = LARGEST_DEPTH;
    for (size_t index = 0; index < expected_count; index++) expected_words[index] = (uint64_t)expected[index];
    if (id == 0 || (id < 0) != cut || expected_count != taken_count ||
        memcmp(expected_words + 1, taken + 1, (expected_count - 1) * 8) != 0) {
        show("expected", expected_words, expected_count);
        show("taken", taken, taken_count);
        exit(1);
    }
    return taken_count;
}

static inline uint32_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 16);
}
#endif
