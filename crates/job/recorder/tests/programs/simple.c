/* Uses a little memory. usage: simple [<how often>] */
#include <ascend_hal.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **arguments) {
    int repetitions = count > 1 ? atoi(arguments[1]) : 10, wrong = 0;
    void *block;
    for (int i = 0; i < repetitions; i++) {
        errno = 22;
        if (halMemAlloc(&block, 64 + i % 64, MEM_TYPE_DEVICE) || halMemFree(block) || errno != 22) wrong++;
    }
    printf("wrong %d\n", wrong);
    fprintf(stderr, "the job's own words\n");
    return 4;
}
