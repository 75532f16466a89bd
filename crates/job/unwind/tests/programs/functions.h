/* Sixteen functions of different shapes that call each other at random and end in a callback.
   Included by several units, each with its own name prefix and compiler flags. */
#include <alloca.h>
#include <stdint.h>
#include <string.h>

struct tour {
    uint64_t random;
    void (*at_end)(void);
    int (**functions)(struct tour *, int);
    uint32_t function_count;
};

#define NAME2(prefix, name) prefix##_##name
#define NAME1(prefix, name) NAME2(prefix, name)
#define NAME(name) NAME1(PREFIX, name)

static int NAME(go)(struct tour *tour, int depth) {
    if (depth <= 0) {
        tour->at_end();
        return 1;
    }
    tour->random ^= tour->random << 13;
    tour->random ^= tour->random >> 7;
    tour->random ^= tour->random << 17;
    return tour->functions[(tour->random >> 20) % tour->function_count](tour, depth - 1);
}

#define SHAPE(name, before, after)                                         \
    __attribute__((noinline)) int NAME(name)(struct tour * tour, int depth) { \
        before int result = NAME(go)(tour, depth);                         \
        after return result + 1;                                           \
    }

static volatile int NAME(sink);

SHAPE(plain, , )
SHAPE(small_array, volatile char array[24]; array[3] = 1;, NAME(sink) += array[3];)
SHAPE(large_array, volatile char array[5000]; array[77] = 1;, NAME(sink) += array[77];)
SHAPE(huge_array, volatile char array[70000]; array[77] = 1;, NAME(sink) += array[77];)
SHAPE(variable_array, volatile char *array = alloca((size_t)(depth * 16 + 1)); array[0] = 1;, NAME(sink) += array[0];)
SHAPE(aligned, volatile char array[64] __attribute__((aligned(64))); array[0] = 1;, NAME(sink) += array[0];)
SHAPE(aligned_variable, volatile char array[64] __attribute__((aligned(64))); array[0] = 1;
      volatile char *more = alloca((size_t)(depth * 8 + 1)); more[0] = 1;, NAME(sink) += array[0] + more[0];)
SHAPE(aligned_page, volatile char array[64] __attribute__((aligned(4096))); array[0] = 1;, NAME(sink) += array[0];)

__attribute__((noinline)) int NAME(many_arguments)(struct tour *tour, int depth, long a, long b, long c, long d, long e,
                                                   long f) {
    int result = NAME(go)(tour, depth);
    return result + (int)(a + b + c + d + e + f);
}
SHAPE(stack_arguments, , result += NAME(many_arguments)(tour, 0, 1, 2, 3, 4, 5, 6);)

__attribute__((noinline)) int NAME(many_registers)(struct tour *tour, int depth) {
    long a = depth, b = a * 3, c = b ^ 5, d = c + a, e = d * b, f = e - c, g = f ^ d;
    int result = NAME(go)(tour, depth);
    NAME(sink) += (int)(a + b * c + d * e + f * g);
    return result + (int)((a ^ b) & 1);
}
__attribute__((noinline)) int NAME(twice)(struct tour *tour, int depth) {
    if (depth > 3) return NAME(go)(tour, depth) + 1;
    return NAME(go)(tour, depth - 2) + NAME(go)(tour, depth - 1);
}
__attribute__((noinline)) int NAME(recursive)(struct tour *tour, int depth) {
    if (depth % 3 == 0) return NAME(go)(tour, depth) + 1;
    return NAME(recursive)(tour, depth - 1) + 1;
}
__attribute__((noinline)) int NAME(early_exit)(struct tour *tour, int depth) {
    if (depth < 0) return 0;
    volatile long array[9];
    array[depth % 9] = depth;
    int result = NAME(go)(tour, depth);
    return result + (int)array[depth % 9];
}

int (*NAME(functions)[])(struct tour *, int) = {
    NAME(plain),          NAME(small_array), NAME(large_array),      NAME(huge_array),   NAME(variable_array),
    NAME(aligned),        NAME(aligned_variable), NAME(aligned_page), NAME(stack_arguments), NAME(many_registers),
    NAME(twice),          NAME(recursive),   NAME(early_exit),
};
const uint32_t NAME(function_count) = sizeof(NAME(functions)) / sizeof(NAME(functions)[0]);
