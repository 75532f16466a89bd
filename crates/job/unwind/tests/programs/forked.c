/* A child of a fork writes its own definitions. */
#include "probe.h"

#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    uint32_t defined, gone;
    for (int event = 0; event < 10; event++) check_stack();
    pid_t child = fork();
    if (child == 0) {
        probe_forget();
        for (int event = 0; event < 10; event++) check_stack();
        probe_modules(&defined, &gone);
        _exit(defined >= 2 && gone == 0 ? 0 : 3);
    }
    int status;
    waitpid(child, &status, 0);
    check_stack();
    puts("ok");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 4;
}
