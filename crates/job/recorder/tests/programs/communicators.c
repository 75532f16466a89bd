/* Three processes that only their communicators number. Each joins a group of its own first, by a function that it looks
   up by name, then all join one, then again a group of its own. usage: communicators */
#include <acl/acl.h>
#include <ascend_hal.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS 3
typedef struct { char bytes[4108]; } Root;
int HcclGetRootInfo(Root *root);
int HcclCommInitRootInfo(uint32_t ranks, const Root *root, uint32_t rank, void **communicator);
int HcclCommDestroy(void *communicator);
typedef int (*JoinConfigured)(uint32_t, const Root *, uint32_t, const void *, void **);

static int join_alone(void) {
    JoinConfigured join = (JoinConfigured)dlsym(RTLD_DEFAULT, "HcclCommInitRootInfoConfig");
    void *communicator;
    Root root;
    return !join || HcclGetRootInfo(&root) || join(1, &root, 0, NULL, &communicator) || HcclCommDestroy(communicator);
}

static int member(const Root *root, uint32_t rank) {
    void *communicator, *block;
    int wrong = aclInit(NULL) || aclrtSetDevice(0) || halMemAlloc(&block, 4096, MEM_TYPE_DEVICE);
    wrong += join_alone();
    wrong += HcclCommInitRootInfo(RANKS, root, RANKS, &communicator) == 0;
    errno = 22;
    wrong += HcclCommInitRootInfo(RANKS, root, rank, &communicator) != 0;
    wrong += HcclCommDestroy(communicator) != 0;
    wrong += join_alone();
    return wrong + (halMemFree(block) != 0);
}

int main(void) {
    Root root;
    int wrong = HcclGetRootInfo(&root), status;
    for (uint32_t rank = 0; rank < RANKS; rank++)
        if (fork() == 0) return member(&root, rank);
    for (int ended = 0; ended < RANKS; ended++) {
        wait(&status);
        wrong += status != 0;
    }
    printf("wrong %d\n", wrong);
    return 0;
}
