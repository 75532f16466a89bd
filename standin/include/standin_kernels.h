/* Kernels of the stand-in device and the interfaces around them, for programs that test profilers of kernels. */
#ifndef STANDIN_KERNELS_H
#define STANDIN_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a kernel of the stand-in computes: function(argument) on the worker of its stream; no function: nothing. */
struct standin_arguments {
    void (*function)(void *);
    void *argument;
};

/* The handle of a kernel, or of a binary for launch functions that take a tiling key. Types: 0 AI Core, 1 AI CPU, ... */
void *standinKernel(const char *name, uint32_t task_type);

int aclrtLaunchKernelWithHostArgs(void *function, uint32_t blocks, void *stream, void *config, void *args,
                                  size_t args_size, void *placeholders, size_t placeholder_count);

struct standin_args_ex {
    const void *args;
    const void *host_inputs;
    uint32_t args_size;
    uint32_t rest[3];
};
int rtKernelLaunchWithHandleV2(void *handle, uint64_t tiling_key, uint32_t blocks, const struct standin_args_ex *args,
                               void *sm_desc, void *stream, const void *config);

/* Further ways to launch. Where a stub is expected, the handle stands for it; where a handle of arguments is, their
   description; a list of arguments has pointers to the members of standin_arguments. */
struct standin_extent {
    uint32_t x, y, z;
};
int aclrtLaunchKernel(void *function, uint32_t blocks, const void *args, size_t args_size, void *stream);
int aclrtLaunchKernelV2(void *function, uint32_t blocks, const void *args, size_t args_size, void *config, void *stream);
int aclrtLaunchKernelWithConfig(void *function, uint32_t blocks, void *stream, void *config,
                                const struct standin_args_ex *args, void *reserved);
int aclrtLaunchKernelWithArgsArray(void *function, uint32_t blocks, void *stream, void *config, void **args);
int aclrtLaunchSIMTKernelWithHostArgs(void *function, struct standin_extent grid, struct standin_extent block,
                                      size_t buffer_size, void *stream, void *config, void *args, size_t args_size,
                                      void *placeholders, size_t placeholder_count);
int aclrtLaunchSIMTKernelWithArgsArray(void *function, struct standin_extent grid, struct standin_extent block,
                                       size_t buffer_size, void *stream, void *config, void **args);
int rtsLaunchKernelWithDevArgs(void *function, uint32_t blocks, void *stream, void *config, const void *args,
                               uint32_t args_size, void *reserved);
int rtsLaunchKernelWithConfig(void *function, uint32_t blocks, void *stream, void *config,
                              const struct standin_args_ex *args, void *reserved);
int rtLaunchKernelByFuncHandle(void *function, uint32_t blocks, const struct standin_args_ex *args, void *stream);
int rtLaunchKernelByFuncHandleV2(void *function, uint32_t blocks, const struct standin_args_ex *args, void *stream,
                                 const void *config);
int rtLaunchKernelByFuncHandleV3(void *function, uint32_t blocks, const struct standin_args_ex *args, void *stream,
                                 const void *config);
int rtKernelLaunch(const void *stub, uint32_t blocks, const void *args, uint32_t args_size, void *sm_desc,
                   void *stream);
int rtKernelLaunchWithFlag(const void *stub, uint32_t blocks, const struct standin_args_ex *args, void *sm_desc,
                           void *stream, uint32_t flags);
int rtKernelLaunchWithFlagV2(const void *stub, uint32_t blocks, const struct standin_args_ex *args, void *sm_desc,
                             void *stream, uint32_t flags, const void *config);
int rtKernelLaunchWithHandle(void *handle, uint64_t tiling_key, uint32_t blocks, const struct standin_args_ex *args,
                             void *sm_desc, void *stream, const void *information);
int rtVectorCoreKernelLaunch(const void *stub, uint32_t blocks, const struct standin_args_ex *args, void *sm_desc,
                             void *stream, uint32_t flags, const void *config);
int rtVectorCoreKernelLaunchWithHandle(void *handle, uint64_t tiling_key, uint32_t blocks,
                                       const struct standin_args_ex *args, void *sm_desc, void *stream,
                                       const void *config);
struct standin_card_processor_args {
    const void *args;
    const void *host_inputs;
    const void *kernel_offsets;
    uint32_t args_size;
    uint32_t rest[5];
};
struct standin_launch_names {
    const char *library, *kernel, *op;
};
int rtsLaunchCpuKernel(void *function, uint32_t blocks, void *stream, const void *config,
                       const struct standin_card_processor_args *args);
int rtAicpuKernelLaunchExWithArgs(uint32_t kind, const char *name, uint32_t blocks,
                                  const struct standin_card_processor_args *args, void **sm_desc, void *stream,
                                  uint32_t flags);
int rtAicpuKernelLaunchWithFlag(const struct standin_launch_names *names, uint32_t blocks,
                                const struct standin_args_ex *args, void *sm_desc, void *stream, uint32_t flags);
int rtCpuKernelLaunchWithFlag(const char *library, const char *kernel, uint32_t blocks,
                              const struct standin_args_ex *args, void *sm_desc, void *stream, uint32_t flags);
int rtKernelLaunchEx(const void *args, uint32_t args_size, uint32_t flags, void *stream);
int rtFftsPlusTaskLaunch(const struct standin_args_ex *task, void *stream);
int rtFftsPlusTaskLaunchWithFlag(const struct standin_args_ex *task, void *stream, uint32_t flags);

/* libprofapi. */
int MsprofRegisterProfileCallback(int kind, void *callback, uint32_t length);
int profSetProfCommand(void *command, uint32_t length);
uint64_t MsprofGetHashId(const char *text, size_t length);
uint64_t standinBufferedReports(void);
uint64_t MsprofSysCycleTime(void);

/* The driver's channel of task records. */
struct prof_start_para {
    int32_t channel_type;
    uint32_t sample_period;
    uint32_t real_time;
    const uint32_t *user_data;
    uint32_t user_data_size;
};
struct prof_poll_info {
    uint32_t device;
    uint32_t channel;
};
int prof_drv_start(uint32_t device, uint32_t channel, const struct prof_start_para *para);
int prof_channel_read(uint32_t device, uint32_t channel, char *buffer, uint32_t size);
int prof_channel_poll(struct prof_poll_info *ready, int room, int timeout_seconds);
int prof_stop(uint32_t device, uint32_t channel);
int halProfDataFlush(uint32_t device, uint32_t channel, uint32_t *length);
int halGetDeviceInfo(uint32_t device, int32_t module, int32_t info, int64_t *value);
uint64_t standinDroppedRecords(uint32_t device);

/* A command for profSetProfCommand: starts (1) or stops (2) reports of tasks on one device. */
struct standin_command {
    uint64_t switches;
    uint64_t switches_high;
    uint32_t device_count;
    uint32_t devices[64];
    uint32_t model;
    uint32_t type;
    uint32_t cache_flag;
    char parameters[5424 - 288];
};

#ifdef __cplusplus
}
#endif

#endif
