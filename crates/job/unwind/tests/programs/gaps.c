/* Code without unwind tables: generated code that keeps frame pointers is walked through, generated
   code that does not is where the stack ends, with a mark and without harm. x86_64 only. */
#include "probe.h"

#include <sys/mman.h>

static uint64_t taken[LARGEST_DEPTH + 8];
static size_t taken_count;
static uint64_t return_address_of_caller;

__attribute__((noinline)) static void leaf(void) {
    probe_capture(LARGEST_DEPTH, taken, LARGEST_DEPTH + 8, &taken_count);
}

typedef void (*generated)(void (*)(void));

__attribute__((noinline)) static void caller(generated code) {
    return_address_of_caller = (uint64_t)__builtin_return_address(0);
    code(leaf);
    __asm__ volatile("");
}

int main(void) {
    static const unsigned char with_frame_pointer[] = {
        0x55, 0x48, 0x89, 0xe5,       /* push rbp; mov rbp, rsp */
        0xff, 0xd7,                   /* call rdi */
        0x5d, 0xc3,                   /* pop rbp; ret */
    };
    static const unsigned char without[] = {
        0x55, 0x48, 0x31, 0xed,       /* push rbp; xor ebp, ebp */
        0xff, 0xd7, 0x5d, 0xc3,       /* call rdi; pop rbp; ret */
    };
    static const unsigned char nonsense[] = {
        0x55, 0x48, 0xc7, 0xc5, 0xf8, 0xff, 0xff, 0xff, /* push rbp; mov rbp, -8 */
        0xff, 0xd7, 0x5d, 0xc3,
    };
    char *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(memory, with_frame_pointer, sizeof with_frame_pointer);
    memcpy(memory + 64, without, sizeof without);
    memcpy(memory + 128, nonsense, sizeof nonsense);
    for (int round = 0; round < 3; round++) {
        caller((generated)memory);
        if (taken_count < 5 || taken[1] != (uint64_t)memory + 6 || taken[3] != return_address_of_caller) {
            show("through generated code", taken, taken_count);
            return 1;
        }
        for (int offset = 64; offset <= 128; offset += 64) {
            caller((generated)(memory + offset));
            uint64_t gap = (uint64_t)memory + (uint64_t)offset + (offset == 64 ? 6 : 10);
            if (taken_count != 3 || taken[1] != gap || taken[2] != 0) {
                show("up to generated code", taken, taken_count);
                return 1;
            }
        }
    }
    puts("ok");
    return 0;
}
