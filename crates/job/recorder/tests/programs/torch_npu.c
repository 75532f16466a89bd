/* The part of torch_npu's library that knows streams. */
#include <stdlib.h>

struct stream {
    unsigned char device_type;
    signed char device_index;
    long id;
    char room[48];
};

static __thread long current;

void choose(long stream) { current = stream; }

struct stream _ZN7c10_npu19getCurrentNPUStreamEa(signed char device_index) {
#ifdef OF_ANOTHER_FORM
    abort();
#endif
    return (struct stream){20, device_index, current, {0}};
}

#ifndef OF_ANOTHER_FORM
void _ZN7c10_npu9NPUStreamD1Ev(void *stream) { (void)stream; }
#endif
