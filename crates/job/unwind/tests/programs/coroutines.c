/* Stacks on coroutine stacks that end at unreadable memory, and on memory that is reused. */
#include "probe.h"

#include <sys/mman.h>
#include <ucontext.h>

#define PREFIX program
#include "functions.h"

static ucontext_t outside, inside;
static long checked;

static void at_end(void) {
    check_stack();
    checked++;
    swapcontext(&inside, &outside);
    check_stack();
}

static void body(void) {
    struct tour tour = {777 + (uint64_t)checked, at_end, program_functions, program_function_count};
    for (int tree = 0; tree < 20; tree++) program_functions[tree % (int)program_function_count](&tour, tree);
}

int main(void) {
    const size_t size = 8 << 20;
    for (int round = 0; round < 30; round++) {
        char *memory = mmap(NULL, size + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(memory + 4096, size, PROT_READ | PROT_WRITE);
        getcontext(&inside);
        inside.uc_stack.ss_sp = memory + 4096;
        inside.uc_stack.ss_size = size;
        inside.uc_link = &outside;
        makecontext(&inside, body, 0);
        for (int step = 0; step < 15; step++) {
            swapcontext(&outside, &inside);
            check_stack();
        }
        munmap(memory, size + 8192);
    }
    printf("ok %ld\n", checked);
    return checked >= 30 * 15 ? 0 : 1;
}
