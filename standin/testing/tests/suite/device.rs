//! Devices, contexts, registration of host memory and interposition.

use crate::{run, success};
use standin_truth::Kind;

#[test]
fn devices_are_counted_chosen_and_mapped() {
    let source = r#"
#include "acl/acl.h"
#include <stdio.h>
int main(void)
{
    uint32_t count = 0;
    int32_t device = -1;
    void *block = NULL;
    aclrtContext context = NULL;
    aclInit(NULL);
    aclrtGetDeviceCount(&count);
    int none = aclrtGetDevice(&device);
    int missing = aclrtSetDevice(2);
    int refused = aclrtMalloc(&block, 10, ACL_MEM_MALLOC_NORMAL_ONLY);
    aclrtSetDevice(1);
    aclrtGetDevice(&device);
    aclrtGetCurrentContext(&context);
    aclrtSetDevice(0);
    aclrtSetCurrentContext(context);
    aclrtMalloc(&block, 10, ACL_MEM_MALLOC_NORMAL_ONLY);
    aclrtFree(block);
    printf("%u %d %d %d %d %s %d", count, none, missing, refused, device, aclrtGetSocName(), aclInit(NULL));
    return 0;
}
"#;
    let variables = [("ASCEND_RT_VISIBLE_DEVICES", "5,3"), ("STANDIN_SOC", "Ascend910B3")];
    let (output, entries) = run("devices.c", source, &["ascendcl"], &variables);
    assert_eq!(success(&output), "2 107002 107001 107002 1 Ascend910B3 100002");
    let allocation = entries.iter().find(|entry| entry.record.kind == Kind::HalAlloc).expect("an allocation");
    assert_eq!((allocation.record.device, allocation.record.size_bytes), (3, 64));
}

#[test]
fn the_default_device_of_the_configuration_reaches_every_thread() {
    let source = r#"
#include "acl/acl.h"
#include <pthread.h>
#include <stdio.h>
static void *work(void *unused)
{
    int32_t device = -1;
    (void)unused;
    aclrtGetDevice(&device);
    printf("%d ", device);
    return NULL;
}
int main(void)
{
    pthread_t thread;
    FILE *file = fopen("acl.json", "w");
    fputs("{\"dump\":{}, \"defaultDevice\":{\"default_device\":\"3\"}}", file);
    fclose(file);
    int result = aclInit("acl.json");
    remove("acl.json");
    work(NULL);
    pthread_create(&thread, NULL, work, NULL);
    pthread_join(thread, NULL);
    printf("%d", result);
    return 0;
}
"#;
    let (output, _) = run("default.c", source, &["ascendcl"], &[]);
    assert_eq!(success(&output), "3 3 0");
}

#[test]
fn host_memory_is_registered_once() {
    let source = r#"
#include "acl/acl.h"
#include <stdio.h>
static char memory[4096];
int main(void)
{
    void *mapped = NULL;
    int a = aclrtHostRegisterV2(memory, sizeof(memory), ACL_HOST_REG_PINNED);
    int b = aclrtHostRegisterV2(memory, sizeof(memory), ACL_HOST_REG_PINNED);
    int c = aclrtHostUnregister(memory);
    int d = aclrtHostUnregister(memory);
    int e = aclrtHostRegister(memory, 100, ACL_HOST_REGISTER_MAPPED, &mapped);
    printf("%d %d %d %d %d %d", a, b, c, d, e, mapped == (void *)memory);
    return 0;
}
"#;
    let (output, entries) = run("register.c", source, &["ascendcl"], &[]);
    assert_eq!(success(&output), "0 107000 0 107000 0 1");
    assert_eq!(entries[0].record.flags, 0x1000_0000);
    assert_eq!(entries[2].record.size_bytes, 4096);
}

#[test]
fn a_hook_in_the_program_sees_calls_between_the_libraries() {
    let source = r#"
#include "acl/acl.h"
#include "ascend_hal.h"
#include <stdio.h>
static int seen;
drvError_t halMemAlloc(void **pointer, uint64_t size, uint64_t flag)
{
    ++seen;
    return halMemAllocInner(pointer, size, flag);
}
drvError_t halMemFree(void *pointer)
{
    ++seen;
    return halMemFreeInner(pointer);
}
int main(void)
{
    void *block = NULL;
    aclrtSetDevice(0);
    aclrtMalloc(&block, 1 << 20, ACL_MEM_MALLOC_HUGE_FIRST);
    aclrtFree(block);
    printf("%d", seen);
    return 0;
}
"#;
    let (output, entries) = run("hook.c", source, &["ascendcl", "ascend_hal"], &[]);
    assert_eq!(success(&output), "2");
    assert_eq!(entries.iter().filter(|entry| entry.library == "ascend_hal").count(), 2);
}
