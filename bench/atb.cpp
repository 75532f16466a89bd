// Part of bench/atb.py: runs one operation of ATB many times. Prints the processor time of the thread per execution, in
// nanoseconds, the best of several rounds. With `marks` as second argument, sets the two marks of
// bench/instruction_budget.py around all executions instead.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <unistd.h>

#include "acl/acl.h"
#include "atb/atb_infer.h"

namespace {
constexpr int ROUNDS = 10;

double ThreadNanoseconds()
{
    timespec time = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return 1e9 * static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec);
}

atb::Tensor NewTensor()
{
    atb::Tensor tensor;
    tensor.desc.dtype = ACL_FLOAT;
    tensor.desc.format = ACL_FORMAT_ND;
    tensor.desc.shape.dimNum = 1;
    tensor.desc.shape.dims[0] = 8;
    tensor.dataSize = 8 * sizeof(float);
    if (aclrtMalloc(&tensor.deviceData, tensor.dataSize, ACL_MEM_MALLOC_HUGE_FIRST) != ACL_SUCCESS) {
        exit(3);
    }
    return tensor;
}
} // namespace

int main(int count, char **arguments)
{
    const int executions = count > 1 ? atoi(arguments[1]) : 10000;
    const bool setsMarks = count > 2 && strcmp(arguments[2], "marks") == 0;
    aclrtStream stream = nullptr;
    atb::Context *context = nullptr;
    aclInit(nullptr);
    aclrtSetDevice(0);
    aclrtCreateStream(&stream);
    atb::CreateContext(&context);
    context->SetExecuteStream(stream);
    atb::infer::ElewiseParam add;
    add.elewiseType = atb::infer::ElewiseParam::ELEWISE_ADD;
    atb::Operation *operation = nullptr;
    if (atb::CreateOperation(add, &operation) != 0) {
        return 3;
    }
    atb::VariantPack pack;
    pack.inTensors = {NewTensor(), NewTensor()};
    pack.outTensors = {NewTensor()};
    uint64_t size = 0;
    if (operation->Setup(pack, size, context) != 0 || size != 0) {
        return 3;
    }
    auto execute = [&] {
        for (int execution = 0; execution < executions; ++execution) {
            if (operation->Execute(pack, nullptr, 0, context) != 0) {
                exit(3);
            }
        }
    };
    execute();
    aclrtSynchronizeStream(stream);
    double best = 1e18;
    for (int round = 0; round < (setsMarks ? 1 : ROUNDS); ++round) {
        if (setsMarks) {
            getpgrp();
        }
        const double before = ThreadNanoseconds();
        execute();
        best = std::min(best, (ThreadNanoseconds() - before) / executions);
        if (setsMarks) {
            getpgrp();
        }
        aclrtSynchronizeStream(stream);
    }
    printf("%.1f\n", best);
    return 0;
}
