// A driver whose functions do not always return: some throw, some jump.
#include <csetjmp>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>

extern "C" {
jmp_buf standin_jump_target;

int halMemAlloc(void **block, uint64_t size, uint64_t) {
    if (size == 13) throw std::runtime_error("allocation 13");
    if (size == 14) longjmp(standin_jump_target, 14);
    *block = std::malloc(size);
    return 0;
}

int halMemFree(void *block) {
    if (block == reinterpret_cast<void *>(13)) throw std::runtime_error("free 13");
    if (block == reinterpret_cast<void *>(14)) longjmp(standin_jump_target, 15);
    std::free(block);
    return 0;
}
}
