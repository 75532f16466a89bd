//! Streams and events: work runs later, in order, and can be waited for.

use crate::{run, success};

const SOURCE: &str = r#"
#include "acl/acl.h"
#include <stdio.h>
#include <string.h>
extern aclError standinSubmit(aclrtStream stream, void (*function)(void *), void *argument);
static int gate, order[3], steps;
static void hold(void *unused)
{
    (void)unused;
    while (!__atomic_load_n(&gate, __ATOMIC_ACQUIRE)) { }
}
static void note(void *value) { order[steps++] = (int)(size_t)value; }
int main(void)
{
    aclrtStream first, second;
    aclrtEvent event;
    aclrtEventRecordedStatus recorded;
    aclrtStreamStatus busy;
    int32_t id = -1;
    float elapsed = -1;
    char text[4] = "abc", copy[4] = "";
    aclInit(NULL);
    aclrtSetDevice(0);
    aclrtCreateStream(&first);
    aclrtCreateStream(&second);
    aclrtCreateEvent(&event);
    standinSubmit(first, hold, NULL);
    standinSubmit(first, note, (void *)1);
    aclrtMemcpyAsync(copy, 4, text, 4, ACL_MEMCPY_HOST_TO_HOST, first);
    aclrtRecordEvent(event, first);
    aclrtStreamWaitEvent(second, event);
    standinSubmit(second, note, (void *)2);
    aclrtQueryEventStatus(event, &recorded);
    aclrtStreamQuery(second, &busy);
    printf("[%s] %d %d %d ", copy, recorded, busy, aclrtSynchronizeStreamWithTimeout(second, 20));
    __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
    aclrtSynchronizeDevice();
    standinSubmit(NULL, note, (void *)3);
    aclrtSynchronizeStream(NULL);
    aclrtQueryEventStatus(event, &recorded);
    aclrtStreamQuery(second, &busy);
    aclrtStreamGetId(second, &id);
    aclrtEventElapsedTime(&elapsed, event, event);
    printf("[%s] %d %d %d%d%d %d %.1f ", copy, recorded, busy, order[0], order[1], order[2], id, elapsed);
    printf("%d ", aclrtDestroyStream(first));
    printf("%d ", aclrtDestroyStream(first));
    printf("%d", aclrtDestroyEvent(event));
    return 0;
}
"#;

#[test]
fn work_waits_for_its_turn() {
    let (output, _) = run("streams.c", SOURCE, &["ascendcl", "runtime"], &[]);
    assert_eq!(success(&output), "[] 0 1 107019 [abc] 1 0 123 1 0.0 0 107003 0");
}

#[test]
fn launch_blocking_makes_every_call_synchronous() {
    let source = SOURCE.replace("static int gate,", "static int gate = 1,");
    let (output, _) = run("blocking.c", &source, &["ascendcl", "runtime"], &[("ASCEND_LAUNCH_BLOCKING", "1")]);
    assert_eq!(success(&output), "[abc] 1 0 0 [abc] 1 0 123 1 0.0 0 107003 0");
}
