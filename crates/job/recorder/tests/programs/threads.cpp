// Threads that end: many short ones, with memory calls in destructors of every kind.
#include <ascend_hal.h>
#include <cstdio>
#include <cstdlib>
#include <pthread.h>
#include <thread>
#include <vector>

static pthread_key_t early_key, late_key;
static int rounds_left = 2;

static void use_memory(uint64_t size) {
    void *block = nullptr;
    if (halMemAlloc(&block, size, MEM_TYPE_DEVICE) || halMemFree(block)) std::puts("memory call failed");
}

struct UsesMemoryAtEnd {
    uint64_t size;
    ~UsesMemoryAtEnd() { use_memory(size); }
};

static thread_local UsesMemoryAtEnd at_thread_end{2000};

static void end_of_key(void *value) {
    use_memory(3000);
    if (value == &rounds_left && __atomic_fetch_sub(&rounds_left, 1, __ATOMIC_RELAXED) > 0) pthread_setspecific(late_key, value);
}

int main() {
    pthread_key_create(&early_key, end_of_key);
    for (int i = 0; i < 40; i++) pthread_key_create(&late_key, end_of_key);
    for (int i = 0; i < 10000; i++) {
        std::thread([] { use_memory(1000); }).join();
    }
    std::vector<std::thread> threads;
    for (int i = 0; i < 100; i++) {
        threads.emplace_back([] {
            use_memory(at_thread_end.size - 1);
            pthread_setspecific(early_key, &early_key);
            pthread_setspecific(late_key, &rounds_left);
        });
    }
    for (auto &thread : threads) thread.join();
    at_thread_end.size = 2001;
    std::puts("done");
    return 0;
}
