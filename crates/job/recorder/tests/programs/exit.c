/* Memory calls while the process ends. usage: exit [quick] */
#include <ascend_hal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void use_memory(uint64_t size) {
    void *block = NULL;
    printf("%d", halMemAlloc(&block, size, MEM_TYPE_DEVICE));
    printf("%d\n", halMemFree(block));
}

static void at_exit(void) { use_memory(201); }
__attribute__((destructor)) static void at_unload(void) { use_memory(202); }

int main(int count, char **arguments) {
    use_memory(200);
    atexit(at_exit);
    if (count > 1 && !strcmp(arguments[1], "quick")) quick_exit(9);
    return 3;
}
