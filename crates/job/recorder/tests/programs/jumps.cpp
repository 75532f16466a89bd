// Exceptions and long jumps pass through the hooks.
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <stdexcept>

extern "C" {
extern jmp_buf standin_jump_target;
int halMemAlloc(void **block, uint64_t size, uint64_t flag);
int halMemFree(void *block);
}

struct Destroyed {
    const char *where;
    ~Destroyed() { std::printf("destroyed %s\n", where); }
};

int main() {
    void *block = nullptr;
    for (int round = 0; round < 1000; round++) {
        try {
            Destroyed destroyed{"beside an allocation"};
            halMemAlloc(&block, 13, 1 << 10);
        } catch (const std::exception &error) {
            std::printf("caught %s\n", error.what());
        }
        try {
            halMemFree(reinterpret_cast<void *>(13));
        } catch (const std::exception &error) {
            std::printf("caught %s\n", error.what());
        }
        switch (setjmp(standin_jump_target)) {
        case 0: halMemAlloc(&block, 14, 1 << 10); break;
        case 14: halMemFree(reinterpret_cast<void *>(14)); break;
        default: std::puts("jumped");
        }
        int allocated = halMemAlloc(&block, 100, 1 << 10), freed = halMemFree(block);
        std::printf("%d %d\n", allocated, freed);
    }
}
