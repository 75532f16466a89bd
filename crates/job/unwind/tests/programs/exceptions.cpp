// Stacks in destructors, catch blocks and rethrown exceptions.
#include "probe.h"

#include <stdexcept>
#include <vector>

struct Guard {
    int value;
    ~Guard() { check_stack(); }
};

__attribute__((noinline)) static int thrower(int depth, std::vector<int> &numbers) {
    Guard guard{depth};
    if (depth == 0) {
        check_stack();
        throw std::runtime_error("deep");
    }
    numbers.push_back(depth);
    if (depth % 3 == 0) {
        try {
            return thrower(depth - 1, numbers) + guard.value;
        } catch (const std::runtime_error &) {
            check_stack();
            throw;
        }
    }
    if (depth % 5 == 0) {
        try {
            return thrower(depth - 1, numbers);
        } catch (const std::exception &) {
            check_stack();
            throw std::runtime_error("another");
        }
    }
    return thrower(depth - 1, numbers) + guard.value;
}

int main() {
    for (int round = 0; round < 200; round++) {
        std::vector<int> numbers;
        try {
            thrower(round % 40, numbers);
        } catch (const std::exception &) {
            check_stack();
        }
    }
    puts("ok");
    return 0;
}
