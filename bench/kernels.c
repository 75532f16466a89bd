/*
 * What recording kernels costs. Prints nanoseconds of processor time per launch on the launching thread, and which part of
 * a processor the recorder's thread takes at a given number of kernels per second.
 *
 * Arguments: whether to listen to the runtime's reports as any profiler does (1) or not (0), launches, kernels per second,
 * seconds.
 */
#define _GNU_SOURCE
#include "acl/acl.h"
#include "standin_kernels.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int gate;

static void hold(void *unused)
{
    (void)unused;
    while (!__atomic_load_n(&gate, __ATOMIC_ACQUIRE)) {
        struct timespec pause = { 0, 1000000 };
        nanosleep(&pause, NULL);
    }
}

static int ignore(uint32_t aging, const void *data, uint32_t length)
{
    (void)aging, (void)data, (void)length;
    return 0;
}

static uint64_t number(const char *text, size_t length) { return (uint64_t)(size_t)text + length; }

static double seconds_of(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void launch(void *kernel, void *stream, void (*function)(void *))
{
    struct standin_arguments arguments = { function, NULL };
    aclrtLaunchKernelWithHostArgs(kernel, 1, stream, NULL, &arguments, sizeof arguments, NULL, 0);
}

/* Processor seconds of the thread of this name. */
static double seconds_of_thread(const char *name)
{
    DIR *threads = opendir("/proc/self/task");
    struct dirent *thread;
    double seconds = 0;
    while ((thread = readdir(threads)) != NULL) {
        char path[600], text[64] = "";
        FILE *file;
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", thread->d_name);
        if ((file = fopen(path, "r")) == NULL) continue;
        if (fgets(text, sizeof text, file) == NULL) text[0] = 0;
        fclose(file);
        text[strcspn(text, "\n")] = 0;
        if (strcmp(text, name) != 0) continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", thread->d_name);
        if ((file = fopen(path, "r")) == NULL) continue;
        unsigned long long nanoseconds = 0;
        if (fscanf(file, "%llu", &nanoseconds) == 1) seconds += (double)nanoseconds / 1e9;
        fclose(file);
    }
    closedir(threads);
    return seconds;
}

int main(int count, char **arguments)
{
    if (count < 5) return 2;
    int launches = atoi(arguments[2]), per_second = atoi(arguments[3]), seconds = atoi(arguments[4]);
    aclrtStream stream;
    aclInit(NULL);
    aclrtSetDevice(0);
    aclrtCreateStream(&stream);
    if (atoi(arguments[1])) {
        struct standin_command command = { 0x4000800, 0, 1, { 0 }, 0xffffffff, 1, 0, "" };
        MsprofRegisterProfileCallback(4, ignore, 8);
        MsprofRegisterProfileCallback(12, number, 8);
        profSetProfCommand(&command, sizeof command);
    }
    void *kernel = standinKernel("Add_00112233445566778899aabbccddeeff_8", 0);
    /* The stream stands still meanwhile, so that only launching counts. */
    launch(kernel, stream, hold);
    for (int index = 0; index < 1000; index++) launch(kernel, stream, NULL);
    double before = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    for (int index = 0; index < launches; index++) launch(kernel, stream, NULL);
    double per_launch = (seconds_of(CLOCK_THREAD_CPUTIME_ID) - before) / launches;
    __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
    aclrtSynchronizeStream(stream);
    double reader_before = seconds_of_thread("msmemscope"), started = seconds_of(CLOCK_MONOTONIC);
    long done = 0;
    while (done < (long)per_second * seconds) {
        long due = (long)((seconds_of(CLOCK_MONOTONIC) - started) * per_second);
        for (; done < due; done++) launch(kernel, stream, NULL);
        struct timespec pause = { 0, 500000 };
        nanosleep(&pause, NULL);
    }
    aclrtSynchronizeStream(stream);
    double reader = (seconds_of_thread("msmemscope") - reader_before) / (seconds_of(CLOCK_MONOTONIC) - started);
    printf("%.1f %.3f\n", per_launch * 1e9, reader * 100);
    return 0;
}
