/* Launches kernels in all the ways there are. Arguments: what to do, then numbers for it. */
#define _GNU_SOURCE
#include "acl/acl.h"
#include "standin_kernels.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int launches, devices = 2;

static void wait_microseconds(long microseconds)
{
    struct timespec time = { microseconds / 1000000, microseconds % 1000000 * 1000 };
    nanosleep(&time, NULL);
}

/* All ways to launch, by number; one that does not exist fails. */
int launch_in_way(int way, void *kernel, void *stream, struct standin_arguments *arguments)
{
    struct standin_args_ex described = { arguments, NULL, sizeof *arguments, { 0 } };
    struct standin_card_processor_args on_processor = { arguments, NULL, NULL, sizeof *arguments, { 0 } };
    struct standin_launch_names names = { "libaicpu_kernels.so", "RunCpuKernel", "Unique" };
    struct standin_extent grid = { 1, 2, 3 }, block = { 4, 5, 6 };
    uint32_t size = sizeof *arguments;
    void *list[] = { &arguments->function, &arguments->argument };
    switch (way) {
    case 0: return rtKernelLaunchWithHandleV2(kernel, 1, 1, &described, NULL, stream, NULL);
    case 1: return rtVectorCoreKernelLaunchWithHandle(kernel, 2, 1, &described, NULL, stream, NULL);
    case 2: return rtsLaunchKernelWithDevArgs(kernel, 1, stream, NULL, arguments, size, NULL);
    case 3: return rtsLaunchKernelWithConfig(kernel, 1, stream, NULL, &described, NULL);
    case 4: return rtKernelLaunchWithFlagV2(kernel, 1, &described, NULL, stream, 0, NULL);
    case 5: return rtAicpuKernelLaunchExWithArgs(1, "Where", 1, &on_processor, NULL, stream, 0);
    case 6: return aclrtLaunchKernel(kernel, 1, arguments, size, stream);
    case 7: return rtKernelLaunch(kernel, 1, arguments, size, NULL, stream);
    case 8: return rtKernelLaunchWithFlag(kernel, 1, &described, NULL, stream, 0);
    case 9: return rtKernelLaunchWithHandle(kernel, 1, 1, &described, NULL, stream, NULL);
    case 10: return rtVectorCoreKernelLaunch(kernel, 1, &described, NULL, stream, 0, NULL);
    case 11: return rtLaunchKernelByFuncHandle(kernel, 1, &described, stream);
    case 12: return rtLaunchKernelByFuncHandleV2(kernel, 1, &described, stream, NULL);
    case 13: return rtLaunchKernelByFuncHandleV3(kernel, 1, &described, stream, NULL);
    case 14: return aclrtLaunchKernelWithArgsArray(kernel, 1, stream, NULL, list);
    case 15: return aclrtLaunchSIMTKernelWithHostArgs(kernel, grid, block, 7, stream, NULL, arguments, size, NULL, 0);
    case 16: return aclrtLaunchSIMTKernelWithArgsArray(kernel, grid, block, 7, stream, NULL, list);
    case 17: return aclrtLaunchKernelV2(kernel, 1, arguments, size, NULL, stream);
    case 18: return aclrtLaunchKernelWithConfig(kernel, 1, stream, NULL, &described, NULL);
    case 19: return rtsLaunchCpuKernel(kernel, 1, stream, NULL, &on_processor);
    case 20: return rtAicpuKernelLaunchWithFlag(&names, 1, &described, NULL, stream, 0);
    case 21: return rtCpuKernelLaunchWithFlag("libaicpu_kernels.so", "TopK", 1, &described, NULL, stream, 0);
    case 22: return rtKernelLaunchEx(arguments, size, 0, stream);
    case 23: return rtFftsPlusTaskLaunch(&described, stream);
    case 24: return rtFftsPlusTaskLaunchWithFlag(&described, stream, 0);
    case 25: return aclrtLaunchKernelWithHostArgs(kernel, 1, stream, NULL, arguments, size, NULL, 0);
    default: return -1;
    }
}

/* The usual way for even numbers, all others in turn for odd ones. */
static void launch_with(int number, void *stream, void (*function)(void *), void *argument)
{
    enum { USUAL = 25 };
    char name[64];
    struct standin_arguments arguments = { function, argument };
    snprintf(name, sizeof name, "%s_%032x_%d", number % 2 ? "MatMul" : "Add", number % 20, number % 20);
    int way = number % 2 ? number / 2 % USUAL : USUAL;
    if (launch_in_way(way, standinKernel(name, number % 2 ? 108 : 0), stream, &arguments) != 0) abort();
}

static void launch(int number, void *stream) { launch_with(number, stream, NULL, NULL); }

static void *work(void *argument)
{
    int thread = (int)(size_t)argument;
    aclrtStream streams[2];
    char target[8];
    aclrtSetDevice(thread % devices);
    aclrtCreateStream(&streams[0]);
    aclrtCreateStream(&streams[1]);
    for (int number = 0; number < launches; number++) {
        launch(number, streams[number % 2]);
        /* Copies have numbers as well; a test that goes around cannot tell them apart. */
        if (number % 7 == 0 && launches <= 65536) aclrtMemsetAsync(target, 8, 0, 8, streams[1]);
        if (number % 1000 == 999) aclrtSynchronizeStream(streams[number % 2]);
    }
    aclrtSynchronizeStream(streams[0]);
    aclrtSynchronizeStream(streams[1]);
    aclrtDestroyStream(streams[0]);
    aclrtDestroyStream(streams[1]);
    return NULL;
}

static void work_in_threads(int threads)
{
    pthread_t all[16];
    for (int thread = 0; thread < threads; thread++) pthread_create(&all[thread], NULL, work, (void *)(size_t)thread);
    for (int thread = 0; thread < threads; thread++) pthread_join(all[thread], NULL);
}

static void *kill_later(void *microseconds)
{
    wait_microseconds((long)(size_t)microseconds);
    raise(SIGKILL);
    return NULL;
}

/* A kernel that takes its time. */
static void take_time(void *microseconds) { wait_microseconds((long)(size_t)microseconds); }

static void start_channel(uint32_t device)
{
    uint32_t configuration[9] = { 1 };
    struct prof_start_para para = { 0, 20, 1, configuration, sizeof configuration };
    printf("channel %d\n", prof_drv_start(device, 50, &para));
}

static int reports, hashes;
static int count_report(uint32_t aging, const void *data, uint32_t length)
{
    uint32_t type;
    memcpy(&type, (const char *)data + 4, 4);
    (void)aging, (void)length;
    reports += type == 802;
    return 0;
}
static uint64_t count_hash(const char *text, size_t length)
{
    uint64_t hash = 77;
    for (size_t place = 0; place < length; place++) hash = hash * 31 + (unsigned char)text[place];
    hashes++;
    return hash;
}
enum { TASKS = 0x4000800, CALLS = 0x100 };
static void command(uint32_t type, uint64_t switches, uint32_t device)
{
    struct standin_command command = { switches, 0, 1, { device }, 0xffffffff, type, 0, "" };
    printf("command %d\n", profSetProfCommand(&command, sizeof command));
}

static int runs;
static void count_run(void *unused)
{
    (void)unused;
    runs++;
}

static void *end_late(void *unused)
{
    (void)unused;
    wait_microseconds(300000);
    printf("the last thread ends\n");
    fflush(stdout);
    return NULL;
}

int main(int count, char **arguments)
{
    const char *what = arguments[1];
    int threads = count > 2 ? atoi(arguments[2]) : 1;
    launches = count > 3 ? atoi(arguments[3]) : 100;
    aclInit(NULL);
    if (strcmp(what, "work") == 0) {
        work_in_threads(threads);
    } else if (strcmp(what, "kill") == 0) {
        pthread_t killer;
        pthread_create(&killer, NULL, kill_later, (void *)atol(arguments[4]));
        for (;;) work_in_threads(threads);
    } else if (strcmp(what, "exit") == 0) {
        /* Ends while nobody has read what the card has told. */
        aclrtSetDevice(0);
        for (int number = 0; number < launches; number++) launch(number, NULL);
        aclrtSynchronizeDevice();
        exit(3);
    } else if (strcmp(what, "patient") == 0) {
        aclrtSetDevice(0);
        for (int number = 0; number < launches; number++) launch(number, NULL);
        aclrtSynchronizeDevice();
        wait_microseconds(10500000);
        aclrtSynchronizeDevice();
    } else if (strcmp(what, "finalize") == 0) {
        aclrtSetDevice(0);
        for (int number = 0; number < launches; number++) launch(number, NULL);
        printf("%d\n", aclFinalize());
    } else if (strcmp(what, "slow") == 0) {
        aclrtSetDevice(1);
        for (int number = 0; number < launches; number++) {
            launch_with(number, NULL, take_time, (void *)(size_t)20000);
            if (number % 50 == 49) aclrtSynchronizeDevice();
        }
        aclrtSynchronizeDevice();
    } else if (strcmp(what, "owned") == 0) {
        start_channel(0);
        aclrtSetDevice(0);
        launch(0, NULL);
        launch(1, NULL);
        aclrtSynchronizeDevice();
        char records[4096];
        printf("%d bytes\n", prof_channel_read(0, 50, records, sizeof records));
    } else if (strcmp(what, "taken") == 0) {
        aclrtSetDevice(0);
        launch(0, NULL);
        aclrtSynchronizeDevice();
        start_channel(0);
        launch(1, NULL);
        aclrtSynchronizeDevice();
        char records[4096];
        printf("%d bytes\n", prof_channel_read(0, 50, records, sizeof records));
    } else if (strcmp(what, "given back") == 0) {
        char records[4096];
        aclrtSetDevice(0);
        launch(0, NULL);
        aclrtSynchronizeDevice();
        start_channel(0);
        launch(1, NULL);
        launch(2, NULL);
        aclrtSynchronizeDevice();
        printf("%d bytes\n", prof_channel_read(0, 50, records, sizeof records));
        printf("stopped %d\n", prof_stop(0, 50));
        for (int number = 3; number < 13; number++) {
            launch(number, NULL);
            aclrtSynchronizeDevice();
        }
    } else if (strcmp(what, "listener") == 0) {
        aclrtSetDevice(0);
        for (int round = 0; round < 2; round++) {
            uint64_t switches = round == 0 ? TASKS : TASKS | CALLS;
            MsprofRegisterProfileCallback(4, count_report, 8);
            MsprofRegisterProfileCallback(12, count_hash, 8);
            command(1, switches, 0);
            for (int number = 0; number < 10; number++) launch(number, NULL);
            command(2, switches, 0);
            for (int number = 0; number < 10; number++) launch(number, NULL);
            printf("%d reports, %d texts, %llu buffered\n", reports, hashes, (unsigned long long)standinBufferedReports());
        }
        aclrtSynchronizeDevice();
    } else if (strcmp(what, "graph") == 0) {
        aclmdlRI graph;
        aclmdlRICaptureStatus status[2];
        aclrtStream captured, other;
        char source[8] = "source", target[8] = "";
        aclrtSetDevice(1);
        aclrtCreateStream(&captured);
        aclrtCreateStream(&other);
        /* Somebody who wants to hear of calls, too: reports come when they end. */
        if (threads == 2) command(1, TASKS | CALLS, 1);
        launch(0, captured);
        aclmdlRICaptureBegin(captured, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
        aclmdlRICaptureGetInfo(captured, &status[0], NULL);
        for (int number = 1; number < 6; number++) launch_with(number, captured, count_run, NULL);
        aclrtMemcpyAsync(target, sizeof target, source, sizeof source, ACL_MEMCPY_HOST_TO_DEVICE, captured);
        aclmdlRICaptureEnd(captured, &graph);
        aclmdlRICaptureGetInfo(captured, &status[1], NULL);
        aclrtSynchronizeStream(captured);
        printf("captured %d %d, ran %d, copied '%s'\n", status[0], status[1], runs, target);
        for (int round = 0; round < launches; round++) {
            launch(6 + round, other);
            aclmdlRIExecuteAsync(graph, other);
        }
        aclrtSynchronizeStream(other);
        int error = aclmdlRIExecute(graph, -1);
        printf("executed %d, ran %d, copied '%s'\n", error, runs, target);
        printf("%d %d\n", aclmdlRIDestroy(graph), aclmdlRIDestroy(graph) != 0);
        launch(0, captured);
        aclrtDestroyStream(captured);
        aclrtDestroyStream(other);
    } else if (strcmp(what, "last thread") == 0) {
        pthread_t last;
        aclrtSetDevice(0);
        pthread_create(&last, NULL, end_late, NULL);
        pthread_exit(NULL);
    } else if (strcmp(what, "fork") == 0) {
        aclrtSetDevice(0);
        launch(0, NULL);
        aclrtSynchronizeDevice();
        for (int child = 0; child < 3; child++) {
            pid_t process = fork();
            if (process == 0) {
                /* The first does nothing, the second uses another card, the third ends at once. */
                if (child == 1) {
                    aclrtSetDevice(1);
                    launch(2, NULL);
                    launch(3, NULL);
                    aclrtSynchronizeDevice();
                }
                if (child == 2) _exit(4);
                exit(5);
            }
            int status = 0;
            waitpid(process, &status, 0);
            printf("child %d: %d\n", child, WEXITSTATUS(status));
            launch(4 + child, NULL);
        }
        aclrtSynchronizeDevice();
    }
    return 0;
}
