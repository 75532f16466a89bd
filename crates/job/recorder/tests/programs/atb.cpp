// Runs a layer of a transformer made of ATB's operations: a graph layer0 with a graph module0 inside.
//
// atb [times [threads]]: every thread runs its own layer, in turn on two streams of its own. Prints what came out. As a library:
// run_layers is what others call.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "acl/acl.h"
#include "atb/atb_infer.h"

namespace {
constexpr int64_t TOKENS = 4;
constexpr int64_t WIDTH = 8;

[[noreturn]] void Fail(const char *what, int status)
{
    printf("%s: %d\n", what, status);
    exit(3);
}

atb::Tensor NewTensor(std::initializer_list<int64_t> dims, float start, float step)
{
    atb::Tensor tensor;
    tensor.desc.dtype = ACL_FLOAT;
    tensor.desc.format = ACL_FORMAT_ND;
    for (int64_t dim : dims) {
        tensor.desc.shape.dims[tensor.desc.shape.dimNum++] = dim;
    }
    tensor.dataSize = atb::Utils::GetTensorSize(tensor);
    if (aclrtMalloc(&tensor.deviceData, tensor.dataSize, ACL_MEM_MALLOC_HUGE_FIRST) != ACL_SUCCESS) {
        Fail("aclrtMalloc", 1);
    }
    for (uint64_t index = 0; index < atb::Utils::GetTensorNumel(tensor); ++index) {
        static_cast<float *>(tensor.deviceData)[index] = start + step * static_cast<float>(index % 5);
    }
    return tensor;
}

// All operations of the thread's layer.
thread_local std::vector<atb::Operation *> operations;

template <class Param> atb::Operation *NewOperation(const Param &param)
{
    atb::Operation *operation = nullptr;
    const int status = atb::CreateOperation(param, &operation);
    if (status != 0) {
        Fail("CreateOperation", status);
    }
    operations.push_back(operation);
    return operation;
}

atb::Operation *NewModule()
{
    atb::infer::LinearParam linear;
    atb::infer::ElewiseParam add;
    add.elewiseType = atb::infer::ElewiseParam::ELEWISE_ADD;
    atb::GraphParam graph;
    graph.name = "module0";
    graph.inTensorNum = 3; // x, weight, bias
    graph.outTensorNum = 1;
    graph.internalTensorNum = 1;
    graph.nodes.resize(2);
    graph.nodes[0].operation = NewOperation(linear);
    graph.nodes[0].inTensorIds = {0, 1, 2};
    graph.nodes[0].outTensorIds = {4};
    graph.nodes[1].operation = NewOperation(add);
    graph.nodes[1].inTensorIds = {4, 0};
    graph.nodes[1].outTensorIds = {3};
    graph.inferShapeFunc = [](const atb::SVector<atb::TensorDesc> &in, atb::SVector<atb::TensorDesc> &out) {
        out.resize(1);
        out[0] = in[0];
        return 0;
    };
    return NewOperation(graph);
}

atb::Operation *NewLayer()
{
    atb::infer::RmsNormParam norm;
    norm.layerType = atb::infer::RmsNormParam::RMS_NORM_NORM;
    atb::GraphParam graph;
    graph.name = "layer0";
    graph.inTensorNum = 4; // x, gamma, weight, bias
    graph.outTensorNum = 1;
    graph.internalTensorNum = 1;
    graph.nodes.resize(2);
    graph.nodes[0].operation = NewModule();
    graph.nodes[0].inTensorIds = {0, 2, 3};
    graph.nodes[0].outTensorIds = {5};
    graph.nodes[1].operation = NewOperation(norm);
    graph.nodes[1].inTensorIds = {5, 1};
    graph.nodes[1].outTensorIds = {4};
    return NewOperation(graph);
}

double RunLayer(int times)
{
    aclrtSetDevice(0);
    std::vector<aclrtStream> streams(2);
    atb::Context *context = nullptr;
    for (aclrtStream &stream : streams) {
        if (aclrtCreateStream(&stream) != ACL_SUCCESS) {
            Fail("aclrtCreateStream", 1);
        }
    }
    if (atb::CreateContext(&context) != 0 || context->SetExecuteStreams(streams) != 0) {
        Fail("CreateContext", 1);
    }
    atb::Operation *layer = NewLayer();
    atb::VariantPack pack;
    pack.inTensors = {NewTensor({TOKENS, WIDTH}, 1, 0.5), NewTensor({WIDTH}, 1, 0), NewTensor({WIDTH, WIDTH}, 0, 0.25),
                      NewTensor({WIDTH}, -1, 0.125)};
    pack.outTensors = {NewTensor({TOKENS, WIDTH}, 0, 0)};
    double sum = 0;
    int failures = 0;
    for (int time = 0; time < times; ++time) {
        for (atb::Operation *operation : operations) {
            atb::SetExecuteStreamId(operation, time % 2);
        }
        uint64_t size = 0;
        int status = layer->Setup(pack, size, context);
        if (status != 0) {
            Fail("Setup", status);
        }
        void *workspace = nullptr;
        if (size != 0 && aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST) != ACL_SUCCESS) {
            Fail("aclrtMalloc", 1);
        }
        failures += layer->Execute(pack, static_cast<uint8_t *>(workspace), size, context) != 0;
        aclrtSynchronizeStream(streams[time % 2]);
        aclrtFree(workspace);
        for (int64_t index = 0; index < TOKENS * WIDTH; ++index) {
            sum += static_cast<float *>(pack.outTensors[0].deviceData)[index];
        }
    }
    atb::VariantPack wrong;
    uint64_t size = 0;
    sum += layer->Setup(wrong, size, context) != 0 ? 0 : 1e6;
    sum += 1000.0 * failures;
    for (auto *tensors : {&pack.inTensors, &pack.outTensors}) {
        for (atb::Tensor &tensor : *tensors) {
            aclrtFree(tensor.deviceData);
        }
    }
    atb::DestroyOperation(layer);
    atb::DestroyContext(context);
    operations.clear();
    for (aclrtStream stream : streams) {
        aclrtDestroyStream(stream);
    }
    return sum;
}
} // namespace

extern "C" double run_layers(int times, int threads)
{
    std::vector<double> sums(threads);
    std::vector<std::thread> others;
    for (int index = 1; index < threads; ++index) {
        others.emplace_back([&sums, index, times] { sums[index] = RunLayer(times); });
    }
    sums[0] = RunLayer(times);
    double sum = sums[0];
    for (int index = 1; index < threads; ++index) {
        others[index - 1].join();
        sum += sums[index];
    }
    return sum;
}

#ifndef AS_LIBRARY
int main(int count, char **arguments)
{
    const int times = count > 1 ? atoi(arguments[1]) : 1;
    const int threads = count > 2 ? atoi(arguments[2]) : 1;
    if (aclInit(nullptr) != ACL_SUCCESS) {
        Fail("aclInit", 1);
    }
    printf("%.6f\n", run_layers(times, threads));
    aclFinalize();
    return 0;
}
#endif
