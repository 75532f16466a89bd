/* A job that gives up what it may do after its first memory calls.
   usage: confined user|root|descriptors|denied|forbidden <empty directory> */
#define _GNU_SOURCE
#include <ascend_hal.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static int use_memory(int count) {
    int wrong = 0;
    void *block;
    for (int i = 0; i < count; i++) {
        if (halMemAlloc(&block, 64, MEM_TYPE_DEVICE) || halMemFree(block)) wrong++;
    }
    return wrong;
}

/* No file can be opened any more: an error, or the end of the process. */
static int forbid_opening(unsigned action) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int confine(const char *how, const char *directory) {
    if (!strcmp(how, "user")) return setgroups(0, NULL) || setgid(65534) || setuid(65534);
    if (!strcmp(how, "root")) return chroot(directory) || chdir("/");
    if (!strcmp(how, "denied")) return forbid_opening(SECCOMP_RET_ERRNO | EPERM);
    if (!strcmp(how, "forbidden")) return forbid_opening(SECCOMP_RET_KILL_PROCESS);
    if (strcmp(how, "descriptors")) return 1;
    struct rlimit limit = {16, 16};
    if (setrlimit(RLIMIT_NOFILE, &limit)) return 1;
    while (open("/dev/null", O_RDONLY) >= 0) {}
    return errno != EMFILE;
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    int wrong = use_memory(1000);
    if (confine(arguments[1], arguments[2])) {
        perror("confine");
        return 3;
    }
    wrong += use_memory(100000);
    printf("%d wrong\n", wrong);
    return 0;
}
