//! Kernels: launched by name, executed later, reported to profilers, told by the card through its channel.

use standin_truth::{Entry, Kind};

use crate::{run, success};

const LIBRARIES: [&str; 4] = ["ascendcl", "runtime", "ascend_hal", "profapi"];

/// Listens to everything and prints what it hears.
const LISTENER: &str = r#"
#include "acl/acl.h"
#include "standin_kernels.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static unsigned char reports[64][64];
static int report_count;
__attribute__((unused)) static int take(uint32_t aging, const void *data, uint32_t length)
{
    (void)aging;
    if (length == 64 && report_count < 64) memcpy(reports[report_count++], data, 64);
    return 0;
}
static uint64_t hash(const char *text, size_t length) { return (uint64_t)text[0] << 8 | length; }
static int command(uint32_t type, uint32_t device, uint64_t switches)
{
    struct standin_command command = { switches, 0, 1, { device }, 0xffffffff, type, 0, "" };
    return profSetProfCommand(&command, sizeof command);
}
static uint32_t u32(const void *at) { uint32_t value; memcpy(&value, at, 4); return value; }
__attribute__((unused)) static uint64_t u64(const void *at) { uint64_t value; memcpy(&value, at, 8); return value; }
__attribute__((unused)) static uint16_t u16(const void *at) { uint16_t value; memcpy(&value, at, 2); return value; }
static int start_channel(uint32_t device)
{
    uint32_t configuration[11] = { 1 };
    struct prof_start_para para = { 0, 20, 1, configuration, 44 };
    return prof_drv_start(device, 50, &para);
}
static int launch(void *kernel, void *stream)
{
    struct standin_arguments arguments = { 0, 0 };
    return aclrtLaunchKernelWithHostArgs(kernel, 1, stream, 0, &arguments, sizeof arguments, 0, 0);
}
"#;

#[test]
fn a_launch_is_reported_inside_the_call_and_executed_later() {
    let source = r#"
int main(void)
{
    aclrtStream stream;
    struct standin_args_ex old = { 0 };
    struct standin_arguments arguments = { 0, 0 };
    unsigned char records[1024];
    aclInit(NULL);
    aclrtSetDevice(0);
    aclrtCreateStream(&stream);
    void *add = standinKernel("Add_0123_8", 0), *binary = standinKernel("Mul_4567", 66);
    launch(add, stream);
    aclrtSynchronizeStream(stream);
    printf("%d ", MsprofRegisterProfileCallback(4, take, 8));
    printf("%d %d ", MsprofRegisterProfileCallback(12, hash, 8), MsprofRegisterProfileCallback(3, take, 8));
    printf("%d ", MsprofRegisterProfileCallback(99, take, 8));
    printf("%d %d %d ", profSetProfCommand(&old, 8), command(1, 0, 0x4000800), start_channel(0));
    printf("%d\n", start_channel(0));
    launch(add, stream);
    old.args = &arguments;
    old.args_size = sizeof arguments;
    rtKernelLaunchWithHandleV2(binary, 3, 1, &old, 0, stream, 0);
    aclrtMemsetAsync(records, 8, 0, 8, stream);
    printf("%d reports\n", report_count);
    aclrtSynchronizeStream(stream);
    for (int index = 0; index < report_count; index++) {
        unsigned char *report = reports[index];
        printf("%u %u: %u %u %u type %u hash %llx\n", u16(report + 2), u32(report + 4), u16(report + 24),
               u16(report + 26), u32(report + 28), u32(report + 32), (unsigned long long)u64(report + 40));
    }
    struct prof_poll_info ready;
    int count = prof_channel_poll(&ready, 1, 1), bytes = prof_channel_read(0, 50, (char *)records, 1000);
    printf("%d channel %u, %d bytes, then %d\n", count, ready.channel, bytes, prof_channel_read(0, 50, (char *)records, 0));
    for (unsigned char *record = records; record < records + bytes; record += 64)
        printf("%u %u ", u32(record) & 63, u32(record) >> 10 & 63);
    report_count = 0;
    command(2, 0, 0x4000800);
    launch(add, stream);
    aclrtDestroyStream(stream);
    int stopped = prof_stop(0, 50);
    printf("\n%d reports, %d, %d", report_count, stopped, prof_channel_read(0, 50, (char *)records, 64));
    return 0;
}
"#;
    let (output, entries) = run("launch.c", &[LISTENER, source].concat(), &LIBRARIES, &[]);
    let expected = "0 0 0 -1 -1 0 0 4\n4 reports\n5000 804: 1 0 0 type 0 hash 0\n5000 802: 0 0 1 type 0 hash 410a\n\
                    5000 802: 0 0 2 type 66 hash 4d0a\n5000 802: 0 0 3 type 5 hash 0\n1 channel 50, 384 bytes, then 0\n\
                    0 0 1 0 0 0 1 0 0 11 1 11 \n0 reports, 0, -1";
    assert_eq!(success(&output), expected);
    let kernels = |kind| -> Vec<_> {
        let those = entries.iter().filter(|entry| entry.record.kind == kind);
        those.map(|entry| (entry.text.clone().unwrap_or_default(), entry.record.address, entry.record.result)).collect()
    };
    let names = ["Add_0123_8", "Add_0123_8", "Mul_4567_3", "Add_0123_8"];
    let tasks = [0, 1, 2, 4];
    let with_results = |results: [i32; 4]| -> Vec<_> {
        (0..4).map(|index| (names[index].to_owned(), tasks[index], results[index])).collect()
    };
    assert_eq!(kernels(Kind::KernelLaunch), with_results([0; 4]));
    assert_eq!(kernels(Kind::KernelStart), with_results([2, 0, 0, 0]));
    assert_eq!(kernels(Kind::KernelEnd), with_results([2, 0, 0, 0]));
    assert_times_make_sense(&entries, 50_001_000);
}

/// Launch, start and end follow each other on both clocks, which agree with each other.
fn assert_times_make_sense(entries: &[Entry], ticks_per_second: u64) {
    let kinds = [Kind::KernelLaunch, Kind::KernelStart, Kind::KernelEnd];
    let mut latest_end_ns = 0;
    let launches = entries.iter().filter(|entry| entry.record.kind == Kind::KernelLaunch);
    for launch in launches {
        let [launch, start, end] = kinds.map(|kind| {
            let same = |entry: &&Entry| entry.record.kind == kind && entry.record.address == launch.record.address;
            entries.iter().find(same).expect("a kernel that was executed").record
        });
        assert!(launch.time_ns <= start.time_ns && start.time_ns <= end.time_ns, "{launch:?} {start:?} {end:?}");
        assert!(latest_end_ns <= start.time_ns);
        latest_end_ns = end.time_ns;
        for moment in [start, end] {
            let ticks = moment.time_ns as u128 * u128::from(ticks_per_second) / 1_000_000_000;
            assert!((ticks as u64 + 1_000_000_000_000).abs_diff(moment.size_bytes) <= 1, "{moment:?}");
        }
    }
}

#[test]
fn an_older_release_has_less_and_a_newer_chip_has_shorter_records() {
    let source = r#"
int main(void)
{
    char records[4096];
    struct prof_poll_info ready;
    aclInit(NULL);
    aclrtSetDevice(1);
    MsprofRegisterProfileCallback(4, take, 8);
    MsprofRegisterProfileCallback(12, hash, 8);
    command(1, 1, 0x4000000);
    start_channel(1);
    launch(standinKernel("Add", 1), NULL);
    aclrtSynchronizeStream(NULL);
    printf("%d reports, the first %u, poll %x, ", report_count, u32(reports[0] + 4), prof_channel_poll(&ready, 1, 0));
    int bytes = prof_channel_read(1, 50, records, sizeof records);
    int64_t kilohertz = 0, absent = 0;
    int result = halGetDeviceInfo(1, 0, 25, &kilohertz);
    printf("%d bytes, %d %lld kHz, %x", bytes, result, (long long)kilohertz, halGetDeviceInfo(1, 0, 24, &absent));
    uint64_t counted = MsprofSysCycleTime();
    usleep(20000);
    counted = MsprofSysCycleTime() - counted;
    printf(", %lld, %s", (long long)absent, counted > 20000000 ? "nanoseconds" : counted > 19000 ? "ticks" : "nothing");
    return 0;
}
"#;
    let source = [LISTENER, source].concat();
    let (older, _) = run("older.c", &source, &LIBRARIES, &[("STANDIN_CANN", "8.0"), ("STANDIN_CLOCK_KHZ", "1000")]);
    assert_eq!(success(&older), "1 reports, the first 802, poll fffe, 128 bytes, 0 1500 kHz, fffe, 0, nanoseconds");
    let (newer, _) = run("newer.c", &source, &LIBRARIES, &[("STANDIN_SOC", "Ascend950")]);
    assert_eq!(success(&newer), "2 reports, the first 804, poll 1, 64 bytes, 0 50500 kHz, fffe, 0, nanoseconds");
    let (other, _) = run("host.c", &source, &LIBRARIES, &[("STANDIN_HOST_KHZ", "1000")]);
    assert_eq!(success(&other), "2 reports, the first 804, poll 1, 128 bytes, 0 50500 kHz, 0, 1000, ticks");
}

/// Nobody reads: the ring fills up, later records are dropped and counted. Ids wrap around, which is announced. A stream
/// that goes away has its last kernel reported again.
#[test]
fn rings_overflow_and_ids_wrap_around() {
    let source = r#"
static int flips, again, kernels;
static int count(uint32_t aging, const void *data, uint32_t length)
{
    (void)aging, (void)length;
    const unsigned char *report = data;
    if (u32(report + 4) == 808) again++;
    else if (u32(report + 4) == 802 && u32(report + 32) == 98) flips++;
    else if (u32(report + 4) == 802) kernels++;
    return 0;
}
int main(void)
{
    aclrtStream stream;
    static char records[1 << 20];
    aclInit(NULL);
    aclrtSetDevice(0);
    aclrtCreateStream(&stream);
    MsprofRegisterProfileCallback(4, count, 8);
    MsprofRegisterProfileCallback(12, hash, 8);
    command(1, 0, 0x4000100);
    start_channel(0);
    void *kernel = standinKernel("Add", 0);
    for (int index = 0; index < 65536 + 10; index++) launch(kernel, stream);
    aclrtSynchronizeStream(stream);
    int bytes = prof_channel_read(0, 50, records, sizeof records);
    printf("%d bytes, %llu dropped, ", bytes, (unsigned long long)standinDroppedRecords(0));
    aclrtDestroyStream(stream);
    printf("%d kernels, %d flip, %d again", kernels, flips, again);
    return 0;
}
"#;
    let source = [LISTENER, source].concat();
    let (output, entries) = run("overflow.c", &source, &LIBRARIES, &[("STANDIN_CHANNEL_BYTES", "64K")]);
    assert_eq!(success(&output), "65536 bytes, 130068 dropped, 65546 kernels, 1 flip, 1 again");
    let dropped = entries.iter().filter(|entry| entry.record.result == 1).count();
    assert_eq!(dropped, 130_068);
}

/// What a profiler that wants calls of the runtime hears about memory, and nobody else does.
#[test]
fn memory_of_the_runtime_is_reported_with_its_calls() {
    let source = r#"
int main(void)
{
    void *memory = NULL;
    aclInit(NULL);
    aclrtSetDevice(1);
    MsprofRegisterProfileCallback(4, take, 8);
    MsprofRegisterProfileCallback(12, hash, 8);
    command(1, 1, 0x4000000);
    aclrtMalloc(&memory, 4096, ACL_MEM_MALLOC_NORMAL_ONLY);
    aclrtFree(memory);
    printf("%d report; ", report_count);
    command(1, 1, 0x4000100);
    report_count = 0;
    aclrtMalloc(&memory, 4096, ACL_MEM_MALLOC_NORMAL_ONLY);
    aclrtFree(memory);
    for (int index = 0; index < report_count; index++) {
        unsigned char *report = reports[index];
        printf("%u: %s, %llu bytes, kind %u, %s, device %u; ", u32(report + 4),
               u64(report + 24) == (uint64_t)memory ? "the address" : "another", (unsigned long long)u64(report + 32),
               u32(report + 40), u16(report + 44) ? "free" : "malloc", u16(report + 46));
    }
    (void)start_channel, (void)launch;
    return 0;
}
"#;
    // With the 32 bytes that aclrtMalloc asks for besides.
    let (output, _) = run("memory_reports.c", &[LISTENER, source].concat(), &LIBRARIES, &[]);
    assert_eq!(
        success(&output),
        "1 report; 812: the address, 4128 bytes, kind 2, malloc, device 1; \
         812: the address, 0 bytes, kind 2, free, device 1; "
    );
}
