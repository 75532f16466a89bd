/*
 * A job whose arguments are its script, so that every test can say what it needs in one line:
 *
 *   init, fini       aclInit, aclFinalize
 *   device:N         aclrtSetDevice
 *   alloc:BYTES      halMemAlloc on the current device
 *   pinned:BYTES     aclrtMallocHost
 *   refused:BYTES    the same, of more than there is
 *   free             frees the latest alloc that is alive
 *   loop:N           N times alloc and free of 4096 bytes
 *   forever          loop without end
 *   beat             loop with a rest of a millisecond, until a caught signal came
 *   pool:BYTES       a block of the PyTorch pool, told through mstx
 *   poolfree         frees the latest block of the pool
 *   pooldrop         frees the oldest one
 *   mark:TEXT        mstxMarkA
 *   step, endstep    begin and end of a step
 *   say:TEXT         a line on standard output, flushed
 *   sleep:MS         waits
 *   catch            counts SIGINT, SIGTERM and SIGUSR1; the next `wait` ends at one
 *   wait             waits until a caught signal came, prints how many of each
 *   setsid           becomes a daemon: parent exits, child goes on in a session of its own
 *   fork             child goes on with the script, parent waits for it and exits with its status
 *   exec:NAME        execs itself in place with the rest of the script, under that argv[0]
 *   start, stop      switches the recorder through its control table, as the Python API does
 *   raise:N          raises a signal
 *   _exit:N, exit:N  ends
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "acl/acl.h"
#include "ascend_hal.h"
#include "mstx/ms_tools_ext.h"

#define MOST_BLOCKS 100000

static void *blocks[MOST_BLOCKS];
static int block_count;
static char pool_memory[MOST_BLOCKS];
static int pool_count;
static int pool_dropped;
static uint64_t pool_reserved;
static mstxDomainHandle_t pool_domain;
static int device;
static uint64_t step_range;
static volatile sig_atomic_t caught[65];

static void fail(const char *what)
{
    fprintf(stderr, "job: %s failed\n", what);
    exit(99);
}

static void *allocate(uint64_t size)
{
    void *block = NULL;
    if (halMemAlloc(&block, size, MEM_TYPE_DEVICE | (uint64_t)device) != 0) {
        fail("halMemAlloc");
    }
    return block;
}

static void release(void *block)
{
    if (halMemFree(block) != 0) {
        fail("halMemFree");
    }
}

static void tell_pool(void *address, int64_t size)
{
    if (!pool_domain) {
        pool_domain = mstxDomainCreateA("ptaCaching");
    }
    mstxMemVirtualRangeDesc_t heap_range = {(uint32_t)device, address, (int64_t)pool_reserved};
    mstxMemHeapDesc_t heap = {MSTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR, MSTX_MEM_TYPE_VIRTUAL_ADDRESS, &heap_range};
    mstxMemHeapRegister(pool_domain, &heap);
    if (size > 0) {
        mstxMemVirtualRangeDesc_t range = {(uint32_t)device, address, size};
        mstxMemRegionsRegisterBatch_t batch = {NULL, MSTX_MEM_TYPE_VIRTUAL_ADDRESS, 1, &range, NULL};
        mstxMemRegionsRegister(pool_domain, &batch);
    } else {
        mstxMemRegionRef_t reference = {.refType = MSTX_MEM_REGION_REF_TYPE_POINTER, .pointer = address};
        mstxMemRegionsUnregisterBatch_t batch = {1, &reference};
        mstxMemRegionsUnregister(pool_domain, &batch);
    }
}

static void count_signal(int number)
{
    caught[number]++;
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = count_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
}

/* Every signal ends one wait, whether it came before or during it. */
static void wait_for_signal(void)
{
    static int waited_for;
    while (caught[SIGINT] + caught[SIGTERM] + caught[SIGUSR1] <= waited_for) {
        usleep(1000);
    }
    usleep(200000);
    waited_for = (int)(caught[SIGINT] + caught[SIGTERM] + caught[SIGUSR1]);
    printf("int=%d term=%d usr1=%d\n", (int)caught[SIGINT], (int)caught[SIGTERM], (int)caught[SIGUSR1]);
    fflush(stdout);
}

static void fork_and_wait(void)
{
    pid_t child = fork();
    if (child > 0) {
        int status = 0;
        waitpid(child, &status, 0);
        exit(WEXITSTATUS(status));
    }
}

/* The first members of the control table. */
struct control {
    uint32_t size_bytes, version;
    const char *recorder_version;
    size_t recorder_version_length;
    uint32_t (*state)(void);
    int32_t (*set_state)(uint32_t state);
};

static void switch_recorder(uint32_t state)
{
    const struct control *(*entry)(void);
    *(void **)&entry = dlsym(RTLD_DEFAULT, "msmemscope_control");
    if (!entry || entry()->set_state(state) != 0) {
        fail("the recorder's control table");
    }
}

static int is(const char *word, const char *name, const char **value)
{
    size_t length = strlen(name);
    *value = word[length] == ':' ? word + length + 1 : "";
    return strncmp(word, name, length) == 0 && (word[length] == ':' || word[length] == 0);
}

static void perform(const char *word, char **rest)
{
    const char *value;
    if (is(word, "init", &value)) {
        aclInit(NULL);
    } else if (is(word, "fini", &value)) {
        aclFinalize();
    } else if (is(word, "device", &value)) {
        device = atoi(value);
        aclrtSetDevice(device);
    } else if (is(word, "alloc", &value)) {
        blocks[block_count++] = allocate(strtoull(value, NULL, 10));
    } else if (is(word, "refused", &value)) {
        void *block = NULL;
        if (halMemAlloc(&block, strtoull(value, NULL, 10), MEM_TYPE_DEVICE | (uint64_t)device) == 0) {
            fail("a refusal");
        }
    } else if (is(word, "pinned", &value)) {
        void *block = NULL;
        aclrtMallocHost(&block, strtoull(value, NULL, 10));
    } else if (is(word, "free", &value)) {
        release(blocks[--block_count]);
    } else if (is(word, "loop", &value)) {
        for (long count = atol(value); count > 0; count--) {
            release(allocate(4096));
        }
    } else if (is(word, "forever", &value)) {
        for (;;) {
            release(allocate(4096));
        }
    } else if (is(word, "beat", &value)) {
        while (!caught[SIGINT] && !caught[SIGTERM] && !caught[SIGUSR1]) {
            release(allocate(4096));
            usleep(1000);
        }
    } else if (is(word, "pool", &value)) {
        int64_t size = atoll(value);
        pool_reserved += (uint64_t)size;
        tell_pool(&pool_memory[pool_count++], size);
    } else if (is(word, "pooldrop", &value)) {
        tell_pool(&pool_memory[pool_dropped++], 0);
    } else if (is(word, "poolfree", &value)) {
        tell_pool(&pool_memory[--pool_count], 0);
    } else if (is(word, "mark", &value)) {
        mstxMarkA(value, NULL);
    } else if (is(word, "step", &value)) {
        step_range = mstxRangeStartA("step start", NULL);
    } else if (is(word, "endstep", &value)) {
        mstxRangeEnd(step_range);
    } else if (is(word, "say", &value)) {
        puts(value);
        fflush(stdout);
    } else if (is(word, "sleep", &value)) {
        usleep((useconds_t)atol(value) * 1000);
    } else if (is(word, "catch", &value)) {
        catch_signals();
    } else if (is(word, "wait", &value)) {
        wait_for_signal();
    } else if (is(word, "setsid", &value)) {
        if (fork() > 0) {
            _exit(0);
        }
        setsid();
    } else if (is(word, "fork", &value)) {
        fork_and_wait();
    } else if (is(word, "exec", &value)) {
        rest[-1] = (char *)value;
        execv("/proc/self/exe", rest - 1);
        fail("exec");
    } else if (is(word, "start", &value)) {
        switch_recorder(2);
    } else if (is(word, "stop", &value)) {
        switch_recorder(1);
    } else if (is(word, "raise", &value)) {
        raise(atoi(value));
    } else if (is(word, "_exit", &value)) {
        _exit(atoi(value));
    } else if (is(word, "exit", &value)) {
        exit(atoi(value));
    } else {
        fail(word);
    }
}

int main(int argc, char **argv)
{
    for (int position = 1; position < argc; position++) {
        perform(argv[position], argv + position + 1);
    }
    return 0;
}
