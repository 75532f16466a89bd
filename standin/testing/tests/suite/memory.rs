//! Memory: addresses, flags, errors, capacity, virtual memory, many threads, several processes.

use crate::{addresses, run, success};
use standin_truth::Kind;
use std::collections::HashSet;

#[test]
fn an_allocation_goes_through_all_layers_and_back() {
    let source = r#"
#include "acl/acl.h"
#include <stdio.h>
#include <string.h>
int main(void)
{
    char text[6] = "";
    void *block = NULL, *pinned = NULL;
    size_t before = 0, during = 0, after = 0, total = 0;
    if (aclInit(NULL) || aclrtSetDevice(1)) return 1;
    aclrtGetMemInfo(ACL_HBM_MEM, &before, &total);
    if (aclrtMallocAlign32(&block, 20 << 20, ACL_MEM_MALLOC_HUGE_FIRST)) return 2;
    aclrtGetMemInfo(ACL_HBM_MEM, &during, &total);
    if (aclrtMallocHost(&pinned, 100)) return 3;
    memcpy(pinned, "hello", 6);
    if (aclrtMemcpy(block, 20 << 20, pinned, 6, ACL_MEMCPY_HOST_TO_DEVICE)) return 4;
    if (aclrtMemcpy(text, 6, block, 6, ACL_MEMCPY_DEVICE_TO_HOST)) return 5;
    if (aclrtFreeHost(pinned) || aclrtFree(block)) return 6;
    aclrtGetMemInfo(ACL_HBM_MEM, &after, &total);
    printf("%s %zu %zu %zu", text, before - during, before - after, total);
    return aclFinalize();
}
"#;
    let (output, entries) = run("layers.c", source, &["ascendcl"], &[("STANDIN_MEMORY_BYTES", "1G")]);
    assert_eq!(success(&output), format!("hello {} 0 {}", 20 << 20, 1 << 30));
    let hal: Vec<_> = entries.iter().filter(|entry| entry.library == "ascend_hal").collect();
    let kinds: Vec<_> = hal.iter().map(|entry| entry.record.kind).collect();
    assert_eq!(kinds, [Kind::HalAlloc, Kind::HalAlloc, Kind::HalFree, Kind::HalFree]);
    let device_block = hal[0].record;
    assert_eq!((device_block.device, device_block.size_bytes), (1, 20 << 20));
    assert_eq!((device_block.module(), device_block.page_type()), (33, 1));
    assert_eq!(device_block.address % (2 << 20), 0);
    let pinned_block = hal[1].record;
    assert_eq!((pinned_block.device, pinned_block.size_bytes, pinned_block.page_type()), (-1, 100, 0));
    assert_eq!(hal[2].record.address, pinned_block.address);
    assert_eq!((hal[3].record.address, hal[3].record.size_bytes), (device_block.address, device_block.size_bytes));
    let others: Vec<_> = entries.iter().filter(|entry| entry.library == "ascendcl").map(|e| e.record.kind).collect();
    assert_eq!(others, [Kind::AclInit, Kind::SetDevice, Kind::AclFinalize]);
}

#[test]
fn a_full_card_says_out_of_memory_and_recovers() {
    let source = r#"
#include "ascend_hal.h"
#include <stdio.h>
int main(void)
{
    void *first = NULL, *second = NULL, *third = NULL, *other = NULL;
    int a = halMemAlloc(&first, 600, MEM_TYPE_DEVICE);
    int b = halMemAlloc(&second, 401, MEM_TYPE_DEVICE);
    int c = halMemAlloc(&third, 400, MEM_TYPE_DEVICE | MEM_PAGE_HUGE);
    int d = halMemAlloc(&other, 1000, MEM_TYPE_SVM | 1);
    int e = halMemFree(first);
    int f = halMemAllocInner(&second, 600, MEM_TYPE_DVPP);
    printf("%d %d %d %d %d %d %d", a, b, c, d, e, f, second != NULL);
    return 0;
}
"#;
    let (output, entries) = run("full.c", source, &["ascend_hal"], &[("STANDIN_MEMORY_BYTES", "1000")]);
    assert_eq!(success(&output), "0 6 0 0 0 0 1");
    let failed: Vec<_> = entries.iter().filter(|entry| entry.record.result != 0).collect();
    assert_eq!(failed.len(), 1);
    assert_eq!((failed[0].record.result, failed[0].record.size_bytes, failed[0].record.address), (6, 401, 0));
}

#[test]
fn wrong_calls_get_the_errors_of_a_driver() {
    let source = r#"
#include "ascend_hal.h"
#include <stdio.h>
int main(void)
{
    void *block = NULL, *address = NULL;
    drv_mem_handle_t *handle = NULL;
    struct drv_mem_prop property = {1, 0, 33, 1, 0, 0}, nowhere = {1, 31, 33, 1, 0, 0};
    int local = 0;
    printf("%d ", halMemAlloc(&block, 0, MEM_TYPE_DEVICE));
    printf("%d ", halMemAlloc(NULL, 1, MEM_TYPE_DEVICE));
    printf("%d ", halMemAlloc(&block, 1, MEM_TYPE_DEVICE | 31));
    printf("%d ", halMemAlloc(&block, 1, UINT64_C(9) << 10));
    printf("%d ", halMemFree(&local));
    printf("%d ", halMemFree(NULL));
    printf("%d ", halMemAlloc(&block, 1, MEM_TYPE_DEVICE));
    printf("%d ", halMemFree(block));
    printf("%d ", halMemFree(block));
    printf("%d ", halMemCreate(&handle, 2 << 20, &nowhere, 0));
    printf("%d ", halMemCreate(&handle, 2 << 20, &property, 0));
    printf("%d ", halMemMap(&local, 2 << 20, 0, handle, 0));
    printf("%d ", halMemAddressReserve(&address, 4 << 20, 0, NULL, 0));
    printf("%d ", halMemMap(address, 2 << 20, 0, handle, 0));
    printf("%d ", halMemMap(address, 2 << 20, 0, handle, 0));
    printf("%d ", halMemAddressFree(address));
    printf("%d ", halMemRelease(handle));
    printf("%d ", halMemRelease(handle));
    printf("%d ", halMemUnmap(address));
    printf("%d ", halMemUnmap(address));
    printf("%d", halMemAddressFree(address));
    return 0;
}
"#;
    let (output, entries) = run("errors.c", source, &["ascend_hal"], &[("STANDIN_DEVICES", "2")]);
    assert_eq!(success(&output), "3 3 2 5 3 3 0 0 3 2 0 3 0 0 3 3 0 4 0 3 0");
    assert_eq!(entries.iter().filter(|entry| entry.record.result != 0).count(), 12);
}

#[test]
fn physical_memory_is_shared_between_mappings() {
    let source = r#"
#include "acl/acl.h"
#include <stdio.h>
#include <string.h>
int main(void)
{
    aclrtPhysicalMemProp property = {0, 0, ACL_HBM_MEM_HUGE, {0, ACL_MEM_LOCATION_TYPE_DEVICE}, 0};
    aclrtDrvMemHandle handle = NULL;
    char *first = NULL, *second = NULL;
    size_t before = 0, during = 0, after = 0, total = 0;
    aclInit(NULL);
    aclrtSetDevice(0);
    aclrtGetMemInfo(ACL_HBM_MEM, &before, &total);
    if (aclrtReserveMemAddress((void **)&first, (size_t)77 << 30, 0, NULL, 1)) return 1;
    if (aclrtReserveMemAddress((void **)&second, 4 << 20, 0, NULL, 1)) return 2;
    if (aclrtMallocPhysical(&handle, 4 << 20, &property, 0)) return 3;
    if (aclrtMapMem(first, 4 << 20, 0, handle, 0) || aclrtMapMem(second, 2 << 20, 2 << 20, handle, 0)) return 4;
    strcpy(first + (2 << 20), "seen twice");
    printf("%s ", second);
    aclrtFreePhysical(handle);
    aclrtGetMemInfo(ACL_HBM_MEM, &during, &total);
    if (aclrtUnmapMem(first) || aclrtUnmapMem(second)) return 5;
    aclrtGetMemInfo(ACL_HBM_MEM, &after, &total);
    printf("%zu %zu", before - during, before - after);
    return aclrtReleaseMemAddress(first) + aclrtReleaseMemAddress(second);
}
"#;
    let (output, entries) = run("virtual.c", source, &["ascendcl"], &[]);
    assert_eq!(success(&output), format!("seen twice {} 0", 4 << 20));
    let created = entries.iter().find(|entry| entry.record.kind == Kind::HalCreate).expect("a creation").record;
    assert_eq!((created.device, created.module(), created.page_type()), (0, 33, 1));
    assert_eq!(addresses(&entries, Kind::HalRelease), [created.address]);
}

#[test]
fn a_million_events_from_sixteen_threads_are_consistent() {
    let source = r#"
#include "ascend_hal.h"
#include <pthread.h>
#include <stdlib.h>
#define ROUNDS 31250
static void *work(void *seed_pointer)
{
    unsigned seed = (unsigned)(uintptr_t)seed_pointer;
    void *held[8] = {0};
    for (int i = 0; i < ROUNDS; ++i) {
        int slot = rand_r(&seed) % 8;
        if (held[slot] != NULL && halMemFree(held[slot])) abort();
        if (halMemAlloc(&held[slot], 512u + rand_r(&seed) % 100000, MEM_TYPE_DEVICE | rand_r(&seed) % 4)) abort();
    }
    for (int slot = 0; slot < 8; ++slot) {
        if (held[slot] != NULL && halMemFree(held[slot])) abort();
    }
    return NULL;
}
int main(void)
{
    pthread_t threads[16];
    for (uintptr_t i = 0; i < 16; ++i) pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    for (int i = 0; i < 16; ++i) pthread_join(threads[i], NULL);
    return 0;
}
"#;
    let (output, entries) = run("stress.c", source, &["ascend_hal"], &[]);
    success(&output);
    assert_eq!(entries.len(), 2 * 16 * 31250);
    let mut live = HashSet::new();
    for entry in &entries {
        let fits = match entry.record.kind {
            Kind::HalAlloc => live.insert(entry.record.address),
            _ => live.remove(&entry.record.address),
        };
        assert!(fits, "{entry:?} does not fit what came before");
    }
    assert!(live.is_empty());
    let reused: HashSet<_> = entries.iter().map(|entry| entry.record.address).collect();
    assert!(reused.len() < entries.len() / 4, "addresses are not reused");
    assert_eq!(entries.iter().map(|entry| entry.record.thread).collect::<HashSet<_>>().len(), 16);
}

#[test]
fn processes_share_a_card_and_a_dead_one_gives_its_memory_back() {
    let source = r#"
#include "acl/acl.h"
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void)
{
    int ready[2];
    char byte;
    void *block = NULL;
    if (pipe(ready)) return 1;
    pid_t child = fork();
    if (child == 0) {
        aclrtSetDevice(0);
        if (aclrtMallocAlign32(&block, 640, ACL_MEM_MALLOC_NORMAL_ONLY) == 0) (void)!write(ready[1], "x", 1);
        for (;;) pause();
    }
    if (read(ready[0], &byte, 1) != 1) return 2;
    size_t during = 0, after = 0, total = 0;
    aclrtSetDevice(0);
    aclrtGetMemInfo(ACL_HBM_MEM, &during, &total);
    int refused = aclrtMallocAlign32(&block, 640, ACL_MEM_MALLOC_NORMAL_ONLY);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    int granted = aclrtMallocAlign32(&block, 640, ACL_MEM_MALLOC_NORMAL_ONLY);
    aclrtGetMemInfo(ACL_HBM_MEM, &after, &total);
    printf("%zu %d %d %zu", during, refused, granted, after);
    return 0;
}
"#;
    let run_directory = crate::workspace();
    let path = run_directory.path().to_string_lossy().into_owned();
    let variables = [("STANDIN_RUN_DIR", path.as_str()), ("STANDIN_MEMORY_BYTES", "1000")];
    let (output, entries) = run("share.c", source, &["ascendcl"], &variables);
    assert_eq!(success(&output), "360 207001 0 360");
    assert_eq!(entries.iter().map(|entry| entry.process).collect::<HashSet<_>>().len(), 2);
}

#[test]
fn a_forked_child_starts_without_its_parents_memory() {
    let source = r#"
#include "ascend_hal.h"
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void)
{
    void *block = NULL, *own = NULL;
    int status = -1;
    halMemAlloc(&block, 4096, MEM_TYPE_DEVICE);
    if (fork() == 0) {
        int foreign = halMemFree(block);
        int allocated = halMemAlloc(&own, 4096, MEM_TYPE_DEVICE);
        _exit(foreign == 3 && allocated == 0 && halMemFree(own) == 0 ? 0 : 1);
    }
    wait(&status);
    printf("%d %d", status, halMemFree(block));
    return 0;
}
"#;
    let (output, entries) = run("fork.c", source, &["ascend_hal"], &[]);
    assert_eq!(success(&output), "0 0");
    let parent = entries[0].process;
    assert_eq!(entries.iter().filter(|entry| entry.process == parent).count(), 2);
    assert_eq!(entries.iter().filter(|entry| entry.process != parent).count(), 3);
}
