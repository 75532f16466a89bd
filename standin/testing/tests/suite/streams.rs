//! Streams and events: work runs later, in order, and can be waited for.

use crate::{run, success};

/// Work for streams: one piece waits for a gate, others note their order.
const WORK: &str = r#"
#include "acl/acl.h"
#include <stdio.h>
#include <string.h>
extern aclError standinSubmit(aclrtStream stream, void (*function)(void *), void *argument);
static int gate, order[3], steps;
__attribute__((unused)) static void hold(void *unused)
{
    (void)unused;
    while (!__atomic_load_n(&gate, __ATOMIC_ACQUIRE)) { }
}
static void note(void *value) { order[steps++] = (int)(size_t)value; }
"#;

const IN_TURN: &str = r#"
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
    let (output, _) = run("streams.c", &[WORK, IN_TURN].concat(), &["ascendcl", "runtime"], &[]);
    assert_eq!(success(&output), "[] 0 1 107019 [abc] 1 0 123 1 0.0 0 107003 0");
}

#[test]
fn launch_blocking_makes_every_call_synchronous() {
    let source = [WORK, IN_TURN].concat().replace("static int gate,", "static int gate = 1,");
    let (output, _) = run("blocking.c", &source, &["ascendcl", "runtime"], &[("ASCEND_LAUNCH_BLOCKING", "1")]);
    assert_eq!(success(&output), "[abc] 1 0 0 [abc] 1 0 123 1 0.0 0 107003 0");
}

/// Queues of a framework race: one destroys an event that another is about to wait for.
#[test]
fn a_destroyed_event_can_still_be_waited_for() {
    let source = r#"
int main(void)
{
    aclrtStream first, second;
    aclrtEvent event, other;
    aclrtEventRecordedStatus recorded = 7;
    aclInit(NULL);
    aclrtSetDevice(0);
    aclrtCreateStream(&first);
    aclrtCreateStream(&second);
    aclrtCreateEvent(&event);
    standinSubmit(first, hold, NULL);
    standinSubmit(first, note, (void *)1);
    aclrtRecordEvent(event, first);
    printf("%d ", aclrtDestroyEvent(event));
    aclrtCreateEvent(&other);
    printf("%d %d ", other == event, aclrtStreamWaitEvent(second, event));
    standinSubmit(second, note, (void *)2);
    aclrtQueryEventStatus(event, &recorded);
    printf("%d ", recorded);
    __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
    printf("%d ", aclrtSynchronizeEvent(event));
    aclrtSynchronizeDevice();
    printf("%d%d ", order[0], order[1]);
    printf("%d %d ", aclrtRecordEvent(event, first), aclrtDestroyEvent(event));
    printf("%d", aclrtStreamWaitEvent(second, &gate));
    return 0;
}
"#;
    let (output, _) = run("destroyed.c", &[WORK, source].concat(), &["ascendcl", "runtime"], &[]);
    assert_eq!(success(&output), "0 0 0 0 0 12 107004 107004 107004");
}

/// A wait may be queued before the recording it is for, and an event that goes away keeps nobody.
#[test]
fn a_stream_waits_for_a_recording_to_come() {
    let source = r#"
int main(void)
{
    aclrtStream first, second;
    aclrtEvent event, abandoned;
    aclInit(NULL);
    aclrtSetDevice(0);
    aclrtCreateStream(&first);
    aclrtCreateStream(&second);
    aclrtCreateEvent(&event);
    aclrtCreateEvent(&abandoned);
    aclrtStreamWaitEvent(second, event);
    aclrtStreamWaitEvent(second, abandoned);
    standinSubmit(second, note, (void *)2);
    printf("%d ", aclrtSynchronizeStreamWithTimeout(second, 20));
    standinSubmit(first, note, (void *)1);
    aclrtRecordEvent(event, first);
    aclrtSynchronizeStream(first);
    printf("%d ", aclrtDestroyEvent(abandoned));
    aclrtSynchronizeDevice();
    printf("%d%d", order[0], order[1]);
    return 0;
}
"#;
    let (output, _) = run("early.c", &[WORK, source].concat(), &["ascendcl", "runtime"], &[]);
    assert_eq!(success(&output), "107019 0 12");
}
