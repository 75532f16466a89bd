//! Before recording begins a trace may reach its limit any number of times: what is alive is still known.

use std::collections::BTreeSet;
use std::process::Stdio;

use msmemscope_event::{AllocationInterface, Fact, LossReason, Pool};
use msmemscope_settings::{CollectMode, Recording};
use msmemscope_trace::Trace;

use crate::exact::{STRESS, driver_pool};
use crate::kill::{KILL, logged};
use crate::support::{Lab, RECORDER, library, lost, run};
use crate::truth;

/// A small trace in which only what is alive matters.
fn shadow_recording(lab: &Lab, limit_bytes: u64) -> Recording {
    let mut recording = lab.recording();
    recording.settings.collect_mode = CollectMode::Deferred;
    recording.settings.max_trace_size_bytes = Some(limit_bytes);
    recording
}

/// The blocks a trace says are alive at its end.
fn alive(trace: &Trace) -> BTreeSet<String> {
    let mut alive = BTreeSet::new();
    let mut records = trace.records();
    let name = |pool: Pool, interface: AllocationInterface, address: u64| {
        format!("{:?} {interface:?} {address:#x}", driver_pool(pool, interface))
    };
    while let Some(record) = records.next() {
        match record.fact {
            Fact::Allocation { properties, address, .. } => {
                alive.insert(name(properties.pool, properties.interface, address));
            }
            Fact::AllocationWithHandle { properties, handle, .. } => {
                alive.insert(format!("{:?} handle {handle}", properties.pool));
            }
            Fact::Free { properties, address } => {
                alive.remove(&name(properties.pool, properties.interface, address));
            }
            Fact::FreeByHandle { properties, handle } => {
                alive.remove(&format!("{:?} handle {handle}", properties.pool));
            }
            _ => {}
        }
    }
    alive
}

/// The log does not say which handles the tool gave to blocks of ATB, and knows ends of registrations that are not
/// recorded because they pin nothing.
fn can_be_compared(name: &str) -> bool {
    !name.starts_with("Atb") && !name.contains("HostRegister")
}

/// How many times each block began minus how often it ended, as the device's log tells it; only those that live.
fn alive_in_log(lab: &Lab, process: u32) -> BTreeSet<String> {
    let mut lives = std::collections::BTreeMap::<String, i64>::new();
    for line in truth::expected(&logged(lab), process).into_values().flatten() {
        let fields: Vec<&str> = line.split(' ').collect();
        match fields[..] {
            // allocation <pool> <device> <memory type> <page type> <interface> <module> <address> <size>
            ["allocation", pool, _, _, _, interface, _, address, _] => {
                let pool = if pool == "HostPinned" { "Hal" } else { pool };
                *lives.entry(format!("{pool} {interface} {address}")).or_default() += 1;
            }
            ["free", pool, interface, address] => {
                *lives.entry(format!("{pool} {interface} {address}")).or_default() -= 1;
            }
            _ => {}
        }
    }
    lives.into_iter().filter(|(name, count)| *count > 0 && can_be_compared(name)).map(|(name, _)| name).collect()
}

#[test]
fn what_is_alive_is_known_however_long_it_takes() {
    for threads in [1, 4] {
        let lab = Lab::new();
        let program = lab.compile("stress.c", STRESS, &["ascendcl", "ascend_hal", "ms_tools_ext"]);
        let mut command = lab.plain(&program);
        command.args([threads.to_string(), (700_000 / threads).to_string(), "5".to_owned()]);
        lab.record_with(&mut command, &[library(RECORDER)], &shadow_recording(&lab, 5 << 20));
        let output = run(&mut command);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        let trace = lab.trace();
        let completeness = trace.completeness();
        assert!(completeness.compactions > 1, "{threads} threads: {completeness:?}");
        assert!(completeness.file_bytes <= 5 << 20 && completeness.damage.is_empty(), "{completeness:?}");
        assert_eq!(lost(&trace, LossReason::SizeLimit), 0);
        let found: BTreeSet<String> = alive(&trace).into_iter().filter(|name| can_be_compared(name)).collect();
        let expected = alive_in_log(&lab, trace.process_id());
        let differences: Vec<_> = found.symmetric_difference(&expected).collect();
        assert!(differences.is_empty() && !found.is_empty(), "{threads} threads: {differences:?}");
    }
}

#[test]
fn killed_while_it_makes_room() {
    const THREADS: usize = 2;
    let lab = Lab::new();
    let program = lab.compile("kill.c", KILL, &["ascend_hal"]);
    // How soon the limit is reached depends on the machine: as long as it is not, the next run lasts longer.
    let mut microseconds = 60_000;
    let mut runs_that_made_room = 0;
    while runs_that_made_room < 10 {
        let mut command = lab.plain(&program);
        command.args([THREADS.to_string(), "kill".to_owned(), microseconds.to_string()]);
        lab.record_with(&mut command, &[library(RECORDER)], &shadow_recording(&lab, 2 << 20));
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("a run");
        assert!(!status.success());
        let Some(trace) = lab.traces().pop() else {
            // Killed before it had begun.
            microseconds += microseconds / 2;
            lab.clear();
            continue;
        };
        assert_eq!(trace.completeness().damage, []);
        assert_eq!(trace.completeness().losses, []);
        let made_room = trace.completeness().compactions > 0;
        runs_that_made_room += u32::from(made_room);
        microseconds += if made_room { 7_001 } else { microseconds / 2 };
        let (found, expected) = (alive(&trace), alive_in_log(&lab, trace.process_id()));
        let differences = found.symmetric_difference(&expected).count();
        // One call of each thread may be known to one of them only.
        assert!(differences <= THREADS, "{found:?} and {expected:?}");
        lab.clear();
    }
}
