/* Loads two libraries that use ATB, each with the libatb of another ABI of the C++ library, and runs both at once. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "acl/acl.h"

struct job {
    const char *path;
    double sum;
};

static void *run(void *argument)
{
    struct job *job = argument;
    void *library = dlopen(job->path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        printf("%s\n", dlerror());
        exit(3);
    }
    double (*layers)(int, int) = (double (*)(int, int))dlsym(library, "run_layers");
    job->sum = layers(100, 2);
    return NULL;
}

int main(int count, char **arguments)
{
    struct job jobs[2] = {{arguments[1], 0}, {arguments[count > 2 ? 2 : 1], 0}};
    pthread_t threads[2];
    aclInit(NULL);
    for (int index = 0; index < 2; ++index) {
        pthread_create(&threads[index], NULL, run, &jobs[index]);
    }
    for (int index = 0; index < 2; ++index) {
        pthread_join(threads[index], NULL);
        printf("%.6f\n", jobs[index].sum);
    }
    return 0;
}
