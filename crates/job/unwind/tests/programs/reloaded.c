/* A library of which several builds exist: VARIANT changes code and frame sizes, not the interface. */
#include <string.h>

#ifndef VARIANT
#define VARIANT 1
#endif

static volatile int used;

__attribute__((noinline)) static void inner(void (*callback)(void), int depth) {
    volatile char array[VARIANT * 40];
    memset((char *)array, depth, sizeof array);
    used += array[VARIANT];
#if VARIANT == 2
    used *= 3;
#elif VARIANT == 3
    used = used * 5 + 1;
    volatile long more[11];
    more[depth % 11] = used;
    used = (int)more[depth % 11];
#endif
    callback();
    used += array[0];
}

void enter(void (*callback)(void), int depth);

__attribute__((noinline)) static int middle(void (*callback)(void), int depth) {
#if VARIANT == 3
    volatile long array[33];
    array[depth] = 1;
    used += (int)array[depth];
#endif
    if (depth == 0) inner(callback, depth);
    else enter(callback, depth - 1);
    return used;
}

void enter(void (*callback)(void), int depth) { used += middle(callback, depth); }
